"""The bytes of model servers, replayed: the same events whole, byte by byte and at random cuts.

`captures/VENDOR/` holds chat completions, `captures/VENDOR/DIALECT/` the other APIs, both recorded with
`record_captures.py`. llama.cpp and the LiteLLM proxy before it are real servers with a real model. The cases
`mock_*` come from aimock, a mock of the vendors' APIs, made by its author after their documentation. The
cases `doc_*` are not recorded: they are written after the vendors' public documentation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.dialects import DIALECTS
from acpserver.llm.http import HttpProvider
from acpserver.llm.retry import Policy
from acpserver.llm.types import (
    Endpoint,
    Event,
    Finish,
    Message,
    ModelRequest,
    Opaque,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolCall,
    Usage,
)
from tests.fakes.llm_answers import raw
from tests.fakes.llm_server import FakeLlm

CAPTURES = Path(__file__).parent / "captures"
FILES = sorted(CAPTURES.rglob("*.http"))
ASKED = ModelRequest("m", "", (Message("user", (Text("hi"),)),))
PARIS = ("get_weather", {"city": "Paris"})
LONDON = ("get_weather", {"city": "London"})
WITHOUT_IDS = ("gemini", "ollama")

NOTE = 'quotes " and \\ and \n and é and 🎉'

# name: (finish reason, tool calls, has text, has thoughts, has usage); None where servers differ
FACTS = {
    "plain": ("stop", [], True, False, True),
    "no_usage": ("stop", [], True, False, False),
    "not_streamed": ("stop", [], True, False, True),
    "utf8": ("stop", [], True, False, True),
    "length": ("length", [], True, False, True),
    "tool_call": ("tool_calls", [PARIS], False, False, True),
    "tool_call_not_streamed": ("tool_calls", [PARIS], False, False, True),
    "parallel_tool_calls": ("tool_calls", [PARIS, LONDON], False, False, True),
    "tool_call_length": ("length", [("run_command", None)], False, False, True),
    "tool_result": ("stop", [], True, False, True),
    "think": ("stop", [], True, True, True),
    "think_tool_call": ("tool_calls", [PARIS], False, True, True),
    "hidden_think": ("stop", [], True, False, True),  # the proxy's Gemini format leaves thoughts out
    "hidden_think_tool_call": ("tool_calls", [PARIS], False, False, True),
    "mock_plain": ("stop", [], True, False, None),
    "mock_unicode": ("stop", [], True, False, None),
    "mock_length": ("length", [], True, False, None),
    "mock_refusal": ("refusal", [], True, False, None),
    "mock_tool_call": ("tool_calls", [("get_weather", {"city": "Paris", "note": NOTE})], False, False, None),
    "mock_parallel_tool_calls": ("tool_calls", [PARIS, LONDON], False, False, None),
    "mock_think": ("stop", [], True, True, None),
    "mock_think_tool_call": (
        "tool_calls",
        [("get_weather", {"city": "Paris", "unit": "celsius"})],
        True,
        True,
        None,
    ),
}
FACTS |= {
    "doc_deepseek_think_call": ("tool_calls", [PARIS], False, True, True),
    "doc_mistral_think": ("stop", [], True, True, True),
    "doc_openrouter_think_call": ("tool_calls", [PARIS], False, True, True),
    "doc_kimi_plain": ("stop", [], True, False, True),
    "doc_signed_think_call": ("tool_calls", [PARIS], None, True, True),
    "doc_pause": ("pause", [], True, False, True),
    "doc_encrypted_think_call": ("tool_calls", [PARIS], False, True, True),
}
DETAIL = {
    "type": "reasoning.text",
    "format": "anthropic-claude-v1",
    "index": 0,
    "text": "The city is Paris.",
    "signature": "c2lnbmVk",
}
# What they hold beside that: what goes back unchanged, and the usage.
KEPT: dict[str, tuple[list[dict], Usage]] = {
    "openai/doc_deepseek_think_call": (
        [{"reasoning_content": "The city is Paris."}],
        Usage(300, 40, 256, 12),
    ),
    "openai/doc_mistral_think": ([], Usage(20, 30)),
    "openai/doc_openrouter_think_call": (
        [{"reasoning_details": [DETAIL]}],
        Usage(300, 40, 100, 12, 150),
    ),
    "openai/doc_kimi_plain": ([], Usage(20, 5, 16)),
    "anthropic/doc_signed_think_call": (
        [
            {"type": "thinking", "thinking": "The city is Paris.", "signature": "c2lnbmVk"},
            {"type": "redacted_thinking", "data": "aGlkZGVu"},
        ],
        Usage(1_212, 60, 1_000, written_tokens=200),
    ),
    "anthropic/doc_pause": ([], Usage(12, 9)),
    "gemini/doc_signed_think_call": (
        [{"functionCall": {"id": "fc_1", "thoughtSignature": "c2lnbmVk"}}],  # joined with its call again
        Usage(50, 40, 20, 30),
    ),
    "openai-responses/doc_encrypted_think_call": (
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "The city is Paris."}],
                "encrypted_content": "c2VhbGVk",
            }
        ],
        Usage(300, 40, 100, 12, 150),
    ),
}
# What one server does differently: finish reason.
ODD = {
    "llamacpp/openai-responses/length": "stop",  # it says "completed" at the limit
    "aimock/ollama/mock_length": "stop",  # real ones give the reason "length"
    "aimock/ollama/mock_refusal": "stop",  # Ollama knows none
}
# name: (kind, status, words in the text)
ERRORS = {
    "error_too_long": ("context", 400, "exceeds the available context size"),
    "error_bad_json": ("request", 400, "parse error"),
    "mock_cut": ("stream", 0, "the connection was lost"),
    "mock_error_429": ("rate_limit", 429, "Rate limited"),
    "mock_error_529": ("server", 529, "Overloaded"),
    "mock_error_too_long": ("context", 400, "prompt is too long"),
    "mock_failed": ("server", 0, "no reason given"),
    "doc_vllm_too_long": ("context", 400, "maximum context length"),
    "doc_lmstudio_too_long": ("context", 0, "n_keep"),
    "doc_overloaded": ("server", 0, "Overloaded"),
}


def name_of(path: Path) -> str:
    """VENDOR/CASE or VENDOR/DIALECT/CASE."""
    return path.relative_to(CAPTURES).with_suffix("").as_posix()


def dialect_of(path: Path) -> str:
    return path.parent.name if path.parent.name in DIALECTS else "openai"


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server


def server_of(path: Path) -> str:
    """The server whose answer it is, where that has a name in the table of the dialect."""
    return next((name for name in ("deepseek", "mistral", "openrouter") if f"doc_{name}" in path.stem), "")


def replay(llm: FakeLlm, *pieces: bytes, dialect: str = "openai", server: str = "") -> list[Event]:
    """The events of a raw response that arrives in these pieces; neighbouring deltas are joined."""
    llm.use(dialect)
    llm.script(raw(*pieces))
    joined: list[Event] = []
    provider = HttpProvider(Endpoint(llm.base_url, dialect, server=server), Policy(attempts=1))
    for event in provider.stream(ASKED, CancelFlag()):
        last = joined[-1] if joined else None
        if isinstance(event, (TextDelta, ThoughtDelta)) and type(last) is type(event):
            joined[-1] = type(event)(last.text + event.text)  # type: ignore[union-attr]
        elif isinstance(event, ToolCall) and event.id.startswith("call_") and dialect in WITHOUT_IDS:
            joined.append(event._replace(id=""))  # ours, another one each time
        else:
            joined.append(event)
    return joined


def random_cuts(data: bytes, seed: int) -> list[bytes]:
    edges = sorted(random.Random(seed).sample(range(1, len(data)), 40))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


def test_every_capture_has_its_facts() -> None:
    assert {path.stem for path in FILES} == FACTS.keys() | ERRORS.keys()


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in FACTS], ids=name_of)
def test_an_answer_is_the_same_at_every_cut(llm: FakeLlm, path: Path) -> None:
    data, dialect, server = path.read_bytes(), dialect_of(path), server_of(path)
    whole = replay(llm, data, dialect=dialect, server=server)
    finish, calls, has_text, has_thoughts, has_usage = FACTS[path.stem]
    assert whole[-1] == Finish(ODD.get(name_of(path), finish))
    assert [(event.name, event.arguments) for event in whole if isinstance(event, ToolCall)] == calls
    if has_text is not None:
        assert any(isinstance(event, TextDelta) for event in whole) is has_text
    assert any(isinstance(event, ThoughtDelta) for event in whole) is has_thoughts
    if has_usage is not None:
        assert any(isinstance(event, Usage) and event.output_tokens > 0 for event in whole) is has_usage
    bytewise = (data[at : at + 1] for at in range(len(data)))
    assert replay(llm, *bytewise, dialect=dialect, server=server) == whole
    for seed in range(3):
        assert replay(llm, *random_cuts(data, seed), dialect=dialect, server=server) == whole


@pytest.mark.parametrize("name", KEPT)
def test_what_goes_back_and_what_it_counts(llm: FakeLlm, name: str) -> None:
    path = CAPTURES / "written" / f"{name}.http"
    events = replay(llm, path.read_bytes(), dialect=dialect_of(path), server=server_of(path))
    kept, usage = KEPT[name]
    assert [event.data for event in events if isinstance(event, Opaque)] == kept
    assert [event for event in events if isinstance(event, Usage)] == [usage]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_sample_says_where_it_is_from(path: Path) -> None:
    """None that was written by hand, or came from a mock, passes for a recording of a real server."""
    vendor = path.relative_to(CAPTURES).parts[0]
    head = path.read_bytes().partition(b"\r\n\r\n")[0]
    assert (b"X-Sample: written" in head) is (vendor == "written") is path.stem.startswith("doc_")
    assert (vendor == "aimock") is path.stem.startswith("mock_")
    assert f"`{vendor}`" in (CAPTURES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in ERRORS], ids=name_of)
def test_an_error_is_the_same_at_every_cut(llm: FakeLlm, path: Path) -> None:
    data = path.read_bytes()
    kind, status, words = ERRORS[path.stem]
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))], random_cuts(data, 1)):
        with pytest.raises(ProviderError, match=words) as caught:
            replay(llm, *pieces, dialect=dialect_of(path))
        assert (caught.value.kind, caught.value.status) == (kind, status)


def test_an_answer_that_is_cut_anywhere_is_never_taken_for_a_whole_one(llm: FakeLlm) -> None:
    data = (CAPTURES / "llamacpp" / "plain.http").read_bytes()
    finished = data.index(b"\n\n", data.index(b'"finish_reason":"stop"')) + 2
    for length in random.Random(7).sample(range(1, finished - 2), 40):
        with pytest.raises(ProviderError):
            replay(llm, data[:length])


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_capture_tells_nothing_about_the_machine_it_was_made_on(path: Path) -> None:
    assert not re.search(
        rb"/(tmp|root|home|Users|work|var)/|localhost|127\.0\.0\.1|[Bb]earer", path.read_bytes()
    )

"""Real bytes of real model servers, replayed: the same events whole, byte by byte and at random cuts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.http import HttpProvider
from acpserver.llm.retry import Policy
from acpserver.llm.types import (
    Endpoint,
    Event,
    Finish,
    Message,
    ModelRequest,
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

# name: (finish reason, tool calls, has text, has thoughts, has usage)
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
    "think": ("stop", [], True, True, True),
    "think_tool_call": ("tool_calls", [PARIS], False, True, True),
}
# name: (kind, status, words in the text)
ERRORS = {
    "error_too_long": ("context", 400, "exceeds the available context size"),
    "error_bad_json": ("request", 400, "parse error"),
}


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server


def replay(llm: FakeLlm, *pieces: bytes) -> list[Event]:
    """The events of a raw response that arrives in these pieces; neighbouring deltas are joined."""
    llm.script(raw(*pieces))
    joined: list[Event] = []
    for event in HttpProvider(Endpoint(llm.base_url), Policy(attempts=1)).stream(ASKED, CancelFlag()):
        last = joined[-1] if joined else None
        if isinstance(event, (TextDelta, ThoughtDelta)) and type(last) is type(event):
            joined[-1] = type(event)(last.text + event.text)  # type: ignore[union-attr]
        else:
            joined.append(event)
    return joined


def random_cuts(data: bytes, seed: int) -> list[bytes]:
    edges = sorted(random.Random(seed).sample(range(1, len(data)), 40))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


def test_every_capture_has_its_facts() -> None:
    assert {path.stem for path in FILES} == FACTS.keys() | ERRORS.keys()


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in FACTS], ids=lambda path: path.stem)
def test_an_answer_is_the_same_at_every_cut(llm: FakeLlm, path: Path) -> None:
    data = path.read_bytes()
    whole = replay(llm, data)
    finish, calls, has_text, has_thoughts, has_usage = FACTS[path.stem]
    assert whole[-1] == Finish(finish)
    assert [(event.name, event.arguments) for event in whole if isinstance(event, ToolCall)] == calls
    assert any(isinstance(event, TextDelta) for event in whole) is has_text
    assert any(isinstance(event, ThoughtDelta) for event in whole) is has_thoughts
    assert any(isinstance(event, Usage) and event.output_tokens > 0 for event in whole) is has_usage
    assert replay(llm, *(data[at : at + 1] for at in range(len(data)))) == whole
    for seed in range(3):
        assert replay(llm, *random_cuts(data, seed)) == whole


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in ERRORS], ids=lambda path: path.stem)
def test_an_error_is_the_same_at_every_cut(llm: FakeLlm, path: Path) -> None:
    data = path.read_bytes()
    kind, status, words = ERRORS[path.stem]
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))], random_cuts(data, 1)):
        with pytest.raises(ProviderError, match=words) as caught:
            replay(llm, *pieces)
        assert (caught.value.kind, caught.value.status) == (kind, status)


def test_an_answer_that_is_cut_anywhere_is_never_taken_for_a_whole_one(llm: FakeLlm) -> None:
    data = (CAPTURES / "llamacpp" / "plain.http").read_bytes()
    finished = data.index(b"\n\n", data.index(b'"finish_reason":"stop"')) + 2
    for length in random.Random(7).sample(range(1, finished - 2), 40):
        with pytest.raises(ProviderError):
            replay(llm, data[:length])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_capture_tells_nothing_about_the_machine_it_was_made_on(path: Path) -> None:
    assert not re.search(
        rb"/(tmp|root|home|Users|work|var)/|localhost|127\.0\.0\.1|[Bb]earer", path.read_bytes()
    )

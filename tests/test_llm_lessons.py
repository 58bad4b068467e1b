"""What a refusal teaches: the same request in another form, at once, and remembered for the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

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
    Opaque,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Waiting,
)
from acpserver.llm.verdicts import DROP_UNBOUND, NO_REASONING, OTHER_LIMIT, lessons
from tests.fakes.anthropic_binding import BETA, ELSEWHERE, UNKNOWN, Binding
from tests.fakes.llm_answers import Answer, Reply, error, text, thought, tool_call
from tests.fakes.llm_server import FakeLlm, Request

ONCE = Policy(attempts=1)
HI = Message("user", (Text("hi"),))
ASKED = ModelRequest("m", "", (HI,), max_tokens=9)
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server
    assert server.violations == []


def ask(asked: HttpProvider, request: ModelRequest) -> list[Event]:
    return list(asked.stream(request, CancelFlag()))


def only(member: str, words: object) -> Callable[[Request], Answer | Reply]:
    """A server that takes one of the two members and refuses the other with these words."""

    def answer(request: Request) -> Answer | Reply:
        return text("ok") if member in request.body else error(400, words)  # type: ignore[arg-type]

    return answer


def limits(llm: FakeLlm) -> list[str]:
    return [key for request in llm.requests for key in request.body if key.endswith("_tokens")]


OPENAI = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)
PYDANTIC = {
    "type": "extra_forbidden",
    "loc": ["body", "max_completion_tokens"],
    "msg": "Extra inputs are not permitted",
}
BOUND = (DROP_UNBOUND, NO_REASONING)
SEALED: dict[str, dict] = {
    "openai-responses": {
        "error": {
            "message": "The encrypted content gAAA...DQ== could not be verified.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_encrypted_content",
        }
    },
    "gemini": {
        "error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}
    },
}
SEALED["openai"] = {
    "error": {
        "message": "Provider returned error",
        "code": 400,
        "metadata": {"raw": json.dumps(SEALED["gemini"]), "provider_name": "Google AI Studio"},
    }
}
"""What OpenAI and Gemini say, and OpenRouter of what stands behind it."""


def test_a_server_that_knows_only_the_newer_limit(llm: FakeLlm) -> None:
    refusal = {"error": {"message": OPENAI, "code": "unsupported_parameter"}}
    asked = HttpProvider(Endpoint(llm.base_url), ONCE)
    llm.script(*[only("max_completion_tokens", refusal)] * 3)
    found = ask(asked, ASKED)
    assert found[0] == TextDelta("ok") and not any(isinstance(event, Waiting) for event in found)
    assert limits(llm) == ["max_tokens", "max_completion_tokens"]
    ask(asked, ASKED)
    assert limits(llm)[2:] == ["max_completion_tokens"]


@pytest.mark.parametrize(
    "refusal", [{"detail": [PYDANTIC]}, {"object": "error", "message": {"detail": [PYDANTIC]}}]
)
def test_a_server_that_knows_only_the_older_limit(llm: FakeLlm, refusal: object) -> None:
    llm.script(*[only("max_tokens", refusal)] * 2)
    assert ask(HttpProvider(Endpoint(llm.base_url, server="openai"), ONCE), ASKED)[-1] == Finish("stop")
    assert limits(llm) == ["max_completion_tokens", "max_tokens"]


def test_what_one_model_taught_is_not_held_against_another(llm: FakeLlm) -> None:
    asked = HttpProvider(Endpoint(llm.base_url), ONCE)
    llm.script(*[only("max_completion_tokens", {"error": OPENAI})] * 2, only("max_tokens", {"error": "?"}))
    ask(asked, ASKED)
    ask(asked, ASKED._replace(model="other"))
    assert limits(llm) == ["max_tokens", "max_completion_tokens", "max_tokens"]


def test_a_server_that_has_changed_its_mind_is_believed_again(llm: FakeLlm) -> None:
    """A gateway may send the same name to another kind of server tomorrow."""
    asked = HttpProvider(Endpoint(llm.base_url), ONCE)
    llm.script(*[only("max_completion_tokens", {"error": OPENAI})] * 2)
    ask(asked, ASKED)
    llm.script(*[only("max_tokens", {"detail": [PYDANTIC]})] * 3)
    ask(asked, ASKED)
    ask(asked, ASKED)
    older, newer = "max_tokens", "max_completion_tokens"
    assert limits(llm) == [older, newer, newer, older, older]


def test_a_server_that_takes_neither_is_asked_twice(llm: FakeLlm) -> None:
    llm.script(*[error(400, {"error": OPENAI})] * 2)
    with pytest.raises(ProviderError, match="Unsupported parameter"):
        ask(HttpProvider(Endpoint(llm.base_url), Policy(attempts=3)), ASKED)
    assert len(llm.requests) == 2


def test_a_request_that_has_no_other_form_is_asked_once(llm: FakeLlm) -> None:
    llm.script(error(400, {"error": OPENAI}))
    with pytest.raises(ProviderError):
        ask(HttpProvider(Endpoint(llm.base_url), ONCE), ASKED._replace(max_tokens=None))
    assert len(llm.requests) == 1


@pytest.mark.parametrize(
    ("dialect", "status", "facts", "learned"),
    [
        ("openai", 400, OPENAI, (OTHER_LIMIT,)),
        ("openai", 422, str(PYDANTIC), (OTHER_LIMIT,)),
        ("openai", 400, "Unrecognized request argument supplied: max_completion_tokens", (OTHER_LIMIT,)),
        ("openai", 400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", ()),
        ("openai", 400, "max_tokens is too large: 99999. Ask for 4096 instead.", ()),
        ("openai", 400, "max_tokens is deprecated, use max_completion_tokens instead", (OTHER_LIMIT,)),
        ("openai", 500, OPENAI, ()),
        ("openai-responses", 400, OPENAI, ()),
        ("anthropic", 400, ELSEWHERE.format(1, 0), BOUND),
        ("anthropic", 400, "messages.1.content.0: Invalid `signature` in `thinking` block", BOUND),
        ("anthropic", 400, "messages.1.content.0.thinking.signature: Field required", BOUND),
        ("anthropic", 400, UNKNOWN, BOUND),
        ("anthropic", 400, "max_tokens: 99999 > 64000", ()),
        ("openai", 400, ELSEWHERE.format(1, 0), (NO_REASONING,)),
        ("openai-responses", 0, "invalid_encrypted_content", (NO_REASONING,)),
        ("gemini", 400, "Unable to submit request because Thought signature is not valid", (NO_REASONING,)),
    ],
)
def test_what_is_learned_from_what_is_said(
    dialect: str, status: int, facts: str, learned: tuple[str, ...]
) -> None:
    assert lessons(dialect, status, facts) == learned


# Thinking that is bound to what stands before it, at a gateway


@pytest.fixture
def gateway() -> Iterator[FakeLlm]:
    with FakeLlm(dialect="anthropic") as server:
        yield server
    assert server.violations == []


CLAUDE = ModelRequest("claude-sonnet-5-5", "be brief", (HI,), (LOOK,))


def with_result(request: ModelRequest, events: list[Event]) -> ModelRequest:
    """The request that follows an answer with a call."""
    parts = tuple(event for event in events if isinstance(event, (Opaque, ToolCall)))
    results = tuple(ToolResult(part.id, part.name, "r") for part in parts if isinstance(part, ToolCall))
    more = (Message("assistant", parts), Message("tool", results))
    return request._replace(messages=(*request.messages, *more))


def kinds(request: Request) -> list[str]:
    """What the first answer of the history is made of."""
    return [block["type"] for block in request.messages[1]["content"]]


def test_bound_thinking_goes_back_unchanged_through_a_gateway(gateway: FakeLlm) -> None:
    binding = Binding()
    asked = HttpProvider(Endpoint(gateway.base_url, "anthropic"), ONCE)
    request = CLAUDE
    for number in range(3):
        gateway.script(binding(thought("hm") + tool_call("look", {"n": number}, f"id{number}")))
        request = with_result(request, ask(asked, request))
    gateway.script(binding(text("done")))
    ask(asked, request)
    assert (len(gateway.requests), binding.refused, binding.dropped) == (4, [], 0)
    assert kinds(gateway.requests[3]) == ["thinking", "tool_use"]
    assert [request.headers.get("anthropic-beta") for request in gateway.requests] == [None] * 4


@pytest.mark.parametrize(
    ("controls", "refusals", "dropped", "sent"),
    [
        ("known", 1, 1, ["thinking", "tool_use"]),
        ("refused", 2, 0, ["tool_use"]),
        ("removed", 2, 0, ["tool_use"]),
    ],
)
def test_a_conversation_with_other_tools_goes_on_at_every_gateway(
    gateway: FakeLlm, controls: str, refusals: int, dropped: int, sent: list[str]
) -> None:
    binding = Binding(controls)
    asked = HttpProvider(Endpoint(gateway.base_url, "anthropic"), ONCE)
    gateway.script(binding(thought("hm") + tool_call("look", {}, "a")))
    changed = with_result(CLAUDE, ask(asked, CLAUDE))._replace(tools=(LOOK, LOOK._replace(name="other")))
    gateway.script(*[binding(text("done"))] * 3)
    assert ask(asked, changed)[-1] == Finish("stop")
    assert (len(binding.refused), binding.dropped) == (refusals, dropped)
    last = gateway.requests[-1]
    assert kinds(last) == sent
    assert last.headers.get("anthropic-beta") == (BETA if controls == "known" else None)


def test_another_conversation_keeps_its_thinking(gateway: FakeLlm) -> None:
    """That nothing may go back is learned for one conversation only."""
    binding = Binding("removed")
    asked = HttpProvider(Endpoint(gateway.base_url, "anthropic"), ONCE)
    gateway.script(*[binding(thought("hm") + tool_call("look", {}, "a"))] * 4)
    whole = with_result(CLAUDE, ask(asked, CLAUDE))
    ask(asked, whole._replace(tools=()))
    gateway.script(binding(text("done")))
    ask(asked, whole)
    assert [kinds(request) for request in gateway.requests[3:]] == [["tool_use"], ["thinking", "tool_use"]]
    assert BETA not in str(gateway.requests[4].headers) and len(binding.refused) == 2


@pytest.mark.parametrize(
    ("dialect", "model", "seal"),
    [
        ("openai-responses", "gpt-5.5", b'encrypted_content":'),
        ("gemini", "gemini-3-pro", b"=="),
        ("openai", "x/y", b"reasoning_content"),
    ],
)
def test_a_conversation_whose_reasoning_another_key_has_sealed_goes_on(
    dialect: str, model: str, seal: bytes
) -> None:
    with FakeLlm(dialect=dialect) as llm:
        asked = HttpProvider(Endpoint(llm.base_url, dialect, server="llama.cpp"), ONCE)
        first = CLAUDE._replace(model=model)
        llm.script(thought("hm") + tool_call("look", {}, "a"))
        whole = with_result(first, ask(asked, first))

        refusal = error(400, SEALED[dialect])

        def answer(request: Request) -> Answer | Reply:
            is_sealed = seal in request.raw_body
            return refusal if is_sealed else text("done")

        llm.script(*[answer] * 4)
        for _ in range(2):  # it is not learned for other conversations
            assert ask(asked, whole)[-1] == Finish("stop")
        assert [seal in request.raw_body for request in llm.requests[1:]] == [True, False, True, False]
        llm.script(refusal)
        with pytest.raises(ProviderError):
            ask(asked, first)
        assert len(llm.requests) == 6 and llm.violations == []

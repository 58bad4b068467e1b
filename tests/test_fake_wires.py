"""The rules of the fake model server, broken one by one: what no real server takes, it refuses."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest

from acpserver.llm.dialects import DIALECTS
from acpserver.llm.types import (
    Endpoint,
    Message,
    ModelRequest,
    Opaque,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from acpserver.llm.wire import origin
from tests.fakes.gemini_rules import call_signature
from tests.fakes.signing import sign
from tests.fakes.wires import WIRES

MODELS = {
    "openai": "m",
    "openai-responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "ollama": "m",
}
KEPT: dict[str, dict] = {
    "openai-responses": {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": sign("reasoning", "hm"),
    },
    "anthropic": {"type": "thinking", "thinking": "hm", "signature": sign("thinking", "hm")},
    "gemini": {"functionCall": {"thoughtSignature": call_signature("look", {"n": 1})}},
}


def body_of(dialect: str) -> dict:
    """A request with everything in it: reasoning, two calls, their results, tools and limits."""
    endpoint, model = Endpoint("http://host/v1", dialect), MODELS[dialect]
    calls = (ToolCall("a", "look", {"n": 1}), ToolCall("b", "look", {"n": 2}))
    kept = [Opaque(origin(endpoint, model), KEPT[dialect])] if dialect in KEPT else []
    history = (
        Message("user", (Text("hi"),)),
        Message("assistant", (Thought("hm"), *kept, *calls)),
        Message("tool", tuple(ToolResult(call.id, "look", "r") for call in calls)),
    )
    tools = (ToolSpec("look", "Look.", {"type": "object", "properties": {}}),)
    asked = ModelRequest(model, "be brief", history, tools, 20_000, "high")
    body: dict = json.loads(DIALECTS[dialect].chat(endpoint, asked).body)
    return body


def without(*path: object) -> Callable[[dict], None]:
    """Take out the member or item at the end of the path."""

    def change(body: dict) -> None:
        place: object = body
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        del place[path[-1]]  # type: ignore[attr-defined]

    return change


def put(value: object, *path: object) -> Callable[[dict], None]:
    """Put a value at the end of the path."""

    def change(body: dict) -> None:
        place: object = body
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        place[path[-1]] = value  # type: ignore[index]

    return change


BREAKS: dict[str, list[Callable[[dict], None]]] = {
    "openai": [
        put(1, "unknown"),
        without("model"),
        without("messages", -1),
        put("wizard", "messages", 1, "role"),
        put("a", "messages", 2, "tool_calls", 1, "id"),
        put("{", "messages", 2, "tool_calls", 0, "function", "arguments"),
        put([], "tools"),
    ],
    "openai-responses": [
        put(1, "messages"),
        put(True, "store"),
        put([], "input"),
        without("input", -1),
        put("a", "input", 3, "call_id"),
        put("other", "input", 1, "encrypted_content"),
        put("changed", "input", 1, "summary", 0, "text"),
        without("input", 1, "id"),
        put("output_text", "input", 0, "content", 0, "type"),
        put([], "input", 0, "content"),
        put({"name": "look"}, "tools", 0, "function"),
    ],
    "anthropic": [
        without("max_tokens"),
        put(1, "unknown"),
        put("changed", "messages", 1, "content", 0, "thinking"),
        put("other", "messages", 1, "content", 0, "signature"),
        without("messages", 1, "content", 0),
        without("messages", 2, "content", 0),
        put("assistant", "messages", 0, "role"),
        put(" ", "messages", 0, "content", 0, "text"),
        put("a.b", "messages", 1, "content", 1, "id"),
        put("x", "tools", 0, "parameters"),
        put(20_000, "thinking", "budget_tokens"),
        put([{"type": "text", "text": "x", "cache_control": {}} for _ in range(5)], "system"),
    ],
    "gemini": [
        put(1, "model"),
        put("user", "contents", 1, "role"),
        without("contents", 1, "parts", 0, "thoughtSignature"),
        put("other", "contents", 1, "parts", 0, "thoughtSignature"),
        without("contents", 2, "parts", 0),
        put("text", "contents", 2, "parts", 0, "functionResponse", "response"),
        put("own", "contents", 2, "parts", 0, "functionResponse", "id"),
        put({"text": ""}, "contents", 0, "parts", 0),
        put({}, "tools", 0, "functionDeclarations", 0, "parameters"),
        put(5, "generationConfig", "thinkingConfig", "thinkingBudget"),
    ],
    "ollama": [
        put(9, "max_tokens"),
        without("model"),
        put("{}", "messages", 2, "tool_calls", 0, "function", "arguments"),
        without("messages", 3, "tool_name"),
        without("messages", -1),
        put("x", "messages", 2, "tool_call_id"),
        put(9, "options", "unknown"),
        put("much", "think"),
    ],
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_request_keeps_the_rules(dialect: str) -> None:
    assert WIRES[dialect].violations(body_of(dialect), MODELS[dialect]) == []


@pytest.mark.parametrize(
    ("dialect", "number"),
    [(name, number) for name, breaks in BREAKS.items() for number in range(len(breaks))],
)
def test_a_broken_rule_is_noticed(dialect: str, number: int) -> None:
    body = copy.deepcopy(body_of(dialect))
    BREAKS[dialect][number](body)
    assert WIRES[dialect].violations(body, MODELS[dialect]) != []


def test_every_dialect_has_its_wire() -> None:
    assert WIRES.keys() == DIALECTS.keys() == BREAKS.keys()

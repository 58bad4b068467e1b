"""The OpenAI Responses dialect: what it asks, and what it makes of answers. After OpenAI's documentation."""

from __future__ import annotations

import json

import pytest

from acpserver.errors import ProviderError
from acpserver.llm.faults import Faults
from acpserver.llm.responses import Responses
from acpserver.llm.sse import Item
from acpserver.llm.types import (
    Endpoint,
    Event,
    Finish,
    Image,
    Message,
    ModelRequest,
    Opaque,
    Text,
    TextDelta,
    Thought,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from acpserver.llm.wire import origin
from tests.fakes.responses_rules import violations
from tests.fakes.signing import sign

ENDPOINT = Endpoint("https://host/v1", "openai-responses", "sk-key")
ME = origin(ENDPOINT, "gpt-5")
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": sign("reasoning", "hm"),
}


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def body_of(*messages: Message, **more: object) -> dict:
    asked = ModelRequest("gpt-5", "", messages)._replace(**more)  # type: ignore[arg-type]
    body = json.loads(Responses().chat(ENDPOINT, asked).body)
    assert violations(body) == []
    return body


def parse(*values: dict) -> list[Event]:
    one = Responses().parser(ENDPOINT, ModelRequest("gpt-5", "", ()), Faults(ENDPOINT))
    items = [Item(json.dumps(value).encode(), str(value.get("type"))) for value in values]
    found = [event for item in items for event in one.feed([item])]
    return [*found, *one.end()]


def completed(*output: dict, **more: object) -> dict:
    return {"type": "response.completed", "response": {"status": "completed", "output": list(output), **more}}


def test_a_whole_request() -> None:
    message = Message("user", (Text("what?"), Image("image/png", "AAAA")))
    body = body_of(message, system="be brief", tools=(TOOL,), max_tokens=9, images=True, effort="low")
    assert body["instructions"] == "be brief" and body["max_output_tokens"] == 9
    assert body["store"] is False and body["include"] == ["reasoning.encrypted_content"]
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "what?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    ]
    assert body["tools"][0]["name"] == "look"


def test_models_that_do_not_reason_are_not_asked_for_it() -> None:
    body = body_of(user("x"), model="gpt-4o")
    assert "include" not in body and "reasoning" not in body
    for model in ("o3", "gpt-5-mini", "openai/gpt-5", "codex-mini"):
        assert "include" in body_of(user("x"), model=model)


def test_reasoning_goes_back_unchanged_before_its_call_and_to_the_same_model_only() -> None:
    parts = (Thought("hm"), Opaque(ME, REASONING), Text("I look"), ToolCall("a:b", "look", {"n": 1}))
    history = (user("x"), Message("assistant", parts), Message("tool", (ToolResult("a:b", "look", "r"),)))
    items = body_of(*history)["input"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert items[1] == REASONING
    assert items[3]["call_id"] == items[4]["call_id"] != "a:b"
    assert "reasoning" not in [item["type"] for item in body_of(*history, model="gpt-6")["input"]]


def test_events_become_ours() -> None:
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"n":1}',
    }
    said = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi"}]}
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    found = parse(
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_item.added", "item": {"type": "reasoning", "id": "rs_1"}},
        {"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "summary_index": 0},
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "delta": "h"},
        {"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "delta": "m"},
        {"type": "response.output_item.done", "item": {**REASONING, "status": "completed"}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hi"},
        {"type": "response.output_item.done", "item": said},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"n":1}'},
        {"type": "response.output_item.done", "item": call},
        completed(REASONING, said, call, usage=usage),
    )
    assert found == [
        ThoughtDelta("h"),
        ThoughtDelta("\n\n"),
        ThoughtDelta("m"),
        Opaque(ME, REASONING),
        TextDelta("Hi"),
        ToolCall("call_1", "look", {"n": 1}, '{"n":1}'),
        Usage(10, 5, 7, 3, 2),
        Finish("tool_calls"),
    ]


def test_what_had_no_event_of_its_own_is_taken_from_the_end() -> None:
    said = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hi"}]}
    refused = {"type": "message", "id": "n", "content": [{"type": "refusal", "refusal": " no"}]}
    found = parse(completed(REASONING, said, refused))
    assert found == [
        ThoughtDelta("hm"),
        Opaque(ME, REASONING),
        TextDelta("Hi no"),
        Finish("refusal"),
    ]


@pytest.mark.parametrize("ending", ["deltas", "done"])
def test_a_refusal_is_shown_once_and_ends_as_one(ending: str) -> None:
    item = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I will not"}]}
    told = [{"type": "response.refusal.delta", "item_id": "m", "delta": text} for text in ("I ", "will not")]
    done = {"type": "response.output_item.done", "item": item}
    found = parse(*(told if ending == "deltas" else [done]), completed(item))
    assert "".join(event.text for event in found if isinstance(event, TextDelta)) == "I will not"
    assert found[-1] == Finish("refusal")


@pytest.mark.parametrize(
    ("why", "finish"), [("max_output_tokens", "length"), ("content_filter", "refusal"), ("", "length")]
)
def test_incomplete_answers(why: str, finish: str) -> None:
    response = {"status": "incomplete", "output": [], "incomplete_details": {"reason": why} if why else None}
    assert parse({"type": "response.incomplete", "response": response}) == [Finish(finish)]


@pytest.mark.parametrize(
    "value",
    [
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "sorry"}},
        },
        {"type": "error", "code": "server_error", "message": "sorry"},
        {"type": "error", "error": {"code": "server_error", "message": "sorry"}},
    ],
)
def test_failures(value: dict) -> None:
    with pytest.raises(ProviderError, match='"sorry"') as caught:
        parse(value)
    assert (caught.value.kind, caught.value.retryable) == ("server", True)


def test_a_stream_that_ends_too_early() -> None:
    with pytest.raises(ProviderError, match="broke off"):
        parse({"type": "response.output_text.delta", "item_id": "m", "delta": "Hi"})

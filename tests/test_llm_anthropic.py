"""The Anthropic dialect: what it asks, and what it makes of answers. After Anthropic's documentation."""

from __future__ import annotations

import json

import pytest

from acpserver.llm.anthropic import Anthropic
from acpserver.llm.faults import Faults
from acpserver.llm.sse import Item
from acpserver.llm.types import (
    Endpoint,
    Event,
    Finish,
    Image,
    Message,
    ModelDetails,
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
from tests.fakes.anthropic_rules import violations
from tests.fakes.signing import sign

ENDPOINT = Endpoint("https://host", "anthropic", "sk-key", "environment variable KEY")
MODEL = "claude-sonnet-4-5"
ME = origin(ENDPOINT, MODEL)
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
SIGNED = Opaque(ME, {"type": "thinking", "thinking": "hm", "signature": sign("thinking", "hm")})
FOREIGN = Opaque("gemini:x@y", {"functionCall": {"thoughtSignature": "s"}})


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def body_of(*messages: Message, rules: bool = True, **more: object) -> dict:
    """The body of the request, which keeps the rules of the real server."""
    asked = ModelRequest(MODEL, "be brief", messages)._replace(**more)  # type: ignore[arg-type]
    body = json.loads(Anthropic().chat(ENDPOINT, asked).body)
    assert not rules or violations(body) == []
    return body


def parse(*values: object, model: str = MODEL) -> list[Event]:
    """The events of a stream of these values."""
    one = Anthropic().parser(ENDPOINT, ModelRequest(model, "", ()), Faults(ENDPOINT))
    found = [event for value in values for event in one.feed([Item(json.dumps(value).encode())])]
    return [*found, *one.end()]


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://host", "https://host/v1/messages"),
        ("https://host/v1/", "https://host/v1/messages"),
        ("https://host/v1/messages", "https://host/v1/messages"),
        ("https://host/anthropic?tenant=a", "https://host/anthropic/v1/messages?tenant=a"),
    ],
)
def test_where_it_asks(base_url: str, url: str) -> None:
    endpoint = Endpoint(base_url, "anthropic", "sk-key", headers=(("Anthropic-Beta", "x"),))
    made = Anthropic().chat(endpoint, ModelRequest(MODEL, "", (user("hi"),)))
    assert (made.method, made.url) == ("POST", url)
    assert made.headers["x-api-key"] == "sk-key" and "Authorization" not in made.headers
    assert made.headers["anthropic-version"] == "2023-06-01" and made.headers["Anthropic-Beta"] == "x"


def test_a_configured_header_replaces_ours() -> None:
    endpoint = Endpoint("https://host", "anthropic", "k", headers=(("X-API-Key", "other"),))
    headers = Anthropic().chat(endpoint, ModelRequest(MODEL, "", (user("hi"),))).headers
    assert [value for name, value in headers.items() if name.lower() == "x-api-key"] == ["other"]


def test_the_smallest_request() -> None:
    assert body_of(user("hi"), system="") == {
        "model": MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }


def test_neighbours_of_one_role_are_one_message_and_blank_texts_are_left_out() -> None:
    call = ToolCall("a", "look", {})
    body = body_of(
        user("one"),
        user("two"),
        Message("assistant", (Text(" \n"), Thought("hm"), call)),
        Message("tool", (ToolResult("a", "look", "", is_error=True),)),
        user("three"),
        user("  "),
        tools=(TOOL,),
    )
    kinds = [[block["type"] for block in message["content"]] for message in body["messages"]]
    assert kinds == [["text", "text"], ["tool_use"], ["tool_result", "text", "text"]]
    assert body["messages"][2]["content"][0]["is_error"] is True


def test_ids_and_names_from_elsewhere_are_made_to_fit_and_stay_pairs() -> None:
    calls = (ToolCall("functions.look:0", "a.b", {}), ToolCall("functions.look:1", "look", None))
    results = tuple(ToolResult(call.id, call.name, "r") for call in calls)
    content = body_of(user("x"), Message("assistant", calls), Message("tool", results))["messages"][1][
        "content"
    ]
    assert [block["name"] for block in content] == ["a_b", "look"]
    assert len({block["id"] for block in content}) == 2


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-sonnet", 8_192),
        ("claude-opus-5", 32_000),
        ("x", 8_192),
    ],
)
def test_there_is_always_a_limit(model: str, limit: int) -> None:
    assert body_of(user("hi"), model=model)["max_tokens"] == limit
    assert body_of(user("hi"), model=model, max_tokens=77)["max_tokens"] == 77


def test_reasoning_goes_back_to_the_same_model_only() -> None:
    history = (
        user("x"),
        Message("assistant", (Thought("hm"), SIGNED, FOREIGN, Text("a"), ToolCall("a", "look", {}))),
        Message("tool", (ToolResult("a", "look", "r"),)),
    )
    content = body_of(*history)["messages"][1]["content"]
    assert content[0] == SIGNED.data
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]
    content = body_of(*history, model="claude-haiku-4-5")["messages"][1]["content"]
    assert [block["type"] for block in content] == ["text", "tool_use"]


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-3-7-sonnet-20250219", {"type": "enabled", "budget_tokens": 8_192}),
        ("claude-sonnet-4-20250514", {"type": "enabled", "budget_tokens": 8_192}),
        ("anthropic/claude-opus-4.5", {"type": "enabled", "budget_tokens": 8_192}),
        ("local-llm", {"type": "enabled", "budget_tokens": 4_096}),
        ("claude-opus-4-6", {"type": "adaptive", "display": "summarized"}),
        ("anthropic.claude-opus-4-8-v1:0", {"type": "adaptive", "display": "summarized"}),
        ("claude-mythos-preview", {"type": "adaptive", "display": "summarized"}),
    ],
)
def test_how_it_asks_for_thinking(model: str, thinking: dict) -> None:
    body = body_of(user("hi"), model=model, effort="medium")
    assert body["thinking"] == thinking
    assert body.get("output_config") == ({"effort": "medium"} if thinking["type"] == "adaptive" else None)
    assert "thinking" not in body_of(user("hi"), model=model)


@pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-opus-5-20260724", "claude-haiku-5-5"])
def test_a_model_that_thinks_unasked_is_asked_to_tell_of_it(model: str) -> None:
    """Else it also says nothing between its calls."""
    body = body_of(user("hi"), model=model)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"} and "output_config" not in body
    body = body_of(user("hi"), model=model, effort="low")
    assert body["thinking"]["type"] == "adaptive" and body["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("base_url", "model", "bound"),
    [
        ("https://api.anthropic.com", "claude-sonnet-5-5", True),
        ("https://api.anthropic.com", "claude-fable-5-1-20260901", True),
        ("https://api.anthropic.com", "claude-sonnet-5", False),
        ("https://api.anthropic.com", "claude-opus-5-20260724", False),
        ("https://anthropic.com.example.org", "claude-sonnet-5-5", False),
    ],
)
def test_thinking_bound_to_what_was_before_it_is_dropped_and_not_refused(
    base_url: str, model: str, bound: bool
) -> None:
    beta = "thinking-binding-controls-2026-08-01"
    for headers in ((), (("Anthropic-Beta", "mine"),)):
        endpoint = Endpoint(base_url, "anthropic", "sk-key", headers=headers)
        made = Anthropic().chat(endpoint, ModelRequest(model, "", (user("hi"),)))
        binding = json.loads(made.body)["thinking"].get("block_binding")
        assert binding == ({"prefix_mismatch_behavior": "drop_block"} if bound else None)
        betas = [value for name, value in made.headers.items() if name.lower() == "anthropic-beta"]
        mine = ["mine"] if headers else []
        assert ",".join(betas) == ",".join([*mine, beta] if bound else mine)


def test_a_turn_that_another_model_began_goes_on_without_thinking() -> None:
    call = ToolCall("a", "look", {})
    result = Message("tool", (ToolResult("a", "look", "r"),))
    begun = (user("x"), Message("assistant", (Thought("hm"), FOREIGN, Text("I look"), call)), result)
    assert "thinking" not in body_of(*begun, effort="high")
    mine = (user("x"), Message("assistant", (Thought("hm"), SIGNED, Text("I look"), call)), result)
    assert "thinking" in body_of(*mine, effort="high")
    assert "thinking" in body_of(*begun, Message("assistant", (Text("ok"),)), user("y"), effort="high")


def test_thinking_leaves_room_for_the_answer() -> None:
    assert body_of(user("hi"), effort="high", max_tokens=4_000)["thinking"]["budget_tokens"] == 2_000
    assert "thinking" not in body_of(user("hi"), effort="high", max_tokens=2_000)


def test_images_and_their_marker() -> None:
    message = Message("user", (Text("what?"), Image("image/png", "AAAA")))
    block = body_of(message, images=True)["messages"][0]["content"][1]
    assert block["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert body_of(message)["messages"][0]["content"][1]["text"] == "[image: image/png]"


# What comes back


def block(index: int, kind: str, **more: object) -> dict:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def delta(index: int, kind: str, **more: object) -> dict:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def stop(index: int) -> dict:
    return {"type": "content_block_stop", "index": index}


def end(reason: str, **usage: int) -> dict:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def test_blocks_become_events_and_reasoning_is_kept_at_its_place() -> None:
    used = {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3}
    found = parse(
        {"type": "message_start", "message": {"usage": used}},
        block(0, "thinking", thinking="", signature=""),
        {"type": "ping"},
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        delta(0, "signature_delta", signature="si"),
        delta(0, "signature_delta", signature="g"),
        stop(0),
        block(1, "redacted_thinking", data="xyz"),
        stop(1),
        block(2, "text", text=""),
        delta(2, "text_delta", text="Hi"),
        stop(2),
        block(3, "tool_use", id="toolu_1", name="look", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"n": '),
        delta(3, "input_json_delta", partial_json="1}"),
        stop(3),
        end("tool_use", output_tokens=7),
        {"type": "message_stop"},
    )
    assert found == [
        ThoughtDelta("h"),
        ThoughtDelta("m"),
        Opaque(ME, {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        Opaque(ME, {"type": "redacted_thinking", "data": "xyz"}),
        TextDelta("Hi"),
        ToolCall("toolu_1", "look", {"n": 1}, '{"n": 1}'),
        Usage(98, 7, 90, written_tokens=3),
        Finish("tool_calls"),
    ]


def test_thinking_between_calls_stays_between_them() -> None:
    found = parse(
        block(0, "tool_use", id="a", name="look", input={}),
        stop(0),
        block(1, "redacted_thinking", data="xyz"),
        stop(1),
        block(2, "tool_use", id="b", name="look", input={}),
        stop(2),
        end("tool_use"),
    )
    assert [type(event).__name__ for event in found] == ["ToolCall", "Opaque", "ToolCall", "Finish"]


@pytest.mark.parametrize("signature", [{}, {"signature": ""}])
def test_thinking_that_nobody_signed_goes_back_as_it_came(signature: dict) -> None:
    """Such servers refuse the calls of a turn without the thinking before them."""
    whole = {"type": "thinking", "thinking": "hm", **signature}
    found = parse(
        block(0, "thinking", thinking="", **signature), delta(0, "thinking_delta", thinking="hm"), stop(0),
        block(1, "tool_use", id="a", name="look", input={}), stop(1), end("tool_use"),
    )  # fmt: skip
    assert found[1:3] == [Opaque(ME, whole), ToolCall("a", "look", {}, "")]
    answer = Message("assistant", tuple(found[1:3]))  # type: ignore[arg-type]
    result = Message("tool", (ToolResult("a", "look", "r"),))
    assert body_of(user("x"), answer, result, rules=False)["messages"][1]["content"][0] == whole


def test_thinking_without_its_text_is_kept_too() -> None:
    found = parse(
        block(0, "thinking", thinking=""), delta(0, "signature_delta", signature="s"), stop(0), end("x")
    )
    assert found == [Opaque(ME, {"type": "thinking", "thinking": "", "signature": "s"}), Finish("stop")]


def test_arguments_that_come_with_the_beginning_of_a_call() -> None:
    start = block(0, "tool_use", id="a", name="look", input={"n": 1})
    assert parse(start, stop(0), end("tool_use"))[0] == ToolCall("a", "look", {"n": 1}, '{"n":1}')
    pieces = delta(0, "input_json_delta", partial_json='{"n":2}')
    assert parse(start, pieces, stop(0), end("tool_use"))[0] == ToolCall("a", "look", {"n": 2}, '{"n":2}')
    nothing = block(0, "tool_use", id="a", name="look", input={})
    assert parse(nothing, stop(0), end("tool_use"))[0] == ToolCall("a", "look", {}, "")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("something new", "stop"),
    ],
)
def test_why_it_stops(reason: str, finish: str) -> None:
    assert parse(end(reason))[-1] == Finish(finish)


def test_an_answer_in_one_piece() -> None:
    one = Anthropic().parser(ENDPOINT, ModelRequest(MODEL, "", ()), Faults(ENDPOINT))
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
    ]
    value = {"content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}}
    found = [*one.whole(value), *one.end()]
    assert found == [
        ThoughtDelta("hm"),
        Opaque(ME, content[0]),
        TextDelta("Hi"),
        ToolCall("a", "look", {"n": 1}, '{"n":1}'),
        Usage(1, 2),
        Finish("tool_calls"),
    ]


def test_models() -> None:
    dialect = Anthropic()
    made = dialect.models(ENDPOINT)
    assert (made.method, made.url) == ("GET", "https://host/v1/models?limit=1000")
    value = {"data": [{"id": "claude-x", "type": "model", "max_input_tokens": 200_000}]}
    assert list(dialect.listed(value)) == ["claude-x"]
    assert dialect.model_details(value, "claude-x") == ModelDetails(200_000)
    assert dialect.model_details(value, "other") == ModelDetails()

"""The Ollama dialect: what it asks, and what it makes of answers. After Ollama's public documentation."""

from __future__ import annotations

import json

import pytest

from acpserver.errors import ProviderError
from acpserver.llm.faults import Faults
from acpserver.llm.ndjson import NdjsonDecoder
from acpserver.llm.ollama import Ollama
from acpserver.llm.sse import MAX_EVENT, Item
from acpserver.llm.types import (
    Audio,
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
    ThoughtDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from acpserver.llm.wire import origin
from tests.fakes.ollama_rules import violations

ENDPOINT = Endpoint("http://host:11434", "ollama")
ME = origin(ENDPOINT, "qwen3")


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def body_of(*messages: Message, **more: object) -> dict:
    asked = ModelRequest("qwen3", "", messages)._replace(**more)  # type: ignore[arg-type]
    body = json.loads(Ollama().chat(ENDPOINT, asked).body)
    assert violations(body) == []
    return body


def parse(*values: dict) -> list[Event]:
    one = Ollama().parser(ENDPOINT, ModelRequest("qwen3", "", ()), Faults(ENDPOINT))
    found = [event for value in values for event in one.feed([Item(json.dumps(value).encode())])]
    return [*found, *one.end()]


@pytest.mark.parametrize("base_url", ["http://host:1/", "http://host:1/v1", "http://host:1/api"])
def test_where_it_asks(base_url: str) -> None:
    endpoint = Endpoint(base_url, "ollama")
    made = Ollama().chat(endpoint, ModelRequest("m", "", (user("hi"),)))
    assert made.url == "http://host:1/api/chat" and "Authorization" not in made.headers
    assert Ollama().models(endpoint).url == "http://host:1/api/tags"
    shown = Ollama().details(endpoint, "m")
    assert (shown.method, shown.url, shown.body) == ("POST", "http://host:1/api/show", b'{"model":"m"}')


def test_the_context_window_is_told_or_the_server_cuts_in_silence() -> None:
    assert body_of(user("x"), context_window=32_768, max_tokens=9)["options"] == {
        "num_ctx": 32_768,
        "num_predict": 9,
    }
    assert "options" not in body_of(user("x"))


def test_a_wav_file_goes_where_images_go() -> None:
    message = Message("user", (Text("what?"), Audio("audio/wav", "UklGRg=="), Audio("audio/mpeg", "AAAA")))
    sent = body_of(message, audio=True)["messages"][0]
    assert sent == {"role": "user", "content": "what?[audio: audio/mpeg]", "images": ["UklGRg=="]}
    assert body_of(message)["messages"][0]["content"] == "what?[audio: audio/wav][audio: audio/mpeg]"


def test_effort_and_images() -> None:
    assert body_of(user("x"), effort="low")["think"] is True
    assert body_of(user("x"), effort="low", model="gpt-oss:20b")["think"] == "low"
    assert "think" not in body_of(user("x"))
    message = Message("user", (Text("what?"), Image("image/png", "iVBORw==")))
    assert body_of(message, images=True)["messages"][0]["images"] == ["iVBORw=="]
    assert body_of(message)["messages"][0]["content"] == "what?[image: image/png]"


def test_a_turn_with_calls() -> None:
    calls = (ToolCall("a", "look", {"n": 1}), ToolCall("b", "see", None))
    answer = Message("assistant", (Text("I look"), Opaque(ME, {"thinking": "hm"}), *calls))
    results = Message("tool", (ToolResult("b", "see", "two"), ToolResult("a", "look", "one")))
    messages = body_of(user("x"), answer, results, system="be brief")["messages"]
    assert messages[0] == {"role": "system", "content": "be brief"}
    assert messages[2] == {
        "role": "assistant",
        "content": "I look",
        "thinking": "hm",
        "tool_calls": [
            {"function": {"name": "look", "arguments": {"n": 1}}},
            {"function": {"name": "see", "arguments": {}}},
        ],
    }
    assert [message["content"] for message in messages[3:]] == ["one", "two"]
    later = body_of(user("x"), answer, results, Message("assistant", (Text("ok"),)), user("y"))
    assert "thinking" not in later["messages"][1]


def test_lines_become_events() -> None:
    call = {"function": {"name": "look", "arguments": {"n": 1}}}
    found = parse(
        {"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {"message": {"role": "assistant", "content": "Hi"}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [call, call]}, "done": False},
        {
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 10,
            "eval_count": 5,
        },
    )
    assert found[:3] == [ThoughtDelta("hm"), TextDelta("Hi"), Opaque(ME, {"thinking": "hm"})]
    first, second = found[3:5]
    assert isinstance(first, ToolCall) and isinstance(second, ToolCall)
    assert first.arguments == second.arguments == {"n": 1} and first.id != second.id
    assert found[5:] == [Usage(10, 5), Finish("tool_calls")]


def test_the_length_limit_and_a_stream_that_breaks_off() -> None:
    assert parse({"message": {"content": "a"}, "done": True, "done_reason": "length"})[-1] == Finish("length")
    with pytest.raises(ProviderError, match="broke off"):
        parse({"message": {"content": "a"}, "done": False})
    with pytest.raises(ProviderError, match="out of memory"):
        parse({"error": "out of memory"})


def test_models() -> None:
    dialect = Ollama()
    assert list(dialect.listed({"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}]})) == ["qwen3:8b"]
    value = {
        "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960},
        "capabilities": ["completion", "tools", "thinking"],
    }
    assert dialect.model_details(value, "qwen3") == ModelDetails(40_960, False, True, True, audio=False)
    assert dialect.model_details({}, "qwen3") == ModelDetails()
    with pytest.raises(ValueError):
        dialect.model_details([], "qwen3")


def test_lines_are_split_wherever_the_bytes_are_cut() -> None:
    data = b'{"a":1}\n\n{"b":"\xf0\x9f\x98\x80"}\r\n{"c":3}'
    for size in range(1, len(data) + 1):
        decoder = NdjsonDecoder()
        items = [item for at in range(0, len(data), size) for item in decoder.feed(data[at : at + size])]
        lines = [item.data.strip() for item in [*items, *decoder.end()]]
        assert lines == [b'{"a":1}', b'{"b":"\xf0\x9f\x98\x80"}', b'{"c":3}']
    with pytest.raises(ValueError, match="longer"):
        NdjsonDecoder().feed(b"x" * (MAX_EVENT + 1))

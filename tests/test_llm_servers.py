"""What differs between servers that speak the OpenAI-compatible dialect. After their public documentation."""

from __future__ import annotations

import json

import pytest

from acpserver.cancel import CancelFlag
from acpserver.llm.faults import Faults
from acpserver.llm.http import HttpProvider
from acpserver.llm.listing import details_of
from acpserver.llm.names import fit_name
from acpserver.llm.openai import OpenAi
from acpserver.llm.openai_servers import HOSTS, SERVERS, Server, server_at
from acpserver.llm.retry import Policy
from acpserver.llm.sse import Item
from acpserver.llm.types import (
    Audio,
    Endpoint,
    Image,
    Message,
    ModelDetails,
    ModelRequest,
    Opaque,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from acpserver.llm.wire import origin
from tests.fakes.llm_answers import text, thought, tool_call
from tests.fakes.llm_server import FakeLlm

ASKED = ModelRequest("m", "", (Message("user", (Text("hi"),)),), max_tokens=9, effort="low")


LEVELS = ("low", "medium", "high")
ON_OR_OFF = [{"reasoning_effort": level} for level in ("none", "high", "high")]


def body_at(base_url: str, asked: ModelRequest = ASKED) -> dict:
    return json.loads(OpenAi().chat(Endpoint(base_url, api_key="k"), asked).body)


def asks(place: str | Endpoint, asked: ModelRequest = ASKED) -> dict:
    """The members that differ between servers."""
    endpoint = Endpoint(place) if isinstance(place, str) else place
    common = {"model", "messages", "stream", "stream_options"}
    body = json.loads(OpenAi().chat(endpoint, asked).body)
    return {key: value for key, value in body.items() if key not in common}


@pytest.mark.parametrize(
    ("base_url", "members"),
    [
        ("https://api.openai.com/v1", {"max_completion_tokens": 9, "reasoning_effort": "low"}),
        ("https://x.openai.azure.com/openai/v1", {"max_completion_tokens": 9, "reasoning_effort": "low"}),
        ("https://openrouter.ai/api/v1", {"max_tokens": 9, "reasoning": {"effort": "low"}}),
        ("https://api.deepseek.com", {"max_tokens": 9, "reasoning_effort": "low"}),
        ("https://api.moonshot.ai/v1", {"max_completion_tokens": 9, "reasoning_effort": "low"}),
        (
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            {"max_tokens": 9, "enable_thinking": True, "thinking_budget": 2048},
        ),
        (
            "https://ws.ap-southeast-1.maas.aliyuncs.com/compatible-mode/v1",
            {"max_tokens": 9, "enable_thinking": True, "thinking_budget": 2048},
        ),
        ("https://api.mistral.ai/v1", {"max_tokens": 9, "reasoning_effort": "low"}),
        ("https://api.groq.com/openai/v1", {"max_completion_tokens": 9, "reasoning_effort": "low"}),
        ("http://127.0.0.1:8080/v1", {"max_tokens": 9, "reasoning_effort": "low"}),
        ("https://notapi.openai.com.evil.example/v1", {"max_tokens": 9, "reasoning_effort": "low"}),
    ],
)
def test_what_is_asked_of_a_server(base_url: str, members: dict) -> None:
    assert asks(base_url) == members


@pytest.mark.parametrize(
    ("server", "model", "asked"),
    [
        ("openai", "gpt-5.5", [{"reasoning_effort": level} for level in LEVELS]),
        ("openrouter", "x/y", [{"reasoning": {"effort": level}} for level in LEVELS]),
        ("deepseek", "deepseek-flash", [{"reasoning_effort": level} for level in LEVELS]),
        ("moonshot", "kimi-k3", [{"reasoning_effort": level} for level in ("low", "high", "max")]),
        (
            "dashscope",
            "qwen3.7-plus",
            [{"enable_thinking": True, "thinking_budget": most} for most in (2_048, 8_192, 24_576)],
        ),
        (
            "dashscope",
            "qwen3.8-max",
            [{"enable_thinking": True, "reasoning_effort": level} for level in ("low", "medium", "xhigh")],
        ),
        ("mistral", "mistral-small-latest", ON_OR_OFF),
        ("mistral", "mistral-medium-3-5", ON_OR_OFF),
        ("mistral", "mistral-large-4-0", [{"reasoning_effort": level} for level in LEVELS]),
    ],
)
def test_how_a_model_is_told_how_much_to_think(server: str, model: str, asked: list[dict]) -> None:
    request = ASKED._replace(model=model, max_tokens=None)
    endpoint = Endpoint("http://localhost/v1", server=server)
    assert [asks(endpoint, request._replace(effort=level)) for level in LEVELS] == asked
    assert asks(endpoint, request._replace(effort="")) == {}


def test_the_name_of_a_server_counts_more_than_its_address() -> None:
    named = Endpoint("https://api.openai.com/v1", server="deepseek")
    assert server_at(named) == SERVERS["deepseek"] and set(HOSTS.values()) < SERVERS.keys()


@pytest.mark.parametrize("server", SERVERS)
def test_a_long_conversation_keeps_the_rules_of_each_server(server: str) -> None:
    """With calls of this model that thought and that did not, and of another model."""
    with FakeLlm() as llm:
        llm.use("openai", server)
        asked = HttpProvider(Endpoint(llm.base_url, server=server), Policy(attempts=1))
        foreign = (ToolCall("toolu_01", "look", {}), ToolResult("toolu_01", "look", "r"))
        told = (Opaque("anthropic:x@y", {"type": "thinking"}), foreign[0])
        history = [*ASKED.messages, Message("assistant", told), Message("tool", foreign[1:])]
        for answer in (
            thought("hm") + tool_call("look", {}, "call_1"),
            tool_call("look", {}, "call_2"),
            thought("hm") + text("ok"),
            thought("so") + text("ok"),
        ):
            llm.script(answer)
            request = ModelRequest("mistral-small-latest", "", tuple(history), (), 9, "medium")
            parts = tuple(
                Text(event.text) if isinstance(event, TextDelta) else event
                for event in asked.stream(request, CancelFlag())
                if isinstance(event, (TextDelta, Opaque, ToolCall))
            )
            results = tuple(ToolResult(one.id, one.name, "r") for one in parts if isinstance(one, ToolCall))
            history.append(Message("assistant", parts))
            history.append(Message("tool", results) if results else ASKED.messages[0])
        assert llm.violations == []
        sent = [message.get(SERVERS[server].own_reasoning) for message in llm.requests[2].messages]
        before = {"deepseek": [None, " ", None, "hm", None, " ", None]}
        before["moonshot"] = before["deepseek"]
        own = [None, None, None, "hm", None, None, None]
        expected = {"vllm": own, "llama.cpp": own, **before}.get(server)
        assert sent == expected if expected else not any(sent)


def test_mistral_takes_short_ids_and_no_stream_options() -> None:
    calls = (ToolCall("call_0123456789", "look", {}), ToolCall("abcdefghi", "look", {}))
    history = (
        *ASKED.messages,
        Message("assistant", calls),
        Message("tool", tuple(ToolResult(call.id, "look", "r") for call in calls)),
    )
    body = body_at("https://api.mistral.ai/v1", ASKED._replace(messages=history))
    assert "stream_options" not in body
    sent = [call["id"] for call in body["messages"][1]["tool_calls"]]
    assert sent == [message["tool_call_id"] for message in body["messages"][2:]]
    assert sent[1] == "abcdefghi" and sent[0].isalnum() and len(sent[0]) == 9


def test_azure_is_asked_at_its_deployment_with_its_own_header() -> None:
    endpoint = Endpoint(
        "https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21", api_key="the-key"
    )
    made = OpenAi().chat(endpoint, ASKED)
    assert made.url == (
        "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"
    )
    assert made.headers["api-key"] == "the-key" and "Authorization" not in made.headers
    assert OpenAi().models(endpoint).url.endswith("/deployments/d/models?api-version=2024-10-21")


@pytest.mark.parametrize("base_url", ["https://api.deepseek.com", "https://api.moonshot.cn/v1"])
def test_reasoning_goes_back_in_this_turn_and_all_later_ones(base_url: str) -> None:
    endpoint = Endpoint(base_url, api_key="k")
    one = OpenAi().parser(endpoint, ASKED, Faults(endpoint))
    deltas = [{"reasoning_content": "h"}, {"reasoning_content": "m"}]
    values = [{"choices": [{"delta": delta}]} for delta in deltas]
    values.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    events = [event for value in values for event in one.feed([Item(json.dumps(value).encode())])]
    kept = Opaque(origin(endpoint, "m"), {"reasoning_content": "hm"})
    assert kept in [*events, *one.end()]
    answer = Message("assistant", (kept, ToolCall("a", "look", {})))
    history = (*ASKED.messages, answer, Message("tool", (ToolResult("a", "look", "r"),)))
    body = body_at(base_url, ASKED._replace(messages=history))
    assert body["messages"][1]["reasoning_content"] == "hm"
    later = (*history, Message("assistant", (Text("ok"),)), *ASKED.messages)
    assert body_at(base_url, ASKED._replace(messages=later))["messages"][1]["reasoning_content"] == "hm"
    foreign = Message("assistant", (Opaque("x", {"y": 1}), ToolCall("a", "look", {})))
    body = body_at(base_url, ASKED._replace(messages=(history[0], foreign, history[2])))
    assert body["messages"][1]["reasoning_content"] == " "
    other = ASKED._replace(messages=history)
    assert "reasoning_content" not in body_at("https://api.openai.com/v1", other)["messages"][1]


def test_the_pieces_of_openrouters_reasoning_are_put_together_and_go_back() -> None:
    endpoint = Endpoint("https://openrouter.ai/api/v1", api_key="k")
    one = OpenAi().parser(endpoint, ASKED, Faults(endpoint))
    pieces: list[dict] = [
        {"type": "reasoning.text", "index": 0, "text": "h", "signature": None},
        {"type": "reasoning.text", "index": 0, "text": "m", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]
    values = [{"choices": [{"delta": {"reasoning": "h", "reasoning_details": [piece]}}]} for piece in pieces]
    for value in values:
        one.feed([Item(json.dumps(value).encode())])
    one.feed([Item(b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}')])
    kept = next(event for event in one.end() if isinstance(event, Opaque))
    whole = [{"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"}, pieces[2]]
    assert kept.data == {"reasoning_details": whole}


@pytest.mark.parametrize(
    "cached",
    [{"prompt_tokens_details": {"cached_tokens": 4}}, {"prompt_cache_hit_tokens": 4}, {"cached_tokens": 4}],
)
def test_where_servers_tell_of_cached_tokens(cached: dict) -> None:
    one = OpenAi().parser(Endpoint("https://host", api_key="k"), ASKED, Faults(Endpoint("https://host")))
    usage = {"prompt_tokens": 9, "completion_tokens": 1, **cached}
    one.feed([Item(json.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage}).encode())])
    assert one.end()[0] == Usage(9, 1, cached_tokens=4)


def test_what_was_put_into_the_cache_is_told_apart() -> None:
    one = OpenAi().parser(Endpoint("https://host"), ASKED, Faults(Endpoint("https://host")))
    details = {"cached_tokens": 4, "cache_write_tokens": 3}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": details}
    one.feed([Item(json.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage}).encode())])
    assert one.end()[0] == Usage(9, 1, cached_tokens=4, written_tokens=3)


def test_usage_that_kimi_tells_in_the_choice() -> None:
    one = OpenAi().parser(Endpoint("https://host"), ASKED, Faults(Endpoint("https://host")))
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 4}
    one.feed([Item(json.dumps({"choices": [{"finish_reason": "stop", "usage": usage}]}).encode())])
    assert one.end()[0] == Usage(9, 1, cached_tokens=4)


def test_images() -> None:
    message = Message("user", (Text("what?"), Image("image/png", "AAAA")))
    asked = ASKED._replace(messages=(message,), images=True)
    assert body_at("https://api.openai.com/v1", asked)["messages"][0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


@pytest.mark.parametrize(
    ("base_url", "given"),
    [
        ("https://api.openai.com/v1", {"data": "AAAA", "format": "mp3"}),
        ("https://openrouter.ai/api/v1", {"data": "AAAA", "format": "mp3"}),
        ("http://127.0.0.1:8080/v1", {"data": "AAAA", "format": "mp3"}),
        ("https://api.mistral.ai/v1", "AAAA"),
        ("https://dashscope-intl.aliyuncs.com/v1", {"data": "data:;base64,AAAA", "format": "mp3"}),
    ],
)
def test_recordings(base_url: str, given: object) -> None:
    message = Message("user", (Text("what?"), Audio("audio/mpeg", "AAAA"), Audio("audio/ogg", "AAAA")))
    asked = ASKED._replace(messages=(message,), audio=True)
    assert body_at(base_url, asked)["messages"][0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "input_audio", "input_audio": given},
        {"type": "text", "text": "[audio: audio/ogg]"},
    ]
    deaf = body_at(base_url, asked._replace(audio=False))
    assert deaf["messages"][0]["content"] == "what?[audio: audio/mpeg][audio: audio/ogg]"


@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("a_b-1", "a_b-1"),
        ("_a", "_a"),
        ("a.b ü", "a_b__"),
        ("9a", "_9a"),
        ("", "unknown"),
        ("x" * 70, "x" * 64),
    ],
)
def test_names_that_every_server_takes(name: str, fit: str) -> None:
    assert fit_name(name) == fit


def test_hosts_are_whole_names() -> None:
    assert server_at(Endpoint("https://API.OpenAI.com/v1")) == SERVERS["openai"]
    for place in ("http://localhost/v1", "https://evil-openrouter.ai/v1", "https://[broken/v1"):
        assert server_at(Endpoint(place)) == Server(), "nothing is known of it"


@pytest.mark.parametrize(
    ("entry", "details"),
    [
        ({"id": "a", "context_length": 5}, ModelDetails(5)),
        ({"id": "a", "max_model_len": 6}, ModelDetails(6)),
        ({"id": "a", "meta": {"n_ctx_train": 7}}, ModelDetails(7)),
        ({"id": "a", "meta": {"n_ctx_train": 7, "n_ctx": 5}}, ModelDetails(5)),
        ({"id": "a", "type": "vlm", "max_context_length": 9}, ModelDetails(9, True)),
        (
            {
                "type": "llm",
                "max_context_length": 9,
                "loaded_context_length": 4,
                "capabilities": ["tool_use"],
            },
            ModelDetails(4, False, True, False, audio=False),
        ),
        (
            {
                "id": "a",
                "architecture": {"input_modalities": ["text", "image"]},
                "supported_parameters": ["tools", "reasoning"],
            },
            ModelDetails(None, True, True, True, audio=False),
        ),
        (
            {"id": "a", "architecture": {"input_modalities": ["text", "audio"]}},
            ModelDetails(images=False, audio=True),
        ),
        (  # Ollama
            {"name": "a", "capabilities": ["completion", "vision", "audio", "tools", "thinking"]},
            ModelDetails(None, True, True, True, audio=True),
        ),
        (
            {"name": "a", "capabilities": ["completion"]},
            ModelDetails(None, False, False, False, audio=False),
        ),
        (  # Mistral
            {
                "id": "a",
                "max_context_length": 9,
                "capabilities": {"function_calling": True, "vision": False, "audio": True, "reasoning": True},
            },
            ModelDetails(9, False, True, audio=True),
        ),
        ({"id": "a", "capabilities": {"vision": {"supported": True}}}, ModelDetails()),
        ({"id": "a", "capabilities": "vision"}, ModelDetails()),
        ({"id": "a", "max_completion_tokens": 8}, ModelDetails(output_limit=8)),
        ({"id": "a", "top_provider": {"max_completion_tokens": 9}}, ModelDetails(output_limit=9)),
        ({"id": "a", "context_length": "many"}, ModelDetails()),
    ],
)
def test_what_lists_tell_about_models(entry: dict, details: ModelDetails) -> None:
    assert details_of(entry) == details

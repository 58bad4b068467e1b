"""The Gemini dialect: what it asks, and what it makes of answers. After Google's public documentation."""

from __future__ import annotations

import json

import pytest

from acpserver.errors import ProviderError
from acpserver.llm.faults import Faults
from acpserver.llm.gemini import Gemini
from acpserver.llm.sse import Item
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
    Thought,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from acpserver.llm.wire import origin
from tests.fakes.gemini_rules import call_signature, violations

ENDPOINT = Endpoint("https://host", "gemini", "key", "environment variable KEY")
MODEL = "gemini-3-pro"
ME = origin(ENDPOINT, MODEL)
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}, "additionalProperties": False})
CALL = ToolCall("call_1", "look", {"n": 1})
SIGNATURE = call_signature("look", {"n": 1})
KEPT = Opaque(ME, {"functionCall": {"id": "own", "thoughtSignature": SIGNATURE}})


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def body_of(*messages: Message, **more: object) -> dict:
    """The body of the request, which keeps the rules of the real server."""
    asked = ModelRequest(MODEL, "", messages)._replace(**more)  # type: ignore[arg-type]
    body = json.loads(Gemini().chat(ENDPOINT, asked).body)
    assert violations(body, asked.model) == []
    return body


def parser() -> object:
    return Gemini().parser(ENDPOINT, ModelRequest(MODEL, "", ()), Faults(ENDPOINT))


def parse(*values: object) -> list[Event]:
    one = Gemini().parser(ENDPOINT, ModelRequest(MODEL, "", ()), Faults(ENDPOINT))
    found = [event for value in values for event in one.feed([Item(json.dumps(value).encode())])]
    return [*found, *one.end()]


def chunk(*parts: dict, finish: str = "") -> dict:
    candidate: dict = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}


@pytest.mark.parametrize(
    ("base_url", "model", "url"),
    [
        ("https://host", "m", "https://host/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://host/v1beta/", "models/m", "https://host/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://host/v1/models", "m", "https://host/v1/models/m:streamGenerateContent?alt=sse"),
        ("https://host/v1alpha?a=b", "m", "https://host/v1alpha/models/m:streamGenerateContent?a=b&alt=sse"),
        (
            "https://host",
            "tunedModels/a b",
            "https://host/v1beta/tunedModels/a%20b:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_where_it_asks(base_url: str, model: str, url: str) -> None:
    endpoint = Endpoint(base_url, "gemini", "the-key")
    made = Gemini().chat(endpoint, ModelRequest(model, "", (user("hi"),)))
    assert (made.method, made.url) == ("POST", url)
    assert made.headers["x-goog-api-key"] == "the-key" and "Authorization" not in made.headers


@pytest.mark.parametrize(
    ("mime", "told"),
    [
        ("audio/x-wav", "audio/wav"),
        ("audio/mpeg", "audio/mp3"),
        ("audio/aiff", "audio/aiff"),
        ("audio/aac", "audio/aac"),
        ("audio/ogg", "audio/ogg"),
        ("audio/x-flac", "audio/flac"),
    ],
)
def test_recordings_go_by_the_names_that_google_documents(mime: str, told: str) -> None:
    message = Message("user", (Text("what?"), Audio(mime, "AAAA")))
    parts = body_of(message, audio=True)["contents"][0]["parts"]
    assert parts == [{"text": "what?"}, {"inlineData": {"mimeType": told, "data": "AAAA"}}]
    assert body_of(message)["contents"][0]["parts"][1] == {"text": f"[audio: {mime}]"}


def test_a_whole_request() -> None:
    message = Message("user", (Text("what?"), Image("image/png", "AAAA")))
    body = body_of(message, system="be brief", tools=(TOOL,), max_tokens=9, images=True, effort="low")
    assert body["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    assert body["contents"] == [
        {
            "role": "user",
            "parts": [{"text": "what?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
        }
    ]
    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == TOOL.parameters
    settings = {"maxOutputTokens": 9, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}
    assert body["generationConfig"] == settings


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-2.0-flash", "", None),
        ("gemini-2.5-pro", "", {"includeThoughts": True}),
        ("gemini-2.5-pro", "medium", {"includeThoughts": True, "thinkingBudget": 8_192}),
        ("gemini-3-pro", "", {"includeThoughts": True}),
        ("gemini-3.5-flash", "high", {"includeThoughts": True, "thinkingLevel": "high"}),
    ],
)
def test_how_it_asks_for_thinking(model: str, effort: str, thinking: dict | None) -> None:
    body = body_of(user("hi"), model=model, effort=effort)
    assert body.get("generationConfig", {}).get("thinkingConfig") == thinking


RESULT = Message("tool", (ToolResult("call_1", "look", "r"),))


def test_signature_and_id_go_back_with_their_call() -> None:
    body = body_of(user("x"), Message("assistant", (Thought("hm"), KEPT, CALL)), RESULT)
    part = body["contents"][1]["parts"][0]
    assert part["thoughtSignature"] == SIGNATURE
    assert part["functionCall"] == {"name": "look", "args": {"n": 1}, "id": "own"}
    answer = body["contents"][2]["parts"][0]["functionResponse"]
    assert answer == {"name": "look", "id": "own", "response": {"output": "r"}}


def test_a_call_of_another_model_in_this_turn_is_marked_as_such() -> None:
    answer = Message("assistant", (Opaque("openai:x@y", {"a": 1}), CALL, ToolCall("call_2", "look", {})))
    results = Message("tool", (*RESULT.parts, ToolResult("call_2", "look", "no", is_error=True)))
    body = body_of(user("x"), answer, results)
    parts = body["contents"][1]["parts"]
    assert parts[0]["thoughtSignature"] == "skip_thought_signature_validator"
    assert "thoughtSignature" not in parts[1] and "id" not in parts[0]["functionCall"]
    assert body["contents"][2]["parts"][1]["functionResponse"]["response"] == {"error": "no"}
    done = (user("x"), answer, results, Message("assistant", (Text("ok"),)), user("y"))
    assert "skip_thought" not in json.dumps(body_of(*done))
    for model in ("gemini-2.5-pro", "gemini-2-flash", "gemma-3"):
        assert "skip_thought" not in json.dumps(body_of(user("x"), answer, results, model=model))
    assert "skip_thought" in json.dumps(body_of(user("x"), answer, results, model="gemini-flash-latest"))


def test_the_signature_of_a_text_goes_back_with_the_text() -> None:
    signed = Opaque(ME, {"text": "", "thoughtSignature": "s"})
    asked = ModelRequest(MODEL, "", (user("x"), Message("assistant", (Text("a"), signed)), user("y")))
    contents = json.loads(Gemini().chat(ENDPOINT, asked).body)["contents"]
    assert contents[1]["parts"] == [{"text": "a", "thoughtSignature": "s"}]


def test_parts_become_events() -> None:
    found = parse(
        chunk({"text": "hm", "thought": True}),
        chunk({"text": "Hel"}),
        chunk({"text": "lo", "thoughtSignature": "t"}),
        chunk(
            {"functionCall": {"name": "look", "args": {"n": 1}, "id": "own"}, "thoughtSignature": "s"},
            {"functionCall": {"name": "look"}},
            finish="STOP",
        ),
        {
            "usageMetadata": {
                "promptTokenCount": 10,
                "candidatesTokenCount": 3,
                "thoughtsTokenCount": 4,
                "cachedContentTokenCount": 8,
            }
        },
    )
    *events, last, usage, finish = found
    assert events == [
        ThoughtDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Opaque(ME, {"text": "", "thoughtSignature": "t"}),
        Opaque(ME, {"functionCall": {"id": "own", "thoughtSignature": "s"}}),
        ToolCall("own", "look", {"n": 1}, '{"n":1}'),
    ]
    assert isinstance(last, ToolCall) and last.id.startswith("call_") and last.arguments == {}
    assert usage == Usage(10, 7, 8, 4)
    assert finish == Finish("tool_calls")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("OTHER", "stop"),
    ],
)
def test_why_it_stops(reason: str, finish: str) -> None:
    assert parse(chunk({"text": "a"}, finish=reason))[-1] == Finish(finish)


def test_a_prompt_that_is_blocked_is_a_refusal() -> None:
    assert parse({"promptFeedback": {"blockReason": "SAFETY"}}) == [Finish("refusal")]


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"])
def test_a_broken_answer_is_worth_another_attempt(reason: str) -> None:
    with pytest.raises(ProviderError, match=reason) as caught:
        parse(chunk(finish=reason))
    assert (caught.value.kind, caught.value.retryable) == ("stream", True)


def test_an_answer_in_one_piece_or_as_a_list() -> None:
    for value in (
        chunk({"text": "ab"}, finish="STOP"),
        [chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP")],
    ):
        one = Gemini().parser(ENDPOINT, ModelRequest(MODEL, "", ()), Faults(ENDPOINT))
        assert [*one.whole(value), *one.end()] == [TextDelta("ab"), Finish("stop")]
    one = Gemini().parser(ENDPOINT, ModelRequest(MODEL, "", ()), Faults(ENDPOINT))
    with pytest.raises(ProviderError, match="overloaded"):
        one.whole([{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}])


def test_models() -> None:
    dialect = Gemini()
    assert dialect.models(ENDPOINT).url == "https://host/v1beta/models?pageSize=1000"
    assert dialect.details(ENDPOINT, "m").url == "https://host/v1beta/models/m"
    models = [
        {"name": "models/gemini-x", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
    ]
    assert list(dialect.listed({"models": models})) == ["gemini-x"]
    value = {"name": "models/gemini-x", "inputTokenLimit": 1_048_576, "thinking": True}
    assert dialect.model_details(value, "gemini-x") == ModelDetails(1_048_576, True, True, True)
    value |= {"outputTokenLimit": 65_536}
    assert dialect.listed({"models": [value]}) == {
        "gemini-x": ModelDetails(1_048_576, True, True, True, 65_536)
    }
    with pytest.raises(ValueError):
        dialect.model_details({"x": 1}, "m")

"""The Ollama dialect: a history becomes the body of `POST /api/chat`, whose answer is JSON Lines.

Pure; any thread. Arguments travel as objects, calls may have no ids, results follow in the order of the calls
and name their tool. Written after Ollama's public documentation, which does not speak of audio: a WAV file
goes where images go, and is known by its first bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from acpserver import jsontext
from acpserver.catalog import AUDIO_SENT
from acpserver.llm import fields, listing
from acpserver.llm.answer import AnswerParser
from acpserver.llm.assembly import used_call_ids
from acpserver.llm.faults import Faults
from acpserver.llm.names import fit_name
from acpserver.llm.ndjson import NdjsonDecoder
from acpserver.llm.pairing import history_for, turn_start
from acpserver.llm.types import (
    Audio,
    Endpoint,
    Image,
    Message,
    ModelDetails,
    ModelRequest,
    Opaque,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from acpserver.llm.wire import (
    HttpRequest,
    function_tools,
    join_url,
    make_headers,
    origin,
    post,
)


class Ollama:
    """The dialect of Ollama's own API."""

    streams_json = True

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The request for one streamed answer. Raises `ProviderError` for an unusable URL or key."""
        body: dict[str, object] = {
            "model": request.model,
            "messages": _messages(request, origin(endpoint, request.model)),
            "stream": True,
        }
        if request.tools:
            body["tools"] = function_tools(request.tools)
        if request.effort:
            body["think"] = request.effort if "gpt-oss" in request.model else True
        # Without num_ctx Ollama cuts a long conversation down to a small default, and says nothing.
        options = {"num_ctx": request.context_window, "num_predict": request.max_tokens}
        options = {name: value for name, value in options.items() if value}
        if options:
            body["options"] = options
        return post(_url(endpoint, "/api/chat"), make_headers(endpoint, "application/x-ndjson"), body)

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        return HttpRequest("GET", _url(endpoint, "/api/tags"), make_headers(endpoint, "application/json"))

    def listed(self, value: object) -> dict[str, ModelDetails]:
        """The models that were pulled, by name; of their windows the list says nothing."""
        return listing.listed(value)

    def details(self, endpoint: Endpoint, model: str) -> HttpRequest:
        """The request for what there is to know about the model."""
        headers = make_headers(endpoint, "application/json")
        return post(_url(endpoint, "/api/show"), headers, {"model": model})

    def model_details(self, value: object, model: str) -> ModelDetails:
        """The context window, which stands under the name of the model's architecture, and capabilities."""
        if not isinstance(value, dict):
            raise ValueError("no model")
        facts = fields.record(value, "model_info")
        window = next((fields.count(facts, key) for key in facts if key.endswith(".context_length")), 0)
        return listing.details_of(value)._replace(context_window=window or None)

    def decoder(self) -> NdjsonDecoder:
        """A decoder for one streamed answer."""
        return NdjsonDecoder()

    def parser(self, endpoint: Endpoint, request: ModelRequest, faults: Faults) -> OllamaParser:
        """A parser for one answer; calls that have no id get one."""
        return OllamaParser(faults, used_call_ids(request.messages), origin(endpoint, request.model))


class OllamaParser(AnswerParser):
    """Reads one answer. Its reasoning goes back in the turn that goes on: some models stall without it."""

    def __init__(self, faults: Faults, used_ids: Iterable[str] = (), origin: str = ""):
        super().__init__(faults, used_ids, origin=origin)
        self._own_reasoning = "thinking"
        self._called = 0

    def _value(self, value: dict[str, object]) -> None:
        message = fields.record(value, "message")
        self._think(fields.text(message, "thinking") or fields.text(message, "reasoning_content"))
        self._deltas.add(TextDelta, fields.text(message, "content"))
        for call in fields.records(message, "tool_calls"):
            function = fields.record(call, "function")
            arguments = function.get("arguments")
            written = arguments if isinstance(arguments, str) else jsontext.dumps(arguments or {})
            name = fields.text(function, "name")
            self._calls.add(self._called, fields.text(call, "id"), name, written)
            self._called += 1
        if value.get("done") is True:
            self._reason = "length" if value.get("done_reason") == "length" else "stop"
            self.done = True
            usage = Usage(fields.count(value, "prompt_eval_count"), fields.count(value, "eval_count"))
            self._usage = usage if usage.total_tokens else None

    def _whole(self, value: object) -> bool:
        if not isinstance(value, dict) or "message" not in value:
            return False
        self._value(value)
        return True


def _url(endpoint: Endpoint, path: str) -> str:
    """Below the base URL, which may be the one of Ollama's OpenAI-compatible side."""
    base, question, query = endpoint.base_url.strip().partition("?")
    base = base.rstrip("/").removesuffix("/v1").removesuffix("/api/chat").removesuffix("/api")
    return join_url(base + question + query, path)


def _messages(request: ModelRequest, me: str) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    history = history_for(request, me, AUDIO_SENT["ollama"])
    start = turn_start(history)
    for position, message in enumerate(history):
        if message.role == "tool":
            messages += [
                {"role": "tool", "content": part.text, "tool_name": fit_name(part.name)}
                for part in message.parts
                if isinstance(part, ToolResult)
            ]
        else:
            messages.append(_message(message, in_turn=position > start))
    return messages


def _message(message: Message, in_turn: bool) -> dict[str, object]:
    found: dict[str, object] = {"role": message.role, "content": message.text}
    images = [part.data for part in message.parts if isinstance(part, (Image, Audio))]
    if images:
        found["images"] = images
    if message.tool_calls:
        found["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    for part in message.parts:
        if in_turn and isinstance(part, Opaque):
            found |= part.data
    return found


def _tool_call(call: ToolCall) -> dict[str, object]:
    return {"function": {"name": fit_name(call.name), "arguments": call.arguments or {}}}

"""The Gemini dialect: a history becomes the body of `POST /models/MODEL:streamGenerateContent`.

Pure; any thread. Roles alternate, each call is answered in the next message. Signatures go back in the part
that they came with. Written after Google's public documentation.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from acpserver.catalog import AUDIO_SENT
from acpserver.llm import fields, listing
from acpserver.llm.assembly import used_call_ids
from acpserver.llm.faults import Faults
from acpserver.llm.gemini_answer import GeminiParser
from acpserver.llm.names import fit_name
from acpserver.llm.pairing import history_for, turn_start
from acpserver.llm.sse import SseDecoder
from acpserver.llm.types import (
    Audio,
    Endpoint,
    Image,
    Message,
    ModelDetails,
    ModelRequest,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
)
from acpserver.llm.wire import HttpRequest, join_url, make_headers, origin, post
from acpserver.prompts import AUDIO_FORMATS

_VERSION = re.compile(r"/v\d+(alpha|beta)?\d*(/|$)")
_BUDGETED = re.compile(r"gemini-2\.5")  # thinks within a budget of tokens
_LEVELLED = re.compile(r"gemini-([3-9]|\d\d)")  # thinks at a level
_SIGNS = re.compile(r"gemini(?!-[12]([.-]|$))")  # demands signed calls; gemini-pro-latest does so too
_BUDGETS = {"low": 1_024, "medium": 8_192, "high": 24_576}  # tokens of thinking
_FOREIGN = "skip_thought_signature_validator"
"""What the documentation gives for the signature of a call that another model made."""


class Gemini:
    """The dialect of Google's generative language API."""

    streams_json = False

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The request for one streamed answer. Raises `ProviderError` for an unusable URL or key."""
        url = _url(endpoint, f"/{_path(request.model)}:streamGenerateContent", "alt=sse")
        history = history_for(request, origin(endpoint, request.model), AUDIO_SENT["gemini"])
        body: dict[str, object] = {"contents": _contents(history, bool(_SIGNS.search(request.model)))}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            declarations = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": tool.parameters,
                }
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
        settings = _settings(request)
        if settings:
            body["generationConfig"] = settings
        return post(url, _headers(endpoint, "text/event-stream"), body)

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        url = _url(endpoint, "/models", "pageSize=1000")
        return HttpRequest("GET", url, _headers(endpoint, "application/json"))

    def listed(self, value: object) -> dict[str, ModelDetails]:
        """The models that generate content, by name without the "models/" before it."""
        found = {}
        for entry in listing.entries(value):
            methods = entry.get("supportedGenerationMethods")
            if not isinstance(methods, list) or "generateContent" in methods:
                name = (fields.text(entry, "name") or fields.text(entry, "id")).removeprefix("models/")
                found[name] = _details(entry)
        found.pop("", None)
        return found

    def details(self, endpoint: Endpoint, model: str) -> HttpRequest:
        """The request for what there is to know about the model."""
        url = _url(endpoint, f"/{_path(model)}")
        return HttpRequest("GET", url, _headers(endpoint, "application/json"))

    def model_details(self, value: object, model: str) -> ModelDetails:
        """The context window of the model; all of them take images and tools."""
        if not isinstance(value, dict) or "name" not in value:
            raise ValueError("no model")
        return _details(value)

    def decoder(self) -> SseDecoder:
        """A decoder for one streamed answer."""
        return SseDecoder()

    def parser(self, endpoint: Endpoint, request: ModelRequest, faults: Faults) -> GeminiParser:
        """A parser for one answer; calls that have no id get one."""
        me = origin(endpoint, request.model)
        return GeminiParser(faults, used_call_ids(request.messages), origin=me)


def _details(entry: dict[str, object]) -> ModelDetails:
    thinks = entry.get("thinking")
    window, output = fields.count(entry, "inputTokenLimit"), fields.count(entry, "outputTokenLimit")
    can_think = thinks if isinstance(thinks, bool) else None
    return ModelDetails(window or None, True, True, can_think, output or None)


def _url(endpoint: Endpoint, path: str, query: str = "") -> str:
    """Below the base URL, which may leave the version of the API to us."""
    base, question, rest = endpoint.base_url.strip().partition("?")
    base = base.rstrip("/").removesuffix("/models")
    if not _VERSION.search(base.partition("://")[2]):
        base += "/v1beta"
    return join_url(base + question + rest, path, query)


def _path(model: str) -> str:
    return quote(model if "/" in model else f"models/{model}", safe="/")


def _headers(endpoint: Endpoint, accept: str) -> dict[str, str]:
    return make_headers(endpoint, accept, "x-goog-api-key", "")


def _settings(request: ModelRequest) -> dict[str, object]:
    settings: dict[str, object] = {}
    if request.max_tokens is not None:
        settings["maxOutputTokens"] = request.max_tokens
    is_levelled = bool(_LEVELLED.search(request.model))
    if is_levelled or request.effort or _BUDGETED.search(request.model):
        thinking: dict[str, object] = {"includeThoughts": True}
        if request.effort and is_levelled:
            thinking["thinkingLevel"] = request.effort
        elif request.effort:
            thinking["thinkingBudget"] = _BUDGETS.get(request.effort, _BUDGETS["medium"])
        settings["thinkingConfig"] = thinking
    return settings


def _contents(history: list[Message], needs_signatures: bool) -> list[dict[str, object]]:
    """The messages, neighbours of one role in one. Signatures are only demanded of the turn that goes on."""
    contents: list[dict[str, object]] = []
    start = turn_start(history)
    ids: dict[str, str] = {}  # of the calls that the server gave an id of its own
    for position, message in enumerate(history):
        if message.role == "assistant":
            role, parts = "model", _answer(message, ids, needs_signatures and position > start)
        else:
            role, parts = "user", _question(message, ids)
        last = contents[-1] if contents else {}
        if last.get("role") == role:
            found = last["parts"]
            assert isinstance(found, list)
            found += parts
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def _question(message: Message, ids: dict[str, str]) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            parts.append({"text": part.text})
        elif isinstance(part, Image):
            parts.append({"inlineData": {"mimeType": part.mime, "data": part.data}})
        elif isinstance(part, Audio):  # each format has one name there
            mime = f"audio/{AUDIO_FORMATS[part.mime]}"
            parts.append({"inlineData": {"mimeType": mime, "data": part.data}})
        elif isinstance(part, ToolResult):
            response = {"error" if part.is_error else "output": part.text}
            answer: dict[str, object] = {"name": fit_name(part.name), "response": response}
            if part.call_id in ids:
                answer["id"] = ids[part.call_id]
            parts.append({"functionResponse": answer})
    return parts


def _answer(message: Message, ids: dict[str, str], needs_signature: bool) -> list[dict[str, object]]:
    """A past answer. Where the first call must be signed and is not, it came from another model."""
    parts: list[dict[str, object]] = []
    kept: dict[str, object] = {}  # what the server gave the call that comes next
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            parts.append({"text": part.text})
        elif isinstance(part, Opaque) and "functionCall" in part.data:
            kept = fields.record(part.data, "functionCall")
        elif isinstance(part, Opaque):
            _sign(parts, part.data)
        elif isinstance(part, ToolCall):
            parts.append(_call(part, kept, ids, needs_signature))
            kept, needs_signature = {}, False  # of parallel calls only the first is signed
    return parts


def _sign(parts: list[dict[str, object]], signed: dict[str, object]) -> None:
    """Put back a signed part: the signature of a text belongs to the text that came before it."""
    last = parts[-1] if parts else {}
    if not signed.get("text") and "text" in last and "thoughtSignature" not in last:
        parts[-1] = last | {"thoughtSignature": signed.get("thoughtSignature")}
    else:
        parts.append(signed)


def _call(
    call: ToolCall, kept: dict[str, object], ids: dict[str, str], needs_signature: bool
) -> dict[str, object]:
    function: dict[str, object] = {"name": fit_name(call.name), "args": call.arguments or {}}
    if call_id := fields.text(kept, "id"):
        function["id"] = ids[call.id] = call_id
    signature = fields.text(kept, "thoughtSignature") or (_FOREIGN if needs_signature else "")
    return {"functionCall": function} | ({"thoughtSignature": signature} if signature else {})

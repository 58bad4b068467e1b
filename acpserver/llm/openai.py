"""The OpenAI-compatible dialect: a history becomes the body of `POST /chat/completions`.

Pure; any thread. What it writes is accepted by the strictest servers: every tool call is followed by
exactly one result, nothing is empty, arguments are JSON. Thoughts are sent back only to servers that want
them (`openai_servers`). An Azure deployment is reached by its own URL with the query `api-version`.
"""

from __future__ import annotations

from acpserver import jsontext
from acpserver.catalog import AUDIO_SENT
from acpserver.llm.assembly import used_call_ids
from acpserver.llm.faults import Faults
from acpserver.llm.listing import ListedModels
from acpserver.llm.names import fit_id, fit_name
from acpserver.llm.openai_answer import OpenAiParser
from acpserver.llm.openai_servers import Server, server_at
from acpserver.llm.pairing import has_attachments, history_for, turn_start
from acpserver.llm.sse import SseDecoder
from acpserver.llm.types import (
    Audio,
    Endpoint,
    Image,
    Message,
    ModelRequest,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
)
from acpserver.llm.verdicts import OTHER_LIMIT
from acpserver.llm.wire import HttpRequest, function_tools, join_url, make_headers, origin, post
from acpserver.prompts import AUDIO_FORMATS


class OpenAi(ListedModels):
    """The dialect of every server with an OpenAI-compatible /chat/completions."""

    streams_json = False

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The request for one streamed answer. Raises `ProviderError` for an unusable URL or key."""
        url = join_url(endpoint.base_url, "/chat/completions")
        server = server_at(endpoint)
        body: dict[str, object] = {
            "model": request.model,
            "messages": _messages(request, origin(endpoint, request.model), server),
            "stream": True,
        }
        if server.asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = function_tools(request.tools)
        if request.max_tokens is not None:
            body[_limit(server, request)] = request.max_tokens
        headers = make_headers(endpoint, "text/event-stream", server.key_header, server.scheme)
        return post(url, headers, body | server.effort_of(request.model, request.effort))

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        server = server_at(endpoint)
        base, question, query = endpoint.base_url.strip().partition("?")
        base = base.rstrip("/").removesuffix("/chat/completions")
        if server.list_path.startswith("/api"):
            base = base.removesuffix("/v1")
        headers = make_headers(endpoint, "application/json", server.key_header, server.scheme)
        return HttpRequest("GET", join_url(base + question + query, server.list_path), headers)

    def decoder(self) -> SseDecoder:
        """A decoder for one streamed answer."""
        return SseDecoder()

    def parser(self, endpoint: Endpoint, request: ModelRequest, faults: Faults) -> OpenAiParser:
        """A parser for one answer; its tool calls get ids that the history does not hold yet."""
        return OpenAiParser(
            faults,
            used_call_ids(request.messages),
            origin=origin(endpoint, request.model),
            own_reasoning=server_at(endpoint).own_reasoning,
        )


def _limit(server: Server, request: ModelRequest) -> str:
    """The member that limits the answer: the server's usual one, or the other when it refused that."""
    limits = ("max_tokens", "max_completion_tokens")
    return limits[(server.limit == limits[1]) != (OTHER_LIMIT in request.learned)]


def _messages(request: ModelRequest, me: str, server: Server) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    history = history_for(request, me, AUDIO_SENT["openai"])
    start = turn_start(history)
    for position, message in enumerate(history):
        if message.role == "tool":
            messages.extend(_results(message, server))
        elif message.role == "assistant":
            messages.append(_answer(message, server, server.remembers or position > start))
        else:
            messages.append({"role": message.role, "content": _content(message, server)})
    return messages


def _results(message: Message, server: Server) -> list[dict[str, object]]:
    return [
        {
            "role": "tool",
            "tool_call_id": fit_id(part.call_id, server.call_id, server.id_length),
            "content": part.text,
        }
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


def _answer(message: Message, server: Server, with_reasoning: bool) -> dict[str, object]:
    """A past answer. Where a call without the reasoning before it is refused, one that came without any, or
    from another model, gets a blank: an empty text counts as none there."""
    found: dict[str, object] = {"role": "assistant", "content": message.text or None}
    if message.tool_calls:
        found["tool_calls"] = [_tool_call(call, server) for call in message.tool_calls]
        if server.remembers:
            found[server.own_reasoning] = " "
    if with_reasoning:
        for part in message.parts:
            if isinstance(part, Opaque):
                found |= part.data
    return found


def _content(message: Message, server: Server) -> object:
    """The user's text, or a list of parts when there are images or recordings."""
    if not has_attachments(message):
        return message.text
    parts: list[object] = []
    for part in message.parts:
        if isinstance(part, Image):
            url = f"data:{part.mime};base64,{part.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif isinstance(part, Audio):
            parts.append({"type": "input_audio", "input_audio": _audio(part, server)})
        elif isinstance(part, Text) and part.text:
            parts.append({"type": "text", "text": part.text})
    return parts


def _audio(part: Audio, server: Server) -> object:
    if server.audio == "text":
        return part.data
    data = f"data:;base64,{part.data}" if server.audio == "url" else part.data
    return {"data": data, "format": AUDIO_FORMATS[part.mime]}


def _tool_call(call: ToolCall, server: Server) -> dict[str, object]:
    """A past call in the server's words.

    Arguments that were no JSON object go back as an empty one: servers that read them would refuse every
    later request, and the result already quotes to the model what it wrote. So for names.
    """
    function = {"name": fit_name(call.name), "arguments": jsontext.dumps(call.arguments or {})}
    call_id = fit_id(call.id, server.call_id, server.id_length)
    return {"id": call_id, "type": "function", "function": function}

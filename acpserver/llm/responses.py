"""The OpenAI Responses dialect: a history becomes the body of `POST /responses`.

Pure; any thread. Nothing is stored at the server: the whole history goes with each call, and encrypted
reasoning comes back and is sent again. Written after OpenAI's public documentation.
"""

from __future__ import annotations

import re

from acpserver import jsontext
from acpserver.llm.assembly import used_call_ids
from acpserver.llm.faults import Faults
from acpserver.llm.listing import ListedModels
from acpserver.llm.names import fit_id, fit_name
from acpserver.llm.openai_servers import server_at
from acpserver.llm.pairing import history_for
from acpserver.llm.responses_answer import ResponsesParser
from acpserver.llm.sse import SseDecoder
from acpserver.llm.types import (
    Endpoint,
    Image,
    Message,
    ModelRequest,
    Opaque,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from acpserver.llm.wire import HttpRequest, join_url, make_headers, origin, post

_CALL_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_THINKS = re.compile(r"(^|/)(o\d|gpt-[5-9]|codex|computer-use)")
"""Models that reason. The others refuse to be asked for encrypted reasoning."""


class Responses(ListedModels):
    """The dialect of OpenAI's /responses."""

    streams_json = False

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The request for one streamed answer. Raises `ProviderError` for an unusable URL or key."""
        url = join_url(endpoint.base_url, "/responses")
        me = origin(endpoint, request.model)
        body: dict[str, object] = {
            "model": request.model,
            "input": [item for message in history_for(request, me) for item in _items(message)],
            "stream": True,
            "store": False,
        }
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.effort:
            body["reasoning"] = {"effort": request.effort, "summary": "auto"}
        if request.effort or _THINKS.search(request.model):
            body["include"] = ["reasoning.encrypted_content"]
        return post(url, _headers(endpoint, "text/event-stream"), body)

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        base, question, query = endpoint.base_url.strip().partition("?")
        base = base.rstrip("/").removesuffix("/responses") + question + query
        return HttpRequest("GET", join_url(base, "/models"), _headers(endpoint, "application/json"))

    def decoder(self) -> SseDecoder:
        """A decoder for one streamed answer."""
        return SseDecoder()

    def parser(self, endpoint: Endpoint, request: ModelRequest, faults: Faults) -> ResponsesParser:
        """A parser for one answer."""
        return ResponsesParser(faults, used_call_ids(request.messages), origin(endpoint, request.model))


def _headers(endpoint: Endpoint, accept: str) -> dict[str, str]:
    server = server_at(endpoint)
    return make_headers(endpoint, accept, server.key_header, server.scheme)


def _items(message: Message) -> list[dict[str, object]]:
    """A message as input items: one for the text, one for each call, result and piece of reasoning."""
    if message.role == "user":
        content = [item for part in message.parts if (item := _content(part))]
        return [{"type": "message", "role": "user", "content": content}]
    return [item for part in message.parts if (item := _item(part))]


def _content(part: Part) -> dict[str, object] | None:
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": f"data:{part.mime};base64,{part.data}"}
    if isinstance(part, Text) and part.text:
        return {"type": "input_text", "text": part.text}
    return None


def _item(part: Part) -> dict[str, object] | None:
    if isinstance(part, Text) and part.text:
        content = [{"type": "output_text", "text": part.text}]
        return {"type": "message", "role": "assistant", "content": content}
    if isinstance(part, Opaque):
        return part.data
    if isinstance(part, ToolCall):
        return {
            "type": "function_call",
            "call_id": fit_id(part.id, _CALL_ID),
            "name": fit_name(part.name),
            "arguments": jsontext.dumps(part.arguments or {}),
        }
    if isinstance(part, ToolResult):
        call_id = fit_id(part.call_id, _CALL_ID)
        return {"type": "function_call_output", "call_id": call_id, "output": part.text}
    return None

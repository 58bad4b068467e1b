"""The OpenAI-compatible dialect: a history becomes the body of `POST /chat/completions`.

Pure; any thread. What it writes is accepted by the strictest servers: every tool call is followed by
exactly one result, nothing is empty, arguments are JSON. Thoughts are not sent back.
"""

from __future__ import annotations

import re

from acpserver import jsontext
from acpserver.llm.assembly import used_call_ids
from acpserver.llm.faults import Faults
from acpserver.llm.openai_answer import OpenAiParser
from acpserver.llm.pairing import paired
from acpserver.llm.sse import SseDecoder
from acpserver.llm.types import Endpoint, Message, ModelRequest, ToolCall, ToolResult
from acpserver.llm.wire import HttpRequest, check_headers, join_url


class OpenAi:
    """The dialect of every server with an OpenAI-compatible /chat/completions."""

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The request for one streamed answer. Raises `ProviderError` for an unusable URL or key."""
        body: dict[str, object] = {
            "model": request.model,
            "messages": _messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        headers = _headers(endpoint, "text/event-stream") | {"Content-Type": "application/json"}
        url = join_url(endpoint.base_url, "/chat/completions")
        return HttpRequest("POST", url, headers, jsontext.dumps(body).encode("ascii"))

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        base_url = endpoint.base_url.strip().rstrip("/").removesuffix("/chat/completions")
        return HttpRequest("GET", join_url(base_url, "/models"), _headers(endpoint, "application/json"))

    def model_names(self, value: object) -> list[str]:
        """The names in `{"data": [{"id": ...}]}`; some servers send the bare list, or `models`."""
        if isinstance(value, dict):
            value = value.get("data", value.get("models"))
        if not isinstance(value, list):
            raise ValueError("no list of models")
        entries = [item for item in value if isinstance(item, dict)]
        names = [entry.get("id") or entry.get("name") or entry.get("model") for entry in entries]
        return [name for name in names if isinstance(name, str)]

    def decoder(self) -> SseDecoder:
        """A decoder for one streamed answer."""
        return SseDecoder()

    def parser(self, request: ModelRequest, faults: Faults) -> OpenAiParser:
        """A parser for one answer; its tool calls get ids that the history does not hold yet."""
        return OpenAiParser(faults, used_call_ids(request.messages))


def _headers(endpoint: Endpoint, accept: str) -> dict[str, str]:
    headers = {"Accept": accept, "User-Agent": "acpserver"}
    if endpoint.api_key:
        check_headers({"Authorization": endpoint.api_key}, endpoint.api_key_source)
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    return headers | check_headers(dict(endpoint.headers), "the configuration")


def _messages(request: ModelRequest) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in paired(request.messages):
        messages.extend(_message(message))
    return messages


def _message(message: Message) -> list[dict[str, object]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": part.call_id, "content": part.text}
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
    if message.role == "assistant" and message.tool_calls:
        calls = [_tool_call(call) for call in message.tool_calls]
        return [{"role": "assistant", "content": message.text or None, "tool_calls": calls}]
    return [{"role": message.role, "content": message.text}]


def _tool_call(call: ToolCall) -> dict[str, object]:
    """A past call in the server's words.

    Arguments that were no JSON object go back as an empty one: servers that read them would refuse every
    later request, and the result already quotes to the model what it wrote. So for names.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unknown"
    function = {"name": name, "arguments": jsontext.dumps(call.arguments or {})}
    return {"id": call.id, "type": "function", "function": function}

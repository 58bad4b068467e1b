"""The Anthropic dialect: a history becomes the body of `POST /v1/messages`.

Pure; any thread. Roles alternate, results come first in the message after their calls, no text is blank, and
`max_tokens` is always there. What does not change from call to call is marked for the prompt cache.
Written after Anthropic's public documentation.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from acpserver.llm import fields
from acpserver.llm.anthropic_answer import AnthropicParser
from acpserver.llm.assembly import used_call_ids
from acpserver.llm.faults import Faults
from acpserver.llm.listing import ListedModels
from acpserver.llm.names import fit_id, fit_name
from acpserver.llm.pairing import history_for
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
from acpserver.llm.verdicts import DROP_UNBOUND, NO_REASONING
from acpserver.llm.wire import HttpRequest, join_url, make_headers, origin, post

VERSION = "2023-06-01"
CALL_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_CACHED: dict[str, object] = {"type": "ephemeral"}
_CACHED_MESSAGES = 2  # user messages, from the end, that are marked; with the system prompt 3 of 4 marks
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 24_576}  # tokens of thinking
_LEAST_BUDGET = 1_024
_LIMITS = (("claude-3-haiku", 4_096), ("claude-3-opus", 4_096), ("claude-3-5", 8_192), ("claude", 32_000))
_LIMIT = 8_192  # tokens of an answer, for a model that is not in the list above
_FAMILY = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")
_CHOOSES = (4, 6)  # from this version on a model chooses its own budget of thinking, after the effort
_THINKS_UNASKED = (5, 0)  # and tells nothing of it, not even of what it says between calls, unless asked to
_BOUND = (5, 1)  # its thinking is only taken back behind the very prompt, tools and messages it came from
_BINDING_BETA = "thinking-binding-controls-2026-08-01"


class Anthropic(ListedModels):
    """The dialect of servers with Anthropic's /v1/messages."""

    streams_json = False

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The request for one streamed answer. Raises `ProviderError` for an unusable URL or key."""
        url = _url(endpoint, "/messages")
        messages = _messages(history_for(request, origin(endpoint, request.model)))
        limit = request.max_tokens or _limit(request.model)
        body: dict[str, object] = {
            "model": request.model,
            "max_tokens": limit,
            "messages": messages,
            "stream": True,
        }
        if request.system:
            body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
        headers = _headers(endpoint, "text/event-stream")
        thinking = _thinking(request, messages, limit)
        if _is_bound(request) and (_is_vendor(url) or DROP_UNBOUND in request.learned):
            # A session that goes on with other tools or a shortened history would be refused for ever.
            thinking["thinking"] |= {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            _add_beta(headers, _BINDING_BETA)
        return post(url, headers, body | thinking)

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        url = _url(endpoint, "/models", "limit=1000")
        return HttpRequest("GET", url, _headers(endpoint, "application/json"))

    def decoder(self) -> SseDecoder:
        """A decoder for one streamed answer."""
        return SseDecoder()

    def parser(self, endpoint: Endpoint, request: ModelRequest, faults: Faults) -> AnthropicParser:
        """A parser for one answer."""
        me = origin(endpoint, request.model)
        return AnthropicParser(faults, used_call_ids(request.messages), origin=me)


def _url(endpoint: Endpoint, path: str, query: str = "") -> str:
    """Below the base URL, which is written with and without /v1 and even with /messages."""
    base, question, rest = endpoint.base_url.strip().partition("?")
    base = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    return join_url(f"{base}/v1{question}{rest}", path, query)


def _headers(endpoint: Endpoint, accept: str) -> dict[str, str]:
    headers = make_headers(endpoint, accept, "x-api-key", "")
    return {"anthropic-version": VERSION} | headers


def _add_beta(headers: dict[str, str], beta: str) -> None:
    """Ask for a beta beside those of the configuration, in whatever case that writes the header."""
    name = next((name for name in headers if name.lower() == "anthropic-beta"), "anthropic-beta")
    headers[name] = f"{headers[name]},{beta}" if name in headers else beta


def _is_vendor(url: str) -> bool:
    """Whether this is Anthropic's own server. Others may refuse what they do not know, and are only asked for
    it when they turn out to check the binding (`verdicts.lessons`)."""
    host = urlsplit(url).hostname or ""
    return host == "anthropic.com" or host.endswith(".anthropic.com")


def _is_bound(request: ModelRequest) -> bool:
    """Whether thinking goes back to a model that may refuse it."""
    return _version(request.model) >= _BOUND and NO_REASONING not in request.learned


def _version(model: str) -> tuple[int, int]:
    """The version of a Claude; 0 for other models, and for those before 4, whose names have another form."""
    found = _FAMILY.search(model)
    if found:
        return int(found[1]), int(found[2] or 0)
    return _CHOOSES if "claude" in model and "claude-3" not in model else (0, 0)


def _limit(model: str) -> int:
    return next((limit for name, limit in _LIMITS if name in model), _LIMIT)


def _thinking(
    request: ModelRequest, messages: list[dict[str, object]], limit: int
) -> dict[str, dict[str, object]]:
    """The members that ask for thinking, and for a summary of it."""
    version = _version(request.model)
    if not request.effort and version < _THINKS_UNASKED:
        return {}
    if version >= _CHOOSES:
        thinking: dict[str, object] = {"type": "adaptive", "display": "summarized"}
        effort: dict[str, object] = {"effort": request.effort}
        return {"thinking": thinking} | ({"output_config": effort} if request.effort else {})
    budget = min(_BUDGETS.get(request.effort, _LEAST_BUDGET), limit // 2)
    if budget < _LEAST_BUDGET or _begun_without_thinking(messages):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _begun_without_thinking(messages: list[dict[str, object]]) -> bool:
    """Whether the turn that goes on holds calls that no thinking of this model led to.

    With a budget of thinking the server refuses such a turn, which another model has begun.
    """
    for message in reversed(messages):
        kinds = [block.get("type") for block in fields.records(message, "content")]
        if message["role"] == "user" and "tool_result" not in kinds:
            return False
        if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
            return True
    return False


def _messages(history: list[Message]) -> list[dict[str, object]]:
    """The messages, neighbours of one role in one, the last user messages marked for the cache."""
    messages: list[dict[str, object]] = []
    blocks: list[dict[str, object]] = []
    for message in history:
        role = "assistant" if message.role == "assistant" else "user"
        found = [block for part in message.parts if (block := _block(part))]
        if messages and messages[-1]["role"] == role:
            blocks += found
        elif found:
            blocks = found
            messages.append({"role": role, "content": blocks})
    if messages and messages[-1]["role"] == "assistant" and blocks[-1].get("type") == "text":
        blocks[-1] = {"type": "text", "text": str(blocks[-1]["text"]).rstrip()}  # or it is refused
    marked = [message for message in messages if message["role"] == "user"][-_CACHED_MESSAGES:]
    for sent in marked:
        content = sent["content"]
        assert isinstance(content, list)
        content[-1] = {**content[-1], "cache_control": _CACHED}
    return messages


def _block(part: Part) -> dict[str, object] | None:
    """A part as a content block; None for what is not sent."""
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text.strip() else None
    if isinstance(part, Image):
        source = {"type": "base64", "media_type": part.mime, "data": part.data}
        return {"type": "image", "source": source}
    if isinstance(part, Opaque):
        return part.data
    if isinstance(part, ToolCall):
        call_id = fit_id(part.id, CALL_ID)
        return {"type": "tool_use", "id": call_id, "name": fit_name(part.name), "input": part.arguments or {}}
    if isinstance(part, ToolResult):
        return _result(part)
    return None


def _result(result: ToolResult) -> dict[str, object]:
    block: dict[str, object] = {"type": "tool_result", "tool_use_id": fit_id(result.call_id, CALL_ID)}
    if result.text.strip():
        block["content"] = result.text
    return block | ({"is_error": True} if result.is_error else {})

"""How each dialect looks on the wire: the answers of the fake model server in the words of every API. Pure.

A `Reply` is written once; `WIRES[dialect]` says at which path that API is asked, how it is given its key,
what it demands of a request (the `*_rules` modules) and how a reply, an error and a list look there. Written
after the vendors' public documentation. What is signed carries the signature of `signing.sign`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from tests.fakes import anthropic_rules, gemini_rules, ollama_rules, openai_rules, responses_rules
from tests.fakes.gemini_rules import call_signature
from tests.fakes.llm_answers import Answer, Reply, chunks, events
from tests.fakes.signing import sign


class Wire(NamedTuple):
    """One API."""

    chat: re.Pattern[str]
    """The path, with its query, of a request for an answer; the group `model` where it stands there."""
    models: re.Pattern[str]
    key_header: str
    scheme: str
    violations: Callable[[dict, str], list[str]]
    """The rules that a body breaks; the second argument is the model in the path."""
    stream: Callable[[Reply], Answer]
    error: Callable[[int, str], dict]
    """The body of a refusal with this status and these words."""
    error_event: Callable[[int, str], bytes]
    """The bytes of an error inside a stream."""
    listed: Callable[[tuple[str, ...]], dict]


def _named(kind: str, value: dict) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **value})}\n\n".encode()


def _thought(reply: Reply) -> str:
    return "".join(delta.get("reasoning_content") or delta.get("reasoning") or "" for delta in reply.deltas)


def _arguments(call: dict) -> dict:
    return json.loads(call["function"]["arguments"] or "{}")


_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def _anthropic(reply: Reply) -> Answer:
    used = reply.usage or {"prompt_tokens": 0, "completion_tokens": 0}
    cached = used.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    asked = {"input_tokens": used["prompt_tokens"] - cached, "cache_read_input_tokens": cached}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "fake"}
    out = [_named("message_start", {"message": {**message, "usage": {**asked, "output_tokens": 1}}})]
    out.append(_named("ping", {}))
    index = -1
    kind = ""

    def begin(block: dict) -> None:
        nonlocal index, kind
        end()
        index, kind = index + 1, block["type"]
        out.append(_named("content_block_start", {"index": index, "content_block": block}))

    def delta(value: dict) -> None:
        out.append(_named("content_block_delta", {"index": index, "delta": value}))

    def end() -> None:
        nonlocal kind
        if kind == "thinking":
            delta({"type": "signature_delta", "signature": sign("thinking", _thought(reply))})
        if kind:
            out.append(_named("content_block_stop", {"index": index}))
        kind = ""

    for piece in reply.deltas:
        if "redacted" in piece:
            begin({"type": "redacted_thinking", "data": sign("redacted")})
        elif "content" in piece:
            if kind != "text":
                begin({"type": "text", "text": ""})
            delta({"type": "text_delta", "text": piece["content"]})
        else:
            if kind != "thinking":
                begin({"type": "thinking", "thinking": "", "signature": ""})
            delta({"type": "thinking_delta", "thinking": _thought(Reply((piece,)))})
    for call in reply.calls:
        function = call["function"]
        begin({"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}})
        half = len(function["arguments"]) // 2
        for part in ("", function["arguments"][:half], function["arguments"][half:]):
            delta({"type": "input_json_delta", "partial_json": part})
    end()
    reason = _STOPS.get(reply.finish_reason, reply.finish_reason)
    tail = {"delta": {"stop_reason": reason, "stop_sequence": None}}
    out.append(_named("message_delta", {**tail, "usage": {"output_tokens": used["completion_tokens"]}}))
    out.append(_named("message_stop", {}))
    return events(*out)


_FINISHES = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


def _gemini(reply: Reply) -> Answer:
    parts: list[dict] = []
    for piece in reply.deltas:
        if "content" in piece:
            parts.append({"text": piece["content"]})
        elif "redacted" not in piece:
            parts.append({"text": _thought(Reply((piece,))), "thought": True})
    if _thought(reply) and not reply.calls:
        parts.append({"text": "", "thoughtSignature": sign("text")})
    for position, call in enumerate(reply.calls):
        name, arguments = call["function"]["name"], _arguments(call)
        part: dict = {"functionCall": {"name": name, "args": arguments}}
        if call["id"].startswith("own_"):
            part["functionCall"]["id"] = call["id"]
        if not position:
            part["thoughtSignature"] = call_signature(name, arguments)
        parts.append(part)
    values: list[dict] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts
    ]
    end: dict = {"candidates": [{"finishReason": _FINISHES.get(reply.finish_reason, "STOP"), "index": 0}]}
    if reply.usage:
        thought = reply.usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0)
        end["usageMetadata"] = {
            "promptTokenCount": reply.usage["prompt_tokens"],
            "cachedContentTokenCount": reply.usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            "candidatesTokenCount": reply.usage["completion_tokens"] - thought,
            "thoughtsTokenCount": thought,
            "totalTokenCount": reply.usage["total_tokens"],
        }
    return chunks([*values, end], done=False)


def _ollama(reply: Reply) -> Answer:
    lines: list[dict] = []
    for piece in reply.deltas:
        if "content" in piece:
            lines.append({"message": {"role": "assistant", "content": piece["content"]}})
        elif "redacted" not in piece:
            thought = _thought(Reply((piece,)))
            lines.append({"message": {"role": "assistant", "content": "", "thinking": thought}})
    for call in reply.calls:
        function = {"name": call["function"]["name"], "arguments": _arguments(call)}
        lines.append(
            {"message": {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}}
        )
    end = {"message": {"role": "assistant", "content": ""}, "done": True}
    end["done_reason"] = "length" if reply.finish_reason == "length" else "stop"
    if reply.usage:
        end["prompt_eval_count"] = reply.usage["prompt_tokens"]
        end["eval_count"] = reply.usage["completion_tokens"]
    whole = [{"model": "fake", "created_at": "2026-01-01T00:00:00Z", "done": False, **line} for line in lines]
    written = [json.dumps(line).encode() + b"\n" for line in (*whole, {"model": "fake", **end})]
    return Answer(tuple(written), headers={"Content-Type": "application/x-ndjson"})


def _responses(reply: Reply) -> Answer:
    out = [_named("response.created", {"response": {"id": "resp_1", "status": "in_progress", "output": []}})]
    items: list[dict] = []

    def add(item: dict, deltas: list[tuple[str, dict]]) -> None:
        at = {"output_index": len(items)}
        items.append(item)
        begun = {"type": item["type"], "id": item["id"], "status": "in_progress"}
        out.append(_named("response.output_item.added", {**at, "item": begun}))
        out.extend(
            _named(f"response.{kind}", {**at, "item_id": item["id"], **value}) for kind, value in deltas
        )
        out.append(_named("response.output_item.done", {**at, "item": item}))

    thought = _thought(reply)
    if thought:
        item: dict = {"type": "reasoning", "id": f"rs_{len(thought)}"}
        item["summary"] = [{"type": "summary_text", "text": thought}]
        item["encrypted_content"] = sign("reasoning", thought)
        pieces = [_thought(Reply((delta,))) for delta in reply.deltas]
        told = [{"summary_index": 0, "delta": piece} for piece in pieces if piece]
        add(item, [("reasoning_summary_text.delta", delta) for delta in told])
    texts = [delta["content"] for delta in reply.deltas if delta.get("content")]
    if texts:
        content = [{"type": "output_text", "text": "".join(texts), "annotations": []}]
        said = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
        add(said, [("output_text.delta", {"content_index": 0, "delta": piece}) for piece in texts])
    for call in reply.calls:
        function = call["function"]
        item = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"], **function}
        add(item, [("function_call_arguments.delta", {"delta": function["arguments"]})])
    out.append(_ending(reply, items))
    return events(*out)


def _ending(reply: Reply, items: list[dict]) -> bytes:
    response: dict = {"id": "resp_1", "status": "completed", "output": items, "error": None}
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    if reply.finish_reason in reasons:
        response["status"] = "incomplete"
        response["incomplete_details"] = {"reason": reasons[reply.finish_reason]}
    if reply.usage:
        response["usage"] = {
            "input_tokens": reply.usage["prompt_tokens"],
            "input_tokens_details": reply.usage.get("prompt_tokens_details", {}),
            "output_tokens": reply.usage["completion_tokens"],
            "output_tokens_details": reply.usage.get("completion_tokens_details", {}),
        }
    return _named(f"response.{response['status']}", {"response": response})


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_GOOGLE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def _openai_error(status: int, words: str) -> dict:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": words, "type": kind, "param": None, "code": None}}


def _anthropic_error(status: int, words: str) -> dict:
    return {"type": "error", "error": {"type": _TYPES.get(status, "api_error"), "message": words}}


def _gemini_error(status: int, words: str) -> dict:
    return {"error": {"code": status, "message": words, "status": _GOOGLE.get(status, "UNKNOWN")}}


def _data(value: dict) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _ids(names: tuple[str, ...]) -> dict:
    return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}


def _google_models(names: tuple[str, ...]) -> dict:
    methods = ["generateContent", "countTokens"]
    return {"models": [{"name": f"models/{name}", "supportedGenerationMethods": methods} for name in names]}


WIRES: dict[str, Wire] = {
    "openai": Wire(
        re.compile(r".*/chat/completions(\?.*)?"),
        re.compile(r".*/models(\?.*)?"),
        "authorization",
        "Bearer ",
        lambda body, model: openai_rules.violations(body),
        Reply.answer,
        _openai_error,
        lambda status, words: _data(_openai_error(status, words)),
        _ids,
    ),
    "openai-responses": Wire(
        re.compile(r".*/v1/responses"),
        re.compile(r".*/v1/models"),
        "authorization",
        "Bearer ",
        lambda body, model: responses_rules.violations(body),
        _responses,
        _openai_error,
        lambda status, words: _named(
            "error", {"code": _openai_error(status, "")["error"]["type"], "message": words}
        ),
        _ids,
    ),
    "anthropic": Wire(
        re.compile(r"/v1/messages"),
        re.compile(r"/v1/models\?limit=1000"),
        "x-api-key",
        "",
        lambda body, model: anthropic_rules.violations(body),
        _anthropic,
        _anthropic_error,
        lambda status, words: _named("error", _anthropic_error(status, words)),
        _ids,
    ),
    "gemini": Wire(
        re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):streamGenerateContent\?alt=sse"),
        re.compile(r"/v1(?:beta)?/models\?pageSize=1000"),
        "x-goog-api-key",
        "",
        gemini_rules.violations,
        _gemini,
        _gemini_error,
        lambda status, words: _data(_gemini_error(status, words)),
        _google_models,
    ),
    "ollama": Wire(
        re.compile(r"/api/chat"),
        re.compile(r"/api/tags"),
        "authorization",
        "Bearer ",
        lambda body, model: ollama_rules.violations(body),
        _ollama,
        lambda status, words: {"error": words},
        lambda status, words: json.dumps({"error": words}).encode() + b"\n",
        lambda names: {"models": [{"name": name, "model": name} for name in names]},
    ),
}

"""Logs that take messages apart: an object with a direction and the parts of a message -> the message itself.

Pure functions, any thread. Two are known: Zed's log of ACP messages, and the traces of the conductor of the
official Rust SDK, which joins an editor, proxies and an agent.
"""

from __future__ import annotations

from acpserver.validate.findings import AGENT, CLIENT

Json = dict[str, object]

_KINDS = ("request", "response", "notification")


def is_zed(value: Json) -> bool:
    """Whether this is an element of Zed's log."""
    return value.get("_direction") in ("incoming", "outgoing", "stderr") and "_type" in value


def from_zed(value: Json) -> Json:
    """The message of an element: the result, or the error, of an answer stands under `params`."""
    if value.get("_type") == "response":
        content = value.get("params")
        is_error = isinstance(content, dict) and {"code", "message"} <= set(content)
        return _answer(value.get("id"), content, is_error)
    return _call(value, value.get("id") is not None)


def is_conducted(value: Json) -> bool:
    """Whether this is an event of a conductor's trace: a message, or a line of a program's log."""
    if "jsonrpc" in value or "ts" not in value:
        return False
    return value.get("type") == "trace" or (value.get("type") in _KINDS and "from" in value and "to" in value)


def from_conducted(value: Json) -> tuple[str, Json] | None:
    """(sender, message) of an event that the client sends or gets; None for what passes between others."""
    if CLIENT not in (value.get("from"), value.get("to")) or value.get("protocol", "acp") != "acp":
        return None
    sender = CLIENT if value["from"] == CLIENT else AGENT
    if value.get("type") == "response":
        return sender, _answer(value.get("id"), value.get("payload"), value.get("is_error") is True)
    return sender, _call(value, value.get("type") == "request")


def _answer(request_id: object, content: object, is_error: bool) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "error" if is_error else "result": content}


def _call(value: Json, is_request: bool) -> Json:
    params = {} if value.get("params") is None else {"params": value["params"]}
    name = {"id": value.get("id")} if is_request else {}
    return {"jsonrpc": "2.0", **name, "method": value.get("method"), **params}

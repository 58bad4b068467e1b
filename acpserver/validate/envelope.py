"""The envelope: is it a JSON-RPC 2.0 message at all, and of which kind. Pure functions, any thread.

Nothing is raised: what is wrong comes back as breaches beside what could still be read.
"""

from __future__ import annotations

from typing import NamedTuple

from acpserver.rpc.message import usable_id
from acpserver.validate.documents import begins
from acpserver.validate.findings import AGENT, REMARK, WARNING, Entry
from acpserver.validate.state import Breach

CALL, ANSWER, UNREADABLE, NONSENSE, BATCH = "call", "answer", "unreadable", "nonsense", "batch"
_ABSENT = object()


class Envelope(NamedTuple):
    """What one line turned out to be."""

    kind: str
    """One of the constants of this module."""
    breaches: list[Breach]
    id: object = None
    """A usable id, or None."""
    method: str = ""
    params: object = None
    result: object = None
    error: object = None


def open_envelope(entry: Entry) -> Envelope:
    """Take one message out of its envelope (JSON-RPC 2.0, sections 4 and 5; ACP has no batches).

    What is no message, in a recording that does not tell whose it is, is only a warning.
    """
    opened = _open(entry)
    if entry.is_sure or opened.kind in (CALL, ANSWER):
        return opened
    return opened._replace(breaches=[_doubted(breach) for breach in opened.breaches])


def _doubted(breach: Breach) -> Breach:
    text = f"{breach.text} (if the {breach.side} sent this, and not the log)"
    return breach._replace(level=WARNING, text=text)


def _open(entry: Entry) -> Envelope:
    message = entry.message
    if entry.problem:
        return Envelope(UNREADABLE, [_unreadable(entry)])
    if isinstance(message, list):
        text = "a batch; ACP has one message on each line"
        return Envelope(BATCH, [Breach("J10", entry.sender, "", text)])
    if not isinstance(message, dict):
        text = f"a message must be an object, this is {_name(message)}"
        return Envelope(NONSENSE, [Breach("J5", entry.sender, "", text)])
    breaches = [_spread(entry)] if entry.lines > 1 else []
    if message.get("jsonrpc") != "2.0":
        found = f"found {_short(message['jsonrpc'])}" if "jsonrpc" in message else "it is missing"
        breaches.append(Breach("J1", entry.sender, "jsonrpc", f'every message has "jsonrpc": "2.0"; {found}'))
    if "method" in message:
        return _call(entry.sender, message, breaches)
    if {"id", "result", "error"} & set(message):
        return _answer(entry.sender, message, breaches)
    breaches.append(Breach("J5", entry.sender, "", "neither a request, a notification nor an answer"))
    return Envelope(NONSENSE, breaches)


def _unreadable(entry: Entry) -> Breach:
    line = entry.text.strip()
    if entry.sender == AGENT and line[:1] not in ("{", "}", "["):
        return Breach("T2", entry.sender, "", f"stdout carries protocol messages only: {entry.problem}")
    breaks_off = begins(line.encode("utf-8", "replace"))
    reason = "this one does not end on its line" if breaks_off else entry.problem
    return Breach("T1", entry.sender, "", f"one JSON message on each line, in UTF-8: {reason}")


def _spread(entry: Entry) -> Breach:
    text = f"this message stands on {entry.lines} lines: right if only the log spreads it (said once)"
    return Breach("T1", entry.sender, "", text, REMARK)


def _call(sender: str, message: dict[str, object], breaches: list[Breach]) -> Envelope:
    method, request_id = message["method"], usable_id(message.get("id"))
    if not isinstance(method, str):
        breaches.append(Breach("J5", sender, "method", f"the method must be text, found {_name(method)}"))
        return Envelope(NONSENSE, breaches, request_id)
    if "id" in message and request_id is None:
        text = f"the id of a request must be a number or a string, found {_name(message['id'])}"
        breaches.append(Breach("J5", sender, "id", text))
        return Envelope(NONSENSE, breaches)
    for name in ("result", "error"):
        if name in message:
            breaches.append(Breach("J5", sender, name, f"a message with a method has no {name}"))
    return Envelope(CALL, breaches, request_id, method, message.get("params"))


def _answer(sender: str, message: dict[str, object], breaches: list[Breach]) -> Envelope:
    request_id = usable_id(message.get("id"))
    result, error = message.get("result", _ABSENT), message.get("error", _ABSENT)
    if result is not _ABSENT and error is not _ABSENT:
        extra = " (even error: null is one too many)" if error is None else ""
        breaches.append(Breach("J2", sender, "error", f"an answer has result or error, never both{extra}"))
    elif result is _ABSENT and error is _ABSENT:
        breaches.append(Breach("J2", sender, "", "an answer needs a result or an error"))
    if request_id is None and (message.get("id") is not None or error is _ABSENT):
        text = "an answer carries the id of its request"
        breaches.append(Breach("J2", sender, "id", text))
        return Envelope(NONSENSE, breaches)
    if error is _ABSENT or result is not _ABSENT:  # of both, the result is what most readers take
        return Envelope(ANSWER, breaches, request_id, result=None if result is _ABSENT else result)
    return Envelope(ANSWER, breaches, request_id, error={} if error is None else error)


_NAMES = {
    str: "a string", dict: "an object", list: "a list", int: "a number", float: "a number",
    bool: "true or false", type(None): "null",
}  # fmt: skip


def _name(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _short(value: object) -> str:
    return repr(value)[:40]

"""A conversation as something to look at: one row for each message, one span for what takes time.

One thread. Rows come out as the messages come in; only what is open, and the spans, are kept. Nothing
here judges, and nothing is raised for what is in the messages.
"""

from __future__ import annotations

from typing import NamedTuple

from acpserver.validate import summary
from acpserver.validate.findings import AGENT, Entry, other
from acpserver.validate.state import Json, key, object_of, text

REQUEST, NOTIFICATION, RESPONSE, ERROR, BROKEN = "request", "notification", "response", "error", "broken"
TURN, TOOL, WAIT, CALL = "turn", "tool", "wait", "call"

ENDS = ("completed", "failed")
"""Statuses with which a tool call ends."""


class Row(NamedTuple):
    """One message. Rows count from 0."""

    line: int
    time: float | None
    side: str
    kind: str
    method: str
    """Of a response: the method that it answers. "" when unknown."""
    tag: str
    """The kind of a `session/update`, else ""."""
    id: str
    """The id as JSON, "" for a notification."""
    session: str
    summary: str
    answers: int | None
    """The row of the request that this answers."""


class Span(NamedTuple):
    """Something that takes from one row to another."""

    kind: str
    """`TURN`, `TOOL`, `WAIT` (for a permission) or `CALL` (any other request)."""
    side: str
    """Who is at work meanwhile."""
    first: int
    last: int | None
    """None when the conversation ends before."""
    label: str
    has_end: bool
    """False for what should have ended by itself, such as a tool call that its turn did not wait for."""
    session: str


class _Open(NamedTuple):
    """A request without an answer, or a tool call that goes on."""

    row: int
    kind: str
    side: str
    label: str
    method: str
    session: str


class Timeline:
    """Lays out one conversation, message by message."""

    def __init__(self) -> None:
        self._count = 0
        self._requests: dict[tuple[str, str], _Open] = {}
        """By the side that must answer, and the id."""
        self._tools: dict[str, dict[str, _Open]] = {}
        """By session and by tool call id."""
        self._spans: list[Span] = []

    def add(self, entry: Entry) -> Row:
        """The row of the next message."""
        message = entry.message
        if not isinstance(message, dict):
            row = _row(entry, BROKEN, entry.problem or "not an object")
        elif "method" in message:
            row = self._call(entry, message)
        elif "id" in message and ("result" in message or "error" in message):
            row = self._answer(entry, message)
        else:
            row = _row(entry, BROKEN, "neither a request, a notification nor an answer")
        self._count += 1
        return row

    def finish(self) -> list[Span]:
        """All spans, in the order in which they began. What is still open has no last row."""
        tools = [call for calls in self._tools.values() for call in calls.values()]
        for left in [*self._requests.values(), *tools]:
            self._spans.append(_span(left, None, False))
        return sorted(self._spans, key=lambda span: (span.first, -_end(span)))

    def _call(self, entry: Entry, message: Json) -> Row:
        params = message.get("params")
        method, session = text(message, "method"), text(params, "sessionId")
        about = summary.of_call(params)
        row = _row(entry, NOTIFICATION, about)._replace(method=method, session=session)
        if "id" in message:
            request_id = key(message["id"])
            self._begin(entry.sender, request_id, method, session, about, params)
            return row._replace(kind=REQUEST, id=request_id)
        if method == "session/update":
            self._update(session, object_of(params, "update"))
            return row._replace(tag=summary.update_kind(params))
        return row

    def _begin(
        self, sender: str, request_id: str, method: str, session: str, about: str, params: object
    ) -> None:
        kind = {"session/prompt": TURN, "session/request_permission": WAIT}.get(method, CALL)
        label = f"{method} {about}".rstrip()
        side = other(sender)
        self._requests[side, request_id] = _Open(self._count, kind, side, label, method, session)

    def _answer(self, entry: Entry, message: Json) -> Row:
        request_id = key(message["id"])
        is_error = "error" in message
        about = summary.of_error(message["error"]) if is_error else summary.of_answer(message["result"])
        row = _row(entry, ERROR if is_error else RESPONSE, about)._replace(id=request_id)
        asked = self._requests.pop((entry.sender, request_id), None)
        if asked is None:
            return row
        if asked.kind == TURN or asked.method == "session/load":
            self._end_tools(asked.session)
        self._end(asked)
        session = asked.session or text(message.get("result"), "sessionId")
        return row._replace(method=asked.method, session=session, answers=asked.row)

    def _update(self, session: str, update: Json) -> None:
        """A tool call begins or ends."""
        call_id, kind = text(update, "toolCallId"), text(update, "sessionUpdate")
        if not call_id or kind not in ("tool_call", "tool_call_update"):
            return
        calls = self._tools.setdefault(session, {})
        if kind == "tool_call" and call_id not in calls:
            label = text(update, "title") or call_id
            calls[call_id] = _Open(self._count, TOOL, AGENT, label[: summary.LONGEST], "", session)
        if text(update, "status") in ENDS and call_id in calls:
            self._end(calls.pop(call_id))

    def _end_tools(self, session: str) -> None:
        """A turn is over: so are its tool calls, whether they were ended or not."""
        for call in self._tools.pop(session, {}).values():
            self._end(call, has_end=False)

    def _end(self, what: _Open, has_end: bool = True) -> None:
        self._spans.append(_span(what, self._count, has_end))


def _row(entry: Entry, kind: str, about: str) -> Row:
    """A row of which nothing more is known."""
    return Row(entry.line, entry.time, entry.sender, kind, "", "", "", "", about, None)


def _span(what: _Open, last: int | None, has_end: bool) -> Span:
    return Span(what.kind, what.side, what.row, last, what.label, has_end, what.session)


def _end(span: Span) -> float:
    """For the order: of two that begin together, the longer one first."""
    return float("inf") if span.last is None else span.last

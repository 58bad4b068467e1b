"""Who sent which message of a recording, where it only says "in" and "out", or nothing at all.

One thread for one recording. A call shows its sender when only one side may send it; an answer comes from the
side that did not ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from acpserver import jsontext
from acpserver.rpc import legacy
from acpserver.rpc.definitions import Method, definitions, methods
from acpserver.validate.findings import AGENT, CLIENT, Entry, other

OUT, IN = "out", "in"  # as the one sees it who wrote the log; which side that is shows later
_HELD = 1000  # messages that wait until it is known which side the directions are told from


class Raw(NamedTuple):
    """An entry before it is known who sent it. `label` is a side, OUT, IN, or "" for unknown."""

    line: int
    time: float | None
    label: str
    message: object
    text: str
    problem: str
    size: int
    is_sure: bool = True
    lines: int = 1


class _Sides:
    """Who sends what, as far as the messages show it."""

    def __init__(self) -> None:
        self.outward = ""
        """The side whose log it is, once a call has shown it."""
        self._open: dict[str, deque[_Asked]] = {}
        """Requests without an answer by the JSON text of the id, the oldest first."""

    def of_call(self, message: object) -> str:
        """The side that may send this call; "" for one that either side may send."""
        method = message.get("method") if isinstance(message, dict) else None
        if not isinstance(method, str):
            return ""
        known = _method(method)
        return "" if known is None or known.receiver == "both" else other(known.receiver)

    def guess(self, message: object, problem: str) -> str:
        """The side of a message whose direction was not recorded."""
        if problem or not isinstance(message, dict):
            return AGENT
        request_id = jsontext.dumps(message.get("id"))
        if "method" in message:
            side = self.of_call(message) or CLIENT
            if message.get("method") == "$/cancel_request" and isinstance(message.get("params"), dict):
                wanted = jsontext.dumps(message["params"].get("requestId"))
                side = next((asked.side for asked in self._open.get(wanted, ())), CLIENT)
            elif "id" in message:
                request = _Asked(side, str(message["method"]))
                self._open.setdefault(request_id, deque()).append(request)
            return side
        asked = self._open.get(request_id)
        if not asked:
            return AGENT
        request = _answered(asked, message) if len({one.side for one in asked}) > 1 else asked[0]
        asked.remove(request)
        if not asked:
            del self._open[request_id]
        return other(request.side)


class _Asked(NamedTuple):
    """A request without an answer."""

    side: str
    method: str


def _answered(asked: Iterable[_Asked], message: dict[str, object]) -> _Asked:
    """Which request this answers, when both sides use the same id: the one whose result must have the most
    of the fields that are there. If that does not tell, the youngest, since the agent asks within a turn."""
    result = message.get("result")
    fields = set(result) if isinstance(result, dict) else set()

    def likeness(request: _Asked) -> int:
        known = _method(request.method)
        needed = definitions()[known.result].get("required", ()) if known and known.result else ()
        if "error" in message or known is None:
            return 0
        return len(needed) if fields.issuperset(needed) else -1

    return max(reversed(tuple(asked)), key=likeness)


def _method(name: str) -> Method | None:
    return methods().get(legacy.METHODS.get(name, name))


def with_sides(raws: Iterable[Raw]) -> Iterator[Entry]:
    """The entries of a recording, each with its sender."""
    sides = _Sides()
    waiting: list[Raw] = []
    for raw in raws:
        if raw.label in (OUT, IN) and not sides.outward:
            sender = sides.of_call(raw.message)
            if sender:
                sides.outward = sender if raw.label == OUT else other(sender)
            elif len(waiting) < _HELD:
                waiting.append(raw)
                continue
        yield from (_entry(early, sides) for early in waiting)
        waiting.clear()
        yield _entry(raw, sides)
    yield from (_entry(early, sides) for early in waiting)


def _entry(raw: Raw, sides: _Sides) -> Entry:
    outward = sides.outward or AGENT  # a log of which nothing is known is taken for an agent's
    by_label = {OUT: outward, IN: other(outward), CLIENT: CLIENT, AGENT: AGENT}
    sender = by_label.get(raw.label) or sides.guess(raw.message, raw.problem)
    return Entry(raw.line, raw.time, sender, *raw[3:])  # what follows the label is the same in both

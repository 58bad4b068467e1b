"""The life of requests: every one answered once, by the right side, with the right id and the right code.

Rules J2 to J11, and I1 for what comes before the handshake. One thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from acpserver.validate.envelope import BATCH, NONSENSE, UNREADABLE, Envelope
from acpserver.validate.findings import AGENT, CLIENT, REMARK, WARNING, Entry, other
from acpserver.validate.state import Answer, Breach, Call, Mark, Recent, key, since, text
from acpserver.validate.world import World

_OVERDUE_SECONDS = 10.0
_LONG_LINE = 65_536  # bytes; a reader with a smaller limit breaks T5
_LOOKED_AT = 100  # open requests that an answer may have been meant for
_SHADOWED = "{} {}"  # the key of an open request whose id is used again: the id, and a number
_TRACEBACKS = ("Traceback (most recent call last)", "\n    at ", "panicked at ")


class Requests:
    """Matches answers with requests, and judges whether and how they are answered."""

    def __init__(self, world: World):
        self._world = world
        self._order = 0
        self._shadows: dict[tuple[str, str], list[str]] = {}
        """Keys of open requests whose id was used again, by side and id, the oldest first."""
        self._last_answered = {CLIENT: 0, AGENT: 0}
        """Order of the youngest answered request of each side."""
        self._unreadable: deque[tuple[str, Mark]] = deque()
        """Lines of the client that can only be answered with id null, and the rule for each."""
        self._doubted = 0
        """Lines that are no message, in a recording that does not tell whose they are."""
        self._has_gaps = False
        """Whether one of them is a piece of a message: what that one said is not known."""
        self._last_notification: Mark | None = None
        self._longest: tuple[int, Mark] | None = None
        self._stray: Recent = Recent()
        """Ids of answers of the client that nobody asked for."""

    def broken(self, entry: Entry, envelope: Envelope, mark: Mark) -> None:
        """A message is none: when it is the client's, the agent must say so."""
        if not entry.is_sure:
            self._doubted += 1
            self._has_gaps = self._has_gaps or entry.text.lstrip().startswith("{")
            return
        if entry.sender != CLIENT or envelope.kind not in (UNREADABLE, NONSENSE, BATCH):
            return
        rule = {UNREADABLE: "J4", NONSENSE: "J5", BATCH: "J10"}[envelope.kind]
        if envelope.kind == NONSENSE and any(breach.rule == "J2" for breach in envelope.breaches):
            return  # an answer without a usable id is nothing to answer
        self._unreadable.append((rule, mark))

    def called(self, call: Call, size: int) -> Iterator[Breach]:
        """A request or a notification was sent."""
        self._order += 1
        call.order = self._order
        if call.side == CLIENT:
            self._longest = (size, call.mark)
        if not call.is_request:
            if call.side == CLIENT:
                self._last_notification = call.mark
            return
        name = key(call.id)
        open_ones = self._world.open[call.side]
        if name in open_ones:
            related = open_ones[name].mark.line
            yield Breach("J11", call.side, "id", f"id {name} is still in use by a request", related=related)
            shadow = _SHADOWED.format(name, call.order)
            open_ones[shadow] = open_ones.pop(name)
            self._shadows.setdefault((call.side, name), []).append(shadow)
        open_ones[name] = call

    def nameless(self, side: str, error: object, mark: Mark) -> Iterator[Breach]:
        """An error with `id: null`: right for a line of the client that could not be read, else wrong."""
        code = error.get("code") if isinstance(error, dict) else None
        if side == CLIENT:
            yield Breach("J3", side, "id", "an error with id null answers nothing of the agent's", WARNING)
            return
        if self._unreadable:
            rule, where = self._unreadable.popleft()
            wanted = -32700 if rule == "J4" else -32600
            if code != wanted:
                yield Breach(
                    rule, side, "error.code", f"{wanted} is due here, not {code}", related=where.line
                )
            return
        if self._doubted:
            self._doubted -= 1  # that line was the client's
            return
        if code == -32700 and self._longest and self._longest[0] >= _LONG_LINE:
            size, where = self._longest
            yield Breach("T5", side, "", f"a line of {size} bytes was not read", related=where.line)
        elif self._last_notification and code != -32700:
            line = self._last_notification.line
            yield Breach("J3", side, "id", "a notification is never answered", related=line)
        else:
            yield Breach("J4", side, "id", "id null, but no line of the client was unreadable")

    def match(
        self, side: str, request_id: object, mark: Mark, fits: Callable[[Call], bool]
    ) -> tuple[Call | None, list[Breach]]:
        """The request that an answer of `side` is for. `fits` tells whether it may be the answer to one."""
        asker = other(side)
        name = key(request_id)
        call = self._take(asker, name, fits)
        if call is not None:
            self._world.answered[asker].add(name, mark.line)
            self._last_answered[asker] = max(self._last_answered[asker], call.order)
            return call, []
        near = self._nearly(asker, name)
        if near is not None:
            call = self._world.open[asker].pop(near)
            reason = f"the request's id is {near}, the answer's {name}: value and type must agree"
            return call, [Breach("J2", side, "id", reason, related=call.mark.line)]
        return None, [self._unmatched(side, name)]

    def _take(self, asker: str, name: str, fits: Callable[[Call], bool]) -> Call | None:
        """Take the oldest open request with this id; of several, the oldest one that the answer fits."""
        waiting = self._world.open[asker]
        shadows = self._shadows.get((asker, name))
        if not shadows:
            return waiting.pop(name, None)
        same = [*shadows[:_LOOKED_AT], *([name] if name in waiting else ())]
        found = next((one for one in same if fits(waiting[one])), same[0])
        if found != name:
            shadows.remove(found)
        return waiting.pop(found)

    def _nearly(self, asker: str, name: str) -> str | None:
        """The open request that an answer with this id was meant for, when only the type is wrong."""
        if name in self._world.answered[asker]:
            return None
        number = _number(name)
        for found in islice(self._world.open[asker], _LOOKED_AT):
            if found.strip('"') == name.strip('"') or (number is not None and _number(found) == number):
                return found
        return None

    def _unmatched(self, side: str, name: str) -> Breach:
        before = self._world.answered[other(side)].get(name)
        if isinstance(before, int):
            return Breach("J2", side, "id", f"request {name} has been answered before", related=before)
        if side == AGENT and name in self._stray:
            line = self._stray.get(name)
            related = line if isinstance(line, int) else None
            reason = "an answer is never answered, not even one nobody asked for"
            return Breach("J9", side, "id", reason, related=related)
        reason = f"no request with id {name} was sent"
        if self._has_gaps:
            return Breach("J2", side, "id", f"{reason}, unless in a line that could not be read", REMARK)
        return Breach("J2", side, "id", reason)

    def stray(self, name: object, mark: Mark) -> None:
        """Remember an answer of the client that nobody asked for."""
        self._stray.add(key(name), mark.line)

    def answered(self, answer: Answer, is_known: bool) -> Iterator[Breach]:
        """A request was answered: with a fitting code?"""
        call = answer.call
        related = call.mark.line
        if answer.error is not None:
            yield from self._judge_error(answer, is_known, related)
            return
        if call.faults and answer.side == AGENT:
            place = call.faults[0].path
            reason = f"params that do not fit ({place}) are answered with -32602, here with a result"
            yield Breach("J7", answer.side, "", reason, REMARK, related)
        if not is_known and not call.method.startswith("_"):
            reason = (
                f"{call.method} is no method of the protocol: -32601 is due, unless it is one of your own"
            )
            yield Breach("J6", answer.side, "", reason, WARNING, related)

    def _judge_error(self, answer: Answer, is_known: bool, related: int) -> Iterator[Breach]:
        call, code = answer.call, answer.code
        if answer.is_damaged:
            return
        message = text(answer.error, "message") + " " + repr((answer.error or {}).get("data", ""))[:4000]
        if any(trace in message.replace("\\n", "\n") for trace in _TRACEBACKS):
            yield Breach("J8", answer.side, "error", "a traceback on the wire; it belongs on stderr")
        if not is_known and code not in (-32601, -32600, -32000):
            reason = f"{call.method} is no method of this side: -32601 is due, not {code}"
            yield Breach("J6", answer.side, "error.code", reason, related=related)
        if call.side != CLIENT:
            return
        if call.faults and is_known and code not in (-32602, -32600, -32000, -32002, -32601):
            reason = f"params that do not fit ({call.faults[0].path}) are answered with -32602, not {code}"
            yield Breach("J7", answer.side, "error.code", reason, related=related)

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """What was never answered."""
        for rule, where in self._unreadable:
            code = -32700 if rule == "J4" else -32600
            reason = f"this line of the client was never answered (error {code} with id null is due)"
            yield Breach(rule, AGENT, "", reason, related=where.line, at=where)
        for side, calls in self._world.open.items():
            for call in calls.values():
                yield from self._unanswered(side, call, end)

    def _unanswered(self, side: str, call: Call, end: Mark | None) -> Iterator[Breach]:
        if call.withdrawn and side == AGENT:
            return  # many clients give no answer to what was withdrawn
        waited = since(call.mark.time, end.time if end else None)
        is_prompt = call.method == "session/prompt"
        overtaken = self._last_answered[side] > call.order and not is_prompt
        if call.withdrawn and is_prompt:
            return  # C1 says it
        reason = f"{call.method} (id {key(call.id)}) was never answered"
        if self._has_gaps:
            yield Breach(
                "J2", other(side), "", f"{reason} in a line that could be read", REMARK, at=call.mark
            )
        elif overtaken or (waited is not None and waited >= _OVERDUE_SECONDS and not is_prompt):
            yield Breach("J2", other(side), "", reason, at=call.mark)
        else:
            yield Breach("J2", other(side), "", f"{reason}: the recording ends before", REMARK, at=call.mark)


def _number(name: str) -> float | None:
    try:
        return float(name.strip('"'))
    except ValueError:
        return None

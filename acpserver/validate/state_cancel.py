"""Cancelling: what it ends, what may come after it, and what it must not touch.

Rules C1, C2, C4 to C6 and C8. Writes down which turns are cancelled. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from acpserver.validate.findings import AGENT, CLIENT, ERROR, REMARK, WARNING, other
from acpserver.validate.state import (
    Answer,
    Breach,
    Call,
    Mark,
    Session,
    Turn,
    key,
    object_of,
    since,
    text,
)
from acpserver.validate.world import World

_CROSSING_SECONDS = 0.5  # what the agent sends so soon after a cancel may have crossed it
_PATIENCE_SECONDS = 2.0  # for the answers that a cancel leads to, at the end of a recording
_PATIENCE_LINES = 20  # the same where no times were recorded
_NEW_WORK = ("fs/read_text_file", "fs/write_text_file", "terminal/create", "session/request_permission")


class Cancelling:
    """Follows `session/cancel` and `$/cancel_request`."""

    def __init__(self, world: World):
        self._world = world

    def called(self, call: Call) -> Iterator[Breach]:
        """A cancel, or what comes after one."""
        if call.method == "$/cancel_request":
            yield from self._withdrawn(call)
            return
        session = self._world.session(call.session)
        if session is None:
            return
        if call.method == "session/cancel" and call.side == CLIENT:
            session.last_cancel = call.mark
            for turn in session.turns:
                turn.cancelled = turn.cancelled or call.mark
                turn.call.withdrawn = turn.call.withdrawn or call.mark
            if not session.turns:
                session.stray_cancel = call.mark
        elif call.method in ("session/close", "session/delete") and call.side == CLIENT:
            for turn in session.turns:
                turn.cancelled = turn.cancelled or call.mark
        elif call.side == AGENT and session.turn and session.turn.cancelled:
            yield from _new_work(call, session.turn.cancelled)

    def _withdrawn(self, call: Call) -> Iterator[Breach]:
        wanted = call.params.get("requestId")
        if wanted is None:
            return
        request = self._world.open[call.side].get(key(wanted))
        if request is None:
            if key(wanted) not in self._world.answered[call.side] and not self._world.is_blurred:
                yield Breach(
                    "C6", call.side, "params.requestId", f"no request {key(wanted)} was sent", WARNING
                )
            return
        request.withdrawn = request.withdrawn or call.mark
        session = self._world.session(request.session)
        turn = session.turn_of(request) if session else None
        if turn is not None:
            turn.cancelled = turn.cancelled or call.mark

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """The end of what was cancelled."""
        call = answer.call
        session = self._world.session(call.session)
        if call.method == "session/prompt":
            turn = session.turn_of(call) if session else None
            if session and turn:
                yield from self._ended(session, turn, answer)
        elif call.withdrawn and answer.error is not None and answer.code != -32800 and not call.faults:
            reason = f"a withdrawn request ends with -32800 or its result, not {answer.code}"
            yield Breach("C6", answer.side, "error.code", reason, WARNING, call.withdrawn.line)
        if call.method == "session/request_permission" and session and session.turn:
            outcome = text(object_of(answer.result, "outcome"), "outcome")
            cancelled = session.turn.cancelled
            if cancelled and outcome == "selected" and not call.withdrawn:
                reason = "the turn was cancelled; the outcome is cancelled too"
                yield Breach("C8", CLIENT, "result.outcome", reason, related=cancelled.line)

    def _ended(self, session: Session, turn: Turn, answer: Answer) -> Iterator[Breach]:
        stop = text(answer.result, "stopReason")
        if turn.cancelled is None:
            if stop == "cancelled" and session.stray_cancel:
                related = session.stray_cancel.line
                reason = "this turn was cancelled by a cancel that came before it"
                yield Breach("C5", AGENT, "result.stopReason", reason, related=related)
            return
        session.stray_cancel = None
        related = turn.cancelled.line
        if answer.error is not None and answer.code != -32800:
            yield Breach(
                "C1", AGENT, "error", "a cancelled prompt answers cancelled, never an error", related=related
            )
        elif answer.error is None and stop and stop != "cancelled":
            waited = since(turn.cancelled.time, answer.mark.time)
            level = REMARK if waited is not None and waited < _CROSSING_SECONDS / 5 else ERROR
            reason = f"a cancelled prompt answers cancelled, not {stop}"
            yield Breach("C1", AGENT, "result.stopReason", reason, level, related)
        for request in self._world.open[AGENT].values():
            if request.session == session.id and not request.withdrawn:
                reason = f"{request.method} (id {key(request.id)}) is left open without $/cancel_request"
                yield Breach("C4", AGENT, "", reason, related=request.mark.line)

    def disturbed(self, side: str) -> None:
        """A lost message may have been a cancel; `Sessions` has marked that."""

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """Cancelled prompts without an answer, and permissions that the client left open."""
        for session in self._world.sessions.values():
            for turn in session.turns:
                if turn.cancelled:
                    related = turn.cancelled.line
                    reason, level = "this prompt was cancelled and never answered", ""
                    if not _is_long_ago(turn.cancelled, end):
                        reason, level = f"{reason}: the recording ends before", REMARK
                    yield Breach("C1", AGENT, "", reason, level, related, turn.call.mark)
        for request in self._world.requests(AGENT, "session/request_permission"):
            session_ = self._world.session(request.session)
            cancelled = session_.last_cancel if session_ else None
            was_open = cancelled and cancelled.line > request.mark.line and not request.withdrawn
            if cancelled and was_open and _is_long_ago(cancelled, end):
                reason = "open at session/cancel, and not answered with cancelled"
                yield Breach("C8", CLIENT, "", reason, related=cancelled.line, at=request.mark)


def _is_long_ago(cancelled: Mark, end: Mark | None) -> bool:
    """Whether a cancel was so long before the end of the recording that it should have shown its effect."""
    if end is None:
        return False
    waited = since(cancelled.time, end.time)
    return end.line - cancelled.line >= _PATIENCE_LINES if waited is None else waited >= _PATIENCE_SECONDS


def _new_work(call: Call, cancelled: Mark) -> Iterator[Breach]:
    update = object_of(call.params, "update")
    kind = text(update, "sessionUpdate")
    is_start = kind == "tool_call" or (kind == "tool_call_update" and text(update, "status") == "in_progress")
    if not is_start and call.method not in _NEW_WORK:
        return
    waited = since(cancelled.time, call.mark.time)
    if waited is not None and waited < _CROSSING_SECONDS:
        return
    what = kind or call.method
    level = WARNING if waited is None else ERROR
    yield Breach("C2", other(CLIENT), "", f"{what} after the turn was cancelled", level, cancelled.line)

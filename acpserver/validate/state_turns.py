"""Prompt turns: what may be sent in one, in which order turns end, and how.

Rules P1 to P8, S12 and T3. Writes down which turns run; it is the last to hear of an answer, because it
forgets the turn. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from acpserver.validate.findings import AGENT, CLIENT, REMARK, WARNING
from acpserver.validate.state import (
    Answer,
    Breach,
    Call,
    Json,
    Mark,
    Session,
    Turn,
    object_of,
    objects,
    since,
    text,
)
from acpserver.validate.state_sessions import REPLAYED
from acpserver.validate.world import World

_BLOCK_NEEDS = {"image": "image", "audio": "audio", "resource": "embeddedContext"}
_PLAIN = ("text", "resource_link")
_CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_SLOW_SECONDS = 2.0  # to handle a request beside a running turn
_AT_ONCE_SECONDS = 0.5  # after the turn's end: what is answered later was slow by itself
_MAY_WAIT = ("session/prompt", "session/close", "session/delete", "session/load", "session/fork")
_HERE = "params.update"


class Turns:
    """Follows prompts from the request to the answer."""

    def __init__(self, world: World):
        self._world = world
        self._running: dict[int, Turn] = {}
        """Open turns of all sessions by the order of their prompts, the oldest first."""
        self._beside: dict[int, Turn] = {}
        """Requests of the client (by order) that came while this turn ran."""
        self._unasked: list[Breach] = []
        """Turns that ended as cancelled though nobody asked for it; right only at the end of the process."""

    def called(self, call: Call) -> Iterator[Breach]:
        """A prompt, an update, or a request that comes while a turn runs."""
        session = self._world.session(call.session)
        if call.side == CLIENT and self._unasked:
            yield from self._unasked
            self._unasked.clear()
        if call.side == CLIENT and call.is_request and call.method not in _MAY_WAIT:
            running = next(iter(self._running.values()), None)
            if running:
                self._beside[call.order] = running
        if session is None:
            return
        if call.method == "session/prompt" and call.side == CLIENT:
            yield from self._begun(session, call)
        elif call.method == "session/update" and call.side == AGENT:
            yield from self._updated(session, call)

    def _begun(self, session: Session, call: Call) -> Iterator[Breach]:
        for index, block in enumerate(objects(call.params, "prompt")):
            needed = _BLOCK_NEEDS.get(text(block, "type"))
            if needed and not self._world.can(AGENT, "promptCapabilities", needed):
                reason = f"{text(block, 'type')} needs promptCapabilities.{needed}, which was not announced"
                yield Breach("P1", CLIENT, f"params.prompt[{index}].type", reason)
        if call.is_request:
            turn = self._running[call.order] = Turn(call)
            session.turns.append(turn)
            session.turn_count += 1

    def _updated(self, session: Session, call: Call) -> Iterator[Breach]:
        update = object_of(call.params, "update")
        kind = text(update, "sessionUpdate")
        busy = session.turns or session.loads or session.resumes
        if kind in REPLAYED and not busy and session.is_open and not self._world.is_blurred:
            yield self._late(session, kind)
        if kind in _CHUNKS:
            session.has_text = True
            yield from _message(session, kind, update)
        elif kind == "plan":
            yield from _plan(session, update)
        elif kind == "session_info_update":
            session.titled = True
        elif kind == "usage_update":
            session.metered = True

    def _late(self, session: Session, kind: str) -> Breach:
        place = f"{_HERE}.sessionUpdate"
        if session.is_loaded and session.turn_count == 0:
            return Breach("S2", AGENT, place, f"{kind} after session/load was answered")
        if session.last_answer is None:  # nobody can take it for a part of a turn that has ended
            return Breach("P2", AGENT, place, f"{kind} before the first turn", WARNING)
        related = session.last_answer.line
        return Breach("P2", AGENT, place, f"{kind} while no turn runs", related=related)

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """The end of a turn, or of what was asked beside one."""
        call = answer.call
        beside = self._beside.pop(call.order, None)
        if beside is not None and beside.ended is not None:
            waited = since(call.mark.time, answer.mark.time) or 0.0
            after = since(beside.ended.time, answer.mark.time) or 0.0
            if waited >= _SLOW_SECONDS and after <= _AT_ONCE_SECONDS:
                reason = f"{call.method} was answered after {waited:.1f} s, when the running turn had ended"
                yield Breach("T3", AGENT, "", reason, related=call.mark.line)
        session = self._world.session(call.session)
        turn = self._running.pop(call.order, None)
        if turn is not None:
            turn.ended = answer.mark
        if session is None or turn is None or turn not in session.turns:
            return
        yield from self._judge(session, turn, answer)
        session.turns.remove(turn)
        session.last_answer = answer.mark
        session.plan = {}

    def _judge(self, session: Session, turn: Turn, answer: Answer) -> Iterator[Breach]:
        call, related = answer.call, answer.call.mark.line
        stop = text(answer.result, "stopReason")
        first = session.turns[0]
        timed_out = stop == "cancelled" and _has_limit(call.params)
        if first is not turn and not turn.cancelled and not timed_out:
            reason = "the prompt before it in this session is still open"
            yield Breach("P6", AGENT, "", reason, related=first.call.mark.line)
        unasked = stop == "cancelled" and not turn.cancelled and not session.stray_cancel
        if unasked and not _has_limit(call.params):
            place, reason = "result.stopReason", "cancelled, though nobody cancelled"
            self._unasked.append(Breach("P3", AGENT, place, reason, WARNING, related, answer.mark))
        is_wanted = not (call.faults or turn.cancelled or session.is_closed)
        if answer.error is not None and is_wanted:
            yield from _unwilling(answer)

    def disturbed(self, side: str) -> None:
        """A lost message may have been a prompt or its answer; `Sessions` has marked that."""

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """What every conversation with text should have told at some time; said once."""
        spoken = [one for one in self._world.sessions.values() if one.has_text and one.last_answer]
        untitled = [one for one in spoken if not one.titled]
        unmetered = [one for one in spoken if not one.metered]
        if untitled and untitled[0].last_answer:
            yield Breach(
                "S12", AGENT, "", "the session never got a title", REMARK, at=untitled[0].last_answer
            )
        if unmetered and unmetered[0].last_answer:
            yield Breach(
                "P5", AGENT, "", "no usage_update in the whole session", REMARK, at=unmetered[0].last_answer
            )


def _message(session: Session, kind: str, update: Json) -> Iterator[Breach]:
    """A message id belongs to one message: of one kind, in one turn."""
    name = text(update, "messageId")
    if not name:
        return
    known = session.messages.get(name)
    now = (kind, session.turn_count)
    if known is not None and known != now and not session.loads:
        reason = f"{name!r} is the id of another message"
        yield Breach("P4", AGENT, f"{_HERE}.messageId", reason)
    session.messages.add(name, now)


def _plan(session: Session, update: Json) -> Iterator[Breach]:
    """Each plan replaces the one before: entries that are neither there nor done were probably left out."""
    entries = {text(one, "content"): text(one, "status") for one in objects(update, "entries")}
    before = session.plan
    missing = [name for name, status in before.items() if name not in entries and status != "completed"]
    if missing and entries and set(entries) < set(before):
        reason = f"the full list is due; {missing[0][:60]!r} is missing"
        yield Breach("P8", AGENT, f"{_HERE}.entries", reason, WARNING)
    session.plan = entries


def _has_limit(params: Json) -> bool:
    """Whether the prompt carries a time limit, which ends a turn as a cancel does."""
    return "timeoutMs" in object_of(params, "_meta") or "timeout_ms" in object_of(params, "metadata")


def _unwilling(answer: Answer) -> Iterator[Breach]:
    """A prompt that every agent must take was refused for its contents."""
    if answer.code not in (-32602, -32601):
        return
    call, related = answer.call, answer.call.mark.line
    blocks = objects(call.params, "prompt")
    if not blocks or any(text(block, "type") not in _PLAIN for block in blocks):
        return
    if text(blocks[0], "text").startswith("/"):
        yield Breach(
            "P7", AGENT, "error", "an unknown slash command goes to the model as text", related=related
        )
    elif answer.code == -32602:
        yield Breach("P1", AGENT, "error", "text and resource_link must be accepted", related=related)

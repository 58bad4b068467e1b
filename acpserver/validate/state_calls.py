"""Tool calls and permissions: reported first, started when allowed, ended before the turn's answer.

Rules K1 to K4, M1 to M4, C3, and F1 and X1 where the client's own files and terminals are passed by. Writes
down the open tool calls. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from acpserver.validate.findings import AGENT, CLIENT, ERROR, WARNING
from acpserver.validate.state import (
    Answer,
    Breach,
    Call,
    Json,
    Mark,
    Session,
    ToolCall,
    Turn,
    object_of,
    objects,
    text,
)  # fmt: skip
from acpserver.validate.state_sessions import is_absolute
from acpserver.validate.world import World

ENDED = ("completed", "failed")
_HERE = "params.update"


class ToolCalls:
    """Follows every tool call from its report to its end."""

    def __init__(self, world: World):
        self._world = world

    def called(self, call: Call) -> Iterator[Breach]:
        """An update, or a request for permission."""
        session = self._world.session(call.session)
        if call.side != AGENT or session is None:
            return
        if call.method == "session/request_permission":
            yield from self._asked(session, call)
        if call.method != "session/update":
            return
        update = object_of(call.params, "update")
        kind = text(update, "sessionUpdate")
        if kind in ("tool_call", "tool_call_update"):
            if call.is_damaged:
                session.is_blurred = True
            if kind == "tool_call":
                yield from self._begun(session, call, update)
            else:
                yield from self._changed(session, call, update)
            yield from _places(update)

    def _begun(self, session: Session, call: Call, update: Json) -> Iterator[Breach]:
        name = text(update, "toolCallId")
        if not name:
            return
        told = session.calls.get(name)
        if (told is not None or name in session.ended) and not session.loads:
            related = told.mark.line if told else None
            reason = f"{name!r} was reported before; changes are tool_call_update"
            yield Breach("K1", AGENT, f"{_HERE}.toolCallId", reason, related=related)
            session.ended.discard(name)  # from here on it is taken for a new call
            if told is not None:
                return
        if "title" in update and not text(update, "title").strip():
            yield Breach("K4", AGENT, f"{_HERE}.title", "an empty title tells the user nothing")
        status = text(update, "status") or "pending"
        tool = ToolCall(call.mark, "pending", text(update, "kind"))
        session.calls[name] = tool
        _take(tool, update)
        yield from self._moved(session, name, tool, status, call)

    def _changed(self, session: Session, call: Call, update: Json) -> Iterator[Breach]:
        name, status = text(update, "toolCallId"), text(update, "status")
        tool = session.calls.get(name)
        if tool is None:
            before = session.ended.get(name)
            if before and status and status != before:
                yield Breach("K2", AGENT, f"{_HERE}.status", f"{name!r} had ended as {before}")
            elif name and before is None and not session.is_blurred and not self._world.is_blurred:
                yield Breach(
                    "K1", AGENT, f"{_HERE}.toolCallId", f"{name!r} was never reported by a tool_call"
                )
            return
        _take(tool, update)
        if status:
            yield from self._moved(session, name, tool, status, call)

    def _moved(
        self, session: Session, name: str, tool: ToolCall, status: str, call: Call
    ) -> Iterator[Breach]:
        """The status of a call changes."""
        place = f"{_HERE}.status"
        if status in ("in_progress", "completed") and tool.permission == "open":
            related = tool.asked.line if tool.asked else None
            reason = f"{name!r} is {status} while its permission is still open"
            yield Breach("M1", AGENT, place, reason, related=related)
        elif status in ("in_progress", "completed") and tool.permission == "refused":
            related = tool.asked.line if tool.asked else None
            yield Breach(
                "M3", AGENT, place, f"{name!r} is {status}, though it was not allowed", related=related
            )
            tool.permission = ""
        if tool.status == "in_progress" and status == "pending":
            yield Breach("K2", AGENT, place, f"{name!r} goes back from in_progress to pending", WARNING)
        tool.status = status
        if status in ENDED:
            del session.calls[name]
            session.ended.add(name, status)
            if status == "completed" and not session.loads and not call.is_damaged:
                yield from self._completed(session, name, tool)

    def _completed(self, session: Session, name: str, tool: ToolCall) -> Iterator[Breach]:
        """Did a call that went well say what it did, and go through the client where it should?"""
        used = session.turn.used if session.turn else set()
        if not tool.has_input:
            yield Breach("K4", AGENT, "", f"{name!r} has ended without any rawInput", at=tool.mark)
        elif not tool.has_output:
            yield Breach(
                "K4", AGENT, "", f"{name!r} has ended without any content or rawOutput", at=tool.mark
            )
        elif tool.kind == "edit" and not tool.has_diff:
            yield Breach("K4", AGENT, "", f"{name!r} is an edit and shows no diff", at=tool.mark)
        client = self._world.client or {}
        if tool.has_diff and object_of(client, "fs").get("writeTextFile") is True:
            if "fs/write_text_file" not in used:
                reason = f"{name!r} changed a file past the client's fs/write_text_file"
                yield Breach("F1", AGENT, "", reason, WARNING, at=tool.mark)  # a program may have done it
        if tool.kind == "execute" and client.get("terminal") is True and "terminal/create" not in used:
            reason = f"{name!r} ran a command past the client's terminal"
            yield Breach("X1", AGENT, "", reason, WARNING, at=tool.mark)

    def _asked(self, session: Session, call: Call) -> Iterator[Breach]:
        """A permission request."""
        yield from _options(call)
        told = object_of(call.params, "toolCall")
        name = text(told, "toolCallId")
        tool = session.calls.get(name)
        if tool is None:
            if name and not session.is_blurred and not self._world.is_blurred:
                ended = session.ended.get(name)
                reason = f"{name!r} has ended as {ended}" if ended else f"{name!r} was not reported before"
                yield Breach("M1", AGENT, "params.toolCall.toolCallId", reason)
                if not ended:
                    session.calls[name] = ToolCall(call.mark, permission="open", asked=call.mark)
            return
        if tool.status != "pending":
            reason = f"{name!r} is {tool.status}, and only now permission is asked for"
            yield Breach("M1", AGENT, "params.toolCall.toolCallId", reason, related=tool.mark.line)
        _take(tool, told)
        tool.permission, tool.asked = "open", call.mark
        yield from _places(told, "params.toolCall")

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """The client's answer to a permission request, or the end of a turn or a replay."""
        call = answer.call
        session = self._world.session(call.session)
        if session is None:
            return
        if call.method == "session/request_permission":
            yield from self._decided(session, answer)
        elif call.method == "session/prompt":
            turn = session.turn_of(call)
            if turn is not None and turn is session.turn:
                yield from self._left(session, turn, answer)
        elif call.method == "session/load" and not session.turns:
            session.calls.clear()

    def _decided(self, session: Session, answer: Answer) -> Iterator[Breach]:
        call = answer.call
        outcome = object_of(answer.result, "outcome")
        kinds = {text(one, "optionId"): text(one, "kind") for one in objects(call.params, "options")}
        chosen = text(outcome, "optionId") if text(outcome, "outcome") == "selected" else ""
        if chosen and chosen not in kinds:
            reason = f"{chosen!r} is none of the options {', '.join(kinds)}"
            yield Breach("M3", CLIENT, "result.outcome.optionId", reason, related=call.mark.line)
        tool = session.calls.get(text(object_of(call.params, "toolCall"), "toolCallId"))
        allowed = kinds.get(chosen, "").startswith("allow")
        if tool is not None:
            tool.permission = "" if answer.is_damaged else "allowed" if allowed else "refused"
        if not allowed and session.turn and not answer.is_damaged:
            session.turn.refused = True

    def _left(self, session: Session, turn: Turn, answer: Answer) -> Iterator[Breach]:
        """Calls that are open at the end of a turn."""
        related = turn.call.mark.line
        for name, tool in session.calls.items():
            if session.is_blurred or self._world.is_blurred:
                break
            reason = f"{name!r} is still {tool.status} at the answer to its prompt"
            rule, level = "C3" if turn.cancelled else "K2", ""
            if tool.permission == "refused" and not turn.cancelled:
                rule, level = "M4", WARNING  # most clients show a call that was rejected as ended
            yield Breach(rule, AGENT, "", reason, level, tool.mark.line, answer.mark)
        if turn.refused and answer.error is not None and not turn.cancelled and not session.calls:
            reason = "the turn fails because a call was rejected; the model is told, and the turn goes on"
            yield Breach("M4", AGENT, "error", reason, related=related)
        session.calls.clear()

    def disturbed(self, side: str) -> None:
        """`Sessions` has marked the sessions already."""

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """Open calls without an answer to their prompt may still end."""
        return iter(())


def _take(tool: ToolCall, update: Json) -> None:
    """Note what an update says of the call's input and output."""
    tool.kind = text(update, "kind") or tool.kind
    tool.has_input = tool.has_input or update.get("rawInput") is not None
    content = objects(update, "content")
    tool.has_output = tool.has_output or bool(content) or update.get("rawOutput") is not None
    tool.has_diff = tool.has_diff or any(text(part, "type") == "diff" for part in content)


def _places(update: Json, here: str = _HERE) -> Iterator[Breach]:
    """Paths and lines of locations and diffs."""
    for index, location in enumerate(objects(update, "locations")):
        place, path, line = f"{here}.locations[{index}]", text(location, "path"), location.get("line")
        if path and not is_absolute(path):
            yield Breach("K3", AGENT, f"{place}.path", f"{path!r} is not absolute")
        if isinstance(line, int) and line < 1:
            yield Breach("K3", AGENT, f"{place}.line", f"lines count from 1, this is {line}")
    for index, part in enumerate(objects(update, "content")):
        path = text(part, "path")
        if text(part, "type") == "diff" and path and not is_absolute(path):
            yield Breach("K3", AGENT, f"{here}.content[{index}].path", f"{path!r} is not absolute")


def _options(call: Call) -> Iterator[Breach]:
    options = objects(call.params, "options")
    ids, kinds = [text(one, "optionId") for one in options], {text(one, "kind") for one in options}
    if call.is_damaged:
        return
    for index, name in enumerate(ids):
        if name in ids[:index]:
            place = f"params.options[{index}].optionId"
            yield Breach("M2", AGENT, place, f"{name!r} is the id of two options", ERROR)
    if not kinds & {"allow_once", "allow_always"} or not kinds & {"reject_once", "reject_always"}:
        yield Breach("M2", AGENT, "params.options", "one option to allow and one to reject are due", WARNING)

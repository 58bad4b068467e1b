"""Scenarios: permission answers of every kind. Whatever does not say yes means no (rules M1 to M4)."""

from __future__ import annotations

import os
from typing import NamedTuple

from acpserver.validate.probe.cancels import all_ended
from acpserver.validate.probe.editor import CANCELLED, ERROR, NONSENSE, UNKNOWN_OPTION, Editor
from acpserver.validate.probe.link import Answer, Link
from acpserver.validate.probe.stage import Stage, scenario
from acpserver.validate.probe.verdict import demand, need

TEXT = "probe-text-41"
KINDS = {"allow_once", "allow_always", "reject_once", "reject_always"}


class Asked(NamedTuple):
    """A turn with the permission prompt, and what came of it."""

    link: Link
    editor: Editor
    session: str
    folder: str
    turn: Answer
    start: int

    @property
    def done(self) -> bool:
        """Whether the file that the prompt asks for is there."""
        return os.path.exists(os.path.join(self.folder, "probe.txt"))

    @property
    def statuses(self) -> list[object]:
        """The last status of each tool call."""
        last: dict[object, object] = {}
        for update in self.link.updates(self.session, self.start):
            if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
                last[update.get("toolCallId")] = update.get("status") or last.get(update.get("toolCallId"))
        return list(last.values())


def _asked(stage: Stage, answer: str) -> Asked:
    """One turn in which the agent asks, and is answered so."""
    stage.text("permission")
    editor = Editor(permission=answer)
    link = stage.fresh(editor)
    folder = stage.folder()
    session = stage.session(link, cwd=folder)
    start = link.mark()
    turn = stage.turn(link, session, _text(stage, folder, "probe.txt"))
    demand(editor.asked, "no permission was asked for")
    return Asked(link, editor, session, folder, turn, start)


def _text(stage: Stage, folder: str, name: str) -> str:
    return stage.text(
        "permission", path=os.path.join(folder, name), text=TEXT, cwd=folder, cmd=f"touch {name}"
    )


def _makes_the_file(stage: Stage) -> bool:
    """Whether the permission prompt names the file that must, or must not, be there afterwards."""
    return "{path}" in stage.options.prompts.get("permission", "")


@scenario("M1", "permission/allow-once")
def _allow(stage: Stage) -> None:
    asked = _asked(stage, "allow_once")
    if _makes_the_file(stage):
        demand(asked.done, "the permission was given, but the file is not there")
    demand("completed" in asked.statuses, f"no call completed: {asked.statuses}")
    all_ended(asked.link, asked.session, asked.start)


@scenario("M1", "permission/call-comes-first")
def _call_first(stage: Stage) -> None:
    asked = _asked(stage, "allow_once")
    position = next(
        number
        for number, item in enumerate(asked.link.received)
        if item.message.get("method") == "session/request_permission"
    )
    call = asked.editor.asked[0].get("toolCall")
    demand(isinstance(call, dict), "the permission request has no toolCall")
    wanted = call.get("toolCallId") if isinstance(call, dict) else None
    before = asked.link.updates(asked.session, asked.start, position)
    told = [one for one in before if one.get("toolCallId") == wanted]
    demand(told, f"call {wanted!r} was not reported before its permission request")
    started = [one for one in told if one.get("status") in ("in_progress", "completed", "failed")]
    demand(not started, "the call had started before it was allowed")


@scenario("M2", "permission/options")
def _options(stage: Stage) -> None:
    asked = _asked(stage, "reject_once")
    options = asked.editor.asked[0].get("options")
    found = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    kinds = {str(one.get("kind")) for one in found}
    demand(kinds <= KINDS, f"unknown kinds of options: {', '.join(sorted(kinds - KINDS))}")
    demand({"allow_once", "reject_once"} <= kinds, f"the options are only {', '.join(sorted(kinds))}")
    ids = [one.get("optionId") for one in found]
    demand(len(set(map(str, ids))) == len(ids), "two options share an id")


def _not_allowed(stage: Stage, answer: str, what: str) -> None:
    asked = _asked(stage, answer)
    demand(not (_makes_the_file(stage) and asked.done), f"{what} counted as yes")
    demand(
        "completed" not in asked.statuses or "failed" in asked.statuses,
        f"after {what} the call ended as {asked.statuses}",
    )
    all_ended(asked.link, asked.session, asked.start)
    _next_turn(stage, asked)


def _next_turn(stage: Stage, asked: Asked) -> None:
    if "hello" in stage.options.prompts:
        stage.turn(asked.link, asked.session, stage.text("hello"))


@scenario("M4", "permission/reject-once")
def _reject(stage: Stage) -> None:
    _not_allowed(stage, "reject_once", "a rejection")


@scenario("M3", "permission/outcome-cancelled")
def _outcome_cancelled(stage: Stage) -> None:
    _not_allowed(stage, CANCELLED, "the outcome cancelled")


@scenario("M3", "permission/error-answer")
def _error(stage: Stage) -> None:
    _not_allowed(stage, ERROR, "an error answer")


@scenario("M3", "permission/unknown-option")
def _unknown(stage: Stage) -> None:
    _not_allowed(stage, UNKNOWN_OPTION, "an unknown option id")


@scenario("M3", "permission/malformed-answer")
def _nonsense(stage: Stage) -> None:
    _not_allowed(stage, NONSENSE, "a malformed answer")


def _always(stage: Stage, kind: str) -> tuple[Asked, int]:
    """How often the second prompt of the same kind asks, after an "always"."""
    asked = _asked(stage, kind)
    options = asked.editor.asked[0].get("options")
    offered = (
        [one.get("kind") for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    )
    need(kind in offered, f"{kind} is not offered")
    before = len(asked.editor.asked)
    stage.turn(asked.link, asked.session, _text(stage, asked.folder, "second.txt"))
    return asked, len(asked.editor.asked) - before


@scenario("M2", "permission/allow-always")
def _allow_always(stage: Stage) -> None:
    asked, again = _always(stage, "allow_always")
    demand(again == 0, "after allow_always the same thing was asked again")
    if _makes_the_file(stage):
        demand(os.path.exists(os.path.join(asked.folder, "second.txt")), "the second call did nothing")


@scenario("M2", "permission/reject-always")
def _reject_always(stage: Stage) -> None:
    asked, again = _always(stage, "reject_always")
    demand(again == 0, "after reject_always the same thing was asked again")
    demand(not os.path.exists(os.path.join(asked.folder, "second.txt")), "the second call was done")

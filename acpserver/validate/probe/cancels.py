"""Scenarios: cancelling at each moment. The prompt must be answered `cancelled`, and soon."""

from __future__ import annotations

import json

from acpserver.validate.probe.editor import NEVER, Editor
from acpserver.validate.probe.link import Answer, Link, kinds
from acpserver.validate.probe.stage import Stage, offers, prompt, scenario
from acpserver.validate.probe.verdict import demand, need


def _cancelled(stage: Stage, link: Link, turn: Answer, how: str = "session/cancel") -> None:
    """The prompt is answered as it must be after a cancel."""
    link.wait(lambda: turn.message is not None, f"the prompt's answer after {how}", stage.options.patience)
    reason = (turn.result or {}).get("stopReason")
    demand(turn.result is not None, f"after {how} the prompt got {turn.told()}")
    demand(reason == "cancelled", f"after {how} the stopReason is {reason!r}")


def _works(stage: Stage, link: Link, session: str) -> None:
    """The next turn is not touched by the cancel."""
    if "hello" in stage.options.prompts:
        answer = stage.turn(link, session, stage.text("hello"))
        demand(
            (answer.result or {}).get("stopReason") == "end_turn", "the turn after a cancel was cancelled too"
        )


def _slow(stage: Stage) -> tuple[Link, str, Answer]:
    """A running slow prompt."""
    text = stage.text("slow")
    link = stage.shared()
    session = stage.session(link)
    return link, session, stage.prompt(link, session, text)


@scenario("C1", "cancel/at-once")
def _at_once(stage: Stage) -> None:
    link, session, turn = _slow(stage)
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    _works(stage, link, session)


@scenario("C1", "cancel/while-working")
def _while_working(stage: Stage) -> None:
    link, session, turn = _slow(stage)
    link.settle(lambda: turn.message is not None, stage.options.moment)
    need(turn.message is None, "the slow prompt was over too early")
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    _works(stage, link, session)


@scenario("C5", "cancel/twice")
def _twice(stage: Stage) -> None:
    link, session, turn = _slow(stage)
    for _ in range(2):
        link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    link.notify("session/cancel", {"sessionId": session})
    _works(stage, link, session)
    demand(not turn.extra, "the prompt was answered twice")


@scenario("C5", "cancel/nothing-to-cancel")
def _nothing(stage: Stage) -> None:
    link = stage.shared()
    session, start = stage.session(link), link.mark()
    link.notify("session/cancel", {"sessionId": session})
    link.notify("session/cancel", {"sessionId": "no-such-session"})
    link.request("_acp_validate/none", {})
    wrong = [one for one in link.since(start) if "method" not in one and one.get("id") is None]
    demand(not wrong, f"it was answered: {json.dumps(wrong[:1])[:160]}")
    _works(stage, link, session)


@scenario("C1", "cancel/queued-turn")
def _queued(stage: Stage) -> None:
    link, session, turn = _slow(stage)
    second = stage.prompt(link, session, stage.text("slow"))
    link.settle(lambda: second.message is not None, stage.options.moment)
    need(second.code is None, "a second prompt is refused while one runs")
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    _cancelled(stage, link, second, "session/cancel, with two prompts open,")
    _works(stage, link, session)


@scenario("C6", "cancel/by-request-id", advice=True)
def _by_id(stage: Stage) -> None:
    link, session, turn = _slow(stage)
    link.settle(lambda: turn.message is not None, stage.options.moment)
    link.notify("$/cancel_request", {"requestId": turn.id})
    link.wait(
        lambda: turn.message is not None, "the prompt's answer after $/cancel_request", stage.options.patience
    )
    reason = (turn.result or {}).get("stopReason")
    demand(reason == "cancelled" or turn.code == -32800, f"it got {turn.told()}, stopReason {reason!r}")
    _works(stage, link, session)


@scenario("C6", "cancel/unknown-request-id")
def _unknown_id(stage: Stage) -> None:
    link = stage.shared()
    start = link.mark()
    link.notify("$/cancel_request", {"requestId": "nobody"})
    link.request("_acp_validate/none", {})
    wrong = [one for one in link.since(start) if "method" not in one and one.get("id") is None]
    demand(not wrong, f"it was answered: {json.dumps(wrong[:1])[:160]}")


@scenario("C1", "cancel/open-permission")
def _permission(stage: Stage) -> None:
    editor = Editor(permission=NEVER)
    link = stage.fresh(editor)
    folder = stage.folder()
    text = stage.text("permission", path=f"{folder}/probe.txt", text="probe", cwd=folder)
    session, start = stage.session(link, cwd=folder), link.mark()
    turn = stage.prompt(link, session, text)
    link.wait(lambda: editor.asked, "a permission request", stage.options.start_timeout)
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    all_ended(link, session, start)
    editor.permission = "allow_once"
    _works(stage, link, session)


def all_ended(link: Link, session: str, start: int) -> None:
    """Demand that no tool call stays open (rules K2, C3)."""
    last: dict[object, object] = {}
    for update in link.updates(session, start):
        if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
            call = update.get("toolCallId")
            last[call] = update.get("status") or last.get(call)
    still = [call for call, status in last.items() if status not in ("completed", "failed")]
    demand(not still, f"a tool call stays {last[still[0]] if still else ''} at the end of the turn")


@scenario("C2", "cancel/running-command")
def _command(stage: Stage) -> None:
    link = stage.fresh()
    text = stage.text("terminal", cmd="sleep 54321")
    session, start = stage.session(link), link.mark()
    turn = stage.prompt(link, session, text)
    link.wait(
        lambda: "tool_call" in kinds(link.updates(session, start)), "a tool call", stage.options.start_timeout
    )
    link.settle(lambda: turn.message is not None, stage.options.moment)
    need(turn.message is None, "the command ended at once")
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    all_ended(link, session, start)
    link.settle(lambda: not _sleeping(link), 2)
    demand(not _sleeping(link), "the command still runs after the cancel")
    _works(stage, link, session)


@scenario("C7", "cancel/next-turn-after-a-cut-call")
def _history(stage: Stage) -> None:
    hello, text = stage.text("hello"), stage.text("terminal", cmd="sleep 43210")
    link = stage.fresh()
    session, start = stage.session(link), link.mark()
    turn = stage.prompt(link, session, text)
    link.wait(
        lambda: "tool_call" in kinds(link.updates(session, start)), "a tool call", 2 * stage.options.timeout
    )
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    for _ in range(2):
        stage.turn(link, session, hello)


def _sleeping(link: Link) -> bool:
    """Whether the command of `_command` runs (Linux; elsewhere it is never seen)."""
    return any(b"54321" in command for command in link.process.commands())


@scenario("S5", "cancel/close-during-a-turn")
def _close(stage: Stage) -> None:
    link = stage.shared()
    need(offers(link, "sessionCapabilities", "close"), "close is not announced")
    link, session, turn = _slow(stage)
    link.settle(lambda: turn.message is not None, stage.options.moment)
    closed = link.request("session/close", {"sessionId": session})
    demand(closed.message is not None and closed.code is None, f"session/close got {closed.told()}")
    _cancelled(stage, link, turn, "session/close")


@scenario("C5", "cancel/does-not-reach-other-sessions")
def _others(stage: Stage) -> None:
    link, session, turn = _slow(stage)
    other = stage.session(link)
    link.notify("session/cancel", {"sessionId": other})
    link.settle(lambda: turn.message is not None, stage.options.moment)
    demand(turn.message is None, "a cancel for one session ended the turn of another")
    answer = link.post("session/prompt", prompt(other, stage.text("slow")))
    link.notify("session/cancel", {"sessionId": session})
    _cancelled(stage, link, turn)
    demand(answer.message is None, "a cancel for one session ended the turn of another")
    link.notify("session/cancel", {"sessionId": other})
    _cancelled(stage, link, answer)

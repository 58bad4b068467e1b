"""Scenarios: the end of input at each moment, signals, and processes that are left over."""

from __future__ import annotations

import signal

from acpserver.validate.probe.editor import Editor
from acpserver.validate.probe.link import Link, kinds
from acpserver.validate.probe.stage import Stage, scenario
from acpserver.validate.probe.verdict import advise, demand, need


def _ends(link: Link, seconds: float) -> int:
    """Wait for the end of the process and of all that it started; its exit status."""
    process = link.process
    link.watch(lambda: process.status() is not None, seconds)
    status = process.status()
    demand(status is not None, f"the process still runs {seconds:g} s later")
    link.watch(lambda: not process.leftovers(), 1)
    left = process.commands()
    demand(not left, f"left behind: {left[0][:100].decode('utf-8', 'replace') if left else ''}")
    return status or 0


def _ends_well(stage: Stage, link: Link, seconds: float = 0) -> None:
    link.process.close_input()
    status = _ends(link, seconds or stage.options.patience)
    advise(status == 0, f"the exit status is {status}, not 0")


@scenario("T4", "ending/before-initialize")
def _before(stage: Stage) -> None:
    link = stage.start()
    link.listen(stage.options.moment)
    _ends_well(stage, link, stage.options.start_timeout)  # it may not have started yet


@scenario("T4", "ending/after-initialize")
def _after(stage: Stage) -> None:
    _ends_well(stage, stage.fresh())


@scenario("T4", "ending/with-a-session")
def _with_session(stage: Stage) -> None:
    link = stage.fresh()
    stage.session(link)
    _ends_well(stage, link)


@scenario("T4", "ending/within-a-line")
def _within(stage: Stage) -> None:
    link = stage.fresh()
    link.raw(b'{"jsonrpc":"2.0","id":1,"meth')
    link.settle(lambda: not link.process.writing, stage.options.moment)
    _ends_well(stage, link)


@scenario("T4", "ending/during-a-turn")
def _during(stage: Stage) -> None:
    text = stage.text("slow")
    link = stage.fresh()
    turn = stage.prompt(link, stage.session(link), text)
    link.settle(lambda: turn.message is not None, stage.options.moment)
    need(turn.message is None, "the slow prompt was over too early")
    _ends_well(stage, link)


@scenario("T4", "ending/with-a-running-command")
def _command(stage: Stage) -> None:
    text = stage.text("terminal", cmd="sleep 65432")
    link = stage.fresh(Editor())
    session = stage.session(link)
    turn = stage.prompt(link, session, text)
    link.wait(lambda: "tool_call" in kinds(link.updates(session)), "a tool call", stage.options.start_timeout)
    link.settle(lambda: turn.message is not None, stage.options.moment)
    need(turn.message is None, "the command ended at once")
    _ends_well(stage, link)


@scenario("T4", "ending/with-an-open-permission")
def _permission(stage: Stage) -> None:
    stage.text("permission")
    editor = Editor(permission="never")
    link = stage.fresh(editor)
    folder = stage.folder()
    session = stage.session(link, cwd=folder)
    stage.prompt(link, session, stage.text("permission", path=f"{folder}/a.txt", text="a", cwd=folder))
    link.wait(lambda: editor.asked, "a permission request", stage.options.start_timeout)
    _ends_well(stage, link)


@scenario("T4", "ending/by-sigterm", advice=True)
def _sigterm(stage: Stage) -> None:
    link = stage.fresh()
    link.process.signal(signal.SIGTERM)
    _ends(link, stage.options.patience)

"""Scenarios: tool calls, and what they ask of the editor: files and terminals, each only when announced."""

from __future__ import annotations

import os

from acpserver.validate.probe.cancels import all_ended
from acpserver.validate.probe.editor import Editor
from acpserver.validate.probe.link import Json, Link, kinds
from acpserver.validate.probe.stage import Stage, scenario
from acpserver.validate.probe.verdict import demand

TEXT = "probe-text-82"
READ: Json = {"fs": {"readTextFile": True, "writeTextFile": False}}
WRITE: Json = {"fs": {"readTextFile": False, "writeTextFile": True}}
BOTH: Json = {"fs": {"readTextFile": True, "writeTextFile": True}}
TERMINAL: Json = {"terminal": True}


def _turn(
    stage: Stage, key: str, editor: Editor, name: str, cmd: str = "echo " + TEXT
) -> tuple[Link, str, str]:
    """A turn with the prompt `key` about a file of this name: the link, the session, the file's path."""
    stage.text(key)
    link = stage.fresh(editor)
    path = os.path.join(stage.folder(), name)
    folder = os.path.dirname(path)
    if key == "read":
        with open(path, "w", encoding="utf-8") as file:
            file.write("on disk\n")
        editor.buffers[path] = TEXT + "\n"
    session = stage.session(link, cwd=folder)
    stage.turn(link, session, stage.text(key, path=path, text=TEXT, cmd=cmd, cwd=folder))
    all_ended(link, session, 0)
    return link, session, path


def _called(link: Link, session: str) -> list[Json]:
    calls = [one for one in link.updates(session) if one.get("sessionUpdate") == "tool_call"]
    demand(calls, "no tool call was reported")
    return calls


@scenario("K1", "tools/a-call")
def _tool(stage: Stage) -> None:
    link = stage.shared()
    folder = stage.folder()
    text = stage.text("tool", path=f"{folder}/probe.txt", text=TEXT, cmd="echo " + TEXT, cwd=folder)
    session, start = stage.session(link, cwd=folder), link.mark()
    stage.turn(link, session, text)
    demand("tool_call" in kinds(link.updates(session, start)), "no tool call was reported")
    all_ended(link, session, start)


@scenario("K4", "tools/call-says-what-it-does", advice=True)
def _describes(stage: Stage) -> None:
    link = stage.shared()
    folder = stage.folder()
    text = stage.text("tool", path=f"{folder}/probe.txt", text=TEXT, cmd="echo " + TEXT, cwd=folder)
    session, start = stage.session(link, cwd=folder), link.mark()
    stage.turn(link, session, text)
    calls = [one for one in link.updates(session, start) if one.get("sessionUpdate") == "tool_call"]
    for member in ("title", "kind", "rawInput"):
        demand(all(member in call for call in calls), f"a tool call has no {member}")


@scenario("F1", "files/read-unsaved-buffer")
def _read(stage: Stage) -> None:
    link, _, path = _turn(stage, "read", Editor(READ), "notes é.txt")
    read = [one.get("path") for one in link.asked_of_us("fs/read_text_file")]
    demand(path in read, f"the file was not read through the editor, which has it open (read: {read})")


@scenario("F1", "files/write-through-the-editor")
def _write(stage: Stage) -> None:
    editor = Editor(WRITE)
    _, _, path = _turn(stage, "write", editor, "new é.txt")
    demand(path in editor.written, "the file was not written through the editor")
    demand(TEXT in editor.written[path], f"the editor was given {editor.written[path][:80]!r}")


@scenario("I3", "files/read-without-the-capability")
def _read_alone(stage: Stage) -> None:
    link, session, _ = _turn(stage, "read", Editor(), "notes.txt")
    demand(not link.asked_of_us("fs/read_text_file"), "fs/read_text_file was called, which was not announced")
    _called(link, session)


@scenario("I3", "files/write-without-the-capability")
def _write_alone(stage: Stage) -> None:
    link, _, path = _turn(stage, "write", Editor(), "new.txt")
    demand(
        not link.asked_of_us("fs/write_text_file"), "fs/write_text_file was called, which was not announced"
    )
    demand(os.path.exists(path), "nothing was written")


@scenario("F2", "files/read-error")
def _read_error(stage: Stage) -> None:
    link, _, _ = _turn(stage, "read", Editor(READ, fail_files=True), "notes.txt")
    demand(link.asked_of_us("fs/read_text_file"), "the file was not read through the editor")


@scenario("F2", "files/write-error")
def _write_error(stage: Stage) -> None:
    link, session, path = _turn(stage, "write", Editor(WRITE, fail_files=True), "new.txt")
    demand(link.asked_of_us("fs/write_text_file"), "the file was not written through the editor")
    demand(not os.path.exists(path), "what the editor refused to write was written all the same")
    ended = [one.get("status") for one in link.updates(session) if one.get("status")]
    demand("failed" in ended, f"no call failed: {ended}")


@scenario("X1", "terminals/in-the-editor")
def _terminal(stage: Stage) -> None:
    editor = Editor(TERMINAL)
    link, session, _ = _turn(stage, "terminal", editor, "unused")
    demand(editor.terminals, "no terminal was created")
    demand(all(one.released for one in editor.terminals.values()), "a terminal was not released")
    shown = [content for update in link.updates(session) for content in _contents(update)]
    embedded = [content for content in shown if content.get("type") == "terminal"]
    demand(embedded, "the terminal is not embedded in the tool call")


def _contents(update: Json) -> list[Json]:
    content = update.get("content")
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


@scenario("X1", "terminals/failing-command")
def _failing(stage: Stage) -> None:
    editor = Editor(TERMINAL)
    _turn(stage, "terminal", editor, "unused", cmd="exit 3")
    demand(editor.terminals, "no terminal was created")
    demand(all(one.released for one in editor.terminals.values()), "a terminal was not released")


@scenario("X1", "terminals/released-after-cancel")
def _cancelled(stage: Stage) -> None:
    stage.text("terminal")
    editor = Editor(TERMINAL)
    link = stage.fresh(editor)
    session = stage.session(link)
    turn = stage.prompt(link, session, stage.text("terminal", cmd="sleep 4321"))
    link.wait(lambda: editor.terminals, "terminal/create", stage.options.start_timeout)
    link.notify("session/cancel", {"sessionId": session})
    link.finish(turn)

    def released() -> bool:
        return all(one.released for one in editor.terminals.values())

    link.settle(released, 2)
    demand(released(), "the terminal was not released after the cancel")


@scenario("I3", "terminals/without-the-capability")
def _no_terminal(stage: Stage) -> None:
    link, session, _ = _turn(stage, "terminal", Editor(), "unused")
    demand(not link.asked_of_us("terminal/create"), "terminal/create was called, which was not announced")
    _called(link, session)


@scenario("F1", "files/both-and-terminal")
def _everything(stage: Stage) -> None:
    editor = Editor({**BOTH, **TERMINAL})
    _, _, path = _turn(stage, "write", editor, "new.txt")
    demand(path in editor.written, "the file was not written through the editor")

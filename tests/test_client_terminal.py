"""Commands in the editor's terminal: what is asked of it, in which order, and that it is always released.

Rules X1 and X2. That every terminal is released, shown only while it is there, and looked at after it was
killed, is checked by the fake editor in each of these tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acpserver.llm.types import Finish, TextDelta, ToolCall, ToolResult
from acpserver.tools import terminal as room
from acpserver.tools.output import LIMIT
from tests.fakes.editor import Editor, Json, Turn
from tests.fakes.editor_side import TERMINAL, Screens, failure
from tests.fakes.inside import Inside, Script

LAST: list[Any] = [TextDelta("done"), Finish("stop")]
WHOLE_STORY = ["create", "wait_for_exit", "output", "release"]


class Stage:
    """One turn whose model runs one command."""

    def __init__(self, editor: Editor, played: Script, screens: Screens, session: str):
        self.editor = editor
        self.played = played
        self.screens = screens
        self.turn: Turn = editor.prompt(session, "go")

    @property
    def told(self) -> ToolResult:
        """What the model was told."""
        (found,) = [
            part
            for message in self.played.requests[1].messages
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
        return found

    @property
    def call(self) -> Json:
        """The call as the client sees it in the end."""
        (found,) = self.turn.calls
        return found

    def cancel(self) -> float:
        """Cancel the turn; how long its answer takes."""
        began = time.monotonic()
        self.editor.cancel(self.turn.session)
        assert self.turn.wait() == "cancelled" and self.turn.reply is not None
        return self.turn.reply.time - began


@contextmanager
def stage(
    folder: Path, screens: Screens, settings: dict[str, Any] | None = None, **arguments: object
) -> Iterator[Stage]:
    """The turn on its way; `settings` are the server's."""
    call = ToolCall("c1", "bash", {"command": "make all", **arguments})
    played = Script([call, Finish("tool_calls")], LAST, LAST)
    inside = Inside(folder / "home", played, **(settings or {}))
    with Editor(run=inside.run, answers=screens.answers) as editor:
        editor.initialize(TERMINAL)
        yield Stage(editor, played, screens, editor.new_session(folder))


def test_a_command_runs_in_a_terminal_that_the_call_shows(tmp_path: Path) -> None:
    screens = Screens("one\ntwo\n")
    with stage(tmp_path, screens) as at:
        assert at.turn.wait() == "end_turn"
        assert at.call["status"] == "completed" and at.call["rawOutput"] == {"exitCode": 0}
        assert at.call["content"] == [
            {"type": "terminal", "terminalId": "t1"}
        ]  # to the end: it stays in view
        assert at.turn.statuses("c1") == ["pending", "in_progress", "completed"]
    assert at.told.text == "one\ntwo\n[exit code 0]"
    (created,) = screens.created
    assert created["args"] == ["-c", "make all"] and Path(created["command"]).name in ("bash", "sh")
    assert created["cwd"] == str(tmp_path) and created["outputByteLimit"] == 256 * 1024
    assert "env" not in created  # some editors take it for the whole environment
    assert screens.story == WHOLE_STORY


@pytest.mark.parametrize("capabilities", [{}, {"terminal": False}, {"terminal": None}], ids=str)
def test_without_the_capability_it_is_a_child_of_the_server(tmp_path: Path, capabilities: Json) -> None:
    played = Script([ToolCall("c1", "bash", {"command": "echo here"}), Finish("tool_calls")], LAST)
    with Editor(run=Inside(tmp_path / "home", played).run) as editor:
        editor.initialize(capabilities)
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        assert "here" in str(turn.calls[0]["content"])


@pytest.mark.parametrize(
    ("exit_status", "words", "raw", "status"),
    [
        ({"exitCode": 3}, "[exit code 3, no output]", {"exitCode": 3}, "failed"),
        ({"exitCode": 3, "signal": None}, "[exit code 3, no output]", {"exitCode": 3}, "failed"),
        (
            {"exitCode": None, "signal": "SIGKILL"},
            "[ended by signal SIGKILL, no output]",
            {"signal": "SIGKILL"},
            "failed",
        ),
        ({}, "[ended; the editor does not say how, no output]", {"output": None}, "completed"),
    ],
)
def test_how_it_ended_is_told(tmp_path: Path, exit_status: Json, words: str, raw: Json, status: str) -> None:
    with stage(tmp_path, Screens(exit=exit_status)) as at:
        assert at.turn.wait() == "end_turn"
        assert at.call["status"] == status
        assert at.call["content"] == [{"type": "terminal", "terminalId": "t1"}]  # after a failure too
        assert at.call["rawOutput"] == ({"output": words} if "output" in raw else raw)
    assert (at.told.text, at.told.is_error) == (words, status == "failed")


def test_the_model_reads_output_without_colours_and_with_its_end(tmp_path: Path) -> None:
    output = "\x1b[31mred\x1b[0m\r\n" + "x" * 2 * LIMIT + "\r\nthe end\r\n"
    with stage(tmp_path, Screens(output)) as at:
        assert at.turn.wait() == "end_turn"
        assert at.call["rawOutput"] == {"exitCode": 0, "truncated": True}
    assert at.told.text.startswith("red\nxxx") and at.told.text.endswith("\nthe end\n[exit code 0]")
    assert len(at.told.text) < LIMIT + 200 and "left out" in at.told.text


def test_output_that_the_editor_did_not_keep_is_said_to_be_missing(tmp_path: Path) -> None:
    screens = Screens(changes={"output": {"output": "the end", "truncated": True}})
    with stage(tmp_path, screens) as at:
        assert at.turn.wait() == "end_turn"
        assert at.call["rawOutput"] == {"exitCode": 0, "truncated": True}
    assert "not kept by the editor" in at.told.text and at.told.text.endswith("\nthe end\n[exit code 0]")


# Timeouts


@pytest.mark.parametrize(
    "kill", [{}, None, failure("no such process")], ids=["answered", "silent", "refused"]
)
def test_a_timeout_kills_looks_tells_and_releases(
    tmp_path: Path, kill: Json | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_KILL_SECONDS", 0.1)
    screens = Screens("begun\n", exit=None, changes={"kill": kill})
    began = time.monotonic()
    with stage(tmp_path, screens, timeout=0.2) as at:
        assert at.turn.wait() == "end_turn"
        assert time.monotonic() - began >= 0.2
        assert at.call["status"] == "failed" and at.call["rawOutput"] == {"timedOut": True}
    assert at.told.text == "begun\n[not finished after 0.2 seconds, and ended]" and at.told.is_error
    assert screens.story == ["create", "wait_for_exit", "kill", "output", "release"]


def test_a_cancel_while_a_kill_is_not_answered(tmp_path: Path) -> None:
    screens = Screens(exit=None, changes={"kill": None})
    with stage(tmp_path, screens, timeout=0.05) as at:
        at.editor.wait_request("terminal/kill")
        assert at.cancel() < 1.0
        assert at.call["status"] == "failed"


# Refusals


@pytest.mark.parametrize("answer", [failure("no terminals today"), {"terminalId": 7}, {}], ids=str)
def test_a_terminal_that_cannot_be_made_fails_the_call(tmp_path: Path, answer: Json) -> None:
    with stage(tmp_path, Screens(changes={"create": answer})) as at:
        assert at.turn.wait() == "end_turn"
        assert at.call["status"] == "failed"
    assert at.told.is_error and "terminal/create" in at.told.text
    assert at.screens.story == ["create"]


@pytest.mark.parametrize("method", ["wait_for_exit", "output"])
@pytest.mark.parametrize("answer", [failure("lost"), {"exitCode": "none", "output": 7}], ids=["error", "odd"])
def test_a_terminal_that_fails_fails_the_call_and_is_released(
    tmp_path: Path, method: str, answer: Json
) -> None:
    with stage(tmp_path, Screens("text", changes={method: answer})) as at:
        assert at.turn.wait() == "end_turn"
        forgiven = method == "wait_for_exit" and "error" not in answer  # the schema lets an odd code be none
        assert at.call["status"] == ("completed" if forgiven else "failed")
    assert at.screens.story[-1] == "release"


@pytest.mark.parametrize("answer", [failure("lost"), None, {}], ids=["error", "silent", "well"])
def test_the_answer_to_a_release_does_not_matter(tmp_path: Path, answer: Json | None) -> None:
    with stage(tmp_path, Screens("text", changes={"release": answer})) as at:
        assert at.turn.wait() == "end_turn"
        assert at.call["status"] == "completed"


def test_output_that_never_comes_fails_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_OUTPUT_SECONDS", 0.05)
    with stage(tmp_path, Screens(changes={"output": None})) as at:
        assert at.turn.wait() == "end_turn"
    assert at.told.is_error and "did not answer" in at.told.text


def test_a_terminal_that_never_comes_fails_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpserver.client.START_SECONDS", 0.05)
    with stage(tmp_path, Screens(changes={"create": None})) as at:
        assert at.turn.wait() == "end_turn"
    assert at.told.is_error and "did not answer" in at.told.text


# Cancelling


def test_a_cancel_kills_tells_what_was_said_and_releases(tmp_path: Path) -> None:
    screens = Screens("so far\n", exit=None)
    with stage(tmp_path, screens) as at:
        at.editor.wait_request("terminal/wait_for_exit")
        assert at.cancel() < 1.0
        assert at.call["status"] == "failed"
        assert at.call["content"] == [{"type": "terminal", "terminalId": "t1"}]
        assert screens.story == ["create", "wait_for_exit", "kill", "output", "release"]
        assert at.editor.prompt(at.turn.session, "go on").wait() == "end_turn"
    assert at.told.text == "so far\n[cancelled by the user, and ended]" and at.told.is_error


def test_a_cancel_in_the_last_step_is_still_a_cancel(tmp_path: Path) -> None:
    with stage(tmp_path, Screens(exit=None), {"max_steps": 1}) as at:
        at.editor.wait_request("terminal/wait_for_exit")
        assert at.cancel() < 1.0


@pytest.mark.parametrize("also", ["", "kill", "release"])
def test_an_editor_that_says_nothing_more_does_not_hold_up_a_cancel(tmp_path: Path, also: str) -> None:
    screens = Screens(exit=None, changes={"output": None, also: None})
    with stage(tmp_path, screens) as at:
        at.editor.wait_request("terminal/wait_for_exit")
        assert at.cancel() < 1.0
        assert at.call["status"] == "failed"
        at.editor.ping()
        assert screens.story[-1] == "release"


def test_a_cancel_during_the_last_look(tmp_path: Path) -> None:
    """The command has ended; its output is waited for no longer than after any cancel."""
    screens = Screens(changes={"output": None})
    with stage(tmp_path, screens) as at:
        at.editor.wait_request("terminal/output")
        assert at.cancel() < 1.0
        assert at.call["status"] == "failed"


@pytest.mark.parametrize("late", [True, False])
def test_a_cancel_before_the_terminal_is_there(tmp_path: Path, late: bool) -> None:
    """What the editor makes all the same is released, although nobody waits for it any more."""
    screens = Screens(changes={"create": None})
    with stage(tmp_path, screens) as at:
        request = at.editor.wait_request("terminal/create")
        assert at.cancel() < 1.0
        assert at.call["status"] == "failed"
        at.editor.answer(request, {"terminalId": "t9"} if late else failure("cancelled", -32800))
        at.editor.ping()
        released = [params["terminalId"] for name, params in screens.asked if name == "release"]
        assert released == (["t9"] if late else [])


def test_a_cancel_in_the_same_write_as_the_exit(tmp_path: Path) -> None:
    """Whatever wins, the turn is cancelled and the terminal released."""
    screens = Screens("text", exit=None)
    with stage(tmp_path, screens) as at:
        request = at.editor.wait_request("terminal/wait_for_exit")
        with at.editor.together():
            at.editor.answer(request, {"exitCode": 0})
            at.editor.cancel(at.turn.session)
        assert at.turn.wait() == "cancelled"
        assert at.call["status"] in ("completed", "failed")


@pytest.mark.parametrize("moment", ["create", "wait_for_exit", "output"])
def test_the_end_of_input_at_any_moment(tmp_path: Path, moment: str) -> None:
    with stage(tmp_path, Screens(changes={moment: None})) as at:
        at.editor.wait_request(f"terminal/{moment}")
        at.editor.rules.terminals.clear()  # nobody is left who could be told
        at.editor.close(unanswered_ok=True)


def test_a_session_that_is_closed_releases_its_terminal(tmp_path: Path) -> None:
    with stage(tmp_path, Screens(exit=None)) as at:
        at.editor.wait_request("terminal/wait_for_exit")
        at.editor.request("session/close", {"sessionId": at.turn.session})
        assert at.turn.wait() == "cancelled"
        assert at.screens.story[-1] == "release"


# What is recorded


@pytest.mark.parametrize("code", [0, 3])
def test_a_replay_tells_the_output_and_not_a_terminal_that_is_gone(tmp_path: Path, code: int) -> None:
    with stage(tmp_path, Screens("text\n", exit={"exitCode": code})) as at:
        assert at.turn.wait() == "end_turn"
        before = len(at.editor.updates(at.turn.session))
        params = {"sessionId": at.turn.session, "cwd": str(tmp_path), "mcpServers": []}
        assert "error" not in at.editor.request("session/load", params).message
        told = at.editor.updates(at.turn.session)[before:]
        (ended,) = [update for update in told if update["sessionUpdate"] == "tool_call_update"]
    shown = str(ended["content"])
    assert "text" in shown and f"exit code {code}" in shown and "terminalId" not in str(told)


def test_a_load_in_mid_turn_shows_the_terminal_again(tmp_path: Path) -> None:
    screens = Screens("text\n", exit=None)
    with stage(tmp_path, screens) as at:
        request = at.editor.wait_request("terminal/wait_for_exit")
        before = len(at.editor.updates(at.turn.session))
        params = {"sessionId": at.turn.session, "cwd": str(tmp_path), "mcpServers": []}
        assert "error" not in at.editor.request("session/load", params).message
        told = at.editor.updates(at.turn.session)[before:]
        assert told[-1]["content"] == [{"type": "terminal", "terminalId": "t1"}]
        at.editor.answer(request, {"exitCode": 0})
        assert at.turn.wait() == "end_turn"

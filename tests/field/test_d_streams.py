"""Nothing but the protocol on stdout, and nobody else at stdin."""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.moments import Stage, bash
from tests.fakes.editor import CHECKOUT, Editor
from tests.fakes.llm_answers import text
from tests.field.helpers import eventually, patched

NOISE = """
import logging, os, sys, warnings
import acpserver.llm.offline as offline
quiet = offline.OfflineModel.stream
def loud(self, request, cancel):
    print("printed")
    sys.stdout.write("written"); sys.stdout.flush()
    sys.__stdout__.write("written to the first one"); sys.__stdout__.flush()
    os.write(1, b"raw")
    os.system("echo from a shell; cat")
    warnings.warn("a warning", stacklevel=1)
    logging.getLogger("someone.else").error("logged")
    logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
    logging.getLogger("someone.else").critical("logged on stdout")
    return quiet(self, request, cancel)
offline.OfflineModel.stream = loud
"""


def test_row_053_057_058_060_whoever_prints_does_not_reach_the_protocol(tmp_path: Path) -> None:
    """A library printed on stdout, and the client could not read the protocol any more."""
    with Editor("--model", "offline", env=patched(tmp_path, NOISE), stderr_ok=True) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "say hello")
        assert turn.wait() == "end_turn"
        assert turn.text == "hello\n"
        for word in ("printed", "written", "raw", "from a shell", "logged on stdout"):
            assert word in editor.stderr()


@pytest.mark.parametrize("level", ["debug", "info"])
def test_row_057_058_the_log_goes_to_stderr(tmp_path: Path, level: str) -> None:
    """The log was written between the messages."""
    with Editor("--model", "offline", "--log-level", level, stderr_ok=True) as editor:
        editor.initialize()
        assert editor.prompt(editor.new_session(tmp_path), "say hello\nrun true").wait() == "end_turn"


def test_row_060_and_113_what_a_command_leaves_behind_stays_unheard(at: Stage, tmp_path: Path) -> None:
    """A process that outlived its command wrote into the protocol, or showed up after the turn."""
    command = "(sleep 1; echo late; echo later >&2; touch over) & echo started"
    turn = at.prompt(bash(command), text("end"))
    assert turn.wait() == "end_turn"
    eventually((tmp_path / "over").exists, "end of the process in the background")
    at.editor.ping()  # the editor fails for an update that comes now
    assert turn.calls[0]["rawOutput"] == {"exitCode": 0}
    assert "late" not in str(turn.calls[0]["content"])


READERS = ["cat", "read line; echo status $?", f"{sys.executable} -c 'input()'", "head -c 1", "sh"]


@pytest.mark.parametrize("command", READERS)
def test_row_061_a_command_finds_its_input_at_its_end(at: Stage, command: str) -> None:
    """A command read the client's messages, or waited for input that nobody could give."""
    turn = at.prompt(bash(f"{command}; echo over"), text("end"))
    at.editor.ping()
    assert turn.wait() == "end_turn"
    assert "over" in str(turn.calls[0]["content"])


def test_row_062_every_child_gets_its_stdin_on_purpose() -> None:
    """A small helper process inherited the pipe, and the turn hung."""
    starts = {"Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec"}
    found = 0
    for path in (CHECKOUT / "acpserver").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "subprocess" and node.func.attr in starts:
                found += 1
                given = {keyword.arg for keyword in node.keywords}
                assert given & {"stdin", "input"}, f"{path}:{node.lineno}"
    assert found >= 2


HELLO = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'


def test_row_064_input_that_has_ended_is_still_answered() -> None:
    """With a pipeline in front the agent left before it had said anything."""
    command = 'printf "%s\\n" "$1" | "$2" -m acpserver'
    line = HELLO.decode().strip()
    shell = ["/bin/sh", "-c", command, "sh", line, sys.executable]
    done = subprocess.run(shell, cwd=CHECKOUT, capture_output=True, timeout=10)
    assert b'"protocolVersion":1' in done.stdout
    assert (done.returncode, done.stderr) == (0, b"")


ENTRIES = {
    "module": [sys.executable, "-m", "acpserver"],
    "command acp": [sys.executable, "-m", "acpserver", "acp"],
    "flag --acp": [sys.executable, "-m", "acpserver", "--acp"],
    "function": [sys.executable, "-c", "import sys; from acpserver.cli import main; sys.exit(main())"],
    "script": [str(CHECKOUT / "bin" / "acpserver")],
}


@pytest.mark.parametrize("command", ENTRIES.values(), ids=ENTRIES.keys())
def test_row_065_066_and_201_every_way_to_start_it_serves(command: list[str], tmp_path: Path) -> None:
    """One of several entry points printed its log on stdout, or read stdin to its end first."""
    env = {"PYTHON": sys.executable}  # which the script asks for
    with Editor("--model", "offline", command=command, strict=False, env=env) as editor:
        editor.initialize()  # answered while stdin stays open
        assert editor.prompt(editor.new_session(tmp_path), "say hello\nrun true").wait() == "end_turn"


def test_row_081_a_terminal_as_input_is_served_on_demand() -> None:
    """Only pipes had been thought of as input."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, HELLO)
        os.write(ours, b"\x04")  # the end of input, as a terminal sends it
        command = [sys.executable, "-m", "acpserver", "acp"]
        done = subprocess.run(command, cwd=CHECKOUT, stdin=theirs, capture_output=True, timeout=10)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b'"protocolVersion":1' in done.stdout
    assert done.returncode == 0

"""The life of the process and of everything that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.moments import Stage, bash, stage
from tests.fakes.editor import CHECKOUT, Editor, Json
from tests.fakes.llm_answers import Stall, text
from tests.field.helpers import alive, eventually, patched, pids_in


def test_row_034_it_ends_with_its_input() -> None:
    """Editors closed the pipe and left, and the agents stayed."""
    editor = Editor("--model", "offline")
    editor.initialize()
    start = time.monotonic()
    editor.close(status=0, timeout=2.0)
    assert time.monotonic() - start < 2.0


CLIENT = """
import os, subprocess, sys, time
command = [sys.executable, "-m", "acpserver", "--model", "offline"]
agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
hello = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\\n'
new = b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"%s","mcpServers":[]}}\\n'
agent.stdin.write(hello + new % os.fsencode(os.getcwd()))
agent.stdout.readline()
session = agent.stdout.readline().split(b'"sessionId":"')[1].split(b'"')[0]
mode = (b'{"jsonrpc":"2.0","id":2,"method":"session/set_mode","params":{"sessionId":"%s",'
        b'"modeId":"bypass"}}\\n')
prompt = (b'{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"%s",'
          b'"prompt":[{"type":"text","text":"run echo $$ >>pids; sleep 600"}]}}\\n')
agent.stdin.write(mode % session + prompt % session)
with open("pids", "a") as file:
    file.write(f"{agent.pid}\\n")
time.sleep(600)
"""


def test_row_036_it_ends_when_its_client_is_killed(tmp_path: Path) -> None:
    """The editor was killed, and the agent and its commands went on without it."""
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    client = subprocess.Popen([sys.executable, "-c", CLIENT], cwd=tmp_path, env=env)
    try:
        pids = pids_in(tmp_path / "pids", 2)
        assert alive(pids) == pids
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    eventually(lambda: not alive(pids), "end of the agent and its command", 5.0)


def test_row_037_a_cancel_ends_the_whole_tree_of_a_command(at: Stage, tmp_path: Path) -> None:
    """Only the shell was ended; what it had started went on."""
    script = (
        "sleep 999 & echo $! >>pids;"
        "(trap '' TERM; exec sleep 999) & echo $! >>pids;"
        "setsid sleep 999 & echo $! >>pids; wait"
    )
    turn = at.prompt(bash(script))
    pids = pids_in(tmp_path / "pids", 3)
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    eventually(lambda: not alive(pids), "end of the three commands")


def test_row_038_no_dead_child_is_left_behind(offline: Stage) -> None:
    """Each command left an entry in the table of processes."""
    offline.editor.request("session/set_mode", {"sessionId": offline.session, "modeId": "bypass"})
    prompt = "\n".join(f"run true {number}" for number in range(45))
    assert offline.editor.prompt(offline.session, prompt).wait(20.0) == "end_turn"
    children = psutil.Process(offline.editor.process.pid).children()
    assert [child for child in children if child.status() == psutil.STATUS_ZOMBIE] == []
    assert len(children) == 1  # the guard


def test_row_040_starting_and_ending_many_times_leaves_nothing() -> None:
    """After a day of work there were dozens of agents that belonged to nobody."""
    for _ in range(4):
        with Editor("--model", "offline") as editor:  # looks for what is left
            editor.initialize()


def test_row_049_sessions_that_are_closed_are_gone(at: Stage, tmp_path: Path) -> None:
    """Closed sessions were never released, and the process grew."""
    server = psutil.Process(at.editor.process.pid)

    def rounds(count: int) -> None:
        for _ in range(count):
            session = at.editor.new_session(tmp_path)
            assert at.editor.request("session/close", {"sessionId": session}).result == {}

    rounds(100)
    before = server.memory_info().rss, server.num_fds(), server.num_threads()
    rounds(200)
    after = server.memory_info().rss, server.num_fds(), server.num_threads()
    assert after[0] - before[0] < 2 << 20
    assert after[1] == before[1]
    assert after[2] <= before[2] + 3  # workers of the pool, which end when idle


def test_row_050_commands_of_several_sessions_end_with_the_input(tmp_path: Path) -> None:
    """Only the top process was ended; the commands below lived on."""
    with stage(tmp_path) as at:
        sessions = [at.session, at.editor.new_session(tmp_path), at.editor.new_session(tmp_path)]
        turns = []
        for session in sessions:
            at.llm.script(bash("echo $$ >>pids; sleep 600"))
            turns.append(at.editor.prompt(session, "go"))
        pids = pids_in(tmp_path / "pids", 3)
        assert [os.getpgid(pid) for pid in pids] == pids  # each in a group of its own
        at.editor.close(status=0, timeout=2.0)
        assert alive(pids) == []
        assert [turn.reply and turn.reply.result["stopReason"] for turn in turns] == ["cancelled"] * 3


CRASH = """
import acpserver.llm.offline as offline
def crash(self, request, cancel):
    raise RuntimeError("a fault of ours")
offline.OfflineModel.stream = crash
"""


def test_row_052_a_fault_in_a_turn_is_an_error_and_the_process_stays(tmp_path: Path) -> None:
    """A crash looked like a normal end of the answer."""
    with Editor("--model", "offline", env=patched(tmp_path, CRASH), stderr_ok=True) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        for _ in range(2):
            assert editor.prompt(session, "say hello").wait_reply().code == -32603
        assert editor.process.poll() is None
        assert "a fault of ours" in editor.stderr()
        os.ftruncate(editor._wire.stderr.fileno(), 0)  # type: ignore[attr-defined]  # the traceback is wanted


def test_row_052_what_cannot_start_says_why_and_fails(tmp_path: Path) -> None:
    """The exit status told nothing."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.json").write_text("{")
    env = {**os.environ, "ACPSERVER_HOME": str(home)}
    command = [sys.executable, "-m", "acpserver"]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1
    assert b"config.json" in done.stderr


def test_row_052_an_answer_follows_the_last_chunk(at: Stage) -> None:
    """A complete stream has an answer; the absence of one means a crash."""
    turn = at.prompt(text("all", " of it"))
    assert turn.wait() == "end_turn"
    assert turn.text == "all of it"


def loaded(at: Stage, folder: Path, session: str) -> list[Json]:
    """What a server started anew tells of a session; the model's server must accept it, too."""
    flags = ("--model", "fake", "--base-url", at.llm.base_url)
    with Editor(*flags) as editor:
        editor.initialize()
        params = {"sessionId": session, "cwd": str(folder), "mcpServers": []}
        assert "result" in editor.request("session/load", params).message
        told = editor.updates(session)
        at.llm.script(text("and on"))
        assert editor.prompt(session, "go on").wait() == "end_turn"
        assert at.llm.violations == []
        return told


def test_row_044_a_command_cut_off_by_the_end_of_input_is_closed_in_the_history(tmp_path: Path) -> None:
    """The end came in the middle of a command, and the stored conversation could not be used any more."""
    with stage(tmp_path) as at:
        turn = at.prompt(bash("echo ready; sleep 600"))
        turn.until(lambda update: "ready" in str(update.get("content")))
        at.editor.close(status=0, timeout=2.0)
        told = loaded(at, tmp_path, at.session)
        statuses = [update["status"] for update in told if update["sessionUpdate"].startswith("tool_call")]  # type: ignore[attr-defined]
        assert statuses[-1] == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_row_045_046_what_was_said_before_a_signal_is_kept(tmp_path: Path, number: int) -> None:
    """A signal in mid-turn, and the prompt and everything before it were lost."""
    with stage(tmp_path) as at:
        assert at.prompt(text("the first answer")).wait() == "end_turn"
        turn = at.prompt(text("the second", " answer").answer().insert(2, Stall()))
        turn.until("agent_message_chunk")
        at.editor.kill(number)
        at.editor.close(status=None, unanswered_ok=True, timeout=2.0)
        told = loaded(at, tmp_path, at.session)
        chunks = [u for u in told if str(u["sessionUpdate"]).endswith("message_chunk")]
        said = "".join(u["content"]["text"] for u in chunks)  # type: ignore[index]
        assert said.startswith("go onthe first answergo on")
        assert number == signal.SIGKILL or said.endswith("the second")

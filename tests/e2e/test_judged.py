"""What an editor's user notices first: how fast a cancel works, that nothing is left at the end, and that a
client which writes much or reads nothing does no harm."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.e2e.moments import MOMENTS, NAMES, Moment, Stage, bash, stage, stalled_stream
from tests.fakes.editor import CHECKOUT, Editor, Turn
from tests.fakes.llm_answers import Pause, Stall, text
from tests.fakes.llm_server import FakeLlm
from tests.field.helpers import eventually

CANCEL_SECONDS = 0.2  # from session/cancel to the answer, at worst
EXIT_SECONDS = 2.0

at_every_moment = pytest.mark.parametrize("moment", MOMENTS, ids=NAMES)


def cancel(at: Stage, turns: tuple[Turn, ...]) -> None:
    """The usual way: everything that the session is at."""
    at.editor.cancel(at.session)


def cancel_requests(at: Stage, turns: tuple[Turn, ...]) -> None:
    """Each request by itself, the last one first."""
    for turn in reversed(turns):
        at.editor.notify("$/cancel_request", {"requestId": turn.id})


def close(at: Stage, turns: tuple[Turn, ...]) -> None:
    """The session as a whole."""
    at.editor.send_request("session/close", {"sessionId": at.session})


@pytest.mark.parametrize("way", [cancel, cancel_requests, close], ids=lambda way: way.__name__)
@at_every_moment
def test_a_cancel_is_answered_at_once_and_the_session_is_fine(
    moment: Callable[[Stage], Moment], way: Callable[[Stage, tuple[Turn, ...]], None], tmp_path: Path
) -> None:
    with stage(tmp_path) as at:
        reached = moment(at)
        turns = (reached.turn, *reached.later)
        sent = time.monotonic()
        way(at, turns)
        for turn in turns:
            assert turn.wait() == "cancelled"
            assert turn.reply is not None and turn.reply.time - sent < CANCEL_SECONDS
            assert all(call["status"] == "failed" for call in turn.calls)
        if reached.request is not None:
            assert reached.request.closed.wait(1.0)
            assert reached.request.closed_at - sent < 1.0
        at.editor.permission = "allow_once"
        if way is not close:
            after = at.prompt(text("still here"))
            assert after.wait() == "end_turn"
            assert after.text == "still here"
        assert at.llm.violations == []


def test_a_cancel_in_a_stalled_stream_takes_a_few_milliseconds(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    taken = []
    with stage(tmp_path) as at:
        for _ in range(10):
            turn = stalled_stream(at).turn
            sent = time.monotonic()
            at.editor.cancel(at.session)
            assert turn.wait() == "cancelled"
            assert turn.reply is not None
            taken.append(turn.reply.time - sent)
    median = statistics.median(taken)
    record_property("cancel_median_ms", round(median * 1000, 2))
    assert max(taken) < CANCEL_SECONDS
    # The aim is 10 ms; this leaves room for a machine that does other things at the same time.
    assert median < 0.05


def test_prompt_and_cancel_in_one_write(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        for _ in range(20):
            sent = time.monotonic()
            with at.editor.together():
                turn = at.editor.prompt(at.session, "hello")
                at.editor.cancel(at.session)
            assert turn.wait() == "cancelled"
            assert turn.reply is not None and turn.reply.time - sent < CANCEL_SECONDS
        assert at.prompt(text("yes")).wait() == "end_turn"


def test_cancel_and_next_prompt_in_one_write(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        first = stalled_stream(at).turn
        at.llm.script(text("second"))
        with at.editor.together():
            at.editor.cancel(at.session)
            second = at.editor.prompt(at.session, "again")
        assert (first.wait(), second.wait()) == ("cancelled", "end_turn")
        assert second.text == "second"


@at_every_moment
def test_the_end_of_input_ends_everything(moment: Callable[[Stage], Moment], tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        reached = moment(at)
        at.editor.close(status=0, timeout=EXIT_SECONDS)  # fails, too, for a child that is left
        for turn in (reached.turn, *reached.later):
            assert turn.reply is not None and turn.reply.result["stopReason"] == "cancelled"
        if reached.request is not None:
            assert reached.request.closed.wait(1.0)


def test_the_end_of_input_while_nothing_is_read(tmp_path: Path) -> None:
    """The pipe to the client is full, and stays so."""
    server = subprocess.Popen(
        [sys.executable, "-m", "acpserver", "--model", "offline"],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin and server.stdout
    try:
        server.stdin.write(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n')
        new = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": str(tmp_path)}}
        server.stdin.write(json.dumps(new).encode() + b"\n")
        server.stdin.flush()
        server.stdout.readline()
        session = json.loads(server.stdout.readline())["result"]["sessionId"]
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "stream 1000000"}]}
        prompt = {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params}
        server.stdin.write(json.dumps(prompt).encode() + b"\n")
        server.stdin.flush()
        assert b"session/update" in server.stdout.readline()
        server.stdin.close()
        assert server.wait(EXIT_SECONDS) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.mark.parametrize("number", [15, 2, 1], ids=["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_everything_as_the_end_of_input_does(number: int, tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        turn = at.prompt(bash("echo ready; sleep 600"))
        turn.until(lambda update: "ready" in str(update.get("content")))
        at.editor.kill(number)
        assert turn.wait(EXIT_SECONDS) == "cancelled"
        at.editor.close(status=143, timeout=EXIT_SECONDS)


@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.002])
def test_two_signals_close_together_are_one(pause: float, tmp_path: Path) -> None:
    """A service manager and a closing terminal send SIGTERM and SIGHUP one right behind the other."""
    clock = threading.Event()  # nobody sets it
    for _ in range(5):
        with stage(tmp_path) as at:
            at.editor.kill(15)
            clock.wait(pause)
            at.editor.kill(1)
            at.editor.close(status=143, timeout=EXIT_SECONDS)


def test_a_killed_server_takes_its_commands_with_it(tmp_path: Path) -> None:
    command = "trap '' TERM; echo $$ > pid; setsid sleep 601 & sleep 602"
    with stage(tmp_path) as at:
        turn = at.prompt(bash(f"{command} & echo ready; wait"))
        turn.until(lambda update: "ready" in str(update.get("content")))
        eventually(lambda: len(_sleepers(at)) == 2, "two commands")
        sleepers = _sleepers(at)
        at.editor.kill()
        _, alive = psutil.wait_procs(sleepers, timeout=2.0)
        running = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        assert running == []
        at.editor.close(status=-9, unanswered_ok=True, timeout=EXIT_SECONDS)


def _sleepers(at: Stage) -> list[psutil.Process]:
    """The sleep commands that descend from the server."""
    children = psutil.Process(at.editor.process.pid).children(recursive=True)
    return [child for child in children if child.name() == "sleep"]


def test_a_client_that_is_gone_ends_the_server(tmp_path: Path) -> None:
    """Its output can no longer be written, though its input stays open."""
    with stage(tmp_path) as at:
        stall = Stall()
        turn = at.prompt(text("a", "b").answer().insert(2, stall))
        turn.until("agent_message_chunk")
        wire = at.editor._wire
        at.editor.pause_reading()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, wire.read_fd)  # closes our end of the pipe; the reader then sees the end
        os.close(null)
        stall.release()
        assert at.editor.process.wait(EXIT_SECONDS) == 0
        at.editor.close(status=0, unanswered_ok=True)


def test_forty_large_requests_before_anything_is_read(tmp_path: Path) -> None:
    with stage(tmp_path, timeout=20.0) as at:
        at.editor.pause_reading()
        large = "x" * 1_000_000
        sent = [at.editor.send_request("_large/request", {"text": large}) for _ in range(40)]
        at.editor.resume_reading()
        assert [request.wait_reply().code for request in sent] == [-32601] * 40


def test_forty_large_prompts_are_all_answered(tmp_path: Path) -> None:
    with Editor("--model", "offline", timeout=20.0) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        editor.pause_reading()
        blob = {"type": "resource", "resource": {"uri": "file:///large.txt", "text": "x" * 1_000_000}}
        said = {"type": "text", "text": "say read"}
        turns = [editor.prompt(session, [said, blob]) for _ in range(40)]
        editor.resume_reading()
        assert [turn.wait() for turn in turns] == ["end_turn"] * 40
        assert [turn.text for turn in turns] == ["read\n"] * 40


def test_a_client_that_stops_reading_does_not_fill_the_memory(tmp_path: Path) -> None:
    """The model sends as fast as it can; the client takes nothing for three seconds, and then cancels."""
    flood = text(*["word " * 200] * 50_000).answer().fast()  # 50 MB of text
    with stage(tmp_path, timeout=15.0) as at:
        turn = at.prompt(flood)
        turn.until("agent_message_chunk")
        at.editor.pause_reading()
        server = psutil.Process(at.editor.process.pid)
        largest = 0
        deadline = time.monotonic() + 3.0
        clock = threading.Event()  # nobody sets it
        while time.monotonic() < deadline:
            largest = max(largest, server.memory_info().rss)
            clock.wait(0.05)
        assert largest < 80 << 20
        at.editor.cancel(at.session)
        # While nothing is read the answer cannot arrive, but the model's server sees the end at once.
        assert at.llm.requests[-1].closed.wait(1.0)
        at.editor.resume_reading()
        assert turn.wait() == "cancelled"
        assert at.prompt(text("fine")).wait() == "end_turn"


def test_two_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    slow = text("done").answer().insert(1, Pause(3.0))
    with FakeLlm(default=slow) as llm, Editor("--model", "fake", "--base-url", llm.base_url) as editor:
        editor.initialize()
        sessions = [editor.new_session(tmp_path) for _ in range(2)]
        editor.ping()
        start = time.monotonic()
        turns = [editor.prompt(session, "go") for session in sessions]
        assert [turn.wait() for turn in turns] == ["end_turn", "end_turn"]
        assert time.monotonic() - start < 5.5  # one after the other takes 6


def test_many_lines_in_one_write_are_answered_in_order(tmp_path: Path) -> None:
    with Editor("--model", "offline") as editor:
        editor.initialize()
        lines = [json.dumps({"jsonrpc": "2.0", "id": n, "method": "_x"}) for n in range(100, 1100)]
        with editor.together():
            for line in lines:
                editor.send(json.loads(line))
        editor.wait_for(lambda: len(editor.received) >= 1001, "a thousand answers")
        assert [message["id"] for message in editor.received[1:]] == list(range(100, 1100))

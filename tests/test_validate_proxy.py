"""`acp-validate run`: whatever is in the middle, both sides see what they would see without it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from acpserver.validate.findings import AGENT, CLIENT
from acpserver.validate.live import Lines
from acpserver.validate.proxy_feed import CLOSING, Feed, Frame, frames
from acpserver.validate.proxy_judge import Judge
from acpserver.validate.validator import Validator

ROOT = Path(__file__).parent.parent
SECONDS = 20.0
RUN = """
import argparse, sys
from acpserver.validate import proxy
parser = argparse.ArgumentParser()
proxy.add_arguments(parser)
sys.exit(proxy.run(parser.parse_args()))
"""
ECHO = "import os\nwhile data := os.read(0, 65536): os.write(1, data)"
STUBBORN = """
import os, signal, sys, time
print(os.getpid(), file=sys.stderr, flush=True)
time.sleep(100)
"""
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'


@contextmanager
def proxied(program: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """The proxy in front of a Python program."""
    command = [sys.executable, "-c", RUN, *flags, "--", sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=ROOT
    )
    try:
        yield process
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream
            stream.close()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def write_and_close(stream: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(stream.fileno(), view) :]
    stream.close()


def read(stream: object, count: int) -> bytes:
    """Exactly so many bytes, within the time limit."""
    fd = stream.fileno()  # type: ignore[attr-defined]
    data = b""
    while len(data) < count:
        assert select.select([fd], [], [], SECONDS)[0], f"only {len(data)} bytes came"
        block = os.read(fd, min(1 << 18, count - len(data)))
        assert block, f"ended after {len(data)} bytes"
        data += block
    return data


def read_line(stream: object) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += read(stream, 1)
    return line


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.01)


def test_bytes_pass_unchanged_whatever_they_are() -> None:
    data = random.Random(1).randbytes(3_000_000) + b"\n\xff\xfe{]\n\n\r\n" + INITIALIZE + b"no end"
    with proxied(ECHO, "--report", os.devnull) as process:
        assert process.stdin and process.stdout
        writer = threading.Thread(target=write_and_close, args=(process.stdin, data))
        writer.start()
        digest, count = hashlib.sha256(), 0
        while block := os.read(process.stdout.fileno(), 1 << 18):
            digest.update(block)
            count += len(block)
        writer.join(SECONDS)
        assert count == len(data)
        assert digest.digest() == hashlib.sha256(data).digest()
        assert process.wait(SECONDS) == 0


def test_nothing_waits_for_the_end_of_a_line() -> None:
    with proxied(ECHO) as process:
        assert process.stdin
        for piece in (b'{"json', b"\xff", b"\n", b"x"):
            process.stdin.write(piece)
            assert read(process.stdout, len(piece)) == piece


@pytest.mark.parametrize("status", [0, 7, 255])
def test_the_exit_status_is_the_agents(status: int) -> None:
    with proxied(f"import sys; sys.exit({status})") as process:
        assert process.wait(SECONDS) == status


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGHUP"])
def test_an_agent_that_a_signal_ended_ends_the_proxy_by_the_same_one(name: str) -> None:
    with proxied(f"import os, signal; os.kill(os.getpid(), signal.{name})") as process:
        assert process.wait(SECONDS) == -getattr(signal, name)
        assert read_all(process.stdout) == b""


def read_all(stream: object) -> bytes:
    data = b""
    while block := os.read(stream.fileno(), 1 << 16):  # type: ignore[attr-defined]
        data += block
    return data


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_go_to_the_agent(name: str) -> None:
    agent = f"""
        import os, signal
        def handle(number, frame):
            os.write(1, signal.Signals(number).name.encode())
            os._exit(42)
        signal.signal(signal.{name}, handle)
        os.write(1, b"ready")
        while True: signal.pause()
    """
    with proxied(agent) as process:
        assert read(process.stdout, 5) == b"ready"
        process.send_signal(getattr(signal, name))
        assert process.wait(SECONDS) == 42
        assert read_all(process.stdout) == name.encode()


def test_stderr_is_the_agents_own() -> None:
    with proxied("import os; os.write(2, b'\\xff warning')") as process:
        assert process.wait(SECONDS) == 0
        assert read_all(process.stderr) == b"\xff warning"


def test_an_editor_that_does_not_read_holds_the_agent_up() -> None:
    agent = """
        import os, select
        os.set_blocking(1, False)
        written = 0
        while select.select([], [1], [], 0.5)[1]:
            written += os.write(1, bytes(4096))
        os.write(2, b"%d\\n" % written)
    """
    with proxied(agent) as process:
        assert int(read_line(process.stderr)) < 2 << 20
        assert len(read_all(process.stdout)) > 0


def test_an_agent_that_does_not_read_holds_the_editor_up() -> None:
    with proxied("import signal; signal.pause()") as process:
        assert process.stdin
        fd = process.stdin.fileno()
        os.set_blocking(fd, False)
        written = 0
        while select.select([], [fd], [], 0.5)[1]:
            written += os.write(fd, bytes(4096))
        assert written < 2 << 20
        process.terminate()
        assert process.wait(SECONDS) == -15


def test_the_last_words_of_an_agent_arrive_however_slow_the_editor_is() -> None:
    with proxied("import os; os.write(1, b'x' * 60_000); os.write(2, b'.'); os._exit(3)") as process:
        assert process.stderr
        os.read(process.stderr.fileno(), 1)  # the agent says that it ends
        assert read_all(process.stdout) == b"x" * 60_000
        assert process.wait(SECONDS) == 3


def test_end_of_input_reaches_the_agent() -> None:
    with proxied("import sys; sys.stdin.buffer.read(); sys.exit(5)") as process:
        assert process.stdin
        process.stdin.close()
        assert process.wait(SECONDS) == 5


def test_a_closed_stdout_reaches_the_editor_while_the_agent_lives() -> None:
    with proxied("import os, sys; os.close(1); sys.stdin.buffer.read(); os._exit(6)") as process:
        assert process.stdin
        assert read_all(process.stdout) == b""
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(SECONDS) == 6


def test_a_closed_stdin_reaches_the_editor_while_the_agent_lives() -> None:
    with proxied("import os, signal; os.close(0); os.write(1, b'!'); signal.pause()") as process:
        assert process.stdin
        read(process.stdout, 1)
        with pytest.raises(BrokenPipeError):
            for _ in range(1_000):
                process.stdin.write(b"x" * 4096)
        process.terminate()
        assert process.wait(SECONDS) == -15


def test_a_leftover_process_that_holds_stdout_does_not_keep_the_proxy() -> None:
    agent = """
        import os, subprocess, sys
        child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
        os.write(1, b"%d\\n" % child.pid)
        os._exit(4)
    """
    with proxied(agent) as process:
        left = int(read_line(process.stdout))
        assert process.wait(SECONDS) == 4
        os.kill(left, signal.SIGKILL)


def test_an_agent_that_outstays_a_dead_editor_is_ended() -> None:
    with proxied(STUBBORN) as process:
        assert process.stdin and process.stdout
        agent = int(read_line(process.stderr))
        process.stdin.close()
        process.stdout.close()
        assert process.wait(SECONDS) == -15
        assert not psutil.pid_exists(agent)


def test_an_agent_whose_proxy_was_killed_is_ended() -> None:
    with proxied(STUBBORN) as process:
        agent = psutil.Process(int(read_line(process.stderr)))
        wait_until(lambda: judge_of(process), "the judge runs")
        judge = judge_of(process)
        assert judge
        wait_until(lambda: signal_ignored(judge.pid), "the judge is ready")
        process.kill()
        wait_until(lambda: is_over(agent) and is_over(judge), "agent and judge are over")


def judge_of(process: subprocess.Popen[bytes]) -> psutil.Process | None:
    children = psutil.Process(process.pid).children()
    return next((child for child in children if "proxy_judge" in " ".join(child.cmdline())), None)


def is_over(process: psutil.Process) -> bool:
    """Whether it has ended, be it that nobody has waited for it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def signal_ignored(pid: int) -> bool:
    """Whether the process ignores SIGTERM (proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.split("SigIgn:")[1].split()[0], 16)
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def test_forwarding_goes_on_without_the_judge() -> None:
    with proxied(ECHO) as process:
        assert process.stdin
        wait_until(lambda: judge_of(process), "the judge runs")
        judge = judge_of(process)
        assert judge
        judge.kill()
        wait_until(lambda: is_over(judge), "the judge is over")
        for _ in range(20):
            process.stdin.write(INITIALIZE)
            assert read(process.stdout, len(INITIALIZE)) == INITIALIZE
        process.stdin.close()
        assert process.wait(SECONDS) == 0
        assert b"nothing is checked any more" in read_all(process.stderr)


@pytest.mark.parametrize(("command", "status"), [("/no/such/agent", 127), ("/", 126)])
def test_an_agent_that_cannot_be_started(command: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        cwd=ROOT,
    )
    assert done.returncode == status
    assert done.stderr.startswith(b"acp-validate: cannot start " + command.encode())
    assert done.stdout == b""


def test_faults_are_reported_while_the_conversation_runs(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    agent = """
        import os, sys
        sys.stdin.readline()
        os.write(1, b"Starting up...\\n")
        sys.stdin.read()
    """
    with proxied(agent, "--report", str(report)) as process:
        assert process.stdin
        process.stdin.write(INITIALIZE)
        wait_until(report.exists, "there is a report")
        wait_until(lambda: b"acp-validate:2:" in report.read_bytes(), "a fault is reported")
        assert process.poll() is None
        assert b" agent: " in report.read_bytes()
        process.stdin.close()
        assert process.wait(SECONDS) == 0
        assert read_all(process.stderr) == b""
    assert b"acp-validate: 2 messages, 1 error, " in report.read_bytes()


def test_the_trace_holds_both_directions_as_they_were(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    secret = {"name": "m", "command": "/m", "args": [], "env": [{"name": "KEY", "value": "secret"}]}
    new = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": [secret]}}
    sent = [INITIALIZE, json.dumps(new).encode() + b"\n", b'{"x": 1.50, "y": "\\ud83d"}\r\n', b"\xff\n"]
    with proxied(ECHO, "--trace", str(trace), "--report", os.devnull) as process:
        assert process.stdin
        process.stdin.write(b"".join(sent))
        process.stdin.close()
        assert process.wait(SECONDS) == 0
    entries = [json.loads(line) for line in trace.read_bytes().splitlines()]
    assert [entry["direction"] for entry in entries] == ["in"] * 4 + ["out"] * 4
    assert entries[0]["message"]["method"] == "initialize"
    assert entries[2]["message"] == {"x": 1.5, "y": "\ud83d"}
    assert entries[3]["text"] == "\ufffd"
    assert b"1.50" in trace.read_bytes()
    assert b"secret" not in trace.read_bytes()
    assert abs(entries[0]["time"] - time.time()) < 60


def test_a_trace_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    with proxied(ECHO, "--trace", str(tmp_path / "no" / "trace")) as process:
        assert process.wait(SECONDS) == 2
        assert read_all(process.stderr).startswith(b"acp-validate: ")


def test_a_schema_that_is_not_there_is_said_before_anything_starts() -> None:
    with proxied(ECHO, "--schema", "/no/such/file") as process:
        assert process.wait(SECONDS) == 2
        assert b"/no/such/file" in read_all(process.stderr)


def test_a_file_that_is_no_schema_does_not_end_the_watch(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text("{}")
    with proxied(ECHO, "--schema", str(file)) as process:
        assert process.stdin
        write_and_close(process.stdin, b"noise\n")
        assert process.wait(SECONDS) == 0
        told = read_all(process.stderr)
    assert b"not a JSON Schema with $defs; the built-in schema is used" in told
    assert b"error T2 agent" in told and b"Traceback" not in told


class TestFeed:
    def test_a_slow_judge_is_told_how_much_it_missed(self) -> None:
        reader, writer = os.pipe()
        feed = Feed(writer, on_broken=lambda: None, limit=1000)
        feed.offer(CLIENT, b"a" * 600)
        feed.offer(CLIENT, b"b" * 600)
        feed.offer(AGENT, b"c" * 300)
        feed.offer(CLIENT, b"d" * 100)
        feed.offer(AGENT, b"e" * 50)
        feed.start()
        feed.close()
        with open(reader, "rb") as stream:
            got = [(frame.kind, frame.lost, frame.data[:1]) for frame in frames(stream)]
        assert got == [
            (CLIENT, 0, b"a"),
            (AGENT, 0, b"c"),
            (CLIENT, 600, b"d"),
            (AGENT, 50, b""),
            (CLOSING, 0, b""),
        ]

    def test_a_judge_that_is_gone_is_said_once(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        said = threading.Event()
        feed = Feed(writer, on_broken=said.set)
        feed.start()
        feed.offer(CLIENT, b"a")
        assert said.wait(SECONDS)
        feed.offer(CLIENT, b"b")
        feed.close()

    def test_a_feed_that_was_cut_off_says_no_goodbye(self) -> None:
        assert list(frames(io.BytesIO(b"\0" * 10))) == []


class TestLines:
    def test_lines_are_put_together_across_blocks(self) -> None:
        lines = Lines()
        assert lines.add(b"a\nb") == [b"a"]
        assert lines.add(b"c\n\n  \nd") == [b"bc"]
        assert lines.rest() == [b"d"]
        assert lines.rest() == []

    def test_after_missing_bytes_the_torn_line_is_left_out(self) -> None:
        lines = Lines()
        lines.add(b"torn")
        lines.lose()
        assert lines.add(b"rest\nwhole\n") == [None, b"whole"]


class TestJudge:
    def test_after_a_gap_only_single_messages_are_judged(self) -> None:
        report = io.BytesIO()
        judge = Judge(Validator(), report)
        judge.take(Frame(CLIENT, 1.0, 500, b"}\n" + INITIALIZE))
        judge.take(Frame(AGENT, 2.0, 0, b'{"jsonrpc":"2.0","id":77,"result":{}}\nnoise\n'))
        judge.finish(verbose=True)
        text = report.getvalue().decode()
        assert "fell behind: 500 bytes of the client were not checked; from here on" in text
        assert "acp-validate:4:" in text
        assert "acp-validate:3:" not in text

    def test_after_a_gap_nobody_is_blamed_for_an_answer_that_may_have_been_in_it(self) -> None:
        report = io.BytesIO()
        judge = Judge(Validator(), report)
        judge.take(Frame(CLIENT, 1.0, 0, INITIALIZE + b"[]\n"))
        judge.take(Frame(AGENT, 2.0, 500, b"}\n"))
        judge.finish(verbose=True)
        assert report.getvalue().count(b" error ") == 1  # the batch itself


@pytest.mark.skipif(sys.platform == "win32", reason="sessions are POSIX's")
def test_what_is_typed_at_the_terminal_does_not_reach_the_judge_even_while_it_loads() -> None:
    with proxied(ECHO) as process:
        assert process.stdin and process.stdout
        process.stdin.write(INITIALIZE)
        assert process.stdout.readline() == INITIALIZE
        child_sessions = {os.getsid(child.pid) for child in psutil.Process(process.pid).children()}
        assert len(child_sessions - {os.getsid(process.pid)}) == 1  # the judge has one


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_descriptors_that_are_closed_count_as_the_null_device(closed: str) -> None:
    """Else a pipe of our own would take the number 0, and the end of input would never come."""
    door = "from acpserver.validate.door import main; raise SystemExit(main())"
    command = [sys.executable, "-c", door, "run", "--", sys.executable, "-c", ECHO]
    shell = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, timeout=3 * SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

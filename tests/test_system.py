"""Descriptors, groups and signals, each tried in a process of its own where it would harm the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from acpserver import process_table, system

ROOT = str(Path(__file__).parents[1])


def python(code: str, **kwargs: object) -> subprocess.CompletedProcess[bytes]:
    """Run code in a new interpreter that finds the package."""
    env = {**os.environ, "PYTHONPATH": ROOT}
    kwargs.setdefault("capture_output", True)
    return subprocess.run([sys.executable, "-c", code], env=env, timeout=20, **kwargs)  # type: ignore[call-overload,no-any-return]


TAKE = """
import os, sys
from acpserver import process_table, system
fds = system.take_stdio()
"""


def test_the_protocol_moves_to_private_descriptors_and_prints_go_to_stderr() -> None:
    code = TAKE + (
        "print('stray', flush=True)\n"
        "assert os.read(0, 10) == b'', 'fd 0 still gives the input'\n"
        "assert not any(os.get_inheritable(fd) for fd in fds)\n"
        "assert min(fds) > 2\n"
        "os.write(fds[1], b'<' + os.read(fds[0], 100) + b'>')\n"
    )
    done = python(code, input=b"hello")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == (b"<hello>", b"stray\n")


def test_a_child_started_without_care_reaches_neither_end_of_the_protocol() -> None:
    code = TAKE + "import subprocess; subprocess.run('cat; echo out', shell=True)\n"
    done = python(code, input=b"request")
    assert (done.stdout, done.stderr) == (b"", b"out\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_descriptors_that_are_closed_at_the_start_count_as_the_null_device(closed: str) -> None:
    code = TAKE + (
        "assert min(fds) > 2, fds\n"
        "for fd in (0, 1, 2): os.fstat(fd)\n"
        "os.write(fds[1], b'x'); os.write(2, b'')\n"
        f"sys.exit(0 if '<&-' not in {closed!r} or os.read(fds[0], 1) == b'' else 3)\n"
    )
    line = f'exec "$0" -c "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, code],
        env={**os.environ, "PYTHONPATH": ROOT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"" if ">&-" in closed.replace("2>&-", "") else b"x")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_is_noted_by_name_and_a_second_one_changes_nothing(name: str) -> None:
    code = (
        "import os, select, signal\nfrom acpserver import system\n"
        "stop = system.Stop()\n"
        "assert stop.signal == '' and not select.select([stop.fd], [], [], 0)[0]\n"
        f"os.kill(os.getpid(), signal.{name})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "assert select.select([stop.fd], [], [], 5)[0]\n"
        "print(stop.signal)\n"
    )
    assert python(code).stdout == name.encode() + b"\n"


def test_the_wish_to_stop_from_a_thread_is_no_signal() -> None:
    code = (
        "import select, threading\nfrom acpserver import system\n"
        "stop = system.Stop()\n"
        "threading.Thread(target=stop.request).start()\n"
        "assert select.select([stop.fd], [], [], 5)[0]\n"
        "print(repr(stop.signal))\n"
    )
    assert python(code).stdout == b"''\n"


def test_after_the_end_has_begun_signals_are_ignored_and_a_broken_pipe_is_an_error() -> None:
    code = (
        "import os, signal\nfrom acpserver import system\n"
        "system.ignore_shutdown(); system.ignore_broken_pipes()\n"
        "for name in ('SIGTERM', 'SIGINT', 'SIGHUP'): os.kill(os.getpid(), getattr(signal, name))\n"
        "r, w = os.pipe(); os.close(r)\n"
        "try: os.write(w, b'x')\n"
        "except BrokenPipeError: print('EPIPE')\n"
    )
    assert python(code).stdout == b"EPIPE\n"


def start(command: str, **env: str) -> subprocess.Popen[bytes]:
    """A shell command in a group of its own."""
    return subprocess.Popen(
        ["sh", "-c", command],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        **system.new_group(),
    )  # type: ignore[call-overload,no-any-return]


def test_a_group_that_obeys_ends_without_being_killed() -> None:
    child = start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    assert child.stdout and child.stdout.readline() == b"ready\n"
    assert system.end_processes([child.pid], "none", 5, child.poll)
    assert child.returncode == 7
    child.stdout.close()


def test_a_group_that_refuses_is_killed_after_the_grace() -> None:
    child = start("trap '' TERM; echo ready; while :; do sleep 1; done")
    assert child.stdout and child.stdout.readline() == b"ready\n"
    began = time.monotonic()
    assert system.end_processes([child.pid], "none", 0.05, child.poll)
    assert 0.05 <= time.monotonic() - began < 5
    assert child.returncode == -signal.SIGKILL
    child.stdout.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="markers are found by /proc")
def test_the_marker_finds_a_process_that_left_its_group_but_not_a_similar_one() -> None:
    child = start("setsid sleep 60 & echo $!; wait", **{process_table.MARKER: "t1:7:"})
    assert child.stdout
    escaped = int(child.stdout.readline())
    assert set(system.marked_processes("t1:7:")) >= {child.pid}
    assert system.marked_processes("t1:71:") == [] == system.marked_processes("1:7:")
    assert system.end_processes([child.pid], "t1:7:", 0.2, child.poll)
    assert not psutil.pid_exists(escaped) or psutil.Process(escaped).status() == psutil.STATUS_ZOMBIE
    child.stdout.close()


def test_a_group_of_dead_members_counts_as_gone() -> None:
    child = start("exit 0")
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still to be waited for
    assert system.process_alive(child.pid)
    assert system.live_groups([child.pid]) == set()
    child.wait(5)
    assert not system.process_alive(child.pid)
    assert child.stdout
    child.stdout.close()


def test_ending_what_is_gone_already_is_fine() -> None:
    child = start("exit 0")
    child.wait(5)
    system.signal_group(child.pid, hard=True)
    assert system.end_processes([child.pid], "none", 0, child.poll)
    assert child.stdout
    child.stdout.close()

"""Children of the server, and what becomes of them when it dies in whatever way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from acpserver import process_table
from acpserver.errors import ToolError
from acpserver.processes import Child, Children, python_command

ROOT = str(Path(__file__).parents[1])
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="markers are found by /proc")


def gone(pid: int) -> bool:
    """Whether the process has ended, waited for or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition becomes true in time; for processes that are not ours to wait for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def children() -> Iterator[Children]:
    """The children of one server, closed at the end."""
    made = Children(lambda: ["MY_API_KEY"])
    yield made
    made.close()


def guard_of(children: Children) -> subprocess.Popen[bytes]:
    assert children._guard is not None
    return children._guard


def start(children: Children, command: str) -> tuple[Child, list[int]]:
    """A shell command, and the process ids in the first line that it prints."""
    child = children.start(["sh", "-c", command], "/")
    assert child.popen.stdout
    return child, [int(word) for word in child.popen.stdout.readline().split()]


STUBBORN = "trap '' TERM; sh -c 'echo $$; exec sleep 60' & wait"
# Leaves the group and the family, and refuses to end when asked.
ESCAPED = "(trap '' TERM; setsid sh -c 'echo $$; exec sleep 60' &); sleep 60"

SERVER = """
import os, sys
from acpserver.processes import Children
children = Children()
child = children.start(["sh", "-c", sys.argv[1]], "/")
line = child.popen.stdout.readline().decode().strip()
print(child.pid, line, children._guard.pid, flush=True)
if sys.argv[2] == "release":
    child.wait(10); child.release()
print("ready", flush=True)
sys.stdin.read()
"""


def stand_in_server(command: str, mode: str = "hold") -> tuple[subprocess.Popen[bytes], list[int]]:
    """A process that owns children as the server does; the ids of command, descendant and guard."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, command, mode],
        env={**os.environ, "PYTHONPATH": ROOT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout
    ids = [int(word) for word in server.stdout.readline().split()]
    assert server.stdout.readline() == b"ready\n"
    return server, ids


def finish(server: subprocess.Popen[bytes]) -> None:
    server.wait(10)
    assert server.stdin and server.stdout
    server.stdin.close()
    server.stdout.close()


@pytest.mark.parametrize("command", [STUBBORN, pytest.param(ESCAPED, marks=linux)])
def test_sigkill_of_the_server_ends_its_commands_and_the_guard_within_two_seconds(command: str) -> None:
    server, ids = stand_in_server(command)
    assert len(ids) == 3 and not any(gone(pid) for pid in ids)
    server.kill()
    assert eventually(lambda: all(gone(pid) for pid in ids), 2.0)
    finish(server)


def test_sigkill_of_the_servers_whole_group_spares_the_guard_until_it_is_done() -> None:
    server, ids = stand_in_server(STUBBORN)
    os.killpg(server.pid, signal.SIGKILL)
    assert eventually(lambda: all(gone(pid) for pid in ids), 2.0)
    finish(server)


def test_what_a_finished_command_left_in_the_background_dies_with_the_server_too() -> None:
    server, ids = stand_in_server("sh -c 'echo $$; exec sleep 60' & :", "release")
    assert gone(ids[0]) and not gone(ids[1])
    server.kill()
    assert eventually(lambda: gone(ids[1]) and gone(ids[2]), 2.0)
    finish(server)


def test_the_guard_holds_nothing_of_the_server_so_its_client_sees_the_end_of_stdout() -> None:
    server, ids = stand_in_server(STUBBORN)
    os.kill(ids[2], signal.SIGSTOP)  # the guard cannot even begin to end
    server.kill()
    assert server.stdout and server.stdout.read() == b""
    os.kill(ids[2], signal.SIGCONT)
    assert eventually(lambda: all(gone(pid) for pid in ids), 2.0)
    finish(server)


def test_the_guard_stands_aside_from_signals_and_is_small(children: Children) -> None:
    child, _ = start(children, "echo $$; exec sleep 60")
    guard = guard_of(children)
    process = psutil.Process(guard.pid)
    # It is ready once it ignores the signals; before that, they would end it.
    assert eventually(lambda: ignores(guard.pid, signal.SIGTERM), 10)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(guard.pid, number)
    assert guard.poll() is None and not gone(child.pid)
    assert os.getsid(guard.pid) == guard.pid != os.getsid(0)
    assert process.memory_info().rss < 20 * 1024 * 1024
    assert process.cwd() == "/"


def test_the_guard_ends_the_groups_it_was_told_of_and_no_others() -> None:
    shells = [
        subprocess.Popen(
            ["sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for line in ("echo $$; exec sleep 60", "sh -c 'echo $$; exec sleep 60' & :", "echo $$; exec sleep 60")
    ]
    pids = [int(shell.stdout.readline()) for shell in shells if shell.stdout]
    shells[1].wait(5)
    running, headless, over = (shell.pid for shell in shells)
    told = f"+{running}\n+{headless}\n~{headless}\n+{over}\n-{over}\n".encode()
    subprocess.run(python_command("acpserver.guard", "watch", "nobody:"), input=told, timeout=10, check=True)
    assert shells[0].wait(5) == -signal.SIGTERM
    assert eventually(lambda: gone(pids[1]), 10)
    assert not gone(pids[2])
    shells[2].kill()
    shells[2].wait(5)
    for shell in shells:
        assert shell.stdout
        shell.stdout.close()


def test_a_group_number_that_was_given_to_somebody_new_is_spared() -> None:
    stranger = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, start_new_session=True)
    told = f"+{stranger.pid}\n~{stranger.pid}\n".encode()  # its first process is alive: not ours
    subprocess.run(python_command("acpserver.guard", "watch", "nobody:"), input=told, timeout=10, check=True)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait(5)


def ignores(pid: int, number: int) -> bool:
    """Whether the process ignores the signal (proc(5), SigIgn)."""
    if not sys.platform.startswith("linux"):
        time.sleep(0.5)
        return True
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask, 16) & (1 << (number - 1)))


def test_a_dead_guard_is_replaced_and_the_new_one_knows_everything(children: Children) -> None:
    first, _ = start(children, "echo $$; exec env -i sleep 60")  # found by its group alone
    old = guard_of(children)
    old.kill()
    old.wait(5)
    start(children, "echo $$; exec sleep 60")
    new = guard_of(children)
    assert new.pid != old.pid
    assert new.stdin
    new.stdin.close()  # what the new guard sees when the server dies
    assert eventually(lambda: first.poll() is not None, 2.0)


def test_close_ends_running_commands_and_what_was_left_behind_in_time() -> None:
    children = Children()
    running, inner = start(children, STUBBORN)
    finished, left = start(children, "sh -c 'echo $$; exec sleep 60' & :")
    assert finished.wait(5) == 0
    assert finished.release() is True
    guard = guard_of(children)
    began = time.monotonic()
    children.close()
    assert time.monotonic() - began < 2.0
    assert running.poll() is not None and guard.returncode == 0
    assert all(eventually(lambda pid=pid: gone(pid), 2.0) for pid in inner + left)  # type: ignore[misc]


def test_nothing_starts_after_close_and_closing_twice_or_unused_is_fine(children: Children) -> None:
    children.close()
    children.close()
    with pytest.raises(ToolError, match="ending"):
        children.start(["true"], "/")


def test_a_child_sees_neither_keys_nor_our_descriptors_nor_an_outer_marker(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "s3cr3t")
    monkeypatch.setenv(process_table.MARKER, "f00f:1:")
    read, write = os.pipe()
    os.set_inheritable(write, True)  # even one that somebody forgot to protect
    child = children.start(["sh", "-c", "env; ls /dev/fd/ | tr '\\n' ' '"], "/", env={"MORE": "yes"})
    text = child.popen.communicate(timeout=5)[0].decode()
    assert process_table.MARKER not in psutil.Process(guard_of(children).pid).environ()
    os.close(read)
    os.close(write)
    assert "s3cr3t" not in text and "f00f" not in text and "MORE=yes" in text
    assert str(write) not in text.splitlines()[-1].split()
    assert child.release() is False


def test_a_program_that_is_not_there_is_a_tool_error(children: Children) -> None:
    with pytest.raises(ToolError, match="no-such-program"):
        children.start(["no-such-program"], "/")
    with pytest.raises(ToolError):
        children.start(["true\0"], "/")


@linux
def test_fifty_children_leave_no_zombie_and_no_descriptor(children: Children) -> None:
    start(children, "echo 0")[0].end(0)
    before = psutil.Process().num_fds()
    for _ in range(50):
        child = children.start(["true"], "/")
        assert child.wait(5) == 0
        child.release()
        assert child.popen.stdout
        child.popen.stdout.close()
    mine = psutil.Process().children()
    assert [process.pid for process in mine if process.status() == psutil.STATUS_ZOMBIE] == []
    assert psutil.Process().num_fds() <= before


def test_without_a_guard_nothing_is_started(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may open no more files cannot start one."""

    def fail(*_args: object, **_options: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("acpserver.processes.subprocess.Popen", fail)
    with pytest.raises(ToolError, match="cannot be started now: .*Too many open files"):
        start(children, "echo 1")


def test_a_stopped_guard_does_not_delay_the_end(children: Children) -> None:
    start(children, "echo 1; exec sleep 60")
    guard = guard_of(children)
    os.kill(guard.pid, signal.SIGSTOP)
    started = time.monotonic()
    children.close()
    assert time.monotonic() - started < 5
    assert guard.poll() == -9

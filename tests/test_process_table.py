"""What /proc tells of all processes, read once for all who ask at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from acpserver import process_table, system
from acpserver.process_table import _Shared

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc elsewhere")


class SlowRead:
    """Counts the readings; each begins when it is called and ends when it may."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def __call__(self) -> int:
        self.count += 1
        number = self.count
        self.begun.release()
        assert self.may_end.acquire(timeout=30)
        return number


class WatchedLock:
    """A lock that tells of everyone who comes to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.came = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.came.release()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_those_who_ask_during_a_reading_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read, lock = SlowRead(), WatchedLock()
    shared = _Shared(read)
    monkeypatch.setattr(shared, "_lock", lock)
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(shared())) for _ in range(21)]
    threads[0].start()
    assert read.begun.acquire(timeout=30)
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert lock.came.acquire(timeout=30)  # by then it has asked
    read.may_end.release(21)
    for thread in threads:
        thread.join(30)
    assert sorted(got) == [1] + [2] * 20
    assert read.count == 2


def test_who_asks_later_gets_something_new() -> None:
    numbers = iter(range(3))
    shared = _Shared(lambda: next(numbers))
    assert [shared(), shared(), shared()] == [0, 1, 2]


@LINUX
def test_living_processes_are_seen_with_their_groups_and_dead_ones_are_not() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert process_table.groups()[child.pid] == child.pid
    assert process_table.groups()[os.getpid()] == os.getpgrp()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still to be waited for
    assert child.pid not in process_table.groups()
    child.wait(5)


@LINUX
@pytest.mark.parametrize("where", ["1", None])
def test_without_a_proc_of_its_own_a_group_is_ended_all_the_same(
    where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sandbox: /proc may be missing, or number the processes as the world outside does."""

    def readlink(path: str) -> str:
        if where is None:
            raise FileNotFoundError(path)
        return where

    monkeypatch.setattr(os, "readlink", readlink)
    assert process_table.groups() == {} == process_table.marks()
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert system.live_groups([child.pid]) == {child.pid}
    assert system.end_processes([child.pid], "none", 5, child.poll)
    assert child.returncode == -signal.SIGTERM

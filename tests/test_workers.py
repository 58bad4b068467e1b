"""The pool: jobs over the limit wait in order, one that fails harms no other, idle threads end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from acpserver.errors import RpcError
from acpserver.workers import WorkerPool


def names(pool: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == pool]


def test_threads_are_daemons_and_end_when_idle() -> None:
    pool, done = WorkerPool("idle-end", 2, idle_seconds=0.01), threading.Event()
    pool.submit(done.set)
    assert done.wait(5)
    for thread in names("idle-end"):
        assert thread.daemon
        thread.join(5)
    assert names("idle-end") == []
    again = threading.Event()
    pool.submit(again.set)
    assert again.wait(5)
    assert pool.wait_idle(5)


def test_a_system_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, release, done = WorkerPool("scarce", 3), threading.Event(), threading.Event()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RpcError, match="-32603"):
            pool.submit(done.set)
    assert pool.wait_idle(0) and not done.is_set()
    pool.submit(lambda: release.wait(5))
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        pool.submit(done.set)
    release.set()
    assert done.wait(5)
    assert pool.wait_idle(5)


def test_no_more_threads_than_the_limit_and_jobs_in_order() -> None:
    pool, release, lock = WorkerPool("limited", 3), threading.Event(), threading.Lock()
    started: list[int] = []
    three = threading.Event()

    def job(number: int) -> Callable[[], None]:
        def run() -> None:
            with lock:
                started.append(number)
                if len(started) == 3:
                    three.set()
            assert release.wait(5)

        return run

    for number in range(50):
        pool.submit(job(number))
    assert three.wait(5)
    assert len(names("limited")) == 3 and sorted(started) == [0, 1, 2]
    assert not pool.wait_idle(0.01)
    release.set()
    assert pool.wait_idle(5)
    assert sorted(started) == list(range(50))


def test_one_thread_keeps_the_order() -> None:
    pool, order = WorkerPool("ordered", 1), []
    for number in range(1_000):
        pool.submit(lambda number=number: order.append(number))  # type: ignore[misc]
    assert pool.wait_idle(5)
    assert order == list(range(1_000))


def test_an_idle_thread_is_used_again() -> None:
    pool, users = WorkerPool("reused", 8), []
    for _ in range(20):
        pool.submit(lambda: users.append(threading.current_thread()))
        assert pool.wait_idle(5)
    assert len(set(users)) == 1


def test_a_waiting_job_never_stays_behind_a_blocked_one() -> None:
    """As many jobs as threads are allowed run at once, however they come."""
    pool, meet = WorkerPool("meeting", 16), threading.Barrier(16)
    passed = []

    def job() -> None:
        meet.wait(5)
        passed.append(1)

    pool.submit(lambda: None)
    assert pool.wait_idle(5)
    for _ in range(16):
        pool.submit(job)
    assert pool.wait_idle(5)
    assert len(passed) == 16


def test_a_job_that_fails_is_logged_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    pool, users = WorkerPool("failing", 1), []

    def fail() -> None:
        users.append(threading.current_thread())
        raise KeyError("lost")

    pool.submit(fail)
    pool.submit(lambda: users.append(threading.current_thread()))
    assert pool.wait_idle(5)
    assert len(users) == 2 and len(set(users)) == 1
    assert "KeyError: 'lost'" in caplog.text


def test_a_job_may_submit_another() -> None:
    pool, done = WorkerPool("nested", 1), threading.Event()
    pool.submit(lambda: pool.submit(done.set))
    assert done.wait(5)
    assert pool.wait_idle(5)


def test_an_unused_pool_is_idle_and_has_no_thread() -> None:
    pool = WorkerPool("unused", 4)
    assert pool.wait_idle(0)
    assert names("unused") == []

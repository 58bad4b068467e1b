"""The turns of a session, and their time limits."""

from __future__ import annotations

import threading

import pytest

from acpserver.rpc.call import Call, CallTable
from acpserver.turn_queue import Turn, TurnQueue


class Nobody:
    """Takes the answers."""

    def send_result(self, call: object, result: object) -> None: ...

    def send_error(self, request_id: object, error: object) -> None: ...


@pytest.fixture
def queue() -> TurnQueue:
    return TurnQueue()


def turn(number: int, limit: float | None = None) -> Turn:
    return Turn(Call(CallTable(Nobody()), "session/prompt", {}, number), [], limit)


def test_turns_come_out_in_the_order_in_which_they_went_in(queue: TurnQueue) -> None:
    turns = [turn(number) for number in range(3)]
    assert [queue.add(one) for one in turns] == [True, False, False]
    assert queue.busy
    assert [queue.take() for _ in range(4)] == [*turns, None]
    assert not queue.busy
    assert queue.add(turn(9)) is True


def test_one_worker_serves_a_session_whoever_adds(queue: TurnQueue) -> None:
    starts, barrier = [], threading.Barrier(8)

    def add(number: int) -> None:
        barrier.wait(5)
        for _ in range(50):
            starts.append(queue.add(turn(number)))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert starts.count(True) == 1
    assert sum(1 for _ in iter(queue.take, None)) == 400


def test_cancel_reaches_what_runs_and_what_waits_and_nothing_later(queue: TurnQueue) -> None:
    turns = [turn(number) for number in range(3)]
    for one in turns[:2]:
        queue.add(one)
    queue.take()
    queue.cancel("session/cancel")
    queue.cancel("again")
    queue.add(turns[2])
    assert [one.cancel.is_set() for one in turns] == [True, True, False]
    assert turns[0].cancel.reason == "session/cancel"


def test_cancel_of_an_idle_session_does_nothing(queue: TurnQueue) -> None:
    queue.cancel("session/cancel")
    later = turn(1)
    queue.add(later)
    assert not later.cancel.is_set()


def test_withdraw_takes_only_what_waits(queue: TurnQueue) -> None:
    first, second, third = turn(1), turn(2), turn(3)
    for one in (first, second):
        queue.add(one)
    queue.take()
    assert (queue.withdraw(first), queue.withdraw(second), queue.withdraw(third)) == (
        False,
        True,
        False,
    )
    assert queue.withdraw(second) is False
    assert queue.take() is None


def test_wait_idle(queue: TurnQueue) -> None:
    assert queue.wait_idle(0)
    queue.add(turn(1))
    assert queue.wait_idle(0.01) is False
    waited = threading.Event()

    def wait() -> None:
        if queue.wait_idle(5):
            waited.set()

    thread = threading.Thread(target=wait)
    thread.start()
    queue.take()
    assert queue.take() is None
    assert waited.wait(5)
    thread.join(5)


def test_a_time_limit_counts_from_the_arrival_of_the_prompt() -> None:
    one = turn(1, 0.01)
    one.start_clock()
    assert one.cancel.event.wait(5)
    assert one.cancel.reason == "time limit"


def test_a_turn_that_ends_in_time_is_not_cancelled() -> None:
    one = turn(1, 60.0)
    one.start_clock()
    timer = one._timer
    assert timer is not None and timer.is_alive()
    one.stop_clock()
    timer.join(5)
    assert not timer.is_alive() and not one.cancel.is_set()


def test_a_turn_without_a_limit_starts_no_timer() -> None:
    before = threading.active_count()
    one = turn(1)
    one.start_clock()
    assert threading.active_count() == before
    one.stop_clock()

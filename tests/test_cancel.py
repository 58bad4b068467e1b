"""The cancel flag: set once, wakes everything that is registered, and lets no waker keep another from it."""

from __future__ import annotations

import threading
import time

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled


def test_a_new_flag_stops_nothing() -> None:
    flag = CancelFlag()
    assert not flag.is_set() and flag.reason == ""
    flag.check()
    flag.sleep(0)


def test_once_set_check_and_sleep_raise_at_once_with_the_first_reason() -> None:
    flag = CancelFlag()
    flag.set("first")
    flag.set("second")
    assert flag.is_set() and flag.reason == "first"
    for wait in (flag.check, lambda: flag.sleep(60)):
        with pytest.raises(Cancelled, match="first"):
            wait()


def test_set_runs_every_waker_once_on_its_own_thread() -> None:
    flag, ran = CancelFlag(), []
    for number in range(3):
        flag.on_set(lambda number=number: ran.append((number, threading.current_thread())))  # type: ignore[misc]
    setter = threading.Thread(target=flag.set)
    setter.start()
    setter.join(5)
    flag.set()
    assert ran == [(0, setter), (1, setter), (2, setter)]


def test_a_waker_that_comes_late_runs_at_once() -> None:
    flag, ran = CancelFlag(), []
    flag.set()
    flag.on_set(lambda: ran.append(1))
    assert ran == [1]


def test_a_waker_that_is_taken_back_does_not_run() -> None:
    flag, ran = CancelFlag(), []
    remove = flag.on_set(lambda: ran.append(1))
    remove()
    remove()
    with flag.waking(lambda: ran.append(2)):
        assert ran == []
    with pytest.raises(KeyError), flag.waking(lambda: ran.append(3)):
        raise KeyError
    flag.set()
    assert ran == []


def test_a_waker_that_fails_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    flag, ran = CancelFlag(), []
    flag.on_set(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    flag.on_set(lambda: ran.append(1))
    flag.set()
    assert ran == [1]
    assert "ZeroDivisionError" in caplog.text


def test_a_waker_may_use_the_flag() -> None:
    """No waker runs under the flag's lock."""
    flag, ran = CancelFlag(), []
    flag.on_set(lambda: flag.on_set(lambda: ran.append(flag.is_set())))  # type: ignore[arg-type,return-value]
    flag.set()
    assert ran == [True]


def test_set_wakes_a_sleeper() -> None:
    flag, asleep = CancelFlag(), threading.Event()

    def set_it() -> None:
        assert asleep.wait(5)
        flag.set("woken")

    setter = threading.Thread(target=set_it)
    setter.start()
    start = time.monotonic()
    asleep.set()
    with pytest.raises(Cancelled, match="woken"):
        flag.sleep(60)
    assert time.monotonic() - start < 5
    setter.join(5)


def test_of_many_setters_one_counts() -> None:
    flag, ran, start = CancelFlag(), [], threading.Barrier(8)
    flag.on_set(lambda: ran.append(flag.reason))

    def set_it(name: str) -> None:
        start.wait(5)
        flag.set(name)

    setters = [threading.Thread(target=set_it, args=(str(number),)) for number in range(8)]
    for setter in setters:
        setter.start()
    for setter in setters:
        setter.join(5)
    assert ran == [flag.reason]


def test_a_flag_within_a_time_is_set_at_its_end_or_with_the_outer_one() -> None:
    outer = CancelFlag()
    with outer.within(0.01) as flag:
        assert flag.event.wait(10) and not outer.is_set()
    with outer.within(60) as flag:
        assert not flag.is_set()
        outer.set("test")
        assert flag.is_set() and flag.reason == "test"

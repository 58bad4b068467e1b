"""A cancel flag: set once, checked, waited on, and able to wake what blocks.

Any thread may set, check and wait. Cancelling is a list of things to wake, not a flag to poll: code
that is about to block registers a waker with `waking()`, and `set()` runs all of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from acpserver.errors import Cancelled

log = logging.getLogger(__name__)


class CancelFlag:
    """One cancellation, for one turn or one request."""

    def __init__(self) -> None:
        self.event = threading.Event()
        """Set when cancelled."""
        self.reason = ""
        """Why it was set, for logs: "session/cancel", "timeout", "end of input", ..."""
        self._wakers_lock = threading.Lock()  # guards _wakers; no waker runs under it
        self._wakers: dict[int, Callable[[], None]] = {}
        self._next_key = 0

    def set(self, reason: str = "") -> None:
        """Set the flag and run every registered waker on this thread. Later calls do nothing."""
        with self._wakers_lock:
            if self.event.is_set():
                return
            self.reason = reason
            self.event.set()
            wakers = list(self._wakers.values())
            self._wakers.clear()
        for waker in wakers:
            _run(waker)

    def is_set(self) -> bool:
        """Whether the work has been cancelled."""
        return self.event.is_set()

    def check(self) -> None:
        """Raise `Cancelled` if the flag is set."""
        if self.event.is_set():
            raise Cancelled(self.reason)

    def sleep(self, seconds: float) -> None:
        """Wait that long. Raises `Cancelled` as soon as the flag is set."""
        if self.event.wait(seconds):
            raise Cancelled(self.reason)

    def on_set(self, waker: Callable[[], None]) -> Callable[[], None]:
        """Call `waker` when the flag is set, at once if it is set already. Returns what takes it back.

        A waker runs on the thread that sets the flag, usually the reader: it must not block.
        """
        with self._wakers_lock:
            was_set = self.event.is_set()
            key = self._next_key
            self._next_key += 1
            if not was_set:
                self._wakers[key] = waker
        if was_set:
            _run(waker)

        def remove() -> None:
            with self._wakers_lock:
                self._wakers.pop(key, None)

        return remove

    @contextmanager
    def waking(self, waker: Callable[[], None]) -> Iterator[None]:
        """While the block runs, setting the flag calls `waker` (see `on_set`)."""
        remove = self.on_set(waker)
        try:
            yield
        finally:
            remove()

    @contextmanager
    def within(self, seconds: float) -> Iterator[CancelFlag]:
        """A flag for the block, set together with this one, or when the seconds are over."""
        flag = CancelFlag()
        timer = threading.Timer(seconds, flag.set, ("time limit",))
        timer.daemon = True
        timer.start()
        try:
            with self.waking(lambda: flag.set(self.reason)):
                yield flag
        finally:
            timer.cancel()


def _run(waker: Callable[[], None]) -> None:
    """Run one waker; one that fails must not keep the others from running."""
    try:
        waker()
    except Exception:  # the flag is set all the same, and the caller is the reader thread
        log.exception("a waker failed")

"""The turns of one session that run or wait, in their order.

The reader adds and cancels turns, one turn worker at a time takes them, control workers wait for their end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from acpserver.cancel import CancelFlag
from acpserver.llm.types import ToolCall
from acpserver.rpc.call import Call


@dataclass(eq=False)
class Turn:
    """A prompt request up to its answer. `cancel` is the request's own flag."""

    call: Call
    prompt: list[dict[str, object]]  # ACP ContentBlock objects
    time_limit: float | None = None  # seconds
    started: float = field(default_factory=time.monotonic)
    running_call: ToolCall | None = None
    """The tool call that runs now; this and what it shows are guarded by the session's `story`."""
    running_content: list[dict[str, object]] = field(default_factory=list)
    _timer: threading.Timer | None = None

    @property
    def cancel(self) -> CancelFlag:
        """Set by session/cancel, $/cancel_request, the time limit, close, and the end of input."""
        return self.call.cancel

    def start_clock(self) -> None:
        """From now on the time limit, if there is one, sets the flag; also while the turn waits."""
        if self.time_limit is not None:
            self._timer = threading.Timer(self.time_limit, self.cancel.set, ("time limit",))
            self._timer.daemon = True
            self._timer.start()

    def stop_clock(self) -> None:
        """The turn has been answered."""
        if self._timer is not None:
            self._timer.cancel()


class TurnQueue:
    """The turns of one session. Only `wait_idle` waits."""

    def __init__(self) -> None:
        self._turns_lock = threading.Lock()  # guards all below
        self._idle = threading.Condition(self._turns_lock)
        self._waiting: deque[Turn] = deque()
        self._running: Turn | None = None
        self._served = False  # whether a worker is at it

    def add(self, turn: Turn) -> bool:
        """Queue a turn. True when the caller must put a worker on the session."""
        with self._turns_lock:
            self._waiting.append(turn)
            start = not self._served
            self._served = True
            return start

    def take(self) -> Turn | None:
        """The next turn to run, or None: then the worker is released and must not come back."""
        with self._turns_lock:
            self._running = self._waiting.popleft() if self._waiting else None
            if self._running is None:
                self._served = False
                self._idle.notify_all()
            return self._running

    def withdraw(self, turn: Turn) -> bool:
        """Take a turn that has not begun out of the queue. False when it is not there."""
        with self._turns_lock:
            if turn not in self._waiting:
                return False
            self._waiting.remove(turn)
            self._idle.notify_all()
            return True

    def drop_waiting(self) -> list[Turn]:
        """Take out all turns, when there is no worker for them. The caller answers them."""
        with self._turns_lock:
            dropped = list(self._waiting)
            self._waiting.clear()
            self._served = False
            self._idle.notify_all()
            return dropped

    @property
    def runs(self) -> bool:
        """Whether a turn has begun and not ended."""
        with self._turns_lock:
            return self._running is not None

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        with self._turns_lock:
            return self._served

    def all(self) -> list[Turn]:
        """The turns that run or wait now."""
        with self._turns_lock:
            return [turn for turn in (self._running, *self._waiting) if turn is not None]

    def cancel(self, reason: str) -> None:
        """Set the flag of every turn that runs or waits now; a later one is not touched (rule C5)."""
        for turn in self.all():
            turn.cancel.set(reason)

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no turn runs or waits. False when `timeout` seconds were not enough."""
        with self._turns_lock:
            return self._idle.wait_for(lambda: self._running is None and not self._waiting, timeout)

"""A session and its turns: what is known of a conversation while it is in memory.

The reader registers turns and sets flags; a turn worker takes turns and owns the history while one runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from acpserver.cancel import CancelFlag
from acpserver.llm.types import Message
from acpserver.permissions import DEFAULT_MODE
from acpserver.rpc.call import Call


@dataclass(eq=False)
class Turn:
    """A prompt request up to its answer. `cancel` is the request's own flag."""

    call: Call
    prompt: list[dict[str, object]]  # ACP ContentBlock objects
    time_limit: float | None = None  # seconds
    started: float = field(default_factory=time.monotonic)

    @property
    def cancel(self) -> CancelFlag:
        """Set by session/cancel, $/cancel_request, the time limit, close, and the end of input."""
        return self.call.cancel

    @contextmanager
    def timed(self) -> Iterator[None]:
        """While the block runs, the turn's time limit, if it has one, sets its flag."""
        if self.time_limit is None:
            yield
            return
        left = self.time_limit - (time.monotonic() - self.started)
        timer = threading.Timer(max(0.0, left), self.cancel.set, ("time limit",))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class Session:
    """One conversation. Attributes without a lock belong to the turn that runs, but `mode`, `model` and
    `answers`, which any thread may replace: they are single values read once where they count."""

    def __init__(self, session_id: str, cwd: str, roots: tuple[str, ...], model: str):
        self.id = session_id
        self.cwd = cwd
        self.roots = roots
        self.mode = DEFAULT_MODE
        self.model = model
        self.history: list[Message] = []
        self.answers: dict[str, str] = {}
        """What the user said "always" to: tool name -> permissions.ALLOW or DENY."""
        self.turn_count = 0
        self._turns_lock = threading.Lock()  # guards the queue and the two states below
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

    def next_turn(self) -> Turn | None:
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
            return True

    def cancel(self, reason: str) -> None:
        """Set the flag of every turn that runs or waits now; a later one is not touched (rule C5)."""
        with self._turns_lock:
            turns = [turn for turn in (self._running, *self._waiting) if turn is not None]
        for turn in turns:
            turn.cancel.set(reason)

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no turn runs or waits. False when `timeout` seconds were not enough."""
        with self._turns_lock:
            return self._idle.wait_for(lambda: not self._served, timeout)


def new_id() -> str:
    """A session id: 128 random bits, in a fixed pattern that is safe in a file name."""
    return "sess_" + os.urandom(16).hex()

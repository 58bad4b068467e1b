"""When a failed model call is tried again, and after how long. A policy is a value; any thread.

Imports `tenacity`, which is slow to load: only `llm/calls.py`, itself loaded late, imports this room.
"""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_when_event_set,
)
from tenacity.stop import stop_base

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.types import Endpoint


@dataclass(frozen=True)
class Policy:
    """How often and how long. All times in seconds."""

    attempts: int = 6
    total: float = 60.0  # attempts and waits together; no wait begins that would end later
    first_wait: float = 0.5  # doubled each time, plus up to as much again by chance
    longest_wait: float = 8.0
    longest_asked_wait: float = 30.0  # the most of a Retry-After that is waited before the next attempt
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[CancelFlag, float], None] = CancelFlag.sleep

    @classmethod
    def of(cls, endpoint: Endpoint) -> Policy:
        """The policy that an endpoint's settings describe."""
        return cls(attempts=endpoint.retry_attempts, total=endpoint.retry_seconds)

    def retrying(self, cancel: CancelFlag) -> Retrying:
        """A fresh tenacity loop that decides but does not sleep: the caller announces each wait first."""
        return Retrying(
            stop=(
                stop_after_attempt(max(1, self.attempts))
                | stop_when_event_set(cancel.event)
                | _Enough()
                | _OutOfTime(self.clock, self.clock() + self.total)
            ),
            wait=self.wait,
            retry=retry_if_exception(lambda error: isinstance(error, ProviderError) and error.retryable),
            sleep=lambda seconds: None,
            reraise=True,
        )

    def wait(self, state: RetryCallState) -> float:
        """Seconds before the next attempt: what the server asked for, else exponential with jitter."""
        asked = _error(state).retry_after
        if asked is not None:
            return min(asked, self.longest_asked_wait)
        backoff = self.first_wait * 2.0 ** (state.attempt_number - 1)
        return min(backoff * (1.0 + self.chance()), self.longest_wait)


class _OutOfTime(stop_base):
    """Stops before a wait that would end after `end`, or when the server asks for one that would."""

    def __init__(self, clock: Callable[[], float], end: float):
        self._clock = clock
        self._end = end

    def __call__(self, retry_state: RetryCallState) -> bool:
        asked = _error(retry_state).retry_after or 0.0
        return self._clock() + max(retry_state.upcoming_sleep, asked) > self._end


class _Enough(stop_base):
    """Stops after as many attempts as the error says that it is worth."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        most = _error(retry_state).most_attempts
        return most is not None and retry_state.attempt_number >= most


def _error(state: RetryCallState) -> ProviderError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ProviderError)  # nothing else is retried
    return error


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks to wait, from either form (RFC 9110, section 10.2.3).

    `now` is the time since the epoch. None for an absent or unreadable header; never negative.
    """
    text = (value or "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now
        except (ValueError, TypeError, OverflowError):  # what it raises differs between Python versions
            return None
    if seconds != seconds:  # "nan" is a float as well
        return None
    return max(0.0, min(seconds, 1e9))

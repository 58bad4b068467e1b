"""When a failed model call is tried again, and after how long. A policy is a value; any thread.

`tenacity` is loaded when a call has failed: most succeed at once, and a first turn waits for what is loaded.
"""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.types import Endpoint

if TYPE_CHECKING:
    from tenacity import AttemptManager, RetryCallState


class Policy(NamedTuple):
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

    def retrying(self, failed: ProviderError, began: float, cancel: CancelFlag) -> Iterator[AttemptManager]:
        """Tenacity's loop over the attempts after the first, which began at `began` and has `failed`.

        It decides but does not sleep: the caller announces each wait first. Ends by raising the last error.
        """
        import tenacity  # measured: 5 ms

        def is_over(state: RetryCallState) -> bool:
            """No attempt is left or worth it, nobody waits for one, or the wait for it would end too late."""
            error = _error(state)
            most = self.attempts if error.most_attempts is None else min(self.attempts, error.most_attempts)
            wait = max(state.upcoming_sleep, error.retry_after or 0.0)
            is_late = self.clock() + wait > began + self.total
            return is_late or cancel.is_set() or state.attempt_number >= most

        attempts = iter(
            tenacity.Retrying(
                stop=is_over,
                wait=self.wait,
                retry=tenacity.retry_if_exception(_may_pass),
                sleep=lambda seconds: None,
                reraise=True,
            )
        )
        first = next(attempts).retry_state  # the one that was made without tenacity
        first.set_exception((type(failed), failed, failed.__traceback__))
        return attempts

    def wait(self, state: RetryCallState) -> float:
        """Seconds before the next attempt: what the server asked for, else exponential with jitter."""
        asked = _error(state).retry_after
        if asked is not None:
            return min(asked, self.longest_asked_wait)
        backoff = self.first_wait * 2.0 ** (state.attempt_number - 1)
        return min(backoff * (1.0 + self.chance()), self.longest_wait)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.retryable


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

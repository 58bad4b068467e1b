"""When a failed call is tried again: the policy as a value, and the header that asks for a wait."""

from __future__ import annotations

import email.utils

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.retry import Policy, retry_after
from acpserver.llm.types import Endpoint

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        (email.utils.formatdate(NOW + 20, usegmt=True), 20.0),
        (email.utils.formatdate(NOW - 20, usegmt=True), 0.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("-5", 0.0),
        ("1e400", 1e9),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("Tue, 99 Nov 2023 22:13:30 GMT", None),
    ],
)
def test_both_forms_of_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def test_a_policy_comes_from_the_endpoint() -> None:
    policy = Policy.of(Endpoint("http://h", retry_attempts=3, retry_seconds=9.0))
    assert (policy.attempts, policy.total) == (3, 9.0)


def failing(policy: Policy, cancel: CancelFlag, error: ProviderError) -> tuple[int, list[float]]:
    """How often a call that always fails is made, and the waits in between."""
    count, waits = 1, []
    with pytest.raises(type(error)):
        for attempt in policy.retrying(error, policy.clock(), cancel):
            if wait := attempt.retry_state.upcoming_sleep:
                waits.append(wait)
            with attempt:
                count += 1
                raise error
    return count, waits


PASSING = ProviderError("x", kind="server", retryable=True)


def test_waits_double_and_jitter_adds_up_to_as_much_again() -> None:
    least = Policy(attempts=5, total=1e6, chance=lambda: 0.0)
    most = Policy(attempts=5, total=1e6, chance=lambda: 1.0)
    assert failing(least, CancelFlag(), PASSING) == (5, [0.5, 1.0, 2.0, 4.0])
    assert failing(most, CancelFlag(), PASSING) == (5, [1.0, 2.0, 4.0, 8.0])


def test_what_cannot_succeed_later_is_not_repeated() -> None:
    refused = ProviderError("x", kind="request", retryable=False)
    assert failing(Policy(), CancelFlag(), refused) == (1, [])


def test_an_error_may_be_worth_few_attempts() -> None:
    certain = ProviderError("x", kind="network", retryable=True, retry_after=0.25)
    certain.most_attempts = 3
    assert failing(Policy(), CancelFlag(), certain) == (3, [0.25, 0.25])
    assert failing(Policy(attempts=2), CancelFlag(), certain) == (2, [0.25])


def test_no_attempt_follows_a_cancel() -> None:
    cancel = CancelFlag()
    cancel.set()
    assert failing(Policy(), cancel, PASSING) == (1, [])


def test_no_wait_begins_that_would_end_too_late() -> None:
    assert failing(Policy(total=0.4, chance=lambda: 0.0), CancelFlag(), PASSING) == (1, [])
    asks = ProviderError("x", kind="rate_limit", retryable=True, retry_after=61.0)
    assert failing(Policy(total=60.0), CancelFlag(), asks) == (1, [])


def test_the_time_of_the_first_attempt_counts() -> None:
    policy = Policy(total=5.0, chance=lambda: 0.0, clock=lambda: 105.0)
    with pytest.raises(ProviderError):
        policy.retrying(PASSING, 100.0, CancelFlag()).__next__()
    assert next(policy.retrying(PASSING, 101.0, CancelFlag())).retry_state.upcoming_sleep == 0.5


def test_even_a_policy_of_no_attempts_makes_one() -> None:
    assert failing(Policy(attempts=0), CancelFlag(), PASSING) == (1, [])

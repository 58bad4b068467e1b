"""What one scenario comes to, and the exceptions by which a scenario says it. Values only."""

from __future__ import annotations

from typing import NamedTuple

PASS, FAIL, WARN, SKIP = "PASS", "FAIL", "WARN", "SKIP"
STATUSES = (PASS, FAIL, WARN, SKIP)


class Verdict(NamedTuple):
    """One line of the result."""

    status: str
    rule: str
    name: str
    text: str = ""
    seconds: float = 0.0


class Broken(Exception):
    """The agent broke the rule that the scenario is about: FAIL, or WARN when the rule is a SHOULD."""


class Doubtful(Exception):
    """The agent may do this, but clients will have trouble with it: WARN."""


class Skipped(Exception):
    """The scenario says nothing about this agent; the text says why."""


def demand(condition: object, text: str) -> None:
    """Raise `Broken` unless the condition holds."""
    if not condition:
        raise Broken(text)


def advise(condition: object, text: str) -> None:
    """Raise `Doubtful` unless the condition holds."""
    if not condition:
        raise Doubtful(text)


def need(condition: object, text: str) -> None:
    """Raise `Skipped` unless the condition holds."""
    if not condition:
        raise Skipped(text)

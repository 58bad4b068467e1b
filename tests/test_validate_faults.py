"""Seeded faults: each spoilt conversation gives exactly the finding that it was made for, a clean one none.

The figures in docs/validate.md come from here.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from acpserver.validate import Finding, check_trace
from acpserver.validate.findings import ERROR, REMARK, WARNING
from acpserver.validate.rules import RULES
from tests.validate.faults import Fault
from tests.validate.seeded import FAULTS
from tests.validate.talk import Talk

REMARKS = ("S12", "P5", "L4", "unstable")
"""Rules that only ever give a remark, for a recording cannot be sure."""


def judge(talk: Talk, wanted: str) -> list[Finding]:
    """What is found; remarks only of the rule that is wanted."""
    report = check_trace(talk.lines(), format="wrapped", unstable=wanted != "unstable")
    keep = {ERROR, WARNING} | ({REMARK} if wanted in REMARKS else set())
    return [
        one for one in report.findings if one.level in keep and (one.level != REMARK or one.rule == wanted)
    ]


class Outcome(NamedTuple):
    """What was found in a spoilt conversation, and in the clean one."""

    spoilt: Talk
    found: list[Finding]
    """What the clean one does not show too."""
    clean: list[Finding]


@cache
def outcome(number: int) -> Outcome:
    """Judge one fault and its twin."""
    fault = FAULTS[number]
    twin, spoilt = fault.talk(), fault.talk().copy()
    fault.spoil(spoilt)
    clean = [] if fault.rule == "unstable" else judge(twin, fault.rule)
    before = Counter((one.rule, one.side, one.path) for one in clean)
    found = []
    for one in judge(spoilt, fault.rule):
        if before[one.rule, one.side, one.path] > 0:
            before[one.rule, one.side, one.path] -= 1
        else:
            found.append(one)
    return Outcome(spoilt, found, clean)


def is_found(fault: Fault, seen: Outcome) -> bool:
    """Whether the fault is among what was found, with its rule, line, path and side."""
    wanted = (fault.rule, seen.spoilt.line(fault.step), fault.path, fault.side)
    return wanted in [(one.rule, one.line, one.path, one.side) for one in seen.found]


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[f"{one.rule} {one.what}" for one in FAULTS])
def test_a_fault_is_found_where_it_is_and_its_twin_is_clean(number: int) -> None:
    fault, seen = FAULTS[number], outcome(number)
    assert {one.rule for one in seen.clean} == set(fault.given), seen.clean
    assert is_found(fault, seen) and len(seen.found) == 1, seen.found


def test_the_figures_in_the_documentation() -> None:
    results = [(fault, outcome(number)) for number, fault in enumerate(FAULTS)]
    found = sum(is_found(fault, seen) for fault, seen in results)
    alarms = sum(len(seen.found) - is_found(fault, seen) for fault, seen in results)
    alarms += sum(one.rule not in fault.given for fault, seen in results for one in seen.clean)
    missed = len(FAULTS) - found
    line = f"{len(FAULTS)} seeded faults: {found} found, {missed} missed, {alarms} false alarms"
    assert line in (Path(__file__).parent.parent / "docs" / "validate.md").read_text()


def test_every_rule_that_a_recording_can_show_is_seeded() -> None:
    seeded = {fault.rule for fault in FAULTS}
    assert {name for name, rule in RULES.items() if rule.seen} - seeded == set()


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 150

"""Seeded faults: each spoilt conversation gives exactly the finding that it was made for, a clean one none.

The figures in docs/validate.md come from here.
"""

from __future__ import annotations

from collections import Counter

import pytest

from acpserver.validate import Finding, check_trace
from acpserver.validate.findings import ERROR, INFO, WARNING
from acpserver.validate.rules import RULES
from tests.validate.faults import Fault
from tests.validate.seeded import FAULTS
from tests.validate.talk import Talk

REMARKS = ("S12", "P5", "unstable")
"""Rules that only ever give a remark, for a recording cannot be sure."""


def judge(talk: Talk, wanted: str) -> list[Finding]:
    """What is found; remarks only of the rule that is wanted."""
    report = check_trace(talk.lines(), format="wrapped", unstable=wanted != "unstable")
    keep = {ERROR, WARNING} | ({INFO} if wanted in REMARKS else set())
    return [one for one in report.findings if one.level in keep and (one.level != INFO or one.rule == wanted)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.what.replace(' ', '_')}")
def test_a_fault_is_found_where_it_is_and_its_twin_is_clean(fault: Fault) -> None:
    twin, spoilt = fault.talk(), fault.talk().copy()
    fault.spoil(spoilt)
    clean = [] if fault.rule == "unstable" else judge(twin, fault.rule)
    assert {one.rule for one in clean} == set(fault.given), clean
    before = Counter((one.rule, one.side, one.path) for one in clean)
    found = []
    for one in judge(spoilt, fault.rule):
        if before[one.rule, one.side, one.path] > 0:
            before[one.rule, one.side, one.path] -= 1
        else:
            found.append(one)
    where = spoilt.line(fault.step)
    assert [(one.rule, one.line, one.path, one.side) for one in found] == [
        (fault.rule, where, fault.path, fault.side)
    ], found


def test_every_rule_that_a_recording_can_show_is_seeded() -> None:
    seeded = {fault.rule for fault in FAULTS}
    assert {name for name, rule in RULES.items() if rule.seen} - seeded == set()


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 150

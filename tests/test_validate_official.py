"""`--schema FILE`: an official schema file finds the same faults at the same places as our own schema."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from acpserver.errors import ConfigError
from acpserver.validate.findings import CLIENT
from acpserver.validate.schemas import Judge
from tests import official_schema
from tests.test_validate_fields import Spoilt, samples, spoilt
from tests.validate.talk import Talk

ONLY_OURS = ("session/set_model", ".models")
"""What the official schema has no more, and older clients still use."""


@pytest.fixture(scope="module")
def official() -> Judge:
    try:
        official_schema.definitions(official_schema.UNSTABLE)
    except official_schema.Unreachable as reason:
        pytest.skip(str(reason))
    return Judge(official_schema.CACHE / official_schema.UNSTABLE)


def judge(by: Judge, method: str, part: str, value: Any) -> list[tuple[str, str]]:
    """(rule, path) of what is wrong."""
    check = by.params if part == "params" else by.result
    return [(breach.rule, breach.path) for breach in check(CLIENT, method, value)]


def test_golden_samples_fit(official: Judge) -> None:
    faults = [(one, judge(official, *one[:2], one[3])) for one in samples() if one[0] != "session/set_model"]
    assert [one for one in faults if one[1]] == []


def test_every_spoilt_field_is_found_at_the_same_place(official: Judge) -> None:
    own = Judge(unstable=True)
    different, count = [], 0
    for one in spoilt():
        if any(part in one.method + one.path for part in ONLY_OURS):
            continue
        value = spoil(one)
        ours, theirs = (judge(by, one.method, one.part, value) for by in (own, official))
        count += 1
        if ours != theirs:
            different.append((one, ours, theirs))
    assert different == []
    assert count > 600


def spoil(one: Spoilt) -> Any:
    """The sample with the field replaced."""
    value = next(found for *name, found in samples() if tuple(name) == one[:3])
    talk = Talk().client("it", **{one.part: copy.deepcopy(value)})
    return talk.set("it", one.path, one.value)["it"][one.part]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"$defs": {}}', '{"$defs": {"A": {"type": "object"}}}'])
def test_a_file_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="--schema"):
        Judge(file)

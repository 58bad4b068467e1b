"""Every field of every message, spoilt once: found on its line, at its path, by the schema's rules.

The messages are the golden samples. A field is given a value of another type, and left out if it is required.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from acpserver.rpc.definitions import methods
from acpserver.validate import Finding, check_trace
from tests.validate.talk import Talk, opened

GOLDEN = Path(__file__).parent / "golden"
SHAPES = {"schema", "forgiven", "unknown", "P3", "error", "L2"}
ANYTHING = ("_meta", "rawInput", "rawOutput", "data")
"""Fields that hold what the sender likes."""
NO_FAULT = re.compile(
    r"result\.authMethods\[1\]\.(type|args|env)\b.+|result\.authMethods\[1\]\.(type|args|env)$"
)
"""The schema takes an auth method of any other type for one of the agent, which has no such fields."""


class Spoilt(NamedTuple):
    """One field of one sample, and what it is replaced by."""

    method: str
    part: str
    sample: str
    path: str
    value: Any


@cache
def samples() -> list[tuple[str, str, str, Any]]:
    """(method, "params" or "result", name, value) of every golden sample."""
    return [
        (name, part, sample, value)
        for name in methods()
        for part, found in json.loads((GOLDEN / f"{name.replace('/', '_')}.json").read_text()).items()
        for sample, value in found.items()
    ]


def fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every place in a message, and what stands there."""
    if isinstance(value, dict):
        for name, item in value.items():
            place = f"{path}.{name}"
            yield place, item
            if name not in ANYTHING:
                yield from fields(item, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from fields(item, f"{path}[{index}]")


def another(value: Any) -> Any:
    """A value of another type."""
    return 7.5 if isinstance(value, dict) else {"wrong": 1}


def spoilt() -> Iterator[Spoilt]:
    """Each kind of place once for each method: numbers of list items do not count."""
    seen = set()
    for method, part, sample, value in samples():
        for path, item in fields(value, part):
            kind = (method, "".join(c for c in path if not c.isdigit()), _tag(value))
            if (
                kind not in seen
                and not NO_FAULT.match(path)
                and not path.endswith((".rawInput", ".rawOutput", ".data"))
            ):
                seen.add(kind)
                yield Spoilt(method, part, sample, path, another(item))


def _tag(value: Any) -> str:
    update = value.get("update", {}) if isinstance(value, dict) else {}
    return str(update.get("sessionUpdate", "")) or str(value.get("mode", "")) + str(value.get("type", ""))


def conversation(method: str, part: str, value: Any) -> tuple[Talk, str]:
    """A conversation in which the message stands, and the name of its step."""
    talk = opened()
    known = methods()[method]
    send, reply = (talk.client, talk.agent) if known.receiver != "client" else (talk.agent, talk.client)
    if part == "params":
        number = {"id": 50} if known.is_request else {}
        send("it", **number, method=method, params=copy.deepcopy(value))
        return talk, "it"
    params = next(found for name, side, _, found in samples() if name == method and side == "params")
    send("asked", id=50, method=method, params=copy.deepcopy(params))
    reply("it", id=50, result=copy.deepcopy(value))
    return talk, "it"


def shapes(talk: Talk) -> list[Finding]:
    """The findings about the contents of messages."""
    report = check_trace(talk.lines(), format="wrapped", unstable=True)
    return [one for one in report.findings if one.rule in SHAPES]


@pytest.mark.parametrize(("method", "part", "sample", "value"), samples())
def test_golden_samples_are_clean(method: str, part: str, sample: str, value: Any) -> None:
    talk, _ = conversation(method, part, value)
    assert shapes(talk) == []


@pytest.mark.parametrize("one", list(spoilt()), ids=lambda one: f"{one.method}-{one.path}-{one.sample}")
def test_a_value_of_another_type_is_found_at_its_place(one: Spoilt) -> None:
    value = next(
        found
        for name, part, sample, found in samples()
        if (name, part, sample) == (one.method, one.part, one.sample)
    )
    talk, step = conversation(one.method, one.part, value)
    talk.set(step, one.path, one.value)
    found = shapes(talk)
    assert [(f.line, f.path) for f in found] == [(talk.line(step), one.path)], found
    assert found[0].side == talk.steps[talk.index(step)].side


def misspelt() -> Iterator[Spoilt]:
    """Each camelCase field once for each method, with its name in snake_case."""
    for one in spoilt():
        name = one.path.rpartition(".")[2]
        # An elicitation without a requestId may as well lack its sessionId.
        if "[" not in name and name != name.lower() and name not in ("requestId", "X-Team"):
            yield one._replace(value=re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name))


@pytest.mark.parametrize("one", list(misspelt()), ids=lambda one: f"{one.method}-{one.path}-{one.sample}")
def test_snake_case_is_named_with_the_name_that_was_meant(one: Spoilt) -> None:
    value = next(
        found
        for name, part, sample, found in samples()
        if (name, part, sample) == (one.method, one.part, one.sample)
    )
    talk, step = conversation(one.method, one.part, value)
    holder, _, name = one.path.rpartition(".")
    kept = talk[step]
    for part in re.findall(r"\w+", holder):
        kept = kept[int(part) if part.isdigit() else part]
    kept[one.value] = kept.pop(name)
    found = shapes(talk)
    assert len(found) == 1, found
    assert found[0].path in (one.path, f"{holder}.{one.value}")
    assert name in found[0].text


def test_the_figures() -> None:
    assert len(list(spoilt())) >= 600

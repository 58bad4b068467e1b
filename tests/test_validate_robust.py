"""Whatever a recording holds, judging it never raises, and says the same every time."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acpserver.validate import Entry, Validator, check_trace
from acpserver.validate.rules import RULES
from tests.validate.seeded import FAULTS
from tests.validate.talk import Talk, turn

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "jsonrpc",
        "id",
        "method",
        "params",
        "result",
        "error",
        "sessionId",
        "update",
        "sessionUpdate",
        "toolCallId",
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def feed(messages: list[tuple[str, Any]]) -> None:
    """Judge these messages to the end; every finding must name a rule."""
    validator = Validator(pedantic=True)
    found = []
    for line, (side, message) in enumerate(messages, 1):
        found += validator.feed(Entry(line, line / 10, side, message, json.dumps(message)))
    found += validator.finish()
    assert all(one.rule in RULES and one.level and one.side in ("client", "agent") for one in found)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(["client", "agent"]), st.dictionaries(NAMES, VALUES) | VALUES), max_size=8
    )
)
def test_any_json(messages: list[tuple[str, Any]]) -> None:
    feed(messages)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), VALUES)
def test_a_conversation_in_which_anything_is_replaced(choice: random.Random, value: Any) -> None:
    talk = turn()
    for step in choice.sample(talk.steps, 3):
        *way, last = choice.choice([place for place in places(step.message) if place])
        holder: Any = step.message
        for part in way:
            holder = holder[part]
        holder[last] = value
    feed([(step.side, step.message) for step in talk.steps])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_a_conversation_in_any_order_with_gaps(choice: random.Random) -> None:
    steps = choice.choice(FAULTS).talk().steps
    kept = [step for step in steps if choice.random() < 0.8]
    choice.shuffle(kept)
    feed([(step.side, step.message) for step in kept])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes(lines: list[bytes]) -> None:
    for format in (None, "lines", "wrapped", "prefixed", "zed"):
        check_trace([line + b"\n" for line in lines], format=format)


@pytest.mark.parametrize("depth", [50, 2000, 100_000])
def test_deep_nesting_is_no_trouble(depth: int) -> None:
    line = b'{"jsonrpc":"2.0","method":"session/update","params":' + b"[" * depth + b"]" * depth + b"}\n"
    report = check_trace([line], format="lines")
    assert {one.rule for one in report.findings} & {"schema", "T1", "T2"}


def test_the_same_conversation_gives_the_same_findings() -> None:
    talk: Talk = turn().set("prompt!", "result.stopReason", "stop")
    first, second = check_trace(talk.lines()), check_trace(talk.lines())
    assert first.findings == second.findings


def test_a_file_that_several_processes_wrote_holds_several_conversations() -> None:
    first, second = turn(), turn()
    assert check_trace([*first.lines(), *second.lines()]).counts == {"error": 0, "warning": 0, "remark": 0}
    first.drop("release", "release!")
    report = check_trace([*first.lines(), *second.lines()])
    assert [(one.rule, one.line) for one in report.errors] == [("X1", first.line("create"))]


def test_a_recording_may_be_given_as_a_path_as_text_and_as_bytes(tmp_path: Path) -> None:
    talk: Talk = turn().set("prompt!", "result.stopReason", "stop")
    file = tmp_path / "talk.jsonl"
    file.write_bytes(b"".join(talk.lines()))
    text = [line.decode().strip() for line in talk.lines()]
    sources: list[Any] = [file, str(file), talk.lines(), text]
    assert len({tuple(check_trace(source).findings) for source in sources}) == 1


def test_values_that_are_no_json_are_judged_too() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"env": {"A": "b"}, "n": float("nan")}}
    assert Validator().feed(Entry(1, None, "client", message, ""))

"""What the loop does as updates: every form, its limits, and that it fits the schema."""

from __future__ import annotations

import json
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver import jsontext
from acpserver.agent import translate
from acpserver.llm.types import ToolCall, ToolResult, Usage
from acpserver.rpc import schema
from acpserver.tools.base import Action, ToolOutcome
from tests.fakes.inside import FakeTool

CALL = ToolCall("c", "tool", {"path": "/a"}, '{"path": "/a"}')
DIFF: dict[str, object] = {"type": "diff", "path": "/a", "oldText": None, "newText": "x"}
TEXT = {"type": "content", "content": {"type": "text", "text": "out"}}


def fits(update: dict[str, object]) -> bool:
    return schema.check_params("session/update", {"sessionId": "s", "update": update}) == []


def test_a_call_with_everything() -> None:
    action = Action("Write a", lambda: ToolOutcome(""), [DIFF], [{"path": "/a", "line": 3}])
    shown = translate.call_shown(CALL, FakeTool("tool", kind="edit"), action)
    assert shown == {
        "title": "Write a",
        "kind": "edit",
        "content": [DIFF],
        "locations": [{"path": "/a", "line": 3}],
    }
    update = translate.tool_call(CALL, shown)
    assert update == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "status": "pending",
        "rawInput": {"path": "/a"},
        **shown,
    }
    assert fits(update)
    asked = translate.permission_call(update)
    assert "sessionUpdate" not in asked and asked["toolCallId"] == "c" and asked["status"] == "pending"


@pytest.mark.parametrize(
    ("call", "title", "raw"),
    [
        (ToolCall("c", "nope", {}), "Nope", {}),
        (ToolCall("c", "read_file", {"limit": 1, "path": "a\nb", "more": "c"}), "Read file: a b", ANY),
        (ToolCall("c", "mcp__files__get_all", {"x": ""}), "Files: get all", ANY),
        (ToolCall("c", "", None, "garbage"), "Unknown tool", {"raw": "garbage"}),
        (ToolCall("c", "x" * 5_000, {}), None, {}),
    ],
)
def test_a_call_that_cannot_run(call: ToolCall, title: str | None, raw: object) -> None:
    update = translate.tool_call(call, translate.call_shown(call, None, None))
    assert update["kind"] == "other" and update["rawInput"] == raw and fits(update)
    assert update["title"] == title if title else len(str(update["title"])) <= 300


OUTCOMES = [
    # what the tool says, what the call shows already, the content of the last report, and rawOutput
    (ToolOutcome("out"), [], [TEXT], {"output": "out"}),
    (ToolOutcome("out", []), [], None, {"output": "out"}),
    (ToolOutcome("out", [DIFF]), [], [DIFF], {"output": "out"}),
    (ToolOutcome("out", [DIFF]), [DIFF], None, {"output": "out"}),
    (ToolOutcome("out", [DIFF], {"exitCode": 0}), [], [DIFF], {"exitCode": 0}),
    (ToolOutcome("out", None, is_error=True), [DIFF], [TEXT], {"error": "out"}),
    (ToolOutcome("out", [], {"exitCode": 1}, is_error=True), [], [TEXT], {"exitCode": 1}),
]


@pytest.mark.parametrize(("outcome", "before", "content", "raw"), OUTCOMES)
def test_the_last_report(
    outcome: ToolOutcome, before: list[dict[str, object]], content: object, raw: object
) -> None:
    answer = ToolResult("c", "tool", outcome.text, outcome.is_error)
    update = translate.tool_ended(answer, translate.result_shown(outcome, before))
    assert update["status"] == ("failed" if outcome.is_error else "completed")
    assert update.get("content") == content and update["rawOutput"] == raw
    assert fits(update)


def test_progress_shows_the_whole_content() -> None:
    update = translate.tool_progress(CALL, [TEXT])
    assert update["status"] == "in_progress" and update["content"] == [TEXT] and fits(update)


@pytest.mark.parametrize(
    "update",
    [
        translate.tool_started(CALL),
        translate.text_chunk("agent_message_chunk", "m", "x"),
        translate.plan([{"content": "a", "priority": "low", "status": "pending"}]),
        translate.usage_update(Usage(1, 2), 100),
        translate.current_mode("default"),
        translate.config_options([]),
        translate.session_info("title", 0.5),
    ],
    ids=lambda update: update["sessionUpdate"],
)
def test_the_other_updates_fit(update: dict[str, object]) -> None:
    assert fits(update)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250Z"),
        (0.9999, "1970-01-01T00:00:00.999Z"),
    ],
)
def test_iso_time(seconds: float, text: str) -> None:
    assert translate.iso_time(seconds) == text


def test_usage_leaves_out_what_was_not_told() -> None:
    assert translate.prompt_usage(Usage(3, 4)) == {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
    assert translate.prompt_usage(Usage(9, 4, 2, 1, 6)) == {
        "inputTokens": 9,
        "outputTokens": 4,
        "totalTokens": 13,
        "cachedReadTokens": 2,
        "cachedWriteTokens": 6,
        "thoughtTokens": 1,
    }


def test_raw_values_are_copied_and_shortened_at_every_depth() -> None:
    long = "x" * 100_000
    value: dict[str, object] = {
        "a": long,
        "n": 1,
        "none": None,
        "b": [{"c": long}] * 9,
    }
    found = translate.raw(value)
    assert len(jsontext.dumps(found)) < 21_000
    assert found["n"] == 1 and found["none"] is None
    assert found["b"][0]["c"].startswith("xxx") and "more" in found["b"][-1]  # type: ignore[index]
    assert value["a"] == long


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {"end": 1}
    for _ in range(depth):
        value = {"a": [value]}
    return value


HUGE: list[dict[str, object]] = [
    nested(490),
    {f"key {number}": number for number in range(20_000)},
    {"list": list(range(100_000))},
    {"numbers": [10**4000] * 100},
    {"x" * 100_000: "y", "\U0001f600" * 10_000: "\U0001f600" * 10_000},
    {"a": [[[]] * 1000] * 1000},
]


@pytest.mark.parametrize("arguments", HUGE, ids=["deep", "keys", "items", "numbers", "long", "empty"])
def test_arguments_of_any_shape_stay_within_depth_and_size(arguments: dict[str, object]) -> None:
    """Each line stays under 64 KiB; the content beside them may take 24 KiB."""
    update = translate.tool_call(ToolCall("c", "tool", arguments), {"title": "t"})
    text = jsontext.dumps(update)
    assert len(text) < 28_000 and "\\u2026" in text and fits(update)


def test_small_values_are_shown_as_they_are() -> None:
    value = {"a": [1, 2.5, None, True, {"b": "\u00e4"}], "": {}, "deep": nested(8)}
    assert translate.raw(value) == value


def test_a_short_text_stays() -> None:
    assert translate.shorten("hello\n", 100) == "hello\n"
    assert translate.shorten("\u00e4" * 16, 100) == "\u00e4" * 16


def test_a_long_text_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "".join(f"{number}\n" for number in range(10_000))
    short = translate.shorten(text, 1_000)
    head, _, rest = short.partition("\n[\u2026 ")
    count, _, tail = rest.partition(" characters left out \u2026]\n")
    assert text.startswith(head) and text.endswith(tail) and head and tail
    assert int(count) == len(text) - len(head) - len(tail)


@given(st.text(min_size=1, max_size=300), st.integers(1, 400), st.integers(300, 5_000))
def test_a_shortened_text_fits_whatever_its_characters_cost(piece: str, times: int, limit: int) -> None:
    short = translate.shorten(piece * times, limit)
    assert jsontext.encoded_size(short) <= limit
    json.loads(jsontext.dumps(short))

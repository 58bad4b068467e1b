"""Records become the updates that first told them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from acpserver import jsontext, records
from acpserver.agent.replay import replay
from acpserver.conversation import add_up
from acpserver.llm.types import Opaque, Part, Text, Thought, ToolCall, ToolResult
from acpserver.records import Record
from acpserver.rpc import schema

LONGEST_LINE = 65_535
CALL = ToolCall("c1", "bash", {"command": "ls"}, "")
ANSWER = records.assistant([Text("I look."), CALL], ["a"], None, True)
BEGUN = records.call("c1", {"title": "Run ls", "kind": "execute"})
ENDED = records.result(ToolResult("c1", "bash", "out"), {"rawOutput": {"exitCode": 0}})


def told(*found: Record | None, running: bool = False) -> list[dict[str, Any]]:
    """The updates; each fits the schema and the line that some clients can read."""
    updates = list(replay(add_up(found)[1], running))
    for update in updates:
        assert schema.check_params("session/update", {"sessionId": "s", "update": update}) == []
        assert len(jsontext.dumps(update)) < LONGEST_LINE - 200
    return updates


def prompt(*blocks: dict[str, Any]) -> Record:
    return records.user("u", list(blocks))


def test_a_turn_in_its_order() -> None:
    parts: list[Part] = [Thought("hm"), Text("I look."), Opaque("m", {"x": 1}), CALL, Text("so")]
    answer = records.assistant(parts, ["t", "a", "b"], None, True)
    plan = records.plan([{"content": "x", "priority": "low", "status": "pending"}])
    silent = [records.option("mode", "x"), records.permission("bash", "allow"), records.trimmed()]
    asked = prompt({"type": "text", "text": "hi"})
    updates = told(asked, answer, BEGUN, *silent, ENDED, plan, records.reported(1))
    assert [(u["sessionUpdate"], u.get("messageId"), u.get("status")) for u in updates] == [
        ("user_message_chunk", "u", None),
        ("agent_thought_chunk", "t", None),
        ("agent_message_chunk", "a", None),
        ("agent_message_chunk", "b", None),
        ("tool_call", None, "pending"),
        ("tool_call_update", None, "completed"),
        ("plan", None, None),
    ]
    assert updates[4]["rawInput"] == {"command": "ls"} and updates[4]["title"] == "Run ls"
    assert updates[5]["rawOutput"] == {"exitCode": 0}


def test_an_answer_in_pieces_is_told_as_one() -> None:
    pieces = [records.piece([Thought("hm"), Opaque("m", {"x": 1})], ["t"]), records.piece([CALL], [])]
    last = records.assistant([Text("I look.")], ["a"], None, True)
    whole = records.assistant([Thought("hm"), CALL, Text("I look.")], ["t", "a"], None, True)
    assert told(*pieces, last, BEGUN, ENDED) == told(whole, BEGUN, ENDED)
    assert told(*pieces) == told(whole)[:1]


@pytest.mark.parametrize("after", [[], [prompt({"type": "text", "text": "x"})], [ANSWER | {"parts": []}]])
def test_a_call_that_was_cut_off_ends_as_failed_once(after: list[Record]) -> None:
    updates = told(ANSWER, BEGUN, *after, ENDED)[: 3 + len(after)]
    statuses = [u["status"] for u in told(ANSWER, BEGUN, *after) if "status" in u]
    assert statuses == ["pending", "failed"]
    assert "interrupted" in told(ANSWER, BEGUN, *after)[2]["rawOutput"]["error"]
    assert updates[1]["sessionUpdate"] == "tool_call"


def test_a_call_of_a_running_turn_stays_open() -> None:
    assert [u.get("status") for u in told(ANSWER, BEGUN, running=True)] == [None, "pending"]
    earlier = told(ANSWER, BEGUN, prompt({"type": "text", "text": "x"}), running=True)
    assert [u.get("status") for u in earlier] == [None, "pending", "failed", None]


def test_results_and_calls_that_fit_nothing() -> None:
    assert told(ENDED) == told({"type": "plan", "entries": "none"}) == []
    assert [u["status"] for u in told(BEGUN, BEGUN, ENDED, ENDED)] == ["pending", "completed"]


def test_damage_hides_only_itself() -> None:
    bad: list[Any] = [
        None, {}, {"type": 1}, {"type": "user"}, {"type": "user", "messageId": "m", "prompt": [7]},
        {"type": "assistant", "parts": 5}, {"type": "assistant", "parts": [{}], "messageIds": []},
        {"type": "call"}, {"type": "call", "id": "x", "shown": 7}, {"type": "result", "id": "c1"},
    ]  # fmt: skip
    mixed = [record for good in (ANSWER, BEGUN, ENDED) for record in (*bad, good)]
    assert told(*mixed) == told(ANSWER, BEGUN, ENDED)


WRONG_SHOWN: list[Any] = [
    {"title": 7, "kind": "execute"},
    {"title": "t", "content": [{"type": "content", "content": 7}]},
    {"kind": "execute"},
]


@pytest.mark.parametrize("shown", WRONG_SHOWN, ids=str)
def test_a_call_whose_display_is_damaged_is_told_by_its_name(shown: dict[str, object]) -> None:
    begun = told(ANSWER, BEGUN | {"shown": shown}, ENDED)[1]
    assert (begun["title"], begun["kind"], begun["rawInput"]) == ("Bash: ls", "other", {"command": "ls"})
    assert told(ANSWER, ENDED)[1:] == [begun, told(ANSWER, BEGUN, ENDED)[-1]]  # also when its record is lost


WRONG_BLOCKS: list[Any] = [
    ({"type": "image", "data": 7}, "[image: unknown type]"),
    ({"type": "text", "text": "a", "annotations": 7}, "a"),
    ({"type": "from the future"}, "[from the future: unknown type]"),
]


@pytest.mark.parametrize(("block", "text"), WRONG_BLOCKS, ids=str)
def test_a_prompt_that_is_damaged_is_told_as_the_model_reads_it(block: dict[str, Any], text: str) -> None:
    updates = told(records.user("u", [{"type": "text", "text": "see "}, block]))
    assert [u["content"]["text"] for u in updates] == ["see ", text]
    assert [u["messageId"] for u in updates] == ["u", "u"]
    (unnamed,) = told({"type": "user", "prompt": [{"type": "text", "text": "x"}]})
    assert unnamed["messageId"]


def test_a_result_whose_display_is_damaged_is_told_by_its_text() -> None:
    damaged = ENDED | {"shown": {"rawOutput": {}, "content": [{"type": "diff", "path": 7}]}}
    assert told(ANSWER, BEGUN, damaged)[-1]["content"][0]["content"]["text"] == "out"


def test_an_answer_with_too_few_message_ids_is_told_all_the_same() -> None:
    updates = told(records.assistant([Text("one"), CALL, Text("two")], ["a"], None, True))
    assert [u["content"]["text"] for u in updates] == ["one", "two"]
    assert updates[0]["messageId"] == "a" and updates[1]["messageId"] not in ("", "a", "None")


@pytest.mark.parametrize("size", [0, 1, 3_999, 4_000, 4_001, 100_000])
def test_long_texts_come_in_pieces(size: int) -> None:
    text = "é" * size
    mine = told(prompt({"type": "text", "text": text, "annotations": {"priority": 1}}))
    assert "".join(u["content"]["text"] for u in mine) == text
    assert all(u["content"]["annotations"] == {"priority": 1} for u in mine)
    answer = told(records.assistant([Text(text)], ["a"], None, True))
    assert "".join(u["content"]["text"] for u in answer) == text


DATA = base64.b64encode(b"x" * 300_000).decode()
LARGE: list[dict[str, Any]] = [
    {"type": "image", "mimeType": "image/png", "data": DATA},
    {"type": "audio", "mimeType": "audio/wav", "data": DATA},
    {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "é" * 100_000}},
    {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": DATA, "mimeType": "a/b"}},
]


@pytest.mark.parametrize("block", LARGE, ids=lambda block: str(block["type"]))
def test_large_attachments_keep_lines_short(block: dict[str, Any]) -> None:
    """A client that reads lines of 64 KiB at most would lose the whole replay."""
    updates = told(prompt(block))
    assert {u["content"]["type"] for u in updates} == {"text"}
    words = "".join(u["content"]["text"] for u in updates)
    assert "image/png" in words or "audio/wav" in words or "/a." in words


def test_small_attachments_come_as_they_were() -> None:
    small = [{"type": "image", "mimeType": "image/png", "data": "AAAA"},
             {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
             {"type": "resource_link", "name": "a", "uri": "file:///a"}]  # fmt: skip
    assert [u["content"] for u in told(prompt(*small))] == small

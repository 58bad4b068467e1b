"""What the records of a session add up to, whatever order or damage they come in."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver import records
from acpserver.agent.replay import replay
from acpserver.conversation import Conversation, add_up, has_long_results, title_of
from acpserver.llm.openai import OpenAi
from acpserver.llm.types import (
    Endpoint,
    Message,
    ModelRequest,
    Opaque,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    Usage,
)
from acpserver.records import Record
from acpserver.rpc import schema
from acpserver.session_file import parse_lines
from tests.fakes.openai_rules import violations

CALL = ToolCall("c1", "bash", {"command": "true"}, "{}")
RESULT = ToolResult("c1", "bash", "out")


def prompt(text: str) -> list[dict[str, object]]:
    """A prompt of one text block."""
    return [{"type": "text", "text": text}]


def sum_of(*found: Record | None) -> Conversation:
    """The conversation that these records make, each through its JSON text."""
    conversation = Conversation()
    for record in found:
        conversation.add(json.loads(json.dumps(record)))
    return conversation


def test_a_turn() -> None:
    parts = [Thought("hm"), Text("I look"), CALL, Opaque("m", {"signed": 1})]
    conversation = sum_of(
        records.header("s", "/w"),
        records.user("m1", prompt("  \n Fix the\tbug \n please")),
        records.assistant(parts, ["m2", "m3"], Usage(10, 5, 2, 1), whole=True),
        records.call("c1", {"title": "t"}),
        records.result(RESULT, {}),
        records.plan([]),
        records.option("mode", "bypass"),
        records.option("mode", "default"),
        records.permission("bash", "allow"),
        records.assistant([Text("done")], ["m4"], Usage(20, 5), whole=False),
    )
    assert (conversation.cwd, conversation.title, conversation.turns) == ("/w", "Fix the\tbug", 1)
    assert conversation.created > 1e9
    assert conversation.options == {"mode": "default"} and conversation.answers == {"bash": "allow"}
    assert conversation.usage == Usage(30, 10, 2, 1)
    assert conversation.damaged == conversation.reported == 0
    assert conversation.messages == [
        Message("user", (Text("  \n Fix the\tbug \n please"),)),
        Message("assistant", tuple(parts)),
        Message("tool", (RESULT,)),
        Message("assistant", (Text("done"),)),
    ]


def test_results_of_one_answer_are_one_message() -> None:
    two = [CALL, CALL._replace(id="c2")]
    conversation = sum_of(
        records.assistant(list(two), [], None, True),
        records.result(RESULT, {}),
        records.option("mode", "bypass"),
        records.result(ToolResult("c2", "bash", "bad", is_error=True), {}),
    )
    assert [message.role for message in conversation.messages] == ["assistant", "tool"]
    assert [part.is_error for part in conversation.messages[1].parts] == [False, True]  # type: ignore[union-attr]


def test_thoughts_alone_are_no_answer() -> None:
    assert sum_of(records.assistant([Thought("hm")], ["m"], None, False)).messages == []


SIGNED = Opaque("m", {"signed": 1})
PIECES = [
    records.piece([Thought("hm"), SIGNED], ["m1"]),
    records.option("mode", "bypass"),  # another thread may have set it meanwhile
    records.piece([Text("I look"), CALL, Opaque("m", {"signed": 2})], ["m2"]),
]
WHOLE_PARTS = (Thought("hm"), SIGNED, Text("I look"), CALL, Opaque("m", {"signed": 2}), Text("so"))


def test_an_answer_in_pieces_is_one_message() -> None:
    last = records.assistant([Text("so")], ["m3"], Usage(10, 5), True)
    conversation = sum_of(
        *PIECES, last, records.result(RESULT, {}), records.assistant([Text("x")], [], None, True)
    )
    assert conversation.messages == [
        Message("assistant", WHOLE_PARTS),
        Message("tool", (RESULT,)),
        Message("assistant", (Text("x"),)),
    ]
    assert (conversation.usage, conversation.damaged) == (Usage(10, 5), 0)
    again = sum_of(*PIECES, last, records.assistant([CALL], [], None, True))
    assert (len(again.messages), again.damaged) == (1, 1)  # the call of a piece counts as one


def test_a_file_of_an_earlier_version_loads_whole() -> None:
    """It is as that version wrote it, and stays so: whoever must change it has changed the format."""
    lines = (Path(__file__).parent / "stored" / "session_format_1.jsonl").read_bytes().splitlines()
    conversation, found = add_up(parse_lines(lines))
    assert (conversation.damaged, conversation.turns, conversation.title) == (0, 12, "say hello")
    assert (conversation.usage, conversation.cost) == (Usage(767, 63, 2, 1), 0.001)
    assert (conversation.options, conversation.answers) == ({"mode": "bypass"}, {"bash": "allow"})
    roles = "".join(message.role[0] for message in conversation.messages)
    assert roles == "ua" * 3 + "uata" * 6 + "ua" + "uata"
    signed = Opaque("anthropic:m@h", {"signature": "s"})
    last = ToolCall("call_7", "bash", {"command": "true"}, "{}")
    assert conversation.messages[-3].parts == (Thought("hm"), signed, Text("I look"), last)
    updates = list(replay(found, running=False))
    assert Counter(update["sessionUpdate"] for update in updates) == {
        "user_message_chunk": 12,
        "agent_message_chunk": 12,
        "agent_thought_chunk": 2,
        "tool_call": 7,
        "tool_call_update": 7,
        "plan": 1,
    }


def test_what_was_put_into_the_cache_stands_beside_the_four_counts_of_older_versions() -> None:
    """They drop an answer whose usage has a fifth count."""
    plain = records.assistant([Text("x")], ["m1"], Usage(10, 5, 2, 1), True)
    cached = records.assistant([Text("y")], ["m2"], Usage(30, 5, 2, 1, 7), True)
    assert (plain["usage"], plain.get("cacheWritten")) == ([10, 5, 2, 1], None)
    assert (cached["usage"], cached["cacheWritten"]) == ([30, 5, 2, 1], 7)
    assert sum_of(plain, cached).usage == Usage(40, 10, 4, 2, 7)


CUT = {
    "killed": ([], (Thought("hm"), Text("I look"))),
    "cancelled": (
        [records.assistant([Text("so"), CALL], ["m3"], None, False)],
        (Thought("hm"), Text("I look"), Text("so")),
    ),
    "damaged": ([None], (Thought("hm"), Text("I look"))),
}


@pytest.mark.parametrize("cut", CUT)
def test_an_answer_in_pieces_that_broke_off_holds_what_was_shown(cut: str) -> None:
    """No call that has no result, and no reasoning that nothing follows; the next answer is another one."""
    end, parts = CUT[cut]
    asked = records.user("m4", prompt("and?"))
    last = records.assistant([CALL], [], None, True)  # the call was not shown, so its id is free
    conversation = sum_of(*PIECES, *end, asked, last)
    assert conversation.messages[0] == Message("assistant", parts)
    assert [message.role for message in conversation.messages] == ["assistant", "user", "assistant"]
    assert conversation.messages[-1].parts == (CALL,)


def test_a_failed_turn_takes_its_prompt_back_and_only_that() -> None:
    first = records.user("m1", prompt("one"))
    answer = records.assistant([Text("two")], ["m2"], None, True)
    failed = records.failed("no network")
    assert [m.role for m in sum_of(first, answer, records.user("m3", prompt("x")), failed).messages] == [
        *("user", "assistant")
    ]
    conversation = sum_of(first, answer, failed, failed)
    assert len(conversation.messages) == 2 and conversation.turns == 1


def test_a_refused_turn_is_gone_for_the_model_and_counts_all_the_same() -> None:
    before = [records.header("s", "/w"), records.user("m1", prompt("one"))]
    before.append(records.assistant([Text("fine")], ["m2"], Usage(1, 1), whole=True))
    refused = [
        records.user("m3", prompt("bad")),
        records.assistant([CALL], [], Usage(10, 5), whole=True),
        records.call("c1", {}),
        records.result(RESULT, {}),
        records.piece([Text("I will ")], ["m4"]),
        records.assistant([Text("not")], ["m5"], Usage(20, 5), whole=True),
        records.refused(),
    ]
    conversation = sum_of(*before, *refused)
    assert conversation.messages == sum_of(*before).messages
    assert (conversation.turns, conversation.usage, conversation.damaged) == (2, Usage(31, 11), 0)
    assert sum_of(*before, *refused, records.user("m6", prompt("two"))).messages[-1].text == "two"
    assert sum_of(records.refused()).messages == []


def test_trimmed_shortens_what_came_before() -> None:
    long = ToolResult("c1", "bash", "a" * 5_000 + "z" * 5_000)
    called = [records.call("c1", {}), records.call("c2", {})]
    later = long._replace(call_id="c2")
    conversation = sum_of(*called, records.result(long, {}), records.trimmed(), records.result(later, {}))
    before, after = conversation.messages[0].parts
    assert isinstance(before, ToolResult) and isinstance(after, ToolResult)
    assert len(before.text) < 2_100 and before.text[:9] == "a" * 9 and before.text[-9:] == "z" * 9
    assert after.text == long.text
    assert has_long_results(conversation.messages)
    assert not has_long_results(sum_of(*called, records.result(long, {}), records.trimmed()).messages)


@pytest.mark.parametrize("text", ["", "   \n ", "x" * 79, "x" * 80, "x" * 81, "é" * 500])
def test_titles_are_one_short_line(text: str) -> None:
    title = title_of(Message("user", (Text(text),)))
    assert len(title) <= 80 and "\n" not in title
    assert title == (text.strip() if len(text) <= 80 else text[:79] + "…")


DAMAGED: list[Any] = [
    None,
    {},
    {"type": "session"},
    {"type": "session", "cwd": 1, "time": 0},
    {"type": "session", "cwd": "/w", "time": "then"},
    {"type": "session", "cwd": "/w", "time": int("9" * 400)},
    {"type": "from the future"},
    {"type": ["user"]},
    {"type": "user"},
    {"type": "user", "prompt": 5},
    {"type": "user", "prompt": ["x"]},
    {"type": "assistant", "parts": [{}]},
    {"type": "assistant", "parts": ["text"]},
    {"type": "assistant", "parts": [{"text": 1}]},
    {"type": "assistant", "parts": [{"call": "c", "name": "n", "arguments": []}]},
    {"type": "assistant", "parts": [{"text": "x"}], "usage": ["many"]},
    {"type": "assistant", "parts": [{"text": "x"}], "usage": [1, 2, 3, 4, 5, 6]},
    {"type": "assistant", "parts": [{"text": "x"}], "usage": [1, 2, 3, 4], "cacheWritten": "x"},
    {"type": "result", "id": "c"},
    {"type": "result", "id": 1, "name": "n", "text": "t"},
    {"type": "option", "option": "mode"},
    {"type": "option", "option": ["mode"], "value": "x"},
    {"type": "permission", "tool": "bash", "answer": None},
    {"type": "reported", "count": "x"},
]


@pytest.mark.parametrize("record", DAMAGED, ids=str)
def test_a_damaged_record_is_counted_and_changes_nothing(record: Any) -> None:
    good = [records.header("s", "/w"), records.user("m", prompt("hello"))]
    before, after = sum_of(*good), sum_of(*good, record)
    assert (before.damaged, after.damaged) == (0, 1)
    assert vars(before) | {"damaged": 1} == vars(after)


def test_a_call_id_is_used_once() -> None:
    """A line that was copied by hand would make the history one that no model takes."""
    answer = records.assistant([Text("x"), CALL], ["m"], Usage(1, 1), True)
    for bad in (answer, records.assistant([CALL._replace(id="")], [], None, True)):
        conversation = sum_of(answer, bad)
        assert (len(conversation.messages), conversation.damaged, conversation.usage) == (1, 1, Usage(1, 1))


OUT_OF_PLACE: dict[str, list[Record]] = {
    "a result of no call": [records.result(RESULT._replace(call_id="c9"), {})],
    "a second result": [records.result(RESULT, {}), records.result(RESULT, {})],
    "a call that was shown": [records.call("c1", {}), records.call("c1", {})],
    "a result behind the next prompt": [records.user("m", prompt("x")), records.result(RESULT, {})],
    "a plan with wrong entries": [records.plan([{"content": 7}])],
}


@pytest.mark.parametrize("found", OUT_OF_PLACE.values(), ids=OUT_OF_PLACE)
def test_what_is_out_of_place_is_left_out_and_counted(found: list[Record]) -> None:
    """For the model, for a replay and for what the user is told of damage."""
    before = [records.user("m", prompt("x")), records.assistant([CALL], [], None, True)]
    conversation, taken = add_up([*before, *found])
    assert (conversation.damaged, taken) == (1, [*before, *found[:-1], None])
    assert conversation.messages == add_up(taken[:-1])[0].messages


def test_what_was_reported_is_counted() -> None:
    conversation = sum_of(None, None, records.reported(2), None)
    assert (conversation.damaged, conversation.reported) == (3, 2)


ids = st.sampled_from(["c1", "c2", "c3", ""])
texts = st.sampled_from(["", "word", "  ", "\ud800", "\0", "y" * 3_000])
calls = st.builds(
    ToolCall, ids, st.sampled_from(["bash", "", "no such tool!"]), st.sampled_from([None, {}, {"a": 1}])
)
parts = st.lists(st.one_of(st.builds(Text, texts), st.builds(Thought, texts), calls), max_size=4)
any_record = st.one_of(
    st.builds(lambda text: records.user("m", prompt(text)), texts),
    st.builds(lambda found: records.assistant(found, ["m"] * 2, None, True), parts),
    st.builds(lambda found: records.piece(found, ["m"] * 2), parts),
    st.builds(lambda call_id, text: records.result(ToolResult(call_id, "bash", text), {}), ids, texts),
    st.builds(lambda call_id: records.call(call_id, {"title": "t", "kind": "other"}), ids),
    st.sampled_from(
        [
            records.failed("x"),
            records.refused(),
            records.trimmed(),
            records.plan([]),
            records.option("a", "b"),
        ]
    ),
    st.sampled_from(DAMAGED),
)


@given(st.lists(any_record, max_size=12))
def test_every_history_is_one_that_a_model_takes(found: list[Any]) -> None:
    """Crashes, other versions, edits by hand: the next request has each call with exactly one result."""
    conversation = sum_of(*found, records.user("m", prompt("go on")))
    request = ModelRequest("model", "system", tuple(conversation.messages))
    body = OpenAi().chat(Endpoint("http://127.0.0.1"), request).body
    assert body is not None
    assert violations(json.loads(body)) == []


@given(st.lists(any_record, max_size=12))
def test_every_history_can_be_told(found: list[Any]) -> None:
    """Each call begins once and ends once, every update fits the schema, and nothing is lost in silence."""
    open_calls: set[object] = set()
    for update in replay(add_up(json.loads(json.dumps(found)))[1], running=False):
        assert schema.check_params("session/update", {"sessionId": "s", "update": update}) == []
        if update["sessionUpdate"] == "tool_call":
            assert update["toolCallId"] not in open_calls
            open_calls.add(update["toolCallId"])
        elif update["sessionUpdate"] == "tool_call_update":
            open_calls.remove(update["toolCallId"])
    assert open_calls == set()

"""A conversation laid out: rows, what belongs together, what takes from where to where."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from acpserver.validate import summary
from acpserver.validate.findings import AGENT, CLIENT, Entry
from acpserver.validate.timeline import Row, Span, Timeline
from tests.fakes import conversation
from tests.fakes.conversation import Conversation, words

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (*summary.TELLING, *summary.TELLING_RESULT, "sessionUpdate", "toolCallId", "text", "entries", "used")


def laid_out(talk: Conversation) -> tuple[list[Row], list[Span]]:
    """All rows and all spans of a conversation."""
    timeline = Timeline()
    rows = [timeline.add(entry) for entry in talk.entries]
    return rows, timeline.finish()


def test_an_answer_knows_its_request_and_has_its_method_and_session() -> None:
    rows, _ = laid_out(conversation.opened())
    first, second, third, fourth, fifth = rows
    assert (first.kind, first.method, first.id, first.answers) == ("request", "initialize", "1", None)
    assert (second.kind, second.method, second.id, second.answers) == ("response", "initialize", "1", 0)
    assert (third.summary, fourth.answers, fourth.session) == ("/home/user/project", 2, "s-1")
    assert (fifth.kind, fifth.tag, fifth.summary) == ("notification", "available_commands_update", "/plan")


def test_ids_of_the_two_sides_and_of_two_types_are_kept_apart() -> None:
    talk = Conversation()
    for sender, request_id in ((CLIENT, 1), (AGENT, 1), (CLIENT, "1")):
        talk.say(sender, id=request_id, method="_x/y", params={})
    for sender, request_id in ((AGENT, "1"), (CLIENT, 1), (AGENT, 1), (AGENT, 1)):
        talk.say(sender, id=request_id, result={})
    rows, _ = laid_out(talk)
    assert [row.answers for row in rows] == [None, None, None, 2, 1, 0, None]


def test_a_turn_holds_its_tool_calls_and_their_waits() -> None:
    talk = Conversation()
    conversation.turn(talk, "s-1", "Do it", 1)
    rows, spans = laid_out(talk)
    found = [(span.kind, span.side, rows[span.first].method, span.label) for span in spans]
    assert found == [
        ("turn", "agent", "session/prompt", "session/prompt Do it"),
        ("tool", "agent", "session/update", "Read app/main.py"),
        ("call", "client", "fs/read_text_file", "fs/read_text_file /home/user/project/app/main.py"),
        ("tool", "agent", "session/update", "Edit app/main.py"),
        ("wait", "client", "session/request_permission", spans[4].label),
    ]
    turn, read, file, edit, wait = spans
    assert (turn.first, turn.last) == (0, len(rows) - 1)
    assert all(span.has_end and span.last is not None for span in spans)
    assert read.first < file.first and file.last is not None and read.last == file.last + 1
    assert rows[wait.last or 0].summary == "selected yes" and (edit.last or 0) > (wait.last or 0)


def test_a_tool_call_that_its_turn_does_not_wait_for_has_no_end_of_its_own() -> None:
    talk = Conversation()
    asked = talk.ask(CLIENT, "session/prompt", sessionId="a", prompt=words("x"))
    talk.update("a", "tool_call", toolCallId="1", title="In a")
    talk.update("b", "tool_call", toolCallId="1", title="In b")
    talk.say(AGENT, id=asked, result={"stopReason": "end_turn"})
    _, spans = laid_out(talk)
    assert [(span.label, span.last, span.has_end, span.session) for span in spans] == [
        ("session/prompt x", 3, True, "a"),
        ("In a", 3, False, "a"),
        ("In b", None, False, "b"),
    ]


def test_what_is_open_at_the_end_has_no_last_row() -> None:
    talk = Conversation()
    talk.ask(CLIENT, "session/prompt", sessionId="a", prompt=words("x"))
    assert laid_out(talk)[1] == [Span("turn", "agent", 0, None, "session/prompt x", False, "a")]


def test_what_is_no_message_has_a_row_that_says_so() -> None:
    talk = Conversation()
    talk.line(AGENT, "oops", None, "not JSON")
    talk.line(AGENT, "[]", [])
    talk.line(AGENT, '{"jsonrpc":"2.0"}', {"jsonrpc": "2.0"})
    talk.line(AGENT, '{"id":1,"error":3}', {"id": 1, "error": 3})
    rows, _ = laid_out(talk)
    assert [row.kind for row in rows] == ["broken", "broken", "broken", "error"]
    assert rows[0].summary == "not JSON"


def test_each_kind_of_message_is_told_in_a_few_words() -> None:
    update = {"sessionUpdate": "plan", "entries": [{"status": "completed"}, {"status": "pending"}]}
    assert summary.of_call({"sessionId": "s", "update": update}) == "1 of 2 done"
    blocks = [{"type": "text", "text": "See"}, {"type": "resource_link", "uri": "file:///a"}]
    assert summary.of_call({"prompt": blocks}) == "See [resource_link] file:///a"
    assert summary.of_call({"prompt": words("two\n lines " + "x" * 999)})[:12] == "two lines xx"
    assert len(summary.of_call({"prompt": words("x" * 999)})) == 160
    assert summary.of_error({"code": -32602, "message": "bad"}) == "-32602 bad"
    assert summary.of_answer({"stopReason": "cancelled"}) == "cancelled"
    assert summary.of_answer({"sessions": [1, 2]}) == "2 sessions"
    assert summary.of_answer(None) == ""


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), JSON)
def test_no_message_is_too_odd_to_be_laid_out(fields: dict[str, object], other: object) -> None:
    timeline = Timeline()
    messages: list[object] = [
        {"method": "session/update", "params": {"sessionId": "s", "update": fields}},
        {"id": 1, "method": "session/prompt", "params": fields},
        {"id": 1, "result": fields},
        {"id": other, "method": other, "params": other},
        {"id": other, "error": other},
        other,
    ]
    for line, message in enumerate(messages, 1):
        row = timeline.add(Entry(line, None, AGENT, message, json.dumps(message)))
        assert len(row.summary) <= 160
        assert "\n" not in row.summary
    timeline.finish()

"""The editor as an object: what it can, what it answers, and text that is split and merged on its way."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.cancel import CancelFlag
from acpserver.client import LONGEST_TEXT, Client, TurnUpdates, split_text
from acpserver.errors import Cancelled
from acpserver.rpc.call import Call, CallTable
from acpserver.rpc.connection import Connection
from acpserver.transports.stdio import LineReader, LineWriter

TOOL_CALL: dict[str, object] = {"toolCallId": "c", "title": "t"}
OPTIONS: list[dict[str, object]] = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]


def a_prompt() -> Call:
    """A prompt of the client that is not answered yet."""
    replier: Any = None
    return Call(CallTable(replier), "session/prompt", {}, 1)


class Link:
    """A connection whose writer is started by the test, and the lines of its other end."""

    def __init__(self, capabilities: dict[str, object]):
        their_in, self.writing = os.pipe()
        self.reading, self.out = os.pipe()
        self.their_in = their_in
        self.writer = LineWriter(self.out)
        self.connection = Connection(LineReader(their_in), self.writer, {}, strict=True)
        self.client = Client(self.connection, capabilities)
        self.reader = threading.Thread(target=self.connection.serve, daemon=True)
        self.reader.start()

    def updates(self) -> TurnUpdates:
        """The updates of a turn that nothing else disturbs."""
        return self.client.updates("s", threading.RLock(), a_prompt())

    def messages(self, count: int) -> list[dict[str, Any]]:
        lines = iter(LineReader(self.reading))
        return [json.loads(next(lines)) for _ in range(count)]

    def answer(self, result: object) -> None:
        """Wait for the next request, and answer it with a result (or with `{"error": ...}`)."""
        (request,) = self.messages(1)
        body = result if isinstance(result, dict) and set(result) == {"error"} else {"result": result}
        message = {"jsonrpc": "2.0", "id": request["id"], **body}  # type: ignore[dict-item]
        os.write(self.writing, json.dumps(message).encode() + b"\n")

    def end_input(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        self.end_input()
        self.reader.join(5)
        if self.writer._thread.is_alive():
            self.writer.close(5)
        for fd in (self.reading, self.out, self.their_in):
            os.close(fd)


CAPABILITIES: dict[str, object] = {
    "fs": {"readTextFile": True, "writeTextFile": False},
    "terminal": True,
    "elicitation": {"form": {}},
    "session": {"notices": None},
}


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link(CAPABILITIES)
    yield link
    link.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("fs", "readTextFile"), True),
        (("fs", "writeTextFile"), False),
        (("fs",), True),
        (("terminal",), True),
        (("terminal", "x"), False),
        (("elicitation", "form"), True),  # an empty object announces
        (("elicitation", "url"), False),
        (("session", "notices"), False),  # null does not
        (("nope", "nope"), False),
    ],
)
def test_can(link: Link, path: tuple[str, ...], expected: bool) -> None:
    assert link.client.can(*path) is expected


SELECTED = {"outcome": {"outcome": "selected", "optionId": "yes"}}


@pytest.mark.parametrize(
    ("result", "chosen"),
    [
        (SELECTED, "yes"),
        ({"outcome": {"outcome": "cancelled"}}, None),
        ({"outcome": {"outcome": "selected"}}, None),
        ({"outcome": {"outcome": "selected", "optionId": 7}}, None),
        ({"outcome": "selected"}, None),
        ({}, None),
        (None, None),
        ([], None),
        ({"error": {"code": -32601, "message": "no"}}, None),
        ({"error": "text"}, None),
    ],
)
def test_every_answer_to_a_permission_request(link: Link, result: object, chosen: str | None) -> None:
    link.writer.start()
    answerer = threading.Thread(target=link.answer, args=(result,))
    answerer.start()
    assert link.client.request_permission("s", TOOL_CALL, OPTIONS, CancelFlag()) == chosen
    answerer.join(5)


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"action": "accept", "content": {"answer": "42"}}, "42"),
        ({"action": "accept", "content": {}}, ""),
        ({"action": "accept"}, None),
        ({"action": "decline"}, None),
        ({"action": "cancel"}, None),
        ({"error": {"code": -32601, "message": "no"}}, None),
    ],
)
def test_every_answer_to_a_question(link: Link, result: object, answer: str | None) -> None:
    link.writer.start()
    answerer = threading.Thread(target=link.answer, args=(result,))
    answerer.start()
    assert link.client.ask("s", "what?", CancelFlag()) == answer
    answerer.join(5)


def test_no_question_to_a_client_that_cannot_show_it() -> None:
    link = Link({})
    link.writer.start()
    assert link.client.ask("s", "what?", CancelFlag()) is None
    link.client.update("s", {"sessionUpdate": "current_mode_update", "currentModeId": "m"})
    assert link.messages(1)[0]["method"] == "session/update"
    link.close()


@pytest.mark.parametrize("what", ["permission", "question"])
def test_a_lost_client_cancels(link: Link, what: str) -> None:
    link.writer.start()

    def lose() -> None:
        link.messages(1)
        link.end_input()

    loser = threading.Thread(target=lose)
    loser.start()
    with pytest.raises(Cancelled):
        if what == "permission":
            link.client.request_permission("s", TOOL_CALL, OPTIONS, CancelFlag())
        else:
            link.client.ask("s", "what?", CancelFlag())
    loser.join(5)


# Text on its way


def test_text_that_waits_is_merged_and_kinds_are_kept_apart(link: Link) -> None:
    updates = link.updates()
    for text in ("a", "b", "c"):
        updates.text("agent_message_chunk", "m1", text)
    updates.text("agent_thought_chunk", "m2", "t")
    updates.text("agent_message_chunk", "m3", "d")
    updates.text("agent_message_chunk", "m3", "e")
    updates.send({"sessionUpdate": "current_mode_update", "currentModeId": "x"})
    updates.text("agent_message_chunk", "m3", "f")
    link.writer.start()
    found = [message["params"]["update"] for message in link.messages(5)]
    assert [(u["sessionUpdate"], u.get("messageId"), u.get("content", {}).get("text")) for u in found] == [
        ("agent_message_chunk", "m1", "abc"),
        ("agent_thought_chunk", "m2", "t"),
        ("agent_message_chunk", "m3", "de"),
        ("current_mode_update", None, None),
        ("agent_message_chunk", "m3", "f"),
    ]


def test_merged_lines_stay_bounded_and_nothing_is_lost(link: Link) -> None:
    updates = link.updates()
    text = "".join(chr(0x1F600 + number % 64) for number in range(20_000))
    for start in range(0, len(text), 300):
        updates.text("agent_message_chunk", "m", text[start : start + 300])
    link.writer.start()
    found, lines = "", iter(LineReader(link.reading))
    while len(found) < len(text):
        line = next(lines)
        assert len(line) < 65_536
        found += json.loads(line)["params"]["update"]["content"]["text"]
    assert found == text


def test_halves_of_a_pair_in_two_pieces_are_joined_when_they_are_merged(link: Link) -> None:
    updates = link.updates()
    updates.text("agent_message_chunk", "m", "a\ud83d")
    updates.text("agent_message_chunk", "m", "\ude00b")
    link.writer.start()
    assert link.messages(1)[0]["params"]["update"]["content"]["text"] == "a\U0001f600b"


@pytest.mark.parametrize("notices", [{}, None])
def test_a_remark(notices: object) -> None:
    link = Link({"session": {"notices": notices}})
    link.updates().remark("look")
    link.writer.start()
    update = link.messages(1)[0]["params"]["update"]
    if notices is None:
        assert update["sessionUpdate"] == "agent_thought_chunk" and update["content"]["text"] == "look"
    else:
        assert update == {"sessionUpdate": "notice", "severity": "info", "title": "look"}
    link.close()


@given(st.text(min_size=1, max_size=60), st.integers(1, 900))
def test_split_text_loses_nothing_and_has_no_empty_piece(piece: str, times: int) -> None:
    text = piece * times
    pieces = list(split_text(text))
    assert "".join(pieces) == text and all(0 < len(p) <= LONGEST_TEXT for p in pieces)


def test_split_text_without_a_place_to_cut_is_as_fast() -> None:
    text = "e" + "\u0301" * 1_000_000
    started = time.process_time()
    assert [len(piece) for piece in split_text(text)][:2] == [LONGEST_TEXT, LONGEST_TEXT]
    assert time.process_time() - started < 5.0


def test_split_text_of_nothing() -> None:
    assert list(split_text("")) == []


@pytest.mark.parametrize(
    "cluster",
    ["e\u0301", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f"],
)
def test_a_cluster_is_not_cut(cluster: str) -> None:
    for before in range(LONGEST_TEXT - len(cluster), LONGEST_TEXT + 1):
        text = "x" * before + cluster * 3
        first = next(iter(split_text(text)))
        rest = text[len(first) :]
        assert not rest or rest.startswith(cluster) or first.endswith("x")
        assert len(first) <= LONGEST_TEXT

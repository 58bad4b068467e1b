"""The order of updates, and that nothing is left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.moments import Stage, bash, stage
from tests.fakes.editor import Turn
from tests.fakes.llm_answers import Answer, Cut, Reply, chunks, error, text, thought, tool_call
from tests.fakes.wire_rules import ANY_TIME
from tests.field.helpers import eventually, patched


def kinds(turn: Turn) -> list[str]:
    """The kinds of a turn's updates, repeated ones once."""
    found: list[str] = []
    for update in turn.updates:
        if found[-1:] != [update["sessionUpdate"]]:
            found.append(str(update["sessionUpdate"]))
    return found


def test_row_109_the_last_text_comes_before_the_answer(offline: Stage) -> None:
    """Now and then the end of a text arrived after the prompt's answer. (The editor fails for that.)"""
    for number in range(150):
        turn = offline.editor.prompt(offline.session, f"say {number}")
        assert turn.wait() == "end_turn"
        assert turn.text == f"{number}\n"


def test_row_110_the_end_of_the_last_tool_comes_before_the_answer(offline: Stage) -> None:
    """The same with a tool call at the end of the turn."""
    for _ in range(60):
        turn = offline.editor.prompt(offline.session, "list .")
        assert turn.wait() == "end_turn"
        assert turn.calls[0]["status"] == "completed"


def test_row_112_between_turns_there_is_silence(at: Stage, tmp_path: Path) -> None:
    """A notice of a new version came as if the agent had said it."""
    session = at.editor.new_session(tmp_path)
    at.editor.ping()
    assert {update["sessionUpdate"] for update in at.editor.updates(session)} <= ANY_TIME


def test_row_114_the_session_is_known_before_it_is_used(at: Stage, tmp_path: Path) -> None:
    """Updates came for a session that the client had not heard of, and were lost."""
    for _ in range(20):
        session = at.editor.new_session(tmp_path)
        first = next(message for message in at.editor.received if session in str(message))
        assert first["result"]["sessionId"] == session  # type: ignore[index]


def outcomes(at: Stage) -> dict[str, tuple[object, ...]]:
    """Model answers that end a turn in every way; in each a tool call is begun."""
    missing = tool_call("read_file", {"path": "no such file"})
    return {
        "end": (bash("true"), text("end")),
        "model error": (bash("true"), error(400, {"error": {"message": "no"}})),
        "broken stream": (bash("true"), text("half").answer().first_pieces(2).then(Cut())),
        "tool error": (missing, text("end")),
        "command fails": (bash("exit 3"), text("end")),
        "tool timeout": (tool_call("bash", {"command": "sleep 600", "timeout": 0.2}), text("end")),
        "unknown tool": (tool_call("no_such_tool", {}), text("end")),
        "bad arguments": (tool_call("bash", {"cmd": 1}), text("end")),
        "no JSON": (tool_call("bash", '{"command": '), text("end")),
        "cut off": (tool_call("bash", '{"command": "tr').ends("length"),),
        "several": (bash("true") + missing + tool_call("list_files", {"path": "."}), text("end")),
    }


@pytest.mark.parametrize("name", outcomes(None))  # type: ignore[arg-type]
def test_row_117_118_and_152_every_call_ends_before_the_turn(at: Stage, name: str) -> None:
    """A call stayed open for ever on the screen, and the model's server refused the next prompt."""
    turn = at.prompt(*outcomes(at)[name])
    turn.wait_reply()
    assert turn.calls
    for call in turn.calls:
        assert call["status"] in ("completed", "failed")
    at.llm.script(text("next"))  # the fake model server checks that each call has its result
    assert at.editor.prompt(at.session, "and now?").wait() == "end_turn"


@pytest.mark.parametrize("answer", ["reject_once", "cancelled"])
def test_row_118_a_refused_call_ends(at: Stage, answer: str) -> None:
    """The same for a call that the user did not allow."""
    at.editor.permission = answer
    turn = at.prompt(bash("true"), text("end"))
    assert turn.wait() == "end_turn"
    assert turn.calls[0]["status"] == "failed"


def test_row_118_a_turn_with_too_many_steps_ends_its_calls(tmp_path: Path) -> None:
    """The same for a turn that reached its limit."""
    with stage(tmp_path, env={"ACPSERVER_MAX_STEPS": "2"}) as at:
        turn = at.prompt(bash("true"), bash("echo 2"))
        assert turn.wait() == "max_turn_requests"
        assert [call["status"] for call in turn.calls] == ["completed", "completed"]
        assert at.prompt(text("next")).wait() == "end_turn"


CRASH = """
import acpserver.tools.files as files
def crash(self, arguments, context):
    raise RuntimeError("a fault of ours")
files.ListFiles.prepare = crash
"""


def test_row_118_a_crash_of_a_tool_ends_its_call(tmp_path: Path) -> None:
    """The same for a fault in the tool itself."""
    with stage(tmp_path, env=patched(tmp_path, CRASH), stderr_ok=True) as at:
        turn = at.prompt(tool_call("list_files", {"path": "."}), text("end"))
        assert turn.wait() == "end_turn"
        assert turn.calls[0]["status"] == "failed"
        assert "a fault of ours" in at.editor.stderr()
        at.editor._wire.stderr.truncate(0)  # type: ignore[attr-defined]  # the traceback was wanted


def call_without_id(number: int, call_id: object, name: str = "list_files") -> Answer:
    """A tool call as some servers send it: in one piece, and with an id that says nothing."""
    function = {"name": name, "arguments": '{"path": "."}'}
    call: dict[str, Any] = {"index": number, "type": "function", "function": function}
    if call_id is not None:
        call["id"] = call_id
    choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    return chunks([{"choices": [choice]}])


@pytest.mark.parametrize("call_id", [None, "", "call_0"], ids=repr)
def test_row_120_calls_without_an_id_of_their_own_are_told_apart(at: Stage, call_id: object) -> None:
    """A server gave no ids, or the same in every turn, and calls ran into each other."""
    for _ in range(2):
        turn = at.prompt(call_without_id(0, call_id), call_without_id(0, call_id), text("end"))
        assert turn.wait() == "end_turn"
        assert [call["status"] for call in turn.calls] == ["completed", "completed"]


def test_row_121_a_broken_stream_leaves_no_call_behind(tmp_path: Path) -> None:
    """The stream broke inside a call, the answer was asked for again, and the first call stayed open."""
    wish = tool_call("list_files", {"path": "."})
    with stage(tmp_path) as at:
        turn = at.prompt(wish.answer().first_pieces(3).then(Cut()), wish, text("end"))
        assert turn.wait() == "end_turn"
        assert [call["status"] for call in turn.calls] == ["completed"]


EMPTY = [{"content": ""}, {"content": None}, {}, {"reasoning_content": ""}, {"role": "assistant"}]


@pytest.mark.parametrize("delta", EMPTY, ids=str)
def test_row_122_empty_pieces_are_not_passed_on(at: Stage, delta: dict[str, object]) -> None:
    """An empty piece of text froze a client. (The editor fails for one.)"""
    turn = at.prompt(Reply(deltas=(delta, {"content": "a"}, delta, {"content": "b"}, delta)))
    assert turn.wait() == "end_turn"
    assert turn.text == "ab"


def test_row_124_and_126_thoughts_texts_and_calls_keep_their_order(at: Stage) -> None:
    """Thoughts came after the calls that they had led to, and messages were glued together."""
    first = thought("think ", "one") + text("say one") + tool_call("list_files", {"path": "."})
    turn = at.prompt(first, thought("think two") + text("say two"))
    assert turn.wait() == "end_turn"
    told = [kind for kind in kinds(turn) if kind not in ANY_TIME]
    once = ["agent_thought_chunk", "agent_message_chunk"]
    assert told == [*once, "tool_call", "tool_call_update", *once]
    ids = {update["messageId"] for update in turn.of_kind(*once)}
    assert len(ids) == 4


def test_row_125_the_users_own_words_are_not_sent_back(at: Stage) -> None:
    """The prompt appeared twice on the screen."""
    turn = at.prompt(text("answer"))
    assert turn.wait() == "end_turn"
    assert turn.of_kind("user_message_chunk") == []


def test_row_113_a_command_in_the_background_says_nothing_later(at: Stage, tmp_path: Path) -> None:
    """Work that went on after the turn spoke up in the middle of nothing. (The editor fails for that.)"""
    turn = at.prompt(bash("(sleep 0.7; echo now; touch over) >out 2>&1 & true"), text("end"))
    assert turn.wait() == "end_turn"
    eventually((tmp_path / "over").exists, "end of the work in the background")
    at.editor.ping()

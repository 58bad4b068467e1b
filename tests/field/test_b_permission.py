"""Permission requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.moments import Stage, bash, open_permission, stage
from tests.fakes.editor import Answer, Turn
from tests.fakes.llm_answers import text, tool_call


def write(name: str, content: str = "x") -> object:
    """A model's wish to write a file."""
    return tool_call("write_file", {"path": name, "content": content})


def test_row_020_a_cancel_withdraws_the_permission_request(at: Stage) -> None:
    """The dialog stayed open after the turn had been cancelled."""
    turn = open_permission(at).turn
    (request,) = at.asked()
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    assert turn.calls[0]["status"] == "failed"
    withdrawn = [m["params"] for m in at.editor.received if m.get("method") == "$/cancel_request"]
    assert withdrawn[-1] == {"requestId": request["id"]}
    assert at.asked() == [request]


def test_row_021_and_022_the_call_stays_pending_until_the_answer(at: Stage) -> None:
    """A status that changed too early took the question off the screen."""
    at.editor.permission = None
    turn = at.prompt(bash("echo done"), text("end"))
    request = at.wait_asked()
    at.editor.ping()  # whatever the agent says on its own account has come
    call_id = turn.calls[0]["toolCallId"]
    assert turn.statuses(call_id) == ["pending"]
    at.editor.answer(request, "allow_once")
    assert turn.wait() == "end_turn"
    assert turn.statuses(call_id) == ["pending", "in_progress", "completed"]


def test_row_024_the_request_says_what_will_run(at: Stage) -> None:
    """The user was asked to allow something that had no name."""
    assert at.prompt(bash("echo one two"), text("end")).wait() == "end_turn"
    told = at.asked()[0]["params"]["toolCall"]  # type: ignore[index]
    assert "echo one two" in told["title"]
    assert told["rawInput"]["command"] == "echo one two"
    assert (told["kind"], told["status"]) == ("execute", "pending")


@pytest.mark.parametrize(
    ("kind", "written"),
    [("allow_once", True), ("allow_always", True), ("reject_once", False), ("reject_always", False)],
)
def test_row_025_the_effect_follows_the_kind_of_the_option(
    at: Stage, tmp_path: Path, kind: str, written: bool
) -> None:
    """The chosen option was taken for another one."""
    at.editor.permission = kind
    assert at.prompt(write("a"), text("end")).wait() == "end_turn"
    assert (tmp_path / "a").exists() is written


ODD_ANSWERS: dict[str, Answer] = {
    "unknown option": {"outcome": {"outcome": "selected", "optionId": "opt-1"}},
    "no option": {"outcome": {"outcome": "selected"}},
    "option is null": {"outcome": {"outcome": "selected", "optionId": None}},
    "no outcome": {},
    "outcome is a text": {"outcome": "selected"},
    "unknown outcome": {"outcome": {"outcome": "maybe", "optionId": "allow_once"}},
    "cancelled, with an option": {"outcome": {"outcome": "cancelled", "optionId": "allow_once"}},
    "error": {"error": {"code": -32603, "message": "no"}},
    "error without a code": {"error": {}},
}


@pytest.mark.parametrize("answer", ODD_ANSWERS.values(), ids=ODD_ANSWERS.keys())
def test_row_025_any_other_answer_is_a_no(at: Stage, tmp_path: Path, answer: Answer) -> None:
    """An answer that was not understood broke the turn, or counted as a yes."""
    at.editor.permission = answer
    turn = at.prompt(write("a"), text("end"))
    assert turn.wait() == "end_turn"
    assert not (tmp_path / "a").exists()
    assert turn.calls[0]["status"] == "failed"


def test_row_026_always_holds_for_one_tool_only(at: Stage) -> None:
    """One tool had been allowed for good, and all others ran without a question."""
    at.editor.permission = "allow_always"
    assert at.prompt(write("a"), write("b"), bash("true"), text("end")).wait() == "end_turn"
    names = [request["params"]["toolCall"]["kind"] for request in at.asked()]  # type: ignore[index]
    assert names == ["edit", "execute"]


def test_row_028_an_open_question_holds_up_no_other_session(at: Stage, tmp_path: Path) -> None:
    """While one session waited for its user nothing else moved."""
    waiting = open_permission(at).turn
    new = at.editor.send_request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    listed = at.editor.send_request("session/list", {})
    other = str(new.wait_reply().result["sessionId"])
    assert listed.wait_reply().result["sessions"]
    at.llm.script(text("other"))
    assert at.editor.prompt(other, "go").wait() == "end_turn"
    assert waiting.reply is None
    at.editor.cancel(at.session)
    assert waiting.wait() == "cancelled"


def test_row_029_a_question_that_was_closed_is_a_no(at: Stage) -> None:
    """A client closed the question after a minute without cancelling the turn, which then hung."""
    at.editor.permission = "cancelled"
    turn = at.prompt(bash("true"), text("I could not."))
    assert turn.wait() == "end_turn"
    assert turn.calls[0]["status"] == "failed"
    assert turn.text == "I could not."


def test_row_030_a_question_that_nobody_sees_keeps_nothing_alive(tmp_path: Path) -> None:
    """The question never appeared; the agent served nobody any more and did not even end."""
    with stage(tmp_path) as at:
        turn = open_permission(at).turn
        mode = {"sessionId": at.session, "modeId": "default"}
        assert at.editor.request("session/set_mode", mode).result == {}
        at.editor.close(status=0, timeout=2.0)
        assert turn.reply is not None and turn.reply.result["stopReason"] == "cancelled"


def test_row_032_request_ids_never_come_back(at: Stage, tmp_path: Path) -> None:
    """Ids began again in each turn, and the client took the second question for an answered one."""
    other = at.editor.new_session(tmp_path)
    first = len(at.editor.received)
    turns: list[Turn] = []
    for session in (at.session, other) * 3:
        at.llm.script(bash("true"), text("end"))
        turns.append(at.editor.prompt(session, "go"))
        assert turns[-1].wait() == "end_turn"
    ids = [m["id"] for m in at.editor.received[first:] if m.get("method") == "session/request_permission"]
    assert len(ids) == 6
    assert ids == sorted(set(ids))  # type: ignore[type-var]


def test_row_033_an_answer_under_another_type_of_id_does_not_count(at: Stage, tmp_path: Path) -> None:
    """The answer to "7" was taken for the answer to 7."""
    at.editor.permission = None
    turn = at.prompt(write("a"), text("end"))
    request = at.wait_asked()
    result = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
    at.editor.send({"jsonrpc": "2.0", "id": str(request["id"]), "result": result})
    at.editor.ping()
    assert turn.statuses(turn.calls[0]["toolCallId"]) == ["pending"]
    at.editor.answer(request, "allow_once")
    assert turn.wait() == "end_turn"
    assert (tmp_path / "a").exists()

"""Modes, models and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.moments import Stage, bash, stage, stalled_stream
from tests.fakes.editor import Editor, Json, Reply
from tests.fakes.llm_answers import Stall, text, tool_call


def set_option(editor: Editor, session: str, option: str, value: object) -> Reply:
    """Ask for one option to be set."""
    params = {"sessionId": session, "configId": option, "value": value}
    return editor.request("session/set_config_option", params)


def current(options: list[Json]) -> dict[str, object]:
    """Each option's current value."""
    return {option["id"]: option["currentValue"] for option in options}


def test_row_157_a_model_that_is_set_is_used(at: Stage) -> None:
    """The option was echoed and changed nothing."""
    assert at.prompt(text("x")).wait() == "end_turn"
    assert at.llm.requests[-1].body["model"] == "fake"
    answer = set_option(at.editor, at.session, "model", "offline").result["configOptions"]
    assert current(answer)["model"] == "offline"
    turn = at.editor.prompt(at.session, "say offline")
    assert turn.wait() == "end_turn" and turn.text == "offline\n"
    set_option(at.editor, at.session, "model", "fake")
    assert at.prompt(text("y")).wait() == "end_turn"


def test_row_157_a_model_set_in_mid_turn_holds_for_the_next_turn(at: Stage) -> None:
    """The request that is under way is not touched."""
    stall = Stall()
    turn = at.prompt(text("one ", "two").answer().insert(2, stall))
    turn.until("agent_message_chunk")
    assert current(set_option(at.editor, at.session, "model", "offline").result["configOptions"])["model"]
    stall.release()
    assert turn.wait() == "end_turn" and turn.text == "one two"
    after = at.editor.prompt(at.session, "say three")
    assert after.wait() == "end_turn" and after.text == "three\n"


@pytest.mark.parametrize("way", ["session/set_mode", "session/set_config_option"])
def test_row_158_every_view_of_the_mode_agrees_and_it_works(at: Stage, tmp_path: Path, way: str) -> None:
    """The mode was shown and its rules did not hold, or only one of the two views followed."""
    choice = {"modeId": "read_only", "configId": "mode", "value": "read_only"}
    assert "result" in at.editor.request(way, {"sessionId": at.session, **choice}).message
    turn = at.prompt(bash("echo never"), text("end"))
    assert turn.wait() == "end_turn"
    assert [call["status"] for call in turn.calls] == ["failed"] and at.asked() == []
    params = {"sessionId": at.session, "cwd": str(tmp_path), "mcpServers": []}
    result = at.editor.request("session/resume", params).result
    assert result["modes"]["currentModeId"] == current(result["configOptions"])["mode"] == "read_only"


def test_row_160_the_current_mode_can_be_set_again(at: Stage) -> None:
    """That was an error."""
    params = {"sessionId": at.session, "modeId": "default"}
    for _ in range(2):
        assert at.editor.request("session/set_mode", params).result == {}


def test_row_161_a_new_mode_is_announced_once(at: Stage) -> None:
    """Clients wait for the update after set_mode; it never came."""
    at.editor.request("session/set_mode", {"sessionId": at.session, "modeId": "bypass"})
    at.editor.ping()
    told = [u for u in at.editor.updates(at.session) if u["sessionUpdate"] == "current_mode_update"]
    assert [update["currentModeId"] for update in told] == ["bypass"]
    shown = [u for u in at.editor.updates(at.session) if u["sessionUpdate"] == "config_option_update"]
    assert current(shown[-1]["configOptions"])["mode"] == "bypass"


WRONG: list[tuple[str, Any]] = [
    ("mode", "nope"), ("mode", ""), ("mode", 1), ("mode", True), ("mode", None), ("mode", ["default"]),
    ("model", "nope"), ("colour", "red"), ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_row_162_what_was_never_offered_is_refused(
    at: Stage, tmp_path: Path, option: str, value: Any
) -> None:
    """A client set the mode "default" of another agent, and the session was stuck in it."""
    error = set_option(at.editor, at.session, option, value)
    assert error.code == -32602 and error.details
    params = {"sessionId": at.session, "cwd": str(tmp_path), "mcpServers": []}
    result = at.editor.request("session/resume", params).result
    assert current(result["configOptions"]) == {"mode": "default", "model": "fake"}


def test_row_162_set_mode_and_set_model_refuse_too(at: Stage) -> None:
    """The older methods check as well."""
    for method, member in (("session/set_mode", "modeId"), ("session/set_model", "modelId")):
        error = at.editor.request(method, {"sessionId": at.session, member: "nope"})
        assert error.code == -32602 and "nope" in error.details


def test_rows_164_and_165_options_in_shapes_that_every_client_knows(at: Stage, tmp_path: Path) -> None:
    """Options of type boolean broke clients that had not asked for them; groups had another name. There are
    only plain selects."""
    params = {"cwd": str(tmp_path), "mcpServers": []}
    options = at.editor.request("session/new", params).result["configOptions"]
    assert {option["type"] for option in options} == {"select"}
    assert all({"value", "name"} <= set(choice) for option in options for choice in option["options"])


def test_row_166_the_configured_model_and_the_chosen_one(tmp_path: Path) -> None:
    """A new session ignored both."""
    with stage(tmp_path) as at:
        params = {"cwd": str(tmp_path), "mcpServers": []}
        result = at.editor.request("session/new", params).result
        assert result["models"]["currentModelId"] == current(result["configOptions"])["model"] == "fake"
        session = result["sessionId"]
        set_option(at.editor, session, "model", "offline")
        turn = at.editor.prompt(session, "say first")
        assert turn.wait() == "end_turn" and turn.text == "first\n" and at.llm.requests == []


def test_a_choice_in_mid_turn_is_answered_at_once_and_the_last_one_holds(at: Stage, tmp_path: Path) -> None:
    """Choices sent together while a turn hangs: none waits for it, none overtakes another."""
    moment = stalled_stream(at)
    modes = ["bypass", "read_only", "accept_edits", "bypass", "read_only"]
    with at.editor.together():
        choices = [{"sessionId": at.session, "modeId": mode} for mode in modes]
        asked = [at.editor.send_request("session/set_mode", choice) for choice in choices]
    assert all(pending.wait_reply().result == {} for pending in asked)
    at.editor.ping()
    told = [u for u in at.editor.updates(at.session) if u["sessionUpdate"] == "current_mode_update"]
    assert [update["currentModeId"] for update in told] == modes
    at.editor.cancel(at.session)
    assert moment.turn.wait() == "cancelled"
    assert at.editor.request("session/close", {"sessionId": at.session}).result == {}
    params = {"sessionId": at.session, "cwd": str(tmp_path), "mcpServers": []}
    assert at.editor.request("session/load", params).result["modes"]["currentModeId"] == "read_only"


def test_always_holds_for_one_session_and_one_tool(at: Stage, tmp_path: Path) -> None:
    """What is always allowed for bash is not allowed for files, nor in another session."""
    at.editor.permission = "allow_always"
    assert at.prompt(bash("echo 1"), bash("echo 2"), text("end")).wait() == "end_turn"
    assert len(at.asked()) == 1
    wish = tool_call("write_file", {"path": "a", "content": ""})
    assert at.prompt(wish, text("end")).wait() == "end_turn"
    assert len(at.asked()) == 2
    other = Stage(at.editor, at.llm, at.editor.new_session(tmp_path))
    assert other.prompt(bash("echo 3"), text("end")).wait() == "end_turn"
    assert len(other.asked()) == 1

"""The method table through the strict editor: every method, every error code, rules I, A, S, N and L."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acpserver import turns
from acpserver.llm.types import Finish, TextDelta, ToolCall
from acpserver.tools.base import ToolOutcome
from acpserver.version import __version__
from tests.fakes.editor import ABSENT, Editor
from tests.fakes.inside import FakeTool, Inside, Script, stall

LAST: list[Any] = [TextDelta("done"), Finish("stop")]


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    """An editor in a server with the offline model, after the handshake."""
    with Editor(run=Inside(tmp_path, model="offline").run) as editor:
        editor.initialize()
        yield editor


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Editor]:
    """The same before the handshake, in a server without a configured model."""
    with Editor(run=Inside(tmp_path, model="").run) as editor:
        yield editor


# I: initialize


def test_the_answer_to_initialize(fresh: Editor) -> None:
    result = fresh.initialize()
    assert result["protocolVersion"] == 1
    assert result["agentInfo"] == {"name": "acpserver", "title": "acpserver", "version": __version__}
    capabilities: Any = result["agentCapabilities"]
    assert capabilities["promptCapabilities"] == {"image": False, "audio": False, "embeddedContext": True}
    assert capabilities["auth"] == {"logout": {}}
    assert all(value == {} for value in capabilities["sessionCapabilities"].values())


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"cwd": "/", "mcpServers": []}),
        ("session/prompt", {}),
        ("authenticate", None),
        ("_unknown", {}),
        ("nope", {}),
    ],
)
def test_anything_before_initialize_is_refused_and_the_handshake_still_works(
    fresh: Editor, method: str, params: object
) -> None:
    """I1"""
    fresh.notify("session/cancel", {"sessionId": "x"})
    assert fresh.request(method, params).code == -32600
    assert fresh.initialize()["protocolVersion"] == 1


@pytest.mark.parametrize("version", [0, 1, 2, 7, 65_535])
def test_the_version_that_is_spoken(fresh: Editor, version: int) -> None:
    """I2"""
    result = fresh.request("initialize", {"protocolVersion": version}).result
    assert result["protocolVersion"] == 1 and type(result["protocolVersion"]) is int


@pytest.mark.parametrize(
    "more",
    [
        {"clientInfo": "x"},
        {"clientInfo": {"name": "", "version": ""}},
        {"clientInfo": None},
        {"clientInfo": {"name": "a\nb"}},
        {"clientCapabilities": None},
        {"clientCapabilities": []},
        {"clientCapabilities": {"fs": "yes", "terminal": 7}},
        {"unknown": [1], "_meta": {"a": 1}},
    ],
)
def test_a_malformed_optional_field_does_not_fail_the_handshake(
    fresh: Editor, more: dict[str, object]
) -> None:
    """I6"""
    assert fresh.request("initialize", {"protocolVersion": 1, **more}).result["protocolVersion"] == 1


@pytest.mark.parametrize("params", [ABSENT, None, {}, {"protocolVersion": "one"}, [1], "x"])
def test_initialize_without_a_version_is_refused_or_answered_but_never_lost(
    fresh: Editor, params: object
) -> None:
    reply = fresh.request("initialize", params)
    assert "result" in reply.message or reply.code == -32602
    assert fresh.initialize()["protocolVersion"] == 1


def test_initialize_again_takes_the_new_capabilities(tmp_path: Path) -> None:
    script = Script([ToolCall("c", "tool", {}), Finish("tool_calls")], LAST)
    tool = FakeTool("tool", lambda a, context: ToolOutcome(str(context.ask("q"))), access="read")
    answers: Any = {"elicitation/create": {"action": "accept", "content": {"answer": "yes"}}}
    with Editor(run=Inside(tmp_path, script, tool).run, answers=answers) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        editor.initialize({"elicitation": {"form": {}}})
        assert editor.prompt(session, "go").wait() == "end_turn"
        assert editor.wait_request("elicitation/create")


# A: authentication


def test_without_a_model_sessions_need_authentication(fresh: Editor, tmp_path: Path) -> None:
    """A1, A3, A4"""
    method = fresh.initialize()["authMethods"][0]  # type: ignore[index]
    assert method["id"] == "offline" and "type" not in method and "ACPSERVER_MODEL" in method["description"]
    new = {"cwd": str(tmp_path), "mcpServers": []}
    for _ in range(2):
        reply = fresh.request("session/new", new)
        assert reply.code == -32000 and "No model is configured" in reply.details
        for bad in ({}, {"methodId": "nope"}, {"methodId": 7}, {"methodId": "configured"}):
            assert fresh.request("authenticate", bad).code == -32602
        assert fresh.request("authenticate", {"methodId": "offline", "_meta": {}}).result == {}
        assert fresh.request("authenticate", {"methodId": "offline"}).result == {}
        session = fresh.new_session(tmp_path)
        assert fresh.prompt(session, "say hi").wait() == "end_turn"
        assert fresh.request("logout").result == {}
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "say hi"}]}
        assert fresh.request("session/prompt", prompt).code == -32000


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
def test_opening_a_session_needs_authentication(fresh: Editor, method: str) -> None:
    fresh.initialize()
    params = {"sessionId": "sess_x", "cwd": "/", "mcpServers": []}
    assert fresh.request(method, params).code == -32000


def test_with_a_model_the_first_method_succeeds_and_changes_nothing(editor: Editor, tmp_path: Path) -> None:
    methods: Any = editor.initialize()["authMethods"]
    assert len(methods) == 1 and "type" not in methods[0]
    with editor.together():  # some clients do both at once
        first = editor.send_request("authenticate", {"methodId": methods[0]["id"]})
        second = editor.send_request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    assert first.wait_reply().result == {} and "sessionId" in second.wait_reply().result


# S: sessions


def test_session_ids_are_fresh_and_the_state_is_told(editor: Editor, tmp_path: Path) -> None:
    """S1, L3"""
    replies = [editor.request("session/new", {"cwd": str(tmp_path)}) for _ in range(20)]
    assert len({reply.result["sessionId"] for reply in replies}) == 20
    result: Any = replies[0].result
    assert result["modes"]["currentModeId"] == "default"
    assert result["models"]["currentModelId"] == "offline"
    assert [option["id"] for option in result["configOptions"]] == ["mode", "model"]


BAD_CWDS = [
    "",
    "relative",
    "./x",
    "~",
    "~/x",
    "file:///tmp",
    "C:\\x",
    "\\\\?\\C:\\x",
    "\\\\wsl$\\x",
    "/no/such/dir",
    "/a\0b",
]


@pytest.mark.parametrize("cwd", BAD_CWDS)
def test_a_working_directory_that_cannot_be_used(editor: Editor, cwd: str) -> None:
    """S1"""
    reply = editor.request("session/new", {"cwd": cwd, "mcpServers": []})
    assert reply.code == -32602 and "cwd" in reply.details


def test_a_working_directory_that_is_a_file_or_may_not_be_read(editor: Editor, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert editor.request("session/new", {"cwd": str(file), "mcpServers": []}).code == -32602
    assert editor.request("session/new", {"cwd": 7, "mcpServers": []}).code == -32602
    assert editor.request("session/new", {}).code == -32602


def test_sessions_do_not_share_their_working_directory(editor: Editor, tmp_path: Path) -> None:
    before, turns = os.getcwd(), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
        turns.append(editor.prompt(editor.new_session(tmp_path / name), "what is here?"))
    assert [turn.wait() for turn in turns] == ["end_turn"] * 2
    assert "one.txt" in turns[0].text and "two.txt" not in turns[0].text and "two.txt" in turns[1].text
    assert os.getcwd() == before


UNKNOWN = [
    ("session/prompt", {"prompt": [{"type": "text", "text": "x"}]}),
    ("session/close", {}),
    ("session/set_mode", {"modeId": "default"}),
    ("session/set_model", {"modelId": "offline"}),
    ("session/set_config_option", {"configId": "mode", "value": "default"}),
    ("session/load", {"cwd": "/", "mcpServers": []}),
    ("session/resume", {"cwd": "/", "mcpServers": []}),
    ("session/fork", {"cwd": "/", "mcpServers": []}),
    ("session/destroy", {}),
    ("config/set", {"configId": "mode", "value": "default"}),
]


@pytest.mark.parametrize(("method", "params"), UNKNOWN, ids=[method for method, _ in UNKNOWN])
@pytest.mark.parametrize("session", ["sess_" + "0" * 32, "", "../../etc/passwd", "x" * 10_000])
def test_an_unknown_session(editor: Editor, method: str, params: dict[str, object], session: str) -> None:
    """S4, L4"""
    reply = editor.request(method, {"sessionId": session, **params})
    assert reply.code == -32002
    assert reply.details.startswith(f"Session not found: {session[:200]}") and "session/new" in reply.details
    assert reply.error["message"] == "Session not found" and len(reply.details) < 400


def test_close_cancels_what_runs_and_forgets_the_session(editor: Editor, tmp_path: Path) -> None:
    """S5"""
    session = editor.new_session(tmp_path)
    turns = [editor.prompt(session, "say hi\nsleep 600"), editor.prompt(session, "say queued")]
    turns[0].until("agent_message_chunk")
    closing = editor.send_request("session/close", {"sessionId": session})
    assert [turn.wait() for turn in turns] == ["cancelled", "cancelled"]
    assert closing.wait_reply().result == {}
    assert turns[1].text == ""
    assert editor.request("session/close", {"sessionId": session}).code == -32002
    assert editor.request(
        "session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
    ).result


def test_additional_directories_are_checked_and_used(editor: Editor, tmp_path: Path) -> None:
    """S8"""
    (tmp_path / "in").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("found")
    outside = f"read {tmp_path}/more/a.txt"
    turn = editor.prompt(editor.new_session(tmp_path / "in"), outside)
    assert turn.wait() == "end_turn" and turn.calls[0]["status"] == "failed"
    session = editor.new_session(tmp_path / "in", additionalDirectories=[str(tmp_path / "more")])
    turn = editor.prompt(session, outside)
    assert turn.wait() == "end_turn" and turn.calls[0]["status"] == "completed"
    bad = {"cwd": str(tmp_path), "mcpServers": [], "additionalDirectories": ["more"]}
    reply = editor.request("session/new", bad)
    assert reply.code == -32602 and "additionalDirectories[0]" in reply.details


# N: options, L: legacy


def test_set_mode(editor: Editor, tmp_path: Path) -> None:
    """N2"""
    session = editor.new_session(tmp_path)
    for mode in ("accept_edits", "accept_edits", "default"):
        assert editor.request("session/set_mode", {"sessionId": session, "modeId": mode}).result == {}
        editor.ping()
        last: Any = editor.updates(session)[-2:]
        assert last[0] == {"sessionUpdate": "current_mode_update", "currentModeId": mode}
        assert last[1]["sessionUpdate"] == "config_option_update"
        assert last[1]["configOptions"][0]["currentValue"] == mode


def test_set_config_option_answers_with_the_whole_list(editor: Editor, tmp_path: Path) -> None:
    """N1, N2"""
    session = editor.new_session(tmp_path)
    params = {"sessionId": session, "configId": "mode", "value": "bypass"}
    options: Any = editor.request("session/set_config_option", params).result["configOptions"]
    assert [(option["id"], option["currentValue"]) for option in options] == [
        ("mode", "bypass"),
        ("model", "offline"),
    ]
    editor.ping()
    assert editor.updates(session) == [{"sessionUpdate": "current_mode_update", "currentModeId": "bypass"}]


BAD_OPTIONS = [
    ("session/set_mode", {"modeId": "nope"}),
    ("session/set_mode", {"modeId": 7}),
    ("session/set_mode", {}),
    ("session/set_model", {"modelId": "gpt"}),
    ("session/set_config_option", {"configId": "nope", "value": "x"}),
    ("session/set_config_option", {"configId": "mode", "value": "nope"}),
    ("session/set_config_option", {"configId": "mode", "value": True, "type": "boolean"}),
    ("session/set_config_option", {"configId": "mode"}),
]


@pytest.mark.parametrize(("method", "params"), BAD_OPTIONS)
def test_unknown_options_and_values_change_nothing(
    editor: Editor, tmp_path: Path, method: str, params: dict[str, object]
) -> None:
    """N3"""
    session = editor.new_session(tmp_path)
    assert editor.request(method, {"sessionId": session, **params}).code == -32602
    editor.ping()
    assert editor.updates(session) == []


def test_many_choices_in_one_write_hold_in_their_order(editor: Editor, tmp_path: Path) -> None:
    session = editor.new_session(tmp_path)
    modes = ["bypass", "accept_edits", "read_only"] * 10
    with editor.together():
        pending = [
            editor.send_request("session/set_mode", {"sessionId": session, "modeId": mode}) for mode in modes
        ]
    assert all(one.wait_reply().result == {} for one in pending)
    editor.ping()
    told = [
        u["currentModeId"] for u in editor.updates(session) if u["sessionUpdate"] == "current_mode_update"
    ]
    assert told == modes
    load = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
    assert editor.request("session/resume", load).result["modes"]["currentModeId"] == "read_only"  # type: ignore[index]


def test_a_model_that_is_chosen_is_asked_next(tmp_path: Path) -> None:
    """N3, L3"""
    script = Script(LAST, LAST)
    with Editor(run=Inside(tmp_path, script).run) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        assert editor.request("session/set_model", {"sessionId": session, "modelId": "offline"}).result == {}
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert editor.request("session/set_model", {"sessionId": session, "modelId": "scripted"}).result == {}
        assert editor.prompt(session, "x").wait() == "end_turn"
    assert [request.model for request in script.requests] == ["offline", "scripted"]


def test_old_names(editor: Editor, tmp_path: Path) -> None:
    """L1, L2"""
    session = editor.new_session(tmp_path)
    for content in ("say hi", [{"type": "text", "text": "say hi"}]):
        params = {"session_id": session, "content": content}
        assert editor.request("session/prompt", params).result["stopReason"] == "end_turn"
    assert "sessions" in editor.request("sessions/list", {}).result
    params = {"session_id": session, "configId": "mode", "value": "bypass"}
    assert "configOptions" in editor.request("config/set", params).result
    assert editor.request("session/destroy", {"session_id": session}).result == {}


def test_the_answer_of_a_prompt_tells_usage_and_time(editor: Editor, tmp_path: Path) -> None:
    """L6"""
    session = editor.new_session(tmp_path)
    for count in (1, 2):
        turn = editor.prompt(session, "say hi")
        assert turn.wait() == "end_turn"
        result: Any = turn.wait_reply().result
        meta = result["_meta"]["acpserver"]
        assert meta["turnCount"] == count and 0 <= meta["elapsedMs"] < 60_000
        assert result["usage"]["totalTokens"] == meta["totalTokens"] > 0


# Prompts


@pytest.mark.parametrize(
    "prompt",
    [[], "", None, {}, [None], [{}], [{"type": "nope"}], [{"type": "text"}], [{"type": "text", "text": 5}]],
)
def test_prompts_that_cannot_be_run(editor: Editor, tmp_path: Path, prompt: object) -> None:
    session = editor.new_session(tmp_path)
    reply = editor.request("session/prompt", {"sessionId": session, "prompt": prompt})
    if prompt == "":  # old clients send plain text, and this is an empty one
        assert reply.result["stopReason"] == "end_turn"
    else:
        assert reply.code == -32602 and "prompt" in reply.details


def test_a_prompt_as_a_notification_is_ignored(editor: Editor, tmp_path: Path) -> None:
    session = editor.new_session(tmp_path)
    editor.notify("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "say hi"}]})
    assert editor.prompt(session, "say real").wait() == "end_turn"
    assert [u["sessionUpdate"] for u in editor.updates(session)].count("agent_message_chunk") == 1


def test_turns_of_one_session_follow_one_another_and_of_two_run_side_by_side(tmp_path: Path) -> None:
    """P6"""
    both = threading.Barrier(2)

    def meet(cancel: object) -> None:
        both.wait(5)

    script = Script(*[[meet, TextDelta("x"), Finish("stop")] for _ in range(2)])
    with Editor(run=Inside(tmp_path, script).run) as editor:
        editor.initialize()
        turns = [editor.prompt(editor.new_session(tmp_path), "go") for _ in range(2)]
        assert [turn.wait() for turn in turns] == ["end_turn"] * 2


def test_cancel_reaches_running_and_queued_turns_and_no_later_one(tmp_path: Path) -> None:
    """C1, C5"""
    script = Script([TextDelta("x"), stall], LAST)
    with Editor(run=Inside(tmp_path, script).run) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        first = editor.prompt(session, "one")
        first.until("agent_message_chunk")
        with editor.together():
            second = editor.prompt(session, "two")
            editor.cancel(session)
            editor.cancel(session)
            third = editor.prompt(session, "three")
        assert [turn.wait() for turn in (first, second, third)] == ["cancelled", "cancelled", "end_turn"]
        editor.cancel("unknown")
        editor.notify("session/cancel", {})
        editor.ping()
    assert len(script.requests) == 2


def test_cancel_request_for_a_running_and_for_a_queued_prompt(tmp_path: Path) -> None:
    """C6"""
    script = Script([TextDelta("x"), stall], LAST)
    with Editor(run=Inside(tmp_path, script).run) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        first, second, third = (editor.prompt(session, word) for word in ("one", "two", "three"))
        first.until("agent_message_chunk")
        editor.notify("$/cancel_request", {"requestId": second.id})
        assert second.wait() == "cancelled" and first.reply is None
        editor.notify("$/cancel_request", {"requestId": str(first.id)})
        editor.ping()
        assert first.reply is None
        editor.notify("$/cancel_request", {"requestId": first.id})
        assert (first.wait(), third.wait()) == ("cancelled", "end_turn")


def test_reading_goes_on_while_turns_run(editor: Editor, tmp_path: Path) -> None:
    """T3"""
    session = editor.new_session(tmp_path)
    turn = editor.prompt(session, "sleep 600")
    other = editor.new_session(tmp_path)
    assert editor.prompt(other, "say hi").wait() == "end_turn"
    assert editor.request("session/list", {}).result
    editor.cancel(session)
    assert turn.wait() == "cancelled"


def test_session_cancel_as_a_request_is_answered(editor: Editor, tmp_path: Path) -> None:
    reply = editor.request("session/cancel", {"sessionId": editor.new_session(tmp_path)})
    assert "result" in reply.message or reply.code == -32601


# Everything else


def test_bad_lines_in_the_middle_of_a_conversation(editor: Editor, tmp_path: Path) -> None:
    """J4, J5, J10 through the whole server"""
    session = editor.new_session(tmp_path)
    turn = editor.prompt(session, "sleep 600")
    for line, code in (
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"7", -32600),
    ):
        editor.send_raw(line + b"\n")
        editor.ping()
        last: Any = [message for message in editor.received if "error" in message][-2]
        assert (last["id"], last["error"]["code"]) == (None, code)
    editor.cancel(session)
    assert turn.wait() == "cancelled"


def test_unknown_methods(editor: Editor) -> None:
    """J6"""
    for method in ("nope", "_nope", "session/nope", "fs/read_text_file", "session/update"):
        assert editor.request(method, {}).code == -32601
        editor.notify(method, {})
    editor.ping()


def test_all_kinds_of_ids_at_once(editor: Editor, tmp_path: Path) -> None:
    """J2"""
    ids: list[object] = [0, -1, 2**53, "", "0", "1000000", 1_000_000, 1.5, "\u00e4"]
    session = editor.new_session(tmp_path)
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "say hi"}]}
    with editor.together():
        pending = [editor.send_request("session/prompt", prompt, id=one) for one in ids]
    assert [one.wait_reply().result["stopReason"] for one in pending] == ["end_turn"] * len(ids)


def test_two_requests_with_one_id_are_both_answered(editor: Editor, tmp_path: Path) -> None:
    """J11 is the client's to keep; a prompt must not be lost when it does not."""
    session = editor.new_session(tmp_path)
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "say hi"}]}
    with editor.together():
        first = editor.send_request("session/prompt", prompt, id=6)
        second = editor.send_request("session/list", {}, id=6)
    assert first.wait_reply().result["stopReason"] == "end_turn"
    assert "sessions" in second.wait_reply().result


def test_a_cancel_reaches_a_turn_that_no_worker_has_taken_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1, S5: also when as many turns run as may run"""
    monkeypatch.setattr(turns, "MOST_TURNS", 1)
    with Editor(run=Inside(tmp_path, Script([TextDelta("x"), stall], LAST)).run) as editor:
        editor.initialize()
        first, second, third = (editor.new_session(tmp_path) for _ in range(3))
        running = editor.prompt(first, "go")
        running.until("agent_message_chunk")
        waiting, closing = editor.prompt(second, "go"), editor.prompt(third, "go")
        editor.cancel(second)
        assert waiting.wait() == "cancelled"
        assert editor.request("session/close", {"sessionId": third}).result == {}
        assert closing.wait(0.0) == "cancelled"
        editor.cancel(first)
        assert running.wait() == "cancelled"


def test_without_a_thread_the_prompt_is_answered_and_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Editor(run=Inside(tmp_path, Script(LAST)).run) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        real = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "turn":
                raise RuntimeError("can't start new thread")
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        reply = editor.prompt(session, "go").wait_reply()
        assert reply.code == -32603
        assert reply.details == "This cannot be done now: the system has no thread left"
        monkeypatch.undo()
        assert editor.prompt(session, "go").wait() == "end_turn"

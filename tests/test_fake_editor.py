"""The strict editor is itself tested: what an agent must not do is caught, and what it may do is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.editor import Editor
from tests.fakes.wire_rules import RuleBroken, WireRules

INIT = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
INIT_ANSWER = {"id": 0, "result": {"protocolVersion": 1}}
NEW = {"id": 1, "method": "session/new", "params": {"cwd": "/w", "mcpServers": []}}
PROMPT = {"id": 2, "method": "session/prompt", "params": {"sessionId": "s", "prompt": []}}
LOAD: dict[str, Any] = {
    "id": 4,
    "method": "session/load",
    "params": {"sessionId": "s", "cwd": "/w", "mcpServers": []},
}
END = {"id": 2, "result": {"stopReason": "end_turn"}}
OPTIONS = [
    {"optionId": f"o-{kind}", "name": kind, "kind": kind}
    for kind in ("allow_once", "allow_always", "reject_once", "reject_always")
]


def update(tag: str, session: str = "s", **fields: object) -> dict[str, object]:
    return {
        "method": "session/update",
        "params": {"sessionId": session, "update": {"sessionUpdate": tag, **fields}},
    }


def chunk(text: str, message_id: str = "m", kind: str = "agent_message_chunk") -> dict[str, object]:
    return update(kind, content={"type": "text", "text": text}, messageId=message_id)


def tool_call(call_id: str = "c", **changes: object) -> dict[str, object]:
    fields = {"title": "Run", "kind": "execute", "status": "pending", "rawInput": {"a": None}, **changes}
    return update(
        "tool_call", toolCallId=call_id, **{key: value for key, value in fields.items() if value is not ...}
    )


def changed(status: str, call_id: str = "c", **fields: object) -> dict[str, object]:
    return update("tool_call_update", toolCallId=call_id, status=status, **fields)


def permission(request_id: object = 1_000_000, call_id: str = "c", **changes: object) -> dict[str, object]:
    told = {"toolCallId": call_id, "title": "Run", "kind": "execute", "status": "pending", "rawInput": {}}
    params = {"sessionId": "s", "toolCall": told, "options": OPTIONS, **changes}
    return {"id": request_id, "method": "session/request_permission", "params": params}


def chosen(option: str, request_id: object = 1_000_000) -> dict[str, object]:
    return {"id": request_id, "result": {"outcome": {"outcome": "selected", "optionId": option}}}


def line(message: object) -> bytes:
    if isinstance(message, dict):
        message = {"jsonrpc": "2.0", **message}
    return json.dumps(message).encode()


def conversation() -> WireRules:
    """The state in which one prompt of session "s" is open."""
    rules = WireRules()
    for sent, received in ((INIT, INIT_ANSWER), (NEW, {"id": 1, "result": {"sessionId": "s"}})):
        rules.sent(line(sent))
        rules.received(line(received))
    rules.sent(line(PROMPT))
    return rules


def play(rules: WireRules, steps: list[object]) -> None:
    """Feed steps: a dict is from the agent, ("out", message) from the client, bytes are a raw agent line."""
    for step in steps:
        if isinstance(step, tuple):
            rules.sent(line(step[1]))
        else:
            rules.received(step if isinstance(step, bytes) else line(step))


GOOD = {
    "text and thought": [chunk("a"), chunk("b"), chunk("c", "t", "agent_thought_chunk"), END],
    "a call that is allowed": [
        tool_call(),
        permission(),
        ("out", chosen("o-allow_once")),
        changed("in_progress"),
        changed("completed"),
        END,
    ],
    "a call that is refused": [
        tool_call(),
        permission(),
        ("out", chosen("o-reject_once")),
        changed("failed"),
        END,
    ],
    "a permission that is withdrawn": [
        tool_call(),
        permission(),
        {"method": "$/cancel_request", "params": {"requestId": 1_000_000}},
        changed("failed"),
        END,
    ],
    "a new file's diff": [
        tool_call(content=[{"type": "diff", "path": "/w/a", "oldText": None, "newText": "x"}]),
        changed("failed"),
        END,
    ],
    "an error": [
        {"id": 2, "error": {"code": -32603, "message": "Internal error", "data": {"details": "x"}}},
    ],
    "an update of options after the turn": [END, update("current_mode_update", currentModeId="m")],
    "an answer to a line that cannot be read": [
        ("out", [1]),
        {"id": None, "error": {"code": -32600, "message": "no"}},
        END,
    ],
    "a queued prompt": [
        ("out", {**PROMPT, "id": 3}),
        END,
        chunk("a"),
        {"id": 3, "result": {"stopReason": "end_turn"}},
    ],
    "a session loaded again": [
        tool_call(),
        changed("failed"),
        chunk("x"),
        END,
        ("out", LOAD),
        chunk("hi", "u", "user_message_chunk"),
        tool_call(),
        changed("completed"),
        chunk("x"),
        {"id": 4, "result": {}},
    ],
    "a session loaded that is not there": [
        END,
        ("out", {**LOAD, "params": {**LOAD["params"], "sessionId": "other"}}),
        {"id": 4, "error": {"code": -32002, "message": "Session not found"}},
    ],
    "a queued prompt that was cancelled by id": [
        tool_call(),
        ("out", {**PROMPT, "id": 3}),
        ("out", {"method": "$/cancel_request", "params": {"requestId": 3}}),
        {"id": 3, "result": {"stopReason": "cancelled"}},
        changed("failed"),
        END,
    ],
}


@pytest.mark.parametrize("steps", GOOD.values(), ids=GOOD.keys())
def test_good_conversation_passes(steps: list[object]) -> None:
    rules = conversation()
    play(rules, steps)
    rules.finish()


BAD = {
    "not JSON": ([b"hello"], "not strict JSON"),
    "NaN": ([b'{"jsonrpc":"2.0","id":2,"result":NaN}'], "not strict JSON"),
    "a key twice": ([b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":2,"result":{}}'], "not strict JSON"),
    "a lone surrogate": ([line(chunk("x")).replace(b'"x"', b'"\\ud800"')], "not strict JSON"),
    "not ASCII": ([line(chunk("x")).replace(b'"x"', '"\u00e4"'.encode())], "not ASCII"),
    "a carriage return": ([line(END) + b"\r"], "white space"),
    "an array": ([[END]], "not one JSON object"),
    "no jsonrpc": ([b'{"id":2,"result":{"stopReason":"end_turn"}}'], '"jsonrpc"'),
    "a long line": ([chunk("x" * 65_536)], "the limit"),
    "answered twice": ([END, END], "no open request"),
    "answered with an id of another type": ([{**END, "id": "2"}], "no open request"),
    "answered with a float": ([{**END, "id": 2.0}], "no open request"),
    "a notification answered": (
        [
            ("out", {"method": "session/cancel", "params": {"sessionId": "s"}}),
            {"id": None, "error": {"code": -32602, "message": "no"}},
        ],
        "id null to nothing",
    ),
    "result and error": (
        [{**END, "error": {"code": -32603, "message": "x"}}],
        "not the shape of an answer",
    ),
    "a result for an unknown method": (
        [("out", {"id": 7, "method": "_ping"}), {"id": 7, "result": {}}],
        "only an error",
    ),
    "a result of another shape": ([{"id": 2, "result": {"stopReason": "done"}}], "does not fit"),
    "an unknown error code": ([{"id": 2, "error": {"code": 1, "message": "x"}}], "none of the protocol's"),
    "data that is null": (
        [{"id": 2, "error": {"code": -32603, "message": "x", "data": None}}],
        "null at .error.data",
    ),
    "data with more than details": (
        [{"id": 2, "error": {"code": -32603, "message": "x", "data": {"details": "y", "more": 1}}}],
        "-32603 with data",
    ),
    "data without details": (
        [{"id": 2, "error": {"code": -32602, "message": "x", "data": {}}}],
        "without details",
    ),
    "an error text of two lines": ([{"id": 2, "error": {"code": -32603, "message": "x\ny"}}], "no line"),
    "a traceback": (
        [{"id": 2, "error": {"code": -32603, "message": "x", "data": {"details": "Traceback (most"}}}],
        "traceback",
    ),
    "null for absence": ([chunk("x") | {"params": {"sessionId": "s", "update": None}}], "null at"),
    "null in a list": ([tool_call(content=[None])], "null at"),
    "an empty chunk": ([chunk("")], "empty text chunk"),
    "a chunk after the turn": ([END, chunk("x")], "while no prompt is open"),
    "a plan after the turn": ([END, update("plan", entries=[])], "while no prompt is open"),
    "an echo of the user": ([chunk("x", kind="user_message_chunk")], "while no prompt is open"),
    "an unknown session": ([chunk("x") | update("plan", "other", entries=[])], "not open"),
    "an update before session/new is answered": (
        [("out", {**NEW, "id": 5}), update("available_commands_update", "s2", availableCommands=[])],
        "not open",
    ),
    "the same session id again": (
        [("out", {**NEW, "id": 5}), {"id": 5, "result": {"sessionId": "s"}}],
        "given before",
    ),
    "an update after session/close": (
        [
            ("out", {"id": 6, "method": "session/close", "params": {"sessionId": "s"}}),
            END,
            {"id": 6, "result": {}},
            update("current_mode_update", currentModeId="m"),
        ],
        "not open",
    ),
    "closed before the prompt's answer": (
        [
            ("out", {"id": 6, "method": "session/close", "params": {"sessionId": "s"}}),
            {"id": 6, "result": {}},
        ],
        "before the prompt's answer",
    ),
    "one message of two kinds": ([chunk("x"), chunk("y", kind="agent_thought_chunk")], "is agent_message"),
    "a message after a call": ([chunk("x"), tool_call(), chunk("y")], "after it was over"),
    "a message of the last turn": (
        [chunk("x"), END, ("out", {**PROMPT, "id": 3}), chunk("y")],
        "after it was over",
    ),
    "an update of an unknown call": ([changed("completed")], "before tool_call"),
    "a call reported twice": ([tool_call(), tool_call()], "reported twice"),
    "a call without kind": ([tool_call(kind=...)], "tells only"),
    "a call without title": ([tool_call(title="")], "empty title"),
    "a call that begins as running": ([tool_call(status="in_progress")], "begins as"),
    "a call left open": ([tool_call(), END], "not ended"),
    "a call completed without running": ([tool_call(), changed("completed")], "went from pending"),
    "a call changed after its end": (
        [tool_call(), changed("failed"), changed("in_progress")],
        "after it was failed",
    ),
    "running while permission is open": (
        [tool_call(), permission(), changed("in_progress")],
        "permission is open",
    ),
    "running though refused": (
        [tool_call(), permission(), ("out", chosen("o-reject_always")), changed("in_progress")],
        "not allowed",
    ),
    "running after an unknown option": (
        [tool_call(), permission(), ("out", chosen("allow_once")), changed("in_progress")],
        "not allowed",
    ),
    "running after an error": (
        [tool_call(), permission(), ("out", {"id": 1_000_000, "error": {}}), changed("in_progress")],
        "not allowed",
    ),
    "a relative path": ([tool_call(locations=[{"path": "a"}])], "not absolute"),
    "a line that counts from 0": ([tool_call(locations=[{"path": "/a", "line": 0}])], "counts from 1"),
    "raw input that is text": ([tool_call(rawInput="ls")], "not an object"),
    "permission for an unknown call": ([permission()], "not reported"),
    "permission asked twice": (
        [tool_call(), permission(), ("out", chosen("o-allow_once")), permission(1_000_001)],
        "asked twice",
    ),
    "permission for a running call": ([tool_call(), changed("in_progress"), permission()], "is in_progress"),
    "permission without reject": ([tool_call(), permission(options=OPTIONS[:2])], "options missing"),
    "two options of a kind": ([tool_call(), permission(options=OPTIONS + OPTIONS[:1])], "not unique"),
    "permission that tells too little": (
        [tool_call(), permission(toolCall={"toolCallId": "c"})],
        "tells only",
    ),
    "a small request id": ([tool_call(), permission(7)], "outside"),
    "a request id of 33 bits": ([tool_call(), permission(2**31)], "outside"),
    "a request id that is text": ([tool_call(), permission("a")], "plain integers"),
    "a request id used twice": (
        [tool_call(), permission(), ("out", chosen("o-allow_once")), tool_call("d"), permission(call_id="d")],
        "used before",
    ),
    "a file request without the capability": (
        [
            {
                "id": 1_000_000,
                "method": "fs/read_text_file",
                "params": {"sessionId": "s", "path": "/a"},
            }
        ],
        "capability",
    ),
    "a notice without the capability": ([update("notice", severity="info", title="x")], "capability"),
    "a method of agents": ([{"id": 1_000_000, "method": "session/new", "params": {"cwd": "/"}}], "clients"),
    "a request as a notification": ([{"method": "session/request_permission", "params": {}}], "mixed up"),
    "a withdrawal of nothing": (
        [{"method": "$/cancel_request", "params": {"requestId": 1_000_005}}],
        "never sent",
    ),
    "prompts answered out of order": (
        [("out", {**PROMPT, "id": 3}), {"id": 3, "result": {"stopReason": "end_turn"}}],
        "out of order",
    ),
    "a replay by session/resume": (
        [
            END,
            ("out", {**LOAD, "method": "session/resume"}),
            chunk("x", kind="user_message_chunk"),
        ],
        "while no prompt is open",
    ),
    "a call told twice in one replay": (
        [END, ("out", LOAD), tool_call(), changed("failed"), tool_call()],
        "reported twice",
    ),
    "a call left open by a replay": (
        [END, ("out", LOAD), tool_call(), {"id": 4, "result": {}}],
        "not ended",
    ),
    "commands before session/load is answered": (
        [
            ("out", {**LOAD, "params": {**LOAD["params"], "sessionId": "other"}}),
            update("available_commands_update", "other", availableCommands=[]),
        ],
        "before the session is answered",
    ),
    "a boolean option": (
        [
            update(
                "config_option_update",
                configOptions=[{"id": "o", "name": "O", "type": "boolean", "currentValue": True}],
            )
        ],
        "not asked for",
    ),
}


@pytest.mark.parametrize(("steps", "reason"), BAD.values(), ids=BAD.keys())
def test_broken_rule_is_caught(steps: list[object], reason: str) -> None:
    rules = conversation()
    play(rules, steps[:-1])
    with pytest.raises(RuleBroken, match=reason):
        play(rules, steps[-1:])


def test_unanswered_request_is_caught_at_the_end() -> None:
    rules = conversation()
    with pytest.raises(RuleBroken, match="never answered: session/prompt"):
        rules.finish()


def test_first_line_must_answer_initialize() -> None:
    rules = WireRules()
    rules.sent(line(INIT))
    rules.sent(line(NEW))
    with pytest.raises(RuleBroken, match="first line"):
        rules.received(line({"id": 1, "result": {"sessionId": "s"}}))


# Agents as processes: what only a process can do wrong

PRELUDE = """
import json, os, subprocess, sys, time
def read(): return json.loads(sys.stdin.readline() or "null")
def send(**m): os.write(1, json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\\n")
first = read()
send(id=first["id"], result={"protocolVersion": 1})
"""


def agent(script: str, **settings: object) -> Editor:
    """An editor that talks to a few lines of Python, after their handshake."""
    return Editor(command=[sys.executable, "-c", PRELUDE + script], strict=False, **settings)  # type: ignore[arg-type]


def test_good_process_passes() -> None:
    with agent("read()") as editor:
        assert editor.initialize() == {"protocolVersion": 1}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("read(); sys.exit(3)", "exit status 3, not 0"),
        ("read(); sys.stderr.write('oops')", "on stderr: oops"),
        ("read(); os.write(1, b'{}')", "the last line has no end"),
        ("read(); send(id=9, result={})", "no open request"),
        ("read(); print('hello', flush=True)", "not strict JSON"),
        ("time.sleep(600)", "did not end in time"),
    ],
)
def test_bad_end_of_process_is_caught(script: str, reason: str) -> None:
    editor = agent(script)
    editor.initialize()
    with pytest.raises(AssertionError, match=reason):
        editor.close(timeout=0.5 if "600" in script else 2.0)


def test_child_that_outlives_the_agent_is_caught_and_ended() -> None:
    script = """
child = subprocess.Popen(["sleep", "600"], stdin=-3, stdout=-3, stderr=-3, start_new_session=True)
send(method="_child", params={"pid": child.pid})
read()
os._exit(0)
"""
    editor = agent(script)
    with editor._lock:  # the agent's own notification is not of the protocol; here it only tells the pid
        editor.rules._received_notification = lambda message: None  # type: ignore[method-assign]
    editor.initialize()
    editor.wait_for(lambda: [m for m in editor.received if m.get("method") == "_child"], "the pid")
    pid = editor.received[-1]["params"]["pid"]  # type: ignore[index]
    with pytest.raises(AssertionError, match="still alive after the agent: .*sleep 600"):
        editor.close(timeout=0.5)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=2)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_wait_shows_the_conversation_when_nothing_comes() -> None:
    with agent("read(); read()") as editor:
        editor.initialize()
        with pytest.raises(
            AssertionError, match=r"(?s)waited 0.05 s for an answer to session/new 1.*initialize"
        ):
            editor.request("session/new", {}, timeout=0.05)
        editor.close(unanswered_ok=True)


def test_wait_ends_when_the_agent_does() -> None:
    editor = agent("read(); os._exit(0)")
    editor.initialize()
    with pytest.raises(AssertionError, match="the agent ended; waited for an answer"):
        editor.request("session/new", {})
    editor.close(unanswered_ok=True)


def test_messages_sent_together_come_with_one_read() -> None:
    script = """
data = os.read(0, 65536)
send(id=1, error={"code": -32602, "message": str(data.count(b"\\n"))})
read()
"""
    with agent(script) as editor:
        editor.initialize()
        with editor.together():
            pending = editor.send_request("session/new", {})
            editor.cancel("s")
            editor.cancel("s")
        assert pending.wait_reply().error["message"] == "3"


def test_paused_reading_leaves_the_agent_blocked_until_it_goes_on() -> None:
    script = """
send(id=read()["id"], error={"code": -32602, "message": "x"})
while (m := read()): send(id=m["id"], error={"code": -32602, "message": "y" * 400})
"""
    with agent(script) as editor:
        editor.initialize()
        editor.pause_reading()
        pending = editor.send_request("session/new", {})
        with pytest.raises(AssertionError, match="waited"):
            pending.wait_reply(0.05)
        editor.resume_reading()
        assert pending.wait_reply().code == -32602


# Against the real server

PERMISSIONS = [
    ("allow_once", "completed"),
    ("reject_once", "failed"),
    ("cancelled", "failed"),
    ({"outcome": {"outcome": "selected", "optionId": "nonsense"}}, "failed"),
    ({"error": {"code": -32601, "message": "no"}}, "failed"),
    (lambda params: "allow_always", "completed"),
]


def test_permission_policies(tmp_path: Path) -> None:
    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        for policy, status in PERMISSIONS:
            editor.permission = policy
            turn = editor.prompt(session, "run true")
            assert turn.wait() == "end_turn"
            (call,) = turn.calls
            assert call["status"] == status, policy
        assert len({m["id"] for m in editor.received if m.get("method") == "session/request_permission"}) == 6


def test_unanswered_permission_can_be_answered_later(tmp_path: Path) -> None:
    with Editor("--model", "offline", permission=None) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "run true")
        request = editor.wait_request()
        editor.answer(request, "allow_once")
        assert turn.wait() == "end_turn"
        assert turn.statuses("call_1") == ["pending", "in_progress", "completed"]
        assert turn.text == "Done.\n"


def test_old_names_and_one_id_for_two_requests(tmp_path: Path) -> None:
    with Editor("--model", "offline") as editor:
        editor.initialize()
        with editor.together():
            first = editor.send_request("sessions/list", {}, id=5)
            second = editor.send_request("session/new", {"cwd": str(tmp_path)}, id=5)
        assert set(first.wait_reply().result) == {"sessions"}
        assert "sessionId" in second.wait_reply().result


def test_queued_turns_keep_their_own_updates(tmp_path: Path) -> None:
    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        with editor.together():
            turns = [editor.prompt(session, f"say {word}") for word in ("one", "two", "three")]
        assert [turn.wait() for turn in turns] == ["end_turn"] * 3
        assert [turn.text for turn in turns] == ["one\n", "two\n", "three\n"]

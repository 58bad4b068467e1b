"""Conversations that look wrong and are not: a false alarm is the worst fault of such a tool."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from acpserver.validate import check_trace
from acpserver.validate.findings import ERROR, WARNING
from tests.validate.faults import cancelled, chosen, with_server
from tests.validate.talk import OPTIONS, Talk, opened, text, turn


def faults(lines: list[bytes]) -> list[tuple[str, str, int]]:
    """(rule, level, line) of what is worse than a remark."""
    found = check_trace(lines).findings
    return [(one.rule, one.level, one.line) for one in found if one.level in (ERROR, WARNING)]


def with_variable(name: str, value: str, said: str) -> Talk:
    """An MCP server gets a variable, and the agent says its value."""
    server = {"name": "m", "command": "m", "args": [], "env": [{"name": name, "value": value}]}
    talk = with_server().set("new", "params.mcpServers", [server])
    return talk.set("chunk", "params.update.content.text", said)


def slow_beside_a_turn() -> Talk:
    """A session opens slowly; meanwhile a turn ends."""
    talk = opened()
    talk.client("prompt", id=2, method="session/prompt", params={"sessionId": "s-1", "prompt": text()})
    talk.client("new2", id=3, method="session/new", params={"cwd": "/p", "mcpServers": []})
    talk.agent("prompt!", id=2, result={"stopReason": "end_turn"})
    return talk.agent("new2!", id=3, result={"sessionId": "s-2"}).wait("new2!", 5.0)


def terminals_of_two_sessions() -> Talk:
    """A client that counts the terminals of each session anew."""
    talk = opened().ask("new2", 9, "session/new", {"cwd": "/p", "mcpServers": []}, {"sessionId": "s-2"})
    for number, session in enumerate(("s-1", "s-2")):
        params = {"sessionId": session, "prompt": text()}
        talk.client(f"prompt{number}", id=20 + number, method="session/prompt", params=params)
        told = {"toolCallId": "t", "title": "Run", "kind": "execute", "rawInput": {}}
        talk.update(f"call{number}", "tool_call", session, status="pending", **told)
        create = {"sessionId": session, "command": "ls"}
        talk.call(f"create{number}", 30 + number, "terminal/create", create, {"terminalId": "x"})
        shown = [{"type": "terminal", "terminalId": "x"}]
        talk.update(f"shown{number}", "tool_call_update", session, toolCallId="t", content=shown)
    for number, session in enumerate(("s-1", "s-2")):
        named = {"sessionId": session, "terminalId": "x"}
        talk.call(f"release{number}", 40 + number, "terminal/release", named)
        talk.update(f"end{number}", "tool_call_update", session, toolCallId="t", status="completed")
        talk.agent(f"prompt{number}!", id=20 + number, result={"stopReason": "end_turn"})
    return talk


def options_that_come_and_go() -> Talk:
    """A choice takes an option away, which is there again after the next one."""
    other = {**OPTIONS[1], "id": "other"}
    talk = opened().set("new!", "result.configOptions", [*OPTIONS, other])
    for number, value, options in ((5, True, OPTIONS), (6, False, [*OPTIONS, other])):
        params = {"sessionId": "s-1", "configId": "fast", "type": "boolean", "value": value}
        told = [{**option, "currentValue": value} if option["id"] == "fast" else option for option in options]
        talk.ask(f"set{number}", number, "session/set_config_option", params, {"configOptions": told})
    return talk


def an_effort_that_goes_with_the_model() -> Talk:
    """Another model has no effort of thinking to choose."""
    effort = {**OPTIONS[0], "id": "effort", "category": "thought_level"}
    model = {**OPTIONS[0], "id": "model", "category": "model"}
    talk = opened().set("new!", "result.configOptions", [model, effort]).unset("new!", "result.modes")
    params = {"sessionId": "s-1", "configId": "model", "value": "code"}
    return talk.ask(
        "set", 5, "session/set_config_option", params, {"configOptions": [{**model, "currentValue": "code"}]}
    )


def a_command_that_a_cancel_ends() -> Talk:
    """Nobody wants to see the last output of a command that the user has stopped."""
    talk, named = opened(), {"sessionId": "s-1", "terminalId": "x"}
    talk.client("prompt", id=2, method="session/prompt", params={"sessionId": "s-1", "prompt": text()})
    call = {"toolCallId": "t", "title": "Run", "kind": "execute", "rawInput": {}}
    talk.update("call", "tool_call", status="pending", **call)
    talk.call("create", 30, "terminal/create", {"sessionId": "s-1", "command": "ls"}, {"terminalId": "x"})
    shown = [{"type": "terminal", "terminalId": "x"}]
    talk.update("shown", "tool_call_update", toolCallId="t", content=shown)
    talk.client("cancel", method="session/cancel", params={"sessionId": "s-1"})
    talk.call("kill", 31, "terminal/kill", named, {}).call("release", 32, "terminal/release", named, {})
    talk.update("end", "tool_call_update", toolCallId="t", status="failed")
    return talk.agent("prompt!", id=2, result={"stopReason": "cancelled"})


def from_the_middle() -> Talk:
    """What the recording does not show was made before it begins."""
    talk = Talk().agent("done", method="elicitation/complete", params={"elicitationId": "e-1"})
    return talk.call(
        "output",
        1,
        "terminal/output",
        {"sessionId": "s", "terminalId": "x"},
        {"output": "", "truncated": False},
    )


def drafts() -> Talk:
    """Methods that only the unstable schemas of SDKs have."""
    talk = opened().ask("title", 9, "session/set_title", {"sessionId": "s-1", "title": "x"}, {})
    return talk.call("mcp", 1, "mcp/message", {"serverId": "m", "method": "tools/list"}, {"tools": []})


def a_terminal_of_a_session_that_was_opened_before() -> Talk:
    """The recording begins in mid-turn, and ends before its end."""
    params = {"sessionId": "s", "command": "ls"}
    return Talk().call("create", 1, "terminal/create", params, {"terminalId": "x"})


def loaded_in_mid_turn() -> Talk:
    """A session is loaded while its second turn runs, and the message that was begun goes on."""
    talk = turn()
    talk.client("prompt2", id=3, method="session/prompt", params={"sessionId": "s-1", "prompt": text()})
    talk.chunk("begun", messageId="m-9")
    params = {"sessionId": "s-1", "cwd": "/p/../p", "mcpServers": []}
    talk.client("load", id=4, method="session/load", params=params)
    talk.update("asked", "user_message_chunk", content=text()[0])
    talk.chunk("again", messageId="m-9").agent("load!", id=4, result={})
    return talk.chunk("more", messageId="m-9").agent("prompt2!", id=3, result={"stopReason": "end_turn"})


def a_folder_in_two_unicode_forms() -> Talk:
    """What an editor on macOS and one elsewhere call the same folder."""
    talk = turn().set("new", "params.cwd", "/p/gr\u00fcn")
    params = {"sessionId": "s-1", "cwd": "/p/gru\u0308n", "mcpServers": []}
    return talk.ask("resume", 5, "session/resume", params)


def cut_off_after_a_cancel() -> Talk:
    """A recording that ends when a turn with an open permission has just been cancelled."""
    talk = cancelled()
    talk.steps = talk.steps[: talk.index("cancel") + 1]
    return talk


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_variable("GIT_AUTHOR_NAME", "Jane Smith", "Commit by Jane Smith"),
        lambda: with_variable("TOKEN_FILE", "/home/jane/t", "Look at /home/jane/t"),
        lambda: with_variable("AUTH_URL", "https://login.invalid", "Go to https://login.invalid"),
        slow_beside_a_turn,
        terminals_of_two_sessions,
        options_that_come_and_go,
        an_effort_that_goes_with_the_model,
        a_command_that_a_cancel_ends,
        a_terminal_of_a_session_that_was_opened_before,
        from_the_middle,
        drafts,
        loaded_in_mid_turn,
        a_folder_in_two_unicode_forms,
        cut_off_after_a_cancel,
    ],
)
def test_what_is_right_is_clean(make: Callable[[], Talk]) -> None:
    assert faults(make().lines()) == []


def test_what_may_be_an_own_way_is_only_a_warning() -> None:
    greeting = opened().chunk("hello", "Hello")
    assert [one[:2] for one in faults(greeting.lines())] == [("P2", "warning")]
    own = opened().ask("own", 9, "vendor/echo", {"text": "x"}, {"text": "x"})
    assert [one[:2] for one in faults(own.lines())] == [("method", "warning"), ("J6", "warning")]


def test_a_secret_is_found_in_what_is_named_for_it() -> None:
    for name in ("API_KEY", "AUTHORIZATION", "AUTH_TOKEN"):
        assert [one[0] for one in faults(with_variable(name, "abcdef123456", "abcdef123456").lines())] == [
            "A5"
        ]


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_both_sides_may_use_the_same_ids_where_no_direction_is_recorded(first: int) -> None:
    talk, ids = turn(), dict[int, int]()
    for step in talk.steps:
        if step.message.get("id", 0) >= 1000:
            step.message["id"] = ids.setdefault(step.message["id"], first + len(ids))
    assert faults([json.dumps(step.message).encode() + b"\n" for step in talk.steps]) == []


def test_a_cut_off_recording_without_times_is_no_fault() -> None:
    steps = cut_off_after_a_cancel().steps
    assert faults([json.dumps(step.message).encode() + b"\n" for step in steps]) == []


def test_an_option_alone_is_suspicious() -> None:
    talk = chosen().unset("option!", "result.configOptions[0]")
    assert faults(talk.lines()) == [("N1", WARNING, talk.line("option!"))]


def test_thousands_of_open_requests_cost_no_more_than_a_few() -> None:
    talk = opened()
    for number in range(10_000):
        talk.client("", id=str(number % 5_000), method="session/list", params={})
    for number in range(10_000):
        talk.agent("", id=str(number % 5_000), result={"sessions": []})
    lines = talk.lines()
    begin = time.process_time()
    found = check_trace(lines)
    assert time.process_time() - begin < 20
    assert found.counts[ERROR] == 5_000  # J11

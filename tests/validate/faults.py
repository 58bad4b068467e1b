"""Seeded faults: each spoils a clean conversation in one place, and says what must be found there.

The rows are (rule, what is wrong, the conversation, how it is spoilt, the step that is wrong, the path in it,
who is wrong). `spoil` changes a copy of the conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.validate.talk import OPTIONS, Json, Talk, opened, text, turn

NOT_FIT = {"code": -32602, "message": "Invalid params"}
FAILED = {"code": -32603, "message": "Internal error"}
UNKNOWN = {"code": -32601, "message": "Method not found"}
GONE = {"code": -32002, "message": "Resource not found", "data": {"details": "Session not found: s-9"}}


class Fault(NamedTuple):
    """One way to spoil a conversation."""

    rule: str
    what: str
    talk: Callable[[], Talk]
    spoil: Callable[[Talk], object]
    step: str
    path: str = ""
    side: str = "agent"
    given: tuple[str, ...] = ()
    """Rules that the clean conversation breaks too, because it shows how an agent takes a client's fault."""


def without(capabilities: Json, *path: str) -> Json:
    """Capabilities without one of them."""
    first, *rest = path
    if not rest:
        return {key: value for key, value in capabilities.items() if key != first}
    return {**capabilities, first: without(capabilities[first], *rest)}


def prompted(content: Any = None, **changes: Any) -> Talk:
    """A short turn: one chunk."""
    talk = opened(**changes)
    params = {"sessionId": "s-1", "prompt": text() if content is None else content}
    talk.client("prompt", id=2, method="session/prompt", params=params)
    talk.chunk("chunk")
    return talk.agent("prompt!", id=2, result={"stopReason": "end_turn"})


def cancelled() -> Talk:
    """A turn that the client cancels while a permission is open."""
    talk = turn()
    for name in ("start", "read", "read!", "write", "write!", "end"):
        talk.drop(name)
    for step in talk.steps[talk.index("call2") : talk.index("prompt!")]:
        talk.drop(step.name)
    talk.set("ask!", "result", {"outcome": {"outcome": "cancelled"}})
    cancel = Talk().client("cancel", method="session/cancel", params={"sessionId": "s-1"})
    talk.after("ask", cancel)
    failed = Talk().update("cut", "tool_call_update", toolCallId="t-1", status="failed")
    talk.after("ask!", failed)
    return talk.set("prompt!", "result.stopReason", "cancelled").wait("cut", 1.0)


def rejected() -> Talk:
    """A turn in which the user says no."""
    talk = turn()
    talk.drop("start", "read", "read!", "write", "write!")
    talk.set("ask!", "result.outcome.optionId", "no")
    talk.set(
        "end", "params.update", {"sessionUpdate": "tool_call_update", "toolCallId": "t-1", "status": "failed"}
    )
    return talk


def loaded() -> Talk:
    """A session that is closed and loaded again."""
    talk = prompted()
    talk.ask("close", 3, "session/close", {"sessionId": "s-1"})
    talk.client(
        "load", id=4, method="session/load", params={"sessionId": "s-1", "cwd": "/p", "mcpServers": []}
    )
    talk.update("again", "user_message_chunk", content=text()[0])
    talk.chunk("said", "Hello")
    return talk.agent("load!", id=4, result={})


def resumed() -> Talk:
    """A session that is closed and resumed."""
    talk = prompted()
    talk.ask("close", 3, "session/close", {"sessionId": "s-1"})
    return talk.ask("resume", 4, "session/resume", {"sessionId": "s-1", "cwd": "/p"}, {})


def listed() -> Talk:
    """A list of two sessions."""
    talk = opened()
    sessions = [
        {"sessionId": "s-8", "cwd": "/p", "title": "b", "updatedAt": "2026-11-30T10:00:00Z"},
        {"sessionId": "s-7", "cwd": "/p", "title": "a", "updatedAt": "2026-11-29T10:00:00Z"},
    ]
    return talk.ask("list", 5, "session/list", {"cwd": "/p"}, {"sessions": sessions})


def chosen() -> Talk:
    """A mode and an option are chosen."""
    talk = opened()
    talk.ask("mode", 3, "session/set_mode", {"sessionId": "s-1", "modeId": "code"})
    talk.update("moded", "current_mode_update", currentModeId="code")
    options = [{**OPTIONS[0], "currentValue": "code"}, {**OPTIONS[1], "currentValue": True}]
    told = [{**OPTIONS[0], "currentValue": "code"}, OPTIONS[1]]
    talk.update("told", "config_option_update", configOptions=told)
    params = {"sessionId": "s-1", "configId": "fast", "type": "boolean", "value": True}
    return talk.ask("option", 4, "session/set_config_option", params, {"configOptions": options})


def asked_user() -> Talk:
    """The agent asks the user by a form."""
    talk = opened()
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = {"sessionId": "s-1", "mode": "form", "message": "Who?", "requestedSchema": form}
    return talk.call(
        "form", 1000, "elicitation/create", params, {"action": "accept", "content": {"name": "x"}}
    )


def asked_by_url() -> Talk:
    """The agent sends the user to a page."""
    talk = opened()
    params = {
        "sessionId": "s-1",
        "mode": "url",
        "message": "Log in",
        "url": "https://a.invalid/",
        "elicitationId": "e-1",
    }
    talk.call("url", 1000, "elicitation/create", params, {"action": "accept"})
    return talk.agent("complete", method="elicitation/complete", params={"elicitationId": "e-1"})


def broken_line() -> Talk:
    """The client sends a line that is no JSON, and the agent says so."""
    talk = opened().raw("broken", "{nonsense", "client")
    return talk.agent("told", id=None, error={"code": -32700, "message": "Parse error"})


def no_message() -> Talk:
    """The client sends JSON that is no message, and the agent says so."""
    talk = opened()
    talk.client("nothing")
    return talk.agent("told", id=None, error={"code": -32600, "message": "Invalid request"})


def stray_answer() -> Talk:
    """The client answers what nobody asked."""
    return opened().client("stray", id=77, result={})


def batch() -> Talk:
    """The client sends a batch."""
    talk = opened()
    talk.client("batch")
    talk.steps[-1].message = [{"jsonrpc": "2.0", "id": 5, "method": "session/list"}]
    return talk.agent("told", id=None, error={"code": -32600, "message": "Invalid request"})


def misfit() -> Talk:
    """The client sends params that do not fit, and the agent says so."""
    told = {**NOT_FIT, "data": {"details": "params.cwd: required"}}
    return opened().ask("bad", 5, "session/new", {"mcpServers": []}, error=told)


def strange_method() -> Talk:
    """The client calls a method that does not exist."""
    return opened().ask("strange", 5, "_mine", {}, error=UNKNOWN)


def lost() -> Talk:
    """The client names a session that does not exist."""
    params = {"sessionId": "s-9", "prompt": text()}
    return opened().ask("lost", 5, "session/prompt", params, error=GONE)


def beside() -> Talk:
    """A list is asked for while a turn runs."""
    talk = prompted()
    part = Talk().ask("list", 6, "session/list", {}, {"sessions": []})
    return talk.after("prompt", part).wait("prompt!", 20.0)


def with_server() -> Talk:
    """A session with an MCP server that gets a secret."""
    talk = prompted()
    header = {"name": "Authorization", "value": "Bearer abcdef123456"}
    server = {"type": "http", "name": "m", "url": "https://m.invalid/", "headers": [header]}
    return talk.set("new", "params.mcpServers", [server])


def logged_out() -> Talk:
    """The user logs out, and a new session is refused."""
    talk = opened().ask("logout", 5, "logout", {})
    refused = {"code": -32000, "message": "Authentication required"}
    return talk.ask("refused", 6, "session/new", {"cwd": "/p", "mcpServers": []}, error=refused)


def forked() -> Talk:
    """A session is forked."""
    return opened().ask("fork", 5, "session/fork", {"sessionId": "s-1", "cwd": "/p"}, {"sessionId": "s-2"})


def two_prompts() -> Talk:
    """Two prompts of one session, one behind the other."""
    talk = prompted()
    talk.client("second", id=3, method="session/prompt", params={"sessionId": "s-1", "prompt": text()})
    talk.move("second", "prompt")
    return talk.agent("second!", id=3, result={"stopReason": "end_turn"})


def withdrawn() -> Talk:
    """A list that is withdrawn."""
    talk = opened().client("list", id=5, method="session/list", params={})
    talk.client("withdraw", method="$/cancel_request", params={"requestId": 5})
    return talk.agent("list!", id=5, error={"code": -32800, "message": "Request cancelled"})


def late_cancel() -> Talk:
    """A cancel that comes after the turn, and another turn."""
    talk = prompted().client("cancel", method="session/cancel", params={"sessionId": "s-1"})
    params = {"sessionId": "s-1", "prompt": text()}
    talk.ask("second", 3, "session/prompt", params, {"stopReason": "end_turn"})
    return talk.ask("list", 6, "session/list", {}, {"sessions": []})


def killed() -> Talk:
    """A command is killed."""
    talk = turn()
    part = Talk().call("kill", 1010, "terminal/kill", {"sessionId": "s-1", "terminalId": "x-1"})
    return talk.after("shown", part)


def slash() -> Talk:
    """An unknown slash command."""
    return prompted(text("/nonsense"))

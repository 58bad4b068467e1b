"""Conversations made by hand, and ways to spoil them: the material of the tests with seeded faults.

A `Talk` is a list of steps; each has a name, by which a fault finds the message that it changes.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

CLIENT_CAN: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "session": {"compaction": {}, "notices": {}, "configOptions": {"boolean": {}}},
    "elicitation": {"form": {}, "url": {}},
}
AGENT_CAN: Json = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        "list": {},
        "delete": {},
        "additionalDirectories": {},
        "resume": {},
        "close": {},
        "fork": {},
    },
    "auth": {"logout": {}},
    "providers": {},
}


@dataclass
class Step:
    """One line of a recording. `message` is a message, or text that is none."""

    name: str
    side: str
    message: Any
    gap: float = 0.01  # seconds since the step before


@dataclass
class Talk:
    """A conversation that can be spoilt."""

    steps: list[Step] = field(default_factory=list)

    def copy(self) -> Talk:
        """One that can be changed without changing this one."""
        return copy.deepcopy(self)

    # Building

    def client(self, name: str, **message: Any) -> Talk:
        """The client sends this."""
        self.steps.append(Step(name, "client", {"jsonrpc": "2.0", **message}))
        return self

    def agent(self, name: str, **message: Any) -> Talk:
        """The agent sends this."""
        self.steps.append(Step(name, "agent", {"jsonrpc": "2.0", **message}))
        return self

    def ask(
        self, name: str, number: Any, method: str, params: Json, result: Any = None, error: Any = None
    ) -> Talk:
        """A request of the client with its answer, which is named `name!`."""
        self.client(name, id=number, method=method, params=params)
        return self.agent(f"{name}!", id=number, **_answer(result, error))

    def call(
        self, name: str, number: Any, method: str, params: Json, result: Any = None, error: Any = None
    ) -> Talk:
        """A request of the agent with its answer, which is named `name!`."""
        self.agent(name, id=number, method=method, params=params)
        return self.client(f"{name}!", id=number, **_answer(result, error))

    def update(self, name: str, kind: str, session: str = "s-1", /, **fields: Any) -> Talk:
        """An update of a session."""
        params = {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}
        return self.agent(name, method="session/update", params=params)

    def chunk(self, name: str, text: str = "Hello", session: str = "s-1", **fields: Any) -> Talk:
        """A piece of the agent's text."""
        content = {"type": "text", "text": text}
        return self.update(name, "agent_message_chunk", session, content=content, **fields)

    # Spoiling

    def index(self, name: str) -> int:
        """Where the step of this name stands."""
        return next(index for index, step in enumerate(self.steps) if step.name == name)

    def __getitem__(self, name: str) -> Json:
        message = self.steps[self.index(name)].message
        assert isinstance(message, dict)
        return message

    def drop(self, *names: str) -> Talk:
        """Leave these steps out."""
        self.steps = [step for step in self.steps if step.name not in names]
        return self

    def move(self, name: str, after: str) -> Talk:
        """Put a step behind another one."""
        step = self.steps.pop(self.index(name))
        self.steps.insert(self.index(after) + 1, step)
        return self

    def after(self, name: str, part: Talk) -> Talk:
        """Put the steps of `part` behind a step."""
        at = self.index(name) + 1
        self.steps[at:at] = part.steps
        return self

    def raw(self, name: str, text: str, side: str = "agent", after: str = "") -> Talk:
        """Put a line of text behind a step."""
        at = self.index(after) + 1 if after else len(self.steps)
        self.steps.insert(at, Step(name, side, text))
        return self

    def wait(self, name: str, seconds: float) -> Talk:
        """Let time pass before a step."""
        self.steps[self.index(name)].gap = seconds
        return self

    def set(self, name: str, path: str, value: Any) -> Talk:
        """Put a value into a message; `path` is written as in findings."""
        *way, last = _parts(path)
        place: Any = self[name]
        for part in way:
            place = place[part]
        place[last] = value
        return self

    def unset(self, name: str, path: str) -> Talk:
        """Take a field out of a message."""
        *way, last = _parts(path)
        place: Any = self[name]
        for part in way:
            place = place[part]
        del place[last]
        return self

    # Recording

    def line(self, name: str) -> int:
        """The line of a step in the recording."""
        return self.index(name) + 1

    def lines(self) -> list[bytes]:
        """The recording, in the format of this server's traces."""
        found, now = [], 1_764_500_000.0
        for step in self.steps:
            now += step.gap
            direction = "in" if step.side == "client" else "out"
            key = "text" if isinstance(step.message, str) else "message"
            entry = {"time": round(now, 3), "direction": direction, key: step.message}
            found.append(json.dumps(entry).encode() + b"\n")
        return found


def _answer(result: Any, error: Any) -> Json:
    return {"error": error} if error is not None else {"result": {} if result is None else result}


def _parts(path: str) -> list[Any]:
    found: list[Any] = []
    for part in path.split("."):
        name, *numbers = part.split("[")
        found += [name] if name else []
        found += [int(number.rstrip("]")) for number in numbers]
    return found


def text(words: str = "hi") -> list[Json]:
    """The content of a prompt."""
    return [{"type": "text", "text": words}]


def handshake(client: Json | None = None, agent: Json | None = None, methods: Any = None) -> Talk:
    """`initialize` with everything announced, or with what is given."""
    given = {"protocolVersion": 1, "clientCapabilities": CLIENT_CAN if client is None else client}
    info = {"name": "a", "title": "A", "version": "1"}
    result = {
        "protocolVersion": 1,
        "agentCapabilities": AGENT_CAN if agent is None else agent,
        "agentInfo": info,
        "authMethods": [{"id": "none", "name": "None"}] if methods is None else methods,
    }
    return Talk().ask("initialize", 0, "initialize", copy.deepcopy(given), copy.deepcopy(result))


MODES: Json = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}
OPTIONS: list[Json] = [
    {
        "id": "mode",
        "name": "Mode",
        "category": "mode",
        "type": "select",
        "currentValue": "ask",
        "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}],
    },
    {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": False},
]


def opened(**changes: Any) -> Talk:
    """The handshake and an open session `s-1`."""
    talk = handshake(**changes)
    params = {"cwd": "/p", "mcpServers": []}
    result = {"sessionId": "s-1", "modes": MODES, "configOptions": OPTIONS}
    return talk.ask("new", 1, "session/new", params, copy.deepcopy(result))


def turn(**changes: Any) -> Talk:
    """A turn with everything: thought, text, plan, an edit that is allowed, a command, usage, title."""
    talk = opened(**changes)
    talk.client("prompt", id=2, method="session/prompt", params={"sessionId": "s-1", "prompt": text()})
    talk.update("title", "session_info_update", title="hi", updatedAt="2026-11-30T10:00:00Z")
    talk.update("thought", "agent_thought_chunk", content=text()[0], messageId="m-1")
    talk.chunk("chunk", messageId="m-2")
    entries = [{"content": c, "priority": "high", "status": "pending"} for c in ("look", "change")]
    talk.update("plan", "plan", entries=entries)
    edit(talk)
    command(talk)
    talk.chunk("last", "Done", messageId="m-3")
    talk.update("usage", "usage_update", used=10, size=100)
    return talk.agent("prompt!", id=2, result={"stopReason": "end_turn"})


def edit(talk: Talk) -> Talk:
    """A tool call that changes a file through the client, with a permission."""
    told: Json = {"toolCallId": "t-1", "title": "Edit a.txt", "kind": "edit", "status": "pending"}
    told |= {"rawInput": {"path": "/p/a.txt"}, "locations": [{"path": "/p/a.txt", "line": 1}]}
    diff = {"type": "diff", "path": "/p/a.txt", "oldText": "a", "newText": "b"}
    options = [
        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ]
    talk.update("call", "tool_call", **told)
    asked = {"sessionId": "s-1", "toolCall": copy.deepcopy({**told, "content": [diff]}), "options": options}
    outcome = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    talk.call("ask", 1000, "session/request_permission", asked, outcome)
    talk.update("start", "tool_call_update", toolCallId="t-1", status="in_progress")
    talk.call("read", 1001, "fs/read_text_file", {"sessionId": "s-1", "path": "/p/a.txt"}, {"content": "a"})
    write = {"sessionId": "s-1", "path": "/p/a.txt", "content": "b"}
    talk.call("write", 1002, "fs/write_text_file", write)
    fields = {"toolCallId": "t-1", "status": "completed", "content": [diff], "rawOutput": {"ok": True}}
    return talk.update("end", "tool_call_update", **copy.deepcopy(fields))


def command(talk: Talk) -> Talk:
    """A tool call that runs a command in a terminal of the client."""
    told = {"toolCallId": "t-2", "title": "Run ls", "kind": "execute", "status": "pending"}
    talk.update("call2", "tool_call", **told, rawInput={"command": "ls"})
    talk.update("start2", "tool_call_update", toolCallId="t-2", status="in_progress")
    params = {"sessionId": "s-1", "command": "ls", "cwd": "/p"}
    talk.call("create", 1003, "terminal/create", params, {"terminalId": "x-1"})
    shown = [{"type": "terminal", "terminalId": "x-1"}]
    talk.update("shown", "tool_call_update", toolCallId="t-2", content=shown)
    named = {"sessionId": "s-1", "terminalId": "x-1"}
    talk.call("exit", 1004, "terminal/wait_for_exit", dict(named), {"exitCode": 0})
    talk.call("output", 1005, "terminal/output", dict(named), {"output": "a.txt", "truncated": False})
    talk.call("release", 1006, "terminal/release", dict(named))
    return talk.update(
        "end2", "tool_call_update", toolCallId="t-2", status="completed", rawOutput={"text": "a"}
    )

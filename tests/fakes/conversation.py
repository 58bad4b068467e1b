"""A made conversation, good and bad, as entries and findings: for the page and for its pictures."""

from __future__ import annotations

import json
from typing import Any

from acpserver.validate.findings import AGENT, CLIENT, Entry, Finding

START = 1_790_000_000.0
ABLE = {"fs": {"readTextFile": True}}
COMMANDS = [{"name": "plan", "description": "Make a plan"}]


class Conversation:
    """Collects entries; each `client` or `agent` is one message, `wait` moves the clock."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.now = START
        self._ids = 0

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def line(self, sender: str, text: str, message: object, problem: str = "") -> int:
        """One line as it is; returns its number."""
        number = len(self.entries) + 1
        self.entries.append(Entry(number, round(self.now, 6), sender, message, text, problem, len(text)))
        self.now += 0.0004
        return number

    def say(self, sender: str, **fields: object) -> int:
        """One message."""
        message = {"jsonrpc": "2.0", **fields}
        return self.line(sender, json.dumps(message, ensure_ascii=False), message)

    def ask(self, sender: str, method: str, **params: object) -> int:
        """One request; returns its id."""
        self._ids += 1
        self.say(sender, id=self._ids, method=method, params=params)
        return self._ids

    def update(self, session: str, update: str, /, **fields: Any) -> int:
        """One `session/update`; returns its line."""
        params = {"sessionId": session, "update": {"sessionUpdate": update, **fields}}
        return self.say(AGENT, method="session/update", params=params)

    def talk(self, session: str, words: str, kind: str = "agent_message_chunk") -> None:
        """Some text in chunks."""
        for word in words.split():
            self.wait(0.018)
            self.update(session, kind, content={"type": "text", "text": word + " "})

    def fault(
        self, rule: str, level: str, side: str, path: str, text: str, related: int | None = None
    ) -> None:
        """A finding at the last message."""
        last = self.entries[-1]
        self.findings.append(
            Finding(rule, level, side, last.line, last.time, path, text, last.text[:80], related)
        )


def words(text: str) -> list[dict[str, str]]:
    """A prompt of one text."""
    return [{"type": "text", "text": text}]


def opened(session: str = "s-1") -> Conversation:
    """A conversation after the handshake."""
    talk = Conversation()
    asked = talk.ask(CLIENT, "initialize", protocolVersion=1, clientCapabilities=ABLE)
    talk.wait(0.21)
    talk.say(AGENT, id=asked, result={"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
    asked = talk.ask(CLIENT, "session/new", cwd="/home/user/project", mcpServers=[])
    talk.wait(0.034)
    talk.say(AGENT, id=asked, result={"sessionId": session})
    talk.update(session, "available_commands_update", availableCommands=COMMANDS)
    talk.wait(4.2)
    return talk


def turn(talk: Conversation, session: str, prompt: str, number: int) -> None:
    """One good turn: thought, a read through the client, an edit with permission, words."""
    asked = talk.ask(CLIENT, "session/prompt", sessionId=session, prompt=words(prompt))
    talk.wait(0.9)
    talk.talk(session, "The test expects a sorted list", "agent_thought_chunk")
    read = f"call-{number}a"
    talk.update(session, "tool_call", toolCallId=read, title="Read app/main.py", kind="read")
    wanted = talk.ask(AGENT, "fs/read_text_file", sessionId=session, path="/home/user/project/app/main.py")
    talk.wait(0.006)
    talk.say(CLIENT, id=wanted, result={"content": "def main():\n    return sorted(set())\n"})
    talk.update(session, "tool_call_update", toolCallId=read, status="completed")
    talk.talk(session, "I will change the order")
    edit = f"call-{number}b"
    talk.update(session, "tool_call", toolCallId=edit, title="Edit app/main.py", kind="edit")
    options = [{"optionId": "yes", "name": "Allow", "kind": "allow_once"}]
    call = {"toolCallId": edit, "title": "Edit app/main.py"}
    wanted = talk.ask(AGENT, "session/request_permission", sessionId=session, toolCall=call, options=options)
    talk.wait(3.1)
    talk.say(CLIENT, id=wanted, result={"outcome": {"outcome": "selected", "optionId": "yes"}})
    talk.update(session, "tool_call_update", toolCallId=edit, status="in_progress")
    talk.wait(0.02)
    talk.update(session, "tool_call_update", toolCallId=edit, status="completed")
    talk.talk(session, "The list is sorted now and the tests pass.")
    talk.say(AGENT, id=asked, result={"stopReason": "end_turn"})
    talk.wait(1.4)


def faulty() -> Conversation:
    """A conversation with faults of several kinds, on both sides."""
    talk = opened()
    turn(talk, "s-1", "Sort the list before it is returned", 1)
    asked = talk.ask(CLIENT, "session/prompt", sessionId="s-1", prompt=words("Run the tests"))
    talk.wait(1.3)
    talk.talk("s-1", "Running them")
    text = "DEBUG loading </script> plugins\u2028…"
    talk.line(AGENT, text, None, "not JSON: Expecting value at character 1")
    talk.fault("T2", "error", AGENT, "", "stdout carries protocol messages only: not JSON")
    talk.update("s-1", "tool_call_update", toolCallId="call-9", status="in_progress")
    talk.fault("K1", "error", AGENT, "params.update.toolCallId", "call-9 has no tool_call in this session")
    talk.update("s-1", "tool_call", toolCallId="call-10", title="pytest -q", kind="exec", status="pending")
    path = "params.update.kind"
    talk.fault("schema", "error", AGENT, path, '"exec" is none of the kinds; the nearest is "execute"')
    wanted = talk.ask(AGENT, "terminal/create", sessionId="s-1", command="pytest", args=["-q"])
    talk.fault("I3", "error", AGENT, "method", "the client did not announce terminal", 1)
    talk.wait(0.003)
    error = {"code": -32601, "message": "Method not found"}
    talk.say(CLIENT, id=wanted, error=error)
    talk.update("s-1", "usage_update", used=5312, size=200000)
    talk.say(AGENT, id=asked, result={"stop_reason": "end_turn"})
    wrong = '"stopReason" is missing; stop_reason is its snake_case form'
    talk.fault("schema", "error", AGENT, "result.stopReason", wrong, asked)
    talk.fault("K2", "error", AGENT, "", "the tool call call-10 was not ended before the turn was answered")
    talk.wait(0.7)
    talk.say(CLIENT, method="session/set_mode", params={"sessionId": "s-1", "modeId": "ask"})
    talk.fault("method", "warning", CLIENT, "id", "session/set_mode is a request and needs an id")
    turn(talk, "s-1", "Now write a test for the empty list", 3)
    talk.ask(CLIENT, "session/prompt", sessionId="s-1", prompt=words("Thank you"))
    talk.fault("J2", "error", AGENT, "", "the request was never answered")
    talk.wait(2.0)
    talk.talk("s-1", "You are welcome")
    return talk


def long(messages: int) -> Conversation:
    """At least so many messages, with two faults far from each other."""
    talk = opened()
    number = 0
    while len(talk.entries) < messages:
        number += 1
        turn(talk, "s-1", f"Task {number}", number)
        talk.talk("s-1", "word " * 60)
        if number in (7, 300):
            talk.fault("P2", "error", AGENT, "", f"an update after the answer of turn {number}")
    return talk

"""A long conversation: sessions are forgotten, and nothing false is said because of that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acpserver.validate import Entry, Finding, Validator
from acpserver.validate.state import Session
from acpserver.validate.world import MOST_SESSIONS, World
from tests.validate.talk import handshake, text


class Conversation:
    """A validator that is told of one message after the other."""

    def __init__(self) -> None:
        self.validator = Validator()
        self.line = 0
        for step in handshake().steps:
            assert self.say(step.side, **step.message) == []

    def say(self, side: str, **message: Any) -> list[Finding]:
        """One message; what is found."""
        self.line += 1
        whole = {"jsonrpc": "2.0", **message}
        return self.validator.feed(Entry(self.line, None, side, whole, json.dumps(whole)))

    def ask(self, method: str, params: Any, result: Any) -> list[Finding]:
        """A request of the client and its answer."""
        number = self.line + 1000
        asked = self.say("client", id=number, method=method, params=params)
        return [*asked, *self.say("agent", id=number, result=result)]

    def opens(self, name: str) -> list[Finding]:
        """The agent opens a session."""
        return self.ask("session/new", {"cwd": "/p", "mcpServers": []}, {"sessionId": name})

    def title(self, name: str) -> list[Finding]:
        """An update of the session."""
        update = {"sessionUpdate": "session_info_update", "title": "x"}
        return self.say("agent", method="session/update", params={"sessionId": name, "update": update})


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Conversation:
    """Ten sessions were opened, three are remembered."""
    monkeypatch.setattr("acpserver.validate.world.MOST_SESSIONS", 3)
    talk = Conversation()
    assert [talk.opens(f"s-{number}") for number in range(10)] == [[]] * 10
    return talk


def test_a_forgotten_session_goes_on_without_a_word(long: Conversation) -> None:
    assert long.title("s-0") == []
    prompt = {"sessionId": "s-0", "prompt": text()}
    assert long.ask("session/prompt", prompt, {"stopReason": "end_turn"}) == []
    assert long.ask("session/close", {"sessionId": "s-0"}, {}) == []
    load = {"sessionId": "s-1", "cwd": "/elsewhere", "mcpServers": []}
    assert long.ask("session/load", load, {}) == []
    assert long.title("s-1") == []


def test_what_was_never_a_session_and_what_was_one_are_still_told_apart(long: Conversation) -> None:
    assert [one.rule for one in long.title("s-99")] == ["S4"]
    assert [one.rule for one in long.opens("s-0")] == ["S1"]


def test_a_session_in_which_a_turn_runs_is_never_forgotten(long: Conversation) -> None:
    long.opens("s-a")
    long.say("client", id=7, method="session/prompt", params={"sessionId": "s-a", "prompt": text()})
    for number in range(20, 30):
        long.opens(f"s-{number}")
    found = long.say("agent", id=7, result={"stopReason": "cancelled"})
    found += long.title("s-a") + long.opens("s-b")
    assert [(one.rule, one.path) for one in found] == [("P3", "result.stopReason")]


def test_closed_sessions_are_forgotten_first_and_no_more_than_the_most_are_kept() -> None:
    world = World()
    names = [f"s-{number}" for number in range(MOST_SESSIONS)]
    for name in names:
        world.remember(Session(name, is_closed=name == "s-500"))
    world.remember(Session("new"))
    assert len(world.sessions) == 1000
    assert "s-500" not in world.sessions and "s-0" in world.sessions
    world.remember(Session("newer"))
    assert "s-0" not in world.sessions and world.had("s-0") and world.may_have_had("s-0")
    assert not world.had("other") and not world.may_have_had("other")

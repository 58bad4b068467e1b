"""Conversations that look wrong and are not: a false alarm is the worst fault of such a tool."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from acpserver.validate import check_trace
from acpserver.validate.findings import ERROR, WARNING
from tests.validate.faults import with_server
from tests.validate.talk import Talk, opened, text, turn


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_variable("GIT_AUTHOR_NAME", "Jane Smith", "Commit by Jane Smith"),
        lambda: with_variable("TOKEN_FILE", "/home/jane/t", "Look at /home/jane/t"),
        lambda: with_variable("AUTH_URL", "https://login.invalid", "Go to https://login.invalid"),
        slow_beside_a_turn,
    ],
)
def test_what_is_right_is_clean(make: Callable[[], Talk]) -> None:
    assert faults(make().lines()) == []


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

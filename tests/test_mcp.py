"""MCP servers: real processes, good and bad."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled, ToolError
from acpserver.mcp import McpServers, McpTool
from acpserver.processes import Children
from acpserver.tools.base import EXECUTE, Tool, ToolContext, ToolOutcome
from acpserver.tools.textfile import DiskFiles

REPOSITORY = Path(__file__).parent.parent
ALL_TOOLS = ["echo", "slow", "broken", "failing", "env", "picture", "crash", "sleepy"]


def spec(name: str, *behaviours: str, env: dict[str, str] | None = None) -> dict[str, object]:
    """One entry of `mcpServers`."""
    pairs = [{"name": key, "value": value} for key, value in (env or {}).items()]
    args = ["-m", "tests.fakes.mcp_server", *behaviours]
    return {"name": name, "command": sys.executable, "args": args, "env": pairs}


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children(lambda: ["SECRET_KEY"])
    yield made
    made.close()


def connected(children: Children, *specs: dict[str, object]) -> McpServers:
    servers = McpServers(list(specs), children, str(REPOSITORY))
    servers.connect()
    return servers


def run(tool: Tool, text: str = "hi", cancel: CancelFlag | None = None) -> ToolOutcome:
    flag = cancel or CancelFlag()
    context = ToolContext("s", "/", ("/",), flag, lambda _: None, lambda _: None, lambda _: None, DiskFiles())
    action = tool.prepare({"text": text}, context)
    assert action.access == EXECUTE
    return action.run()


@pytest.mark.parametrize(
    "behaviour", ["good", "chatter", "string-ids", "early-note", "flood-stderr", "pages"]
)
def test_the_tools_are_found_and_called(children: Children, behaviour: str) -> None:
    servers = connected(children, spec("my files", behaviour))
    tools = servers.tools(CancelFlag())
    assert servers.take_failures() == []
    assert list(tools) == [f"mcp__my_files__{name}" for name in ALL_TOOLS]
    echo = tools["mcp__my_files__echo"]
    assert (echo.name, echo.description, echo.kind) == ("mcp__my_files__echo", "The tool echo.", "other")
    assert run(echo).text == "echo: hi"
    servers.close()


def test_results_of_every_kind(children: Children) -> None:
    servers = connected(children, spec("s"))
    tools = servers.tools(CancelFlag())
    failing = run(tools["mcp__s__failing"])
    assert (failing.text, failing.is_error) == ("failing: hi", True)
    assert run(tools["mcp__s__picture"]).text == "[image: image/png]"
    with pytest.raises(ToolError, match="The MCP server s answered: it broke"):
        run(tools["mcp__s__broken"])
    servers.close()


def test_a_result_of_very_many_or_very_large_blocks_is_shown_in_bounds() -> None:
    """One line of several megabytes; some clients read 64 KiB."""
    for blocks in ([{"type": "text", "text": "x"}] * 100_000, [{"type": "text", "text": "y" * 50_000}] * 3):
        tool = McpTool(Giving({"content": blocks}), {"name": "t"})  # type: ignore[arg-type]
        outcome = run(tool)
        assert len(outcome.text) < 31_000
        assert outcome.content and len(json.dumps(outcome.content)) < 28_000
        assert "more blocks left out" in json.dumps(outcome.content[-1])


class Giving(NamedTuple):
    """A server that gives one result."""

    result: dict[str, object]
    name: str = "s"

    def call(self, _tool: str, _arguments: dict[str, object], _cancel: CancelFlag) -> dict[str, object]:
        return self.result


def test_the_environment_of_a_server(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-1")
    servers = connected(children, spec("s", env={"EXTRA": "from the request"}))
    env = servers.tools(CancelFlag())["mcp__s__env"]
    assert run(env, "EXTRA").text == "from the request"
    assert run(env, "PATH").text != "unset"
    assert run(env, "SECRET_KEY").text == "unset"
    servers.close()


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"name": "b", "command": "/does/not/exist", "args": [], "env": []}, "Cannot start /does/not/exist"),
        ({"name": "b", "command": "/bin/sh", "args": ["-c", "echo oops >&2; exit 3"], "env": []}, "oops"),
        ({"type": "http", "name": "b", "url": "http://127.0.0.1:1", "headers": []}, "http is not supported"),
        (spec("b", "refuse"), "not today"),
        (spec("b", "bad-list"), "its list of tools holds something else"),
    ],
)
def test_a_server_that_fails_is_told_and_the_others_work(
    children: Children, bad: dict[str, object], told: str
) -> None:
    servers = connected(children, bad, spec("good"))
    assert "mcp__good__echo" in servers.tools(CancelFlag())
    (failure,) = servers.take_failures()
    assert failure.startswith("The MCP server b cannot be used: ") and told in failure
    assert servers.take_failures() == []
    servers.close()


def test_two_servers_of_one_name_have_tools_of_their_own(children: Children) -> None:
    servers = connected(children, spec("twin"), spec("twin"))
    tools = servers.tools(CancelFlag())
    assert len(tools) == 2 * len(ALL_TOOLS)
    assert all(name == tool.name and len(name) <= 64 for name, tool in tools.items())
    servers.close()


def test_a_server_that_has_ended_is_told_to_the_model(children: Children) -> None:
    servers = connected(children, spec("s"))
    crash = servers.tools(CancelFlag())["mcp__s__crash"]
    for _ in range(2):
        with pytest.raises(ToolError) as caught:
            run(crash)
        assert str(caught.value) == "The MCP server s has ended with exit status 1 (it said: out of luck)"
    assert servers.take_failures() == [str(caught.value)]
    assert servers.take_failures() == []
    servers.close()


def test_a_server_that_does_not_read_is_ended(children: Children) -> None:
    servers = connected(children, spec("s"))
    sleepy = servers.tools(CancelFlag())["mcp__s__sleepy"]
    flag = CancelFlag()
    threading.Timer(0.2, flag.set).start()
    with pytest.raises(Cancelled):
        run(sleepy, cancel=flag)
    again = CancelFlag()
    threading.Timer(0.2, again.set).start()
    with pytest.raises(Cancelled):
        run(sleepy, "x" * (1 << 20), again)
    started = time.monotonic()
    servers.close()
    assert time.monotonic() - started < 10
    assert [thread.name for thread in threading.enumerate() if thread.name in ("writer", "mcp reader")] == []


def test_a_cancel_ends_the_wait_for_a_call(children: Children) -> None:
    servers = connected(children, spec("s"))
    slow = servers.tools(CancelFlag())["mcp__s__slow"]
    flag = CancelFlag()
    threading.Timer(0.1, flag.set).start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        run(slow, cancel=flag)
    assert time.monotonic() - started < 5
    servers.close()


def test_a_cancel_ends_the_wait_for_a_server_and_the_next_turn_waits_again(children: Children) -> None:
    servers = connected(children, spec("s", "deaf"))
    flag = CancelFlag()
    threading.Timer(0.1, flag.set).start()
    with pytest.raises(Cancelled):
        servers.tools(flag)
    again = CancelFlag()
    threading.Timer(0.1, again.set).start()
    with pytest.raises(Cancelled):
        servers.tools(again)
    servers.close()


def test_a_server_that_ignores_the_end_and_sigterm_is_killed(children: Children) -> None:
    servers = connected(children, spec("s", "ignore-end"))
    servers.tools(CancelFlag())
    running = [child for child in psutil.Process().children() if "mcp_server" in " ".join(child.cmdline())]
    assert len(running) == 1
    started = time.monotonic()
    servers.close()
    assert time.monotonic() - started < 10
    assert not running[0].is_running()


@pytest.mark.parametrize("scarce", ["mcp connect mcp start", "mcp start", "mcp reader", "writer"])
def test_without_a_thread_a_server_fails_and_no_turn_waits_for_it(
    children: Children, monkeypatch: pytest.MonkeyPatch, scarce: str
) -> None:
    real = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name in scarce:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    servers = connected(children, spec("files", "good"))
    with CancelFlag().within(30) as flag:
        assert servers.tools(flag) == {}
    (failure,) = servers.take_failures()
    assert failure.startswith("The MCP server files cannot be used: ") and "thread" in failure
    servers.close()

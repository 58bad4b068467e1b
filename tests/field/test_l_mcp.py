"""MCP servers that an editor asks for."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.fakes.editor import Editor
from tests.fakes.llm_answers import text, tool_call
from tests.fakes.llm_server import FakeLlm
from tests.test_mcp import REPOSITORY, spec


def model(server: FakeLlm) -> tuple[str, ...]:
    return ("--model", "fake", "--base-url", server.base_url)


def tools_of(request: object) -> list[str]:
    body = request.body  # type: ignore[attr-defined]
    return [tool["function"]["name"] for tool in body["tools"]]


def test_row_188_a_server_that_does_not_start_is_told_and_the_session_works(tmp_path: Path) -> None:
    """A server failed to start, and nobody was told."""
    bad = {"name": "gone", "command": "/does/not/exist", "args": [], "env": []}
    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path, mcpServers=[bad])
        turn = editor.prompt(session, "say fine")
        assert turn.wait() == "end_turn"
        assert "The MCP server gone cannot be used" in turn.thoughts
        assert turn.text == "fine\n"
        again = editor.prompt(session, "say fine")
        assert again.wait() == "end_turn"
        assert again.thoughts == ""


def test_rows_189_190_the_tools_are_offered_with_the_first_prompt_and_called() -> None:
    """Servers were connected, or asked for, and their tools never reached the model."""
    with FakeLlm() as server, Editor(*model(server), permission="allow_once") as editor:
        server.script(tool_call("mcp__files__echo", {"text": "ping"}), text("done"))
        editor.initialize()
        session = editor.new_session(REPOSITORY, mcpServers=[spec("files")])
        turn = editor.prompt(session, "use the tool")
        assert turn.wait(10.0) == "end_turn"
        first, second = server.requests
        assert "mcp__files__echo" in tools_of(first)
        assert second.body["messages"][-1]["content"] == "echo: ping"
        (call,) = turn.calls
        assert (call["status"], call["title"], call["kind"]) == ("completed", "files: echo", "other")


def test_row_193_the_servers_variables_reach_it() -> None:
    """A server that needs a variable did not get it."""
    with FakeLlm() as server, Editor(*model(server), permission="allow_once") as editor:
        server.script(tool_call("mcp__files__env", {"text": "TOKEN"}), text("done"))
        editor.initialize()
        session = editor.new_session(REPOSITORY, mcpServers=[spec("files", env={"TOKEN": "t-1"})])
        assert editor.prompt(session, "use the tool").wait(10.0) == "end_turn"
        assert server.requests[1].body["messages"][-1]["content"] == "t-1"


@pytest.mark.parametrize("method", ["session/close", "session/delete", "session/load", "end of input"])
def test_a_server_ends_with_its_session_and_not_before(method: str) -> None:
    """Servers of sessions that were closed, or opened again with others, went on for ever (rule S5)."""
    with FakeLlm() as server, Editor(*model(server), permission="allow_once") as editor:
        server.script(tool_call("mcp__files__echo", {"text": "ping"}), text("done"))
        editor.initialize()
        session = editor.new_session(REPOSITORY, mcpServers=[spec("files")])
        assert editor.prompt(session, "use the tool").wait(10.0) == "end_turn"
        (running,) = servers_of(editor)
        same = {"sessionId": session, "cwd": str(REPOSITORY), "mcpServers": [spec("files")]}
        assert editor.request("session/load", same).result
        assert servers_of(editor) == [running]
        if method == "session/load":
            assert editor.request(method, {**same, "mcpServers": []}).result
        elif method == "end of input":
            editor.close()
        else:
            assert editor.request(method, {"sessionId": session}).result == {}
        running.wait(3.0)


def servers_of(editor: Editor) -> list[psutil.Process]:
    children = psutil.Process(editor.process.pid).children(recursive=True)
    return [child for child in children if "tests.fakes.mcp_server" in child.cmdline()]


def test_row_041_a_server_does_not_outlive_a_killed_agent(tmp_path: Path) -> None:
    """The agent was killed, and the servers that it had started went on."""
    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(REPOSITORY, mcpServers=[spec("files", "ignore-end")])
        assert editor.prompt(session, "say fine").wait(10.0) == "end_turn"
        running = servers_of(editor)
        assert len(running) == 1
        editor.kill()
        _, alive = psutil.wait_procs(running, timeout=2.0)
        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
        editor.close(status=-9)


def test_row_042_a_server_that_ignores_its_end_does_not_hold_up_the_agents() -> None:
    """A server stayed when its input ended, and the agent with it."""
    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(REPOSITORY, mcpServers=[spec("files", "ignore-end")])
        assert editor.prompt(session, "say fine").wait(10.0) == "end_turn"
        running = servers_of(editor)
        assert len(running) == 1
        editor.close(timeout=3.0)
        assert not any(process.is_running() for process in running)


def test_rows_192_242_a_noisy_server_works_all_the_same() -> None:
    """Log lines on stdout, a megabyte on stderr, ids as text: a server that works was given up."""
    noisy = spec("files", "chatter", "flood-stderr", "early-note", "string-ids")
    with FakeLlm() as server, Editor(*model(server), permission="allow_once") as editor:
        server.script(tool_call("mcp__files__echo", {"text": "ping"}), text("done"))
        editor.initialize()
        turn = editor.prompt(editor.new_session(REPOSITORY, mcpServers=[noisy]), "use the tool")
        assert turn.wait(10.0) == "end_turn"
        assert turn.thoughts == ""
        assert server.requests[1].body["messages"][-1]["content"] == "echo: ping"

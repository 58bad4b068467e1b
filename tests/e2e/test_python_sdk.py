"""The client of the official Python SDK against the real server process.

The SDK is asynchronous, so these tests are; each runs its own event loop. Its reader takes lines of at
most 64 KiB, and its models refuse what does not fit the protocol.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import RequestError, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    RequestPermissionResponse,
)

from tests.fakes.llm_answers import text, thought, tool_call
from tests.fakes.llm_server import FakeLlm

ROOT = Path(__file__).parent.parent.parent
DEADLINE = 10.0  # seconds for one whole test


class RecordingClient:
    """A client that keeps every update and answers permissions by the kind that the test wants."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.permissions: list[Any] = []
        self.answer: str | None = "allow_once"
        """The kind of the option to choose; None answers with the outcome "cancelled"."""
        self.arrived = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.arrived.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        self.permissions.append(tool_call)
        if self.answer is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = next(option.option_id for option in options if option.kind == self.answer)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        raise AssertionError(f"an extension notification came: {method}")

    def text(self, kind: str = "agent_message_chunk") -> str:
        """All text of one kind of chunk so far."""
        return "".join(update.content.text for update in self.updates if update.session_update == kind)

    def statuses(self) -> list[str]:
        """The statuses of all tool calls, in order of arrival."""
        kinds = ("tool_call", "tool_call_update")
        return [u.status for u in self.updates if u.session_update in kinds and u.status]

    async def until(self, condition: Callable[[RecordingClient], bool]) -> None:
        """Wait until an update makes the condition true."""
        while not condition(self):
            self.arrived.clear()
            await self.arrived.wait()


@asynccontextmanager
async def server(
    *flags: str, client: RecordingClient | None = None
) -> AsyncIterator[tuple[acp.ClientSideConnection, RecordingClient]]:
    """The server as a child, ended by the end of input; it must leave with 0 and say nothing on stderr."""
    client = client or RecordingClient()
    env = {"PYTHONPATH": str(ROOT), "ACPSERVER_HOME": os.environ["ACPSERVER_HOME"]}
    command = ["-m", "acpserver", "--strict", *flags]
    spawned = acp.spawn_agent_process(client, sys.executable, *command, env=env)  # type: ignore[arg-type]
    async with spawned as (connection, process):
        yield connection, client
    assert process.returncode == 0
    assert process.stderr is not None
    assert await process.stderr.read() == b""


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous test within the deadline."""
    asyncio.run(asyncio.wait_for(test(), DEADLINE))


async def start(connection: acp.ClientSideConnection, cwd: Path) -> str:
    """Handshake and a new session; its id."""
    await connection.initialize(protocol_version=1, client_capabilities=ClientCapabilities())
    return (await connection.new_session(cwd=str(cwd), mcp_servers=[])).session_id


def test_the_handshake_tells_who_answers_and_what_works() -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, _):
            answer = await connection.initialize(
                protocol_version=1,
                client_capabilities=ClientCapabilities(),
                client_info=Implementation(name="sdk-test", version="1"),
            )
            assert answer.protocol_version == 1
            assert answer.agent_info is not None and answer.agent_info.name == "acpserver"
            assert answer.agent_capabilities is not None
            assert answer.agent_capabilities.load_session
            assert answer.auth_methods
            await connection.authenticate(method_id=answer.auth_methods[0].id)

    run(test)


def test_without_a_model_the_first_auth_method_makes_sessions_possible(tmp_path: Path) -> None:
    async def test() -> None:
        async with server() as (connection, client):
            answer = await connection.initialize(protocol_version=1)
            with pytest.raises(RequestError) as refused:
                await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            assert refused.value.code == -32000
            assert answer.auth_methods
            await connection.authenticate(method_id=answer.auth_methods[0].id)
            session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            assert (await connection.prompt(session, [text_block("say hello")])).stop_reason == "end_turn"
            assert client.text() == "hello\n"

    run(test)


def test_text_thoughts_and_plan_arrive_in_order_before_the_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            session = await start(connection, tmp_path)
            lines = "think first I think\nsay then I say\nplan look; change; test\nstream 500"
            answer = await connection.prompt(session, [text_block(lines)])
            assert answer.stop_reason == "end_turn"
            assert client.text("agent_thought_chunk") == "first I think\n"
            assert client.text() == "then I say\n" + "".join(f"{n} " for n in range(1, 501))
            plans = [update for update in client.updates if update.session_update == "plan"]
            assert [entry.content for entry in plans[-1].entries] == ["look", "change", "test"]
            kinds = [update.session_update for update in client.updates]
            first = [kinds.index(kind) for kind in ("agent_thought_chunk", "agent_message_chunk", "plan")]
            assert first == sorted(first)

    run(test)


def test_an_allowed_write_shows_its_diff_asks_and_changes_the_file(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            session = await start(connection, tmp_path)
            answer = await connection.prompt(session, [text_block("write note.txt: hello\nread note.txt")])
            assert answer.stop_reason == "end_turn"
            assert (tmp_path / "note.txt").read_text() == "hello"
            assert client.statuses() == ["pending", "in_progress", "completed"] * 2
            (asked,) = client.permissions
            assert asked.kind == "edit"
            assert asked.content[0].path == str(tmp_path / "note.txt")
            assert asked.content[0].new_text == "hello"

    run(test)


@pytest.mark.parametrize("answer", ["reject_once", "reject_always", None])
def test_a_rejected_write_changes_nothing_and_the_turn_goes_on(tmp_path: Path, answer: str | None) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            client.answer = answer
            session = await start(connection, tmp_path)
            reply = await connection.prompt(session, [text_block("write note.txt: hello\nsay still here")])
            assert reply.stop_reason == "end_turn"
            assert not (tmp_path / "note.txt").exists()
            assert client.statuses() == ["pending", "failed"]
            assert "still here" in client.text()

    run(test)


def test_always_holds_for_the_tool_and_the_session(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            client.answer = "allow_always"
            session = await start(connection, tmp_path)
            await connection.prompt(session, [text_block("write a.txt: 1\nwrite b.txt: 2\nrun echo out")])
            assert [asked.kind for asked in client.permissions] == ["edit", "execute"]
            other = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            await connection.prompt(other, [text_block("write c.txt: 3")])
            assert [asked.kind for asked in client.permissions] == ["edit", "execute", "edit"]

    run(test)


def test_modes_and_options_can_be_set_and_hold(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            await connection.initialize(protocol_version=1)
            new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            assert new.modes is not None and new.modes.current_mode_id == "default"
            await connection.set_session_mode(session_id=new.session_id, mode_id="accept_edits")
            await client.until(lambda c: any(u.session_update == "config_option_update" for u in c.updates))
            changed = next(u for u in client.updates if u.session_update == "current_mode_update")
            assert changed.current_mode_id == "accept_edits"
            await connection.prompt(new.session_id, [text_block("write a.txt: 1")])
            assert client.permissions == []
            options = await connection.set_config_option("mode", new.session_id, "read_only")
            values = {option.id: option.current_value for option in options.config_options}
            assert values == {"mode": "read_only", "model": "offline"}
            await connection.prompt(new.session_id, [text_block("write a.txt: 2")])
            assert client.permissions == []
            assert (tmp_path / "a.txt").read_text() == "1"
            with pytest.raises(RequestError) as unknown:
                await connection.set_session_mode(session_id=new.session_id, mode_id="nope")
            assert unknown.value.code == -32602

    run(test)


def test_cancel_ends_a_command_and_the_next_prompt_works(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            session = await start(connection, tmp_path)
            turn = asyncio.create_task(connection.prompt(session, [text_block("run sleep 600")]))
            await client.until(lambda c: "in_progress" in c.statuses())
            await connection.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            assert client.statuses()[-1] == "failed"
            assert (await connection.prompt(session, [text_block("say again")])).stop_reason == "end_turn"
            assert client.text() == "again\n"

    run(test)


def test_two_sessions_run_side_by_side(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            first = await start(connection, tmp_path)
            second = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            slow = asyncio.create_task(connection.prompt(first, [text_block("sleep 600")]))
            assert (await connection.prompt(second, [text_block("say quick")])).stop_reason == "end_turn"
            assert not slow.done()
            await connection.cancel(session_id=first)
            assert (await slow).stop_reason == "cancelled"

    run(test)


def test_a_closed_session_is_gone_and_its_turn_cancelled(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, _):
            session = await start(connection, tmp_path)
            turn = asyncio.create_task(connection.prompt(session, [text_block("sleep 600")]))
            await asyncio.sleep(0)  # let the prompt be sent first
            await connection.close_session(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            with pytest.raises(RequestError) as gone:
                await connection.prompt(session, [text_block("say hi")])
            assert gone.value.code == -32002

    run(test)


def test_a_failing_model_is_an_error_with_words(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, client):
            session = await start(connection, tmp_path)
            with pytest.raises(RequestError) as failed:
                await connection.prompt(session, [text_block("say before\nfail 500")])
            assert failed.value.code == -32603
            assert "500" in failed.value.data["details"]
            assert client.text() == "before\n"

    run(test)


def test_a_model_behind_http_calls_a_tool_and_answers(tmp_path: Path) -> None:
    async def test() -> None:
        async with server("--model", "fake", "--base-url", llm.base_url) as (connection, client):
            session = await start(connection, tmp_path)
            answer = await connection.prompt(session, [text_block("Write the note.")])
            assert answer.stop_reason == "end_turn"
            assert (tmp_path / "note.txt").read_text() == "from afar"
            assert client.text("agent_thought_chunk") == "How? "
            assert client.text() == "It is written."
            assert client.statuses() == ["pending", "in_progress", "completed"]

    with FakeLlm() as llm:
        llm.script(
            thought("How? ") + tool_call("write_file", {"path": "note.txt", "content": "from afar"}),
            text("It is ", "written."),
        )
        run(test)
        assert llm.violations == []
        assert llm.requests[1].messages[-1]["role"] == "tool"


def test_an_unknown_extension_method_is_refused() -> None:
    async def test() -> None:
        async with server("--model", "offline") as (connection, _):
            await connection.initialize(protocol_version=1)
            with pytest.raises(RequestError) as unknown:
                await connection.ext_method("example.com/nothing", {})
            assert unknown.value.code == -32601
            await connection.ext_notification("example.com/nothing", {})

    run(test)

"""Files and a terminal of a client that is built with the official Python SDK; the terminal is a real one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from acp import RequestError, text_block
from acp.schema import (
    ClientCapabilities,
    CreateTerminalResponse,
    FileSystemCapabilities,
    ReadTextFileResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from tests.e2e.test_python_sdk import RecordingClient, run, server


class WorkingClient(RecordingClient):
    """A client with buffers and with terminals."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: dict[str, str] = {}
        self.running: dict[str, asyncio.subprocess.Process] = {}
        self.released: list[str] = []

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        if path not in self.buffers:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.buffers[path] = content

    async def create_terminal(
        self, session_id: str, command: str, args: list[str], cwd: str, **_: Any
    ) -> CreateTerminalResponse:
        process = await asyncio.create_subprocess_exec(
            command,
            *args,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        name = f"terminal-{len(self.running)}"
        self.running[name] = process
        return CreateTerminalResponse(terminal_id=name)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        return WaitForTerminalExitResponse(exit_code=await self.running[terminal_id].wait())

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        stream = self.running[terminal_id].stdout
        assert stream is not None
        output = await stream.read(1 << 16)
        return TerminalOutputResponse(output=output.decode(), truncated=False)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        process = self.running[terminal_id]
        if process.returncode is None:
            # Process.kill() polls first: the second of two could take the exit status away from asyncio.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        await self.kill_terminal(session_id, terminal_id)
        await self.running[terminal_id].wait()
        self.released.append(terminal_id)
        self.arrived.set()


CAN = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True)


def test_files_go_through_the_client(tmp_path: Path) -> None:
    async def test() -> None:
        client = WorkingClient()
        async with server("--model", "offline", client=client) as (connection, _):
            await connection.initialize(protocol_version=1, client_capabilities=CAN)
            session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            path = str(tmp_path / "draft.txt")
            client.buffers[path] = "never saved\n"
            lines = (
                "read draft.txt\nreplace never with not in draft.txt\nwrite new.txt: hello\nread absent.txt"
            )
            assert (await connection.prompt(session, [text_block(lines)])).stop_reason == "end_turn"
            assert client.buffers == {path: "not saved\n", str(tmp_path / "new.txt"): "hello"}
            assert client.statuses() == ["pending", "in_progress", "completed"] * 3 + [
                "pending",
                "in_progress",
                "failed",
            ]
            assert not list(tmp_path.iterdir())

    run(test)


def test_commands_run_in_the_clients_terminal(tmp_path: Path) -> None:
    async def test() -> None:
        client = WorkingClient()
        async with server("--model", "offline", client=client) as (connection, _):
            await connection.initialize(protocol_version=1, client_capabilities=CAN)
            session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            answer = await connection.prompt(session, [text_block("run pwd; exit 3")])
            assert answer.stop_reason == "end_turn"
            shown = [update.content for update in client.updates if getattr(update, "content", None)]
            assert any(
                item.type == "terminal" for content in shown if isinstance(content, list) for item in content
            )
            assert client.statuses() == ["pending", "in_progress", "in_progress", "failed"]

            turn = asyncio.create_task(connection.prompt(session, [text_block("run sleep 600")]))
            await client.until(lambda c: c.statuses().count("in_progress") == 4)  # the terminal is shown
            await connection.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            await client.until(lambda c: len(client.released) == 2)
            assert [process.returncode for process in client.running.values()] == [3, -9]

    run(test)

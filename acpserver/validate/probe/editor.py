"""The editor that an agent under probe talks to: it answers permission, file and terminal requests.

Used by the probe's only thread. Permission answers are the scenario's choice; files are real ones below
the scenario's folder, except those that are given as unsaved buffers; terminals are real processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass, field

from acpserver import system

Json = dict[str, object]

NEVER = "never"
"""A permission answer that does not come."""
ERROR, UNKNOWN_OPTION, NONSENSE, CANCELLED = "error", "unknown option", "nonsense", "cancelled"


class Refused(Exception):
    """The answer is an error with this code and message."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


@dataclass
class Editor:
    """What the editor can do and how it answers."""

    capabilities: Json = field(default_factory=dict)
    permission: str = "allow_once"
    """The kind of the option to choose, or one of the other answers above."""
    buffers: dict[str, str] = field(default_factory=dict)
    """Texts of files that are open and not saved."""
    fail_files: bool = False
    """Whether file requests are answered with an error."""
    written: dict[str, str] = field(default_factory=dict)
    asked: list[Json] = field(default_factory=list)
    """The params of the permission requests so far."""
    terminals: dict[str, Terminal] = field(default_factory=dict)
    _waits: list[tuple[object, Terminal]] = field(default_factory=list)

    @property
    def waiting(self) -> bool:
        """Whether an answer depends on a terminal that still runs."""
        return bool(self._waits)

    def answer(self, message: Json) -> Json | None:
        """The answer to a request of the agent; None when it comes later or never."""
        request_id, method = message.get("id"), str(message.get("method"))
        given = message.get("params")
        params: Json = given if isinstance(given, dict) else {}
        try:
            result = self._result(request_id, method, params)
        except Refused as refused:
            return _error(request_id, refused.code, str(refused))
        except (OSError, ValueError, TypeError) as error:
            return _error(request_id, -32603, str(error))
        return None if result is None else {"jsonrpc": "2.0", "id": request_id, "result": result}

    def finished(self) -> list[Json]:
        """Answers to `terminal/wait_for_exit` that are due now."""
        due = [(request_id, terminal) for request_id, terminal in self._waits if terminal.exit_status()]
        self._waits = [wait for wait in self._waits if wait not in due]
        return [
            {"jsonrpc": "2.0", "id": request_id, "result": terminal.exit_status()}
            for request_id, terminal in due
        ]

    def close(self) -> None:
        """End all terminals."""
        for terminal in self.terminals.values():
            terminal.kill()
        self._waits.clear()

    def _result(self, request_id: object, method: str, params: Json) -> Json | None:
        if method == "session/request_permission":
            return self._permission(params)
        if method == "fs/read_text_file":
            return self._read(params)
        if method == "fs/write_text_file":
            return self._write(params)
        if method == "terminal/create":
            terminal = Terminal(params)
            self.terminals[terminal.id] = terminal
            return {"terminalId": terminal.id}
        if method.startswith("terminal/"):
            return self._terminal(request_id, method, params)
        raise Refused(-32601, f"No method {method}")

    def _permission(self, params: Json) -> Json | None:
        self.asked.append(params)
        if self.permission == NEVER:
            return None
        if self.permission == ERROR:
            raise Refused(-32603, "The question could not be shown")
        if self.permission == NONSENSE:
            return {"outcome": "yes"}
        if self.permission == CANCELLED:
            return {"outcome": {"outcome": "cancelled"}}
        if self.permission == UNKNOWN_OPTION:
            return {"outcome": {"outcome": "selected", "optionId": "no-such-option"}}
        options = params.get("options")
        for option in options if isinstance(options, list) else []:
            if isinstance(option, dict) and option.get("kind") == self.permission:
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
        return {"outcome": {"outcome": "cancelled"}}

    def _read(self, params: Json) -> Json:
        path = str(params.get("path"))
        if self.fail_files:
            raise Refused(-32603, "The file cannot be read")
        if path in self.buffers:
            text = self.buffers[path]
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        line, limit = params.get("line"), params.get("limit")
        lines = text.splitlines(keepends=True)
        start = line - 1 if isinstance(line, int) and line > 0 else 0
        end = start + limit if isinstance(limit, int) else len(lines)
        return {"content": "".join(lines[start:end])}

    def _write(self, params: Json) -> Json:
        if self.fail_files:
            raise Refused(-32603, "The file cannot be written")
        path, content = str(params.get("path")), str(params.get("content"))
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        self.written[path] = content
        return {}

    def _terminal(self, request_id: object, method: str, params: Json) -> Json | None:
        terminal = self.terminals.get(str(params.get("terminalId")))
        if terminal is None or terminal.released:
            raise Refused(-32002, "No such terminal")
        if method == "terminal/output":
            return terminal.output()
        if method == "terminal/wait_for_exit":
            status = terminal.exit_status()
            if status is None:
                self._waits.append((request_id, terminal))
            return status
        if method == "terminal/kill":
            terminal.kill()
            return {}
        if method == "terminal/release":
            terminal.kill()
            terminal.released = True
            return {}
        raise Refused(-32601, f"No method {method}")


class Terminal:
    """One command that runs on behalf of the agent."""

    def __init__(self, params: Json):
        args, env = params.get("args"), params.get("env")
        extra = {str(pair["name"]): str(pair["value"]) for pair in env} if isinstance(env, list) else {}
        command = (
            [str(params.get("command")), *(str(arg) for arg in args if isinstance(args, list))]
            if isinstance(args, list)
            else [str(params.get("command"))]
        )
        self.id = f"terminal-{os.urandom(4).hex()}"
        self.released = False
        self._limit = params.get("outputByteLimit")
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._popen = subprocess.Popen(
            command,
            shell=len(command) == 1,  # some agents give the whole line as the command
            cwd=str(params["cwd"]) if params.get("cwd") else None,
            env={**os.environ, **extra},
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            **system.new_group(),
        )  # type: ignore[call-overload]

    def exit_status(self) -> Json | None:
        """How it ended; None while it runs."""
        code = self._popen.poll()
        if code is None:
            return None
        return {"exitCode": code} if code >= 0 else {"exitCode": None, "signal": str(-code)}

    def output(self) -> Json:
        """What it wrote so far, at most the last bytes that were asked for."""
        data = os.pread(self._file.fileno(), 1 << 24, 0)
        limit = self._limit if isinstance(self._limit, int) else len(data)
        kept = data[-limit:] if limit else b""
        result: Json = {"output": kept.decode("utf-8", "ignore"), "truncated": len(kept) < len(data)}
        if (status := self.exit_status()) is not None:
            result["exitStatus"] = status
        return result

    def kill(self) -> None:
        """End the command and what it started."""
        system.signal_group(self._popen.pid, hard=True)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it
            self._popen.wait(2)


def _error(request_id: object, code: int, text: str) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}

"""The tool that runs commands: bash, in a terminal of the editor if there is one, else as a child.

Runs on the turn's thread; the command's output is read on a thread of its own. Must never wait for a
process that a command leaves behind, and never leave a process running after a cancel or a timeout.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from functools import partial

from acpserver.errors import ToolError
from acpserver.processes import Child, Children
from acpserver.tools.base import EXECUTE, Action, ToolContext, ToolOutcome
from acpserver.tools.content import SHOWN, code_content, shorten
from acpserver.tools.output import Output
from acpserver.tools.pump import OutputPump
from acpserver.tools.terminal import run_in_terminal

DEFAULT_TIMEOUT = 120.0  # seconds
MAX_TIMEOUT = 3600.0  # seconds

_CANCEL_GRACE = 0.05  # seconds from asking to killing; the client waits for the answer
_TIMEOUT_GRACE = 0.1
_TICK = 0.05  # seconds between two looks at a command that says nothing
_QUIET = 0.2  # seconds without output, after the end of the shell, that count as the end of it
_REST_LIMIT = 1.0  # seconds for the rest, when something in the background never stops talking
_PROGRESS_EVERY = 0.2  # seconds between two updates at first
_PROGRESS_SLOWER = 5  # later updates come after a fifth of the time that has passed: a bounded number
_PROGRESS_SIZE = 1024  # bytes of JSON that one update shows


class Bash:
    """bash: one command line, run by the shell."""

    name = "bash"
    kind = "execute"
    description = (
        "Run a command line with the shell in the working directory, and return its output (stdout and "
        "stderr together) and exit code. There is no terminal and no input. A command that takes longer "
        f"than timeout seconds (default {DEFAULT_TIMEOUT:.0f}) is ended with everything it started. "
        "Long output is returned with its middle left out."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": 100_000,
                "description": "The command line",
            },
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_TIMEOUT,
                "description": "Seconds until the command is ended",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    }

    def __init__(self, children: Children):
        self._children = children
        self._shell = shutil.which("bash") or shutil.which("sh") or "/bin/sh"

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for a text that no command line can hold."""
        command = str(arguments["command"])
        try:
            usable = b"\0" not in os.fsencode(command)
        except UnicodeEncodeError:
            usable = False
        if not usable:
            raise ToolError("The command holds a NUL character or a lone surrogate.")
        timeout = arguments.get("timeout")
        seconds = float(timeout) if isinstance(timeout, (int, float)) else DEFAULT_TIMEOUT
        title = f"Run {shorten(command, SHOWN // 4)}"
        return Action(title, partial(self._run, command, seconds, context), access=EXECUTE)

    def _run(self, command: str, timeout: float, context: ToolContext) -> ToolOutcome:
        argv = [self._shell, "-c", command]
        if context.terminals is not None:
            return run_in_terminal(argv, timeout, context.terminals, context)
        child = self._children.start(argv, context.cwd, env={"TERM": "dumb"})
        pump = OutputPump.of(child)
        output = Output()
        try:
            with context.cancel.waking(pump.wake):
                in_time = _follow(child, pump, output, timeout, context)
            context.cancel.check()
        except BaseException:  # a cancel, or a lost client: nobody waits for the command any more
            child.end(_CANCEL_GRACE)
            pump.discard()
            raise
        if not in_time:
            child.end(_TIMEOUT_GRACE)
        left_running = child.release()
        _read_rest(pump, output)
        return _outcome(child, output, None if in_time else timeout, left_running)


def _follow(child: Child, pump: OutputPump, output: Output, timeout: float, context: ToolContext) -> bool:
    """Collect output and show it, until the process ends or a cancel (true), or time is up (false)."""
    start = time.monotonic()
    next_progress = start + _PROGRESS_EVERY
    shown = 0
    while child.poll() is None and not context.cancel.is_set():
        now = time.monotonic()
        if now - start >= timeout:
            return False
        if now >= next_progress and output.length > shown:
            shown = output.length
            context.progress([code_content(shorten(output.last(_PROGRESS_SIZE), _PROGRESS_SIZE))])
            next_progress = now + max(_PROGRESS_EVERY, (now - start) / _PROGRESS_SLOWER)
        data = pump.read(_TICK)
        if data:
            output.add(data)
        elif data == b"":
            child.wait(_TICK)  # it closed its output: the last thing most processes do
    return True


def _read_rest(pump: OutputPump, output: Output) -> None:
    """Take what is still in the pipe when the process has ended, but do not wait for those it left."""
    deadline = time.monotonic() + _REST_LIMIT
    while time.monotonic() < deadline:
        data = pump.read(_QUIET)
        if not data:
            break
        output.add(data)
    pump.discard()
    output.finish()


def _outcome(child: Child, output: Output, timed_out_after: float | None, left_running: bool) -> ToolOutcome:
    """The output, then one line that says how the command ended.

    A command that fails is a failed call, so that the user sees it at the first look; the model reads the
    same text either way.
    """
    code = child.poll() or 0
    raw: dict[str, object] = {"exitCode": code} if code >= 0 else {"signal": _signal_name(-code)}
    status = f"exit code {code}" if code >= 0 else f"ended by signal {_signal_name(-code)}"
    if timed_out_after is not None:
        raw["timedOut"] = True
        status = f"not finished after {timed_out_after:g} seconds, and ended"
    if left_running:
        status += "; processes that it started in the background still run"
    if output.cut:
        raw["truncated"] = True
    text = output.text().rstrip("\n")
    text = f"{text}\n[{status}]" if text else f"[{status}, no output]"
    is_error = code != 0 or timed_out_after is not None
    return ToolOutcome(text, [code_content(text)], raw, is_error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)

"""One agent process with its pipes, and everything that it starts.

Used by the probe's only thread. Nothing here waits longer than it is told to: writing and reading go
through one `step`, so that an agent which neither reads nor writes can never hold the probe up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from acpserver import system

MARK = "ACP_VALIDATE_PROBE"
"""Environment variable that everything inherits which the agent starts; how leftovers are found."""

_STDERR_TAIL = 4_000  # bytes shown when an agent dies
_LOOK_AGAIN = 0.02  # seconds
_BLOCK = 1 << 18


def _environment(home: str | None) -> dict[str, str]:
    if home is None:
        return dict(os.environ)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    kept.pop("ACPSERVER_HOME", None)
    return {**kept, "HOME": home}


class AgentProcess:
    """The process. It gets a process group of its own; its stderr goes to a file.

    `home` is the home folder that it sees, None for the user's own: its logins and sessions are real ones.
    """

    def __init__(self, command: Sequence[str], home: str | None = None):
        self._token = os.urandom(8).hex()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._popen = subprocess.Popen(
            command,
            env={**_environment(home), MARK: self._token},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            **system.new_group(),
        )  # type: ignore[call-overload]
        self._in: int | None = os.dup(self._popen.stdin.fileno())
        self._out: int | None = os.dup(self._popen.stdout.fileno())
        self._popen.stdin.close()
        self._popen.stdout.close()
        os.set_blocking(self._in, False)
        self._unsent = bytearray()

    def write(self, data: bytes) -> None:
        """Queue bytes for the agent's stdin; `step` writes them."""
        if self._in is not None:
            self._unsent += data

    @property
    def writing(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._unsent)

    @property
    def reading(self) -> bool:
        """Whether the agent's stdout is still open."""
        return self._out is not None

    def step(self, seconds: float) -> bytes:
        """Write and read what can be, waiting at most so long for anything to happen."""
        sources = [self._out] if self._out is not None else []
        targets = [self._in] if self._unsent and self._in is not None else []
        if not sources and not targets:
            time.sleep(min(seconds, _LOOK_AGAIN))
            return b""
        readable, writable, _ = select.select(sources, targets, [], max(0.0, seconds))
        if writable:
            self._write_some()
        if not readable or self._out is None:
            return b""
        block = os.read(self._out, _BLOCK)
        if not block:
            os.close(self._out)
            self._out = None
        return block

    def _write_some(self) -> None:
        assert self._in is not None
        try:
            del self._unsent[: os.write(self._in, self._unsent[:_BLOCK])]
        except BlockingIOError:  # less room than one atomic write takes
            return
        except OSError:
            self.close_input()  # the agent no longer reads; what follows from that is seen by the waits

    def close_input(self) -> None:
        """End of input for the agent."""
        self._unsent.clear()
        if self._in is not None:
            os.close(self._in)
            self._in = None

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        self._popen.send_signal(number)

    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        status: int | None = self._popen.poll()
        return status

    def leftovers(self) -> list[int]:
        """Processes that the agent started and that still run, the agent itself left out."""
        found = set(_marked(self._token)) - {self._popen.pid}
        return sorted(found)

    def commands(self) -> list[bytes]:
        """The command lines of the processes that the agent started (Linux), with blanks between words."""
        found = []
        for pid in self.leftovers():
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{pid}/cmdline", "rb") as file,
            ):  # it ended meanwhile
                found.append(file.read().replace(b"\0", b" "))
        return found

    def group_lives(self) -> bool:
        """Whether something of the agent's process group still runs, once the agent has ended."""
        return bool(system.live_groups([self._popen.pid]))

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_TAIL))
        return self._stderr.read().decode("utf-8", "replace").strip()

    def end(self) -> None:
        """Kill whatever is left, wait for it, close everything. Safe to call twice."""
        self.close_input()
        if self._out is not None:
            os.close(self._out)
            self._out = None
        system.signal_group(self._popen.pid, hard=True)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it; nothing more can be done
            self._popen.wait(2)
        for pid in self.leftovers():
            with contextlib.suppress(OSError):  # it ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self._stderr.close()


def _marked(token: str) -> list[int]:
    """Living processes with the mark in their environment (Linux, proc(5); elsewhere none are found)."""
    if not sys.platform.startswith("linux"):
        return []
    wanted = f"\0{MARK}={token}\0".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to someone else
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in b"\0" + file.read() + b"\0":
                        found.append(int(name))
    return found

"""Every child process of the server: started, registered, ended.

One `Children` per server; any thread may start and end a child. All children die with the server: by
`close()` at its normal end, by the guard process (see `guard.py`) when the server itself is killed. A
child is started in a process group of its own, with nothing of ours but the pipes it is given.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from acpserver import process_table, system
from acpserver.errors import ToolError

log = logging.getLogger(__name__)

_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from {module} import {function}; {function}(*sys.argv[1:])"
)
_ENDING = "The server is ending and starts no more programs."
_GUARD_EXIT = 0.3  # seconds; by then nothing is left, and a stopped guard must not delay the end


def python_command(module: str, function: str, *arguments: str) -> list[str]:
    """The command line of a bare interpreter (no site, no user settings) that calls one function of this
    package with these texts."""
    boot = _BOOT.format(module=module, function=function)
    return [sys.executable, "-I", "-S", "-c", boot, _PACKAGE_PARENT, *arguments]


class Child:
    """One child process and its descendants. `popen` holds the pipes."""

    def __init__(self, popen: subprocess.Popen[bytes], marker: str, owner: Children):
        self.popen = popen
        self.marker = marker
        self.pid = popen.pid
        self._owner = owner

    def poll(self) -> int | None:
        """The exit status once the process has ended (negative: the signal), else None."""
        return self.popen.poll()

    def wait(self, timeout: float) -> int | None:
        """Wait up to `timeout` seconds for the end; the exit status, or None."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def end(self, grace: float) -> None:
        """End the process and every descendant: ask, wait `grace` seconds, kill. Blocks until then."""
        self._owner.end(self, grace)

    def release(self) -> bool:
        """Give up a process that has ended; returns whether descendants still run.

        They go on, and die with the server."""
        return self._owner.release(self)


class Children:
    """The children of one server, and the guard that outlives a killed server to end them."""

    def __init__(self, hidden_env: Callable[[], Iterable[str]] = tuple):
        """`hidden_env` names variables that no child may see, such as the one with the API key; asked at
        each start, since the configuration may change."""
        self._hidden_env = hidden_env
        self._token = os.urandom(8).hex()
        self._lock = threading.Lock()  # guards everything below and the order of lines to the guard
        self._running: dict[int, Child] = {}  # by group
        self._headless: set[int] = set()  # groups that go on without their first process
        self._count = 0
        self._guard: subprocess.Popen[bytes] | None = None
        self._closed = False

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        *,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.STDOUT,
    ) -> Child:
        """Start a program. `env` is added to our own environment. Raises `ToolError` if it cannot start."""
        marker = self._new_marker()
        child_env = {**self._environment(), **(env or {}), process_table.MARKER: marker}
        try:
            popen = subprocess.Popen(
                argv, cwd=cwd, env=child_env, stdin=stdin, stdout=stdout, stderr=stderr, **system.new_group()
            )  # type: ignore[call-overload]
        except (OSError, ValueError) as error:
            raise ToolError(f"Cannot start {argv[0]}: {error}") from None
        child = Child(popen, marker, self)
        if not self._register(child):
            child.end(0)
            raise ToolError(_ENDING)
        return child

    def _environment(self) -> dict[str, str]:
        """Our own environment without what children must not see and without an outer server's marker."""
        hidden = {*self._hidden_env(), process_table.MARKER}
        return {key: value for key, value in os.environ.items() if key not in hidden}

    def _new_marker(self) -> str:
        """The marker of the next child. The guard knows the part that all share, before any runs."""
        with self._lock:
            if self._closed:
                raise ToolError(_ENDING)
            self._need_guard()
            self._forget_finished()
            self._count += 1
            return f"{self._token}:{self._count}:"

    def _register(self, child: Child) -> bool:
        """Note the child here and with the guard; false if `close()` has been called and missed it."""
        with self._lock:
            self._running[child.pid] = child
            self._tell(f"+{child.pid}")
            return not self._closed

    def end(self, child: Child, grace: float) -> None:
        """See `Child.end`."""
        if not system.end_processes([child.pid], child.marker, grace, child.poll):
            log.warning("some process of group %d did not end", child.pid)
        with self._lock:
            if self._running.pop(child.pid, None):
                self._tell(f"-{child.pid}")

    def release(self, child: Child) -> bool:
        """See `Child.release`."""
        left = child.pid in system.live_groups([child.pid])
        with self._lock:
            if self._running.pop(child.pid, None):
                self._tell(f"~{child.pid}" if left else f"-{child.pid}")
                if left:
                    self._headless.add(child.pid)
        return left

    def close(self, grace: float = 0.2) -> None:
        """End every child and what they left behind, then the guard. Nothing starts afterwards."""
        with self._lock:
            self._closed = True
            self._forget_finished()
            children, headless = list(self._running.values()), list(self._headless)
            guard, self._guard = self._guard, None
        if guard is None:
            return  # nothing was ever started

        def reap() -> None:
            for child in children:
                child.poll()

        groups = [child.pid for child in children] + headless
        system.end_processes(groups, f"{self._token}:", grace, reap)
        _end_guard(guard)

    def _forget_finished(self) -> None:
        """Drop left-over groups that are over; their number may be given to someone else. Under the lock.

        A living process with a group's number means that this has happened already: ours is reaped."""
        alive = system.live_groups(self._headless)
        for group in list(self._headless):
            if group not in alive or system.process_alive(group):
                self._headless.discard(group)
                self._tell(f"-{group}")

    def _need_guard(self) -> None:
        """Start the guard, or start it again if it died. Under the lock. Raises `ToolError`."""
        if self._guard is not None and self._guard.poll() is None:
            return
        command = python_command("acpserver.guard", "watch", f"{self._token}:")
        try:
            self._guard = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd=os.sep,
                # Without a marker: when this server runs under another one, the guard of that one would end
                # this guard before it has done its work.
                env=self._environment(),
                **system.new_group(),
            )  # type: ignore[call-overload]
        except OSError as error:
            raise ToolError(f"Programs cannot be started now: {error}") from None
        for group in self._running:
            self._tell(f"+{group}")
        for group in self._headless:
            self._tell(f"~{group}")

    def _tell(self, line: str) -> None:
        """Write one line to the guard; short enough to go into the pipe whole. Under the lock."""
        if self._guard is None or self._guard.stdin is None:
            return
        try:
            self._guard.stdin.write(f"{line}\n".encode())
        except OSError as error:  # it died; the next start begins a new one and tells it everything
            log.warning("the guard process is gone: %s", error)


def _end_guard(guard: subprocess.Popen[bytes]) -> None:
    """Close the pipe, on which the guard ends; kill it if it does not."""
    if guard.stdin is not None:
        with contextlib.suppress(OSError):  # it died before; there is nothing to flush
            guard.stdin.close()
    try:
        guard.wait(_GUARD_EXIT)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()

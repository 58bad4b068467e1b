"""`acp-validate run`: sits between an editor and an agent as if it were not there, and has a judge look on.

Bytes pass as they come, one thread for each direction: read, show to the judge, write, read again; so a
side that does not read holds up the other one as it would without us. Judging happens in a process of its
own (`proxy_judge`), which can neither delay nor break anything here. The main thread passes on signals,
waits for the agent, and ends as the agent ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import IO

from acpserver.validate.findings import AGENT, CLIENT
from acpserver.validate.proxy_feed import Feed

BLOCK = 256 << 10  # bytes read at once at most
DRAIN_SECONDS = 10.0  # after the agent's end, for an editor that is slow to read its last words
QUIET_SECONDS = 0.1  # after the agent's end, when somebody else holds its stdout open
LOOK_SECONDS = 0.2  # how late a signal may be passed on
JUDGE_SECONDS = 3.0  # for the judge to catch up after the agent's end
GONE_SECONDS = 2.0  # that an agent may stay when its editor has died, and again after SIGTERM
LOOK_SECONDS = 0.2  # between two looks for the editor after its end of input
DESCRIPTION = "Stand between an editor and an agent, pass everything on, and report what is wrong."
NOT_FOUND, NOT_STARTED = 127, 126  # exit statuses, as a shell's

_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_JUDGE = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from acpserver.validate.proxy_judge import main; sys.exit(main())"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` understands."""
    parser.add_argument("--trace", metavar="FILE", default="", help="append the whole conversation to FILE")
    parser.add_argument("--report", metavar="FILE", default="", help="write faults to FILE, not to stderr")
    parser.add_argument("--pedantic", action="store_true", help="report unknown fields too")
    parser.add_argument("--unstable", action="store_true", help="allow the experimental parts of v1")
    parser.add_argument("--schema", metavar="FILE", default="", help="an official schema file to judge by")
    parser.add_argument("agent", nargs=argparse.REMAINDER, metavar="-- AGENT ARGS…", help="the agent")


def agent_command(given: list[str]) -> list[str]:
    """The agent's command line without the `--` in front of it."""
    return given[1:] if given[:1] == ["--"] else given


def run(args: argparse.Namespace) -> int:
    """Start the agent and stand in the middle until it ends.

    Returns its exit status; ends by the same signal if a signal ended it. 127 and 126: it could not be
    started.
    """
    command = agent_command(args.agent)
    if not command:
        return _say("name the agent after --, for example: acp-validate run -- my-agent --acp", 2)
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for path, how in ((args.trace, written), (args.report, written), (args.schema, os.O_RDONLY)):
        try:
            if path:
                os.close(os.open(path, how, 0o600))
        except OSError as error:
            return _say(f"{path}: {error.strerror}", 2)
    signals = _Signals()
    try:
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        why = getattr(error, "strerror", None) or error
        return _say(f"cannot start {command[0]}: {why}", NOT_FOUND if missing else NOT_STARTED)
    signals.pass_on_to(agent)
    judge, feed = _start_judge(args, agent.pid)
    to_editor = _Pump(_taken(agent.stdout), 1, lambda block: feed.offer(AGENT, block))
    to_agent = _Pump(0, _taken(agent.stdin), lambda block: feed.offer(CLIENT, block))
    to_editor.start()
    to_agent.start()
    threading.Thread(target=_watch_editor, args=(agent, to_agent, to_editor), daemon=True).start()
    status = _waited_for(agent)
    to_editor.finish()
    feed.close()
    try:
        judge.wait(JUDGE_SECONDS)
    except subprocess.TimeoutExpired:
        judge.kill()
        _say("the last part of the conversation was not checked: there was too much of it", 0)
    return _end_as(status)


def _waited_for(agent: subprocess.Popen[bytes]) -> int:
    """The exit status of the agent, once it has ended. A signal that comes just before a wait interrupts
    nothing: the main thread, which handles them, waits in short pieces therefore."""
    over = threading.Event()

    def wait() -> None:
        agent.wait()
        over.set()

    threading.Thread(target=wait, name="wait for the agent", daemon=True).start()
    while not over.wait(LOOK_SECONDS):
        continue
    return agent.wait()


def _start_judge(args: argparse.Namespace, agent_pid: int) -> tuple[subprocess.Popen[bytes], Feed]:
    """The process that judges, and the way to it. It also ends the agent if this process is killed."""
    options = [f"--{name}" for name in ("pedantic", "unstable") if getattr(args, name, False)]
    for name in ("trace", "report", "schema"):
        if value := getattr(args, name, ""):
            options += [f"--{name}", os.path.abspath(value)]
    judge = subprocess.Popen(
        [sys.executable, "-c", _JUDGE, _PACKAGE_PARENT, *options, str(agent_pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # what is typed at a terminal is for the agent, and this one may still load
    )
    feed = Feed(_taken(judge.stdin), lambda: _say("the judge is gone: nothing is checked any more", 0))
    feed.start()
    return judge, feed


class _Pump(threading.Thread):
    """Passes one direction on, block by block. `show` sees each block before the receiver can."""

    def __init__(self, source: int, target: int, show: Callable[[bytes], None]):
        super().__init__(name=f"pump {source} to {target}", daemon=True)
        self._source = source
        self._target = target
        self._show = show
        self._wake, self._waker = os.pipe()
        self._finishing = False
        self.broken = False  # the target no longer reads

    def run(self) -> None:
        """Pass on until the source ends or the target breaks; then close both, so that each side notices."""
        try:
            while block := self._read():
                self._show(block)
                _write(self._target, block)
        except OSError:
            self.broken = True
        _close(self._target)
        _close(self._source)

    def finish(self) -> None:
        """The source's process has ended: wait until what it left in the pipe has been passed on."""
        os.write(self._waker, b".")
        self.join(DRAIN_SECONDS)

    def _read(self) -> bytes:
        """The next block; empty at the end. A child of the agent may hold the pipe open after it: what such
        a one writes is still passed on while it comes, but it is not waited for."""
        while not self._finishing:
            ready, _, _ = select.select([self._source, self._wake], [], [])
            if self._source in ready:
                break
            self._finishing = True
        if self._finishing and not select.select([self._source], [], [], QUIET_SECONDS)[0]:
            return b""
        try:
            return os.read(self._source, BLOCK)
        except BlockingIOError:  # somebody else reads here too and was faster
            return self._read()


def _watch_editor(agent: subprocess.Popen[bytes], to_agent: _Pump, to_editor: _Pump) -> None:
    """End an agent that stays although its editor is dead: it neither writes nor reads any more."""
    to_agent.join()
    while not (to_editor.broken or _has_no_reader(1)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(LOOK_SECONDS)
            return
    for signalled in (agent.terminate, agent.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(GONE_SECONDS)
            return
        signalled()


class _Signals:
    """Signals that we get are the agent's: they are passed on, also those that come before it runs."""

    def __init__(self) -> None:
        self._agent: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        for name in _PASSED_ON:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def pass_on_to(self, agent: subprocess.Popen[bytes]) -> None:
        """The agent runs now."""
        self._agent = agent
        for number in self._early:
            agent.send_signal(number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._agent is None:
            self._early.append(number)
        else:
            self._agent.send_signal(number)


def _has_no_reader(fd: int) -> bool:
    """Whether the other end of this pipe or socket is closed; False when that cannot be seen."""
    if not hasattr(select, "poll"):
        return False
    watch = select.poll()
    watch.register(fd, 0)  # nothing but what is always reported: error, hang-up
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))


def _taken(stream: IO[bytes] | None) -> int:
    """A descriptor of our own for this pipe, whose file object is closed."""
    assert stream is not None
    fd = os.dup(stream.fileno())
    stream.close()
    return fd


def _write(fd: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _close(fd: int) -> None:
    """Close a descriptor. One of the standard three is replaced: its number must not be given away."""
    if fd > 2:
        with contextlib.suppress(OSError):  # closed already
            os.close(fd)
        return
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, fd)
    os.close(null)


def _end_as(status: int) -> int:
    """End as the agent did: with its status, or by the signal that ended it."""
    if status >= 0:
        return status
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status


def _say(text: str, status: int) -> int:
    sys.stderr.write(f"acp-validate: {text}\n")
    return status

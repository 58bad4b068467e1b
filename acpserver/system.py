"""What the operating system decides: descriptors 0 and 1, signals, process groups.

The one room for POSIX-only calls. Each has a Windows branch beside it, written from the documentation
and untested. Any thread may call these; `take_stdio` and `on_shutdown` belong to the main thread at
start. Imported by the small guard process too, so it imports nothing that is slow or large.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from acpserver import process_table

if sys.platform == "win32":  # untested
    import msvcrt
else:
    import fcntl

_LOCK_AGAIN = 0.001  # seconds between two tries to lock a file
_LOCK_REGION = 1 << 40  # where Windows locks one byte, far behind the end of any file
_LOOK_AGAIN = 0.01  # seconds between two looks at dying processes
_AFTER_KILL = 0.5  # seconds until a killed process must be gone; longer only when the kernel holds it


def take_stdio() -> tuple[int, int]:
    """Move the protocol to two private descriptors, returned as (input, output).

    Afterwards descriptor 0 is the null device and 1 is a copy of 2, so that no stray print and no child
    can reach the protocol. Descriptors that were closed at the start count as the null device.
    """
    for fd, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        _open_if_closed(fd, flags)
    if sys.platform == "win32":  # untested
        msvcrt.setmode(0, os.O_BINARY)
        msvcrt.setmode(1, os.O_BINARY)
    private_in, private_out = _private_copy(0), _private_copy(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return private_in, private_out


def stand_in_for_closed() -> None:
    """For what prints: the null device for each standard stream that was closed at the start (else None)."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_if_closed(fd, os.O_WRONLY if fd else os.O_RDONLY)
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def finish_stdout() -> OSError | None:
    """Write what was printed and still waits; why that failed, unless whoever read it has left.

    What cannot be written is dropped: Python would try it again at its end, and complain.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return None if isinstance(error, BrokenPipeError) else error
    return None


def _open_if_closed(fd: int, flags: int) -> None:
    """Put the null device at `fd` unless something is there."""
    try:
        os.fstat(fd)
    except OSError:
        null = os.open(os.devnull, flags)
        if null != fd:
            os.dup2(null, fd)
            os.close(null)
        else:
            os.set_inheritable(fd, True)


def _private_copy(fd: int) -> int:
    """A copy that children do not inherit, numbered above the standard three."""
    if sys.platform == "win32":  # untested; os.dup makes non-inheritable copies
        return os.dup(fd)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def ignore_broken_pipes() -> None:
    """Let writes to a closed pipe fail with EPIPE instead of ending the process."""
    if sys.platform != "win32":
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


class Stop:
    """The wish that the process ends, from a signal or from one of our own threads.

    Signals only leave a note here: an exception from a handler could strike anywhere, also in the middle of
    the end itself. Made on the main thread. `fd` becomes readable with the wish; None where that cannot be.
    """

    def __init__(self) -> None:
        self.signal = ""
        """The name of the first signal that came, "" as long as none has."""
        self.fd: int | None = None
        if sys.platform != "win32":  # untested; only a socket could be waited for there
            self.fd, self._wake = os.pipe()
            os.set_blocking(self._wake, False)
            # Not left to the handlers: a signal that comes just before a read interrupts nothing.
            signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for name in ("SIGINT", "SIGTERM", "SIGBREAK" if sys.platform == "win32" else "SIGHUP"):
            signal.signal(getattr(signal, name), self._note)

    def request(self) -> None:
        """Wish for the end, from any thread."""
        if sys.platform == "win32":  # untested; the documentation says that only this signal reaches it
            signal.raise_signal(signal.SIGINT)
        else:
            os.write(self._wake, b"\0")

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or signal.Signals(number).name
        if self.fd is None:
            raise KeyboardInterrupt  # nothing else ends a blocked read there


@contextlib.contextmanager
def exclusive(fd: int, seconds: float) -> Iterator[None]:
    """Hold an open file against others that do the same, in this process and elsewhere, for the block.

    Waits for at most `seconds`, and then goes on without: whoever holds it so long was stopped in the middle.
    So it does where the file system has no locks. Closing `fd`, also by the death of the process, lets go.
    """
    deadline = time.monotonic() + seconds
    while not (held := _lock(fd)) and time.monotonic() < deadline:
        time.sleep(_LOCK_AGAIN)
    try:
        yield
    finally:
        if held:
            _unlock(fd)


if sys.platform == "win32":  # untested; the documentation allows a region behind the end of the file

    def _lock(fd: int) -> bool:
        """Take the lock if it is free."""
        os.lseek(fd, _LOCK_REGION, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCK_REGION, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def _lock(fd: int) -> bool:
        """Take the lock if it is free. Raises nothing: where there are no locks it counts as taken."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _unlock(fd: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


def unwind_on(*names: str) -> None:
    """Let these signals raise `KeyboardInterrupt`, but for those that whoever started us wants ignored."""
    for name in names:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def stamp(fd: int) -> None:
    """Say that an open file was changed now. What the system notes by itself can be 10 ms old, so that of
    two changes the order is lost. Does nothing where the file is another user's."""
    if os.utime in os.supports_fd:  # not on Windows
        now = time.time_ns()
        with contextlib.suppress(OSError):
            os.utime(fd, ns=(now, now))


def ignore_shutdown() -> None:
    """Stay when the terminal or the editor signals everything it started (the guard does)."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def new_group() -> dict[str, object]:
    """Arguments for `subprocess.Popen` that start the child in a session and process group of its own;
    the group's number is then the child's pid."""
    if sys.platform == "win32":  # untested; the number of CREATE_NEW_PROCESS_GROUP
        return {"creationflags": 0x200}
    return {"start_new_session": True}


def process_alive(pid: int) -> bool:
    """Whether there is a process with this id; one that ended and was not waited for counts too."""
    if sys.platform == "win32":  # untested
        return f'"{pid}"' in os.popen(f'tasklist /FI "PID eq {pid}" /NH /FO CSV').read()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def live_groups(groups: Iterable[int]) -> set[int]:
    """Those process groups that have a living member.

    A process that ended counts as gone even while nobody has waited for it: orphans depend for that on
    the first process of the system, which in some containers never does it."""
    if sys.platform == "win32":  # untested; groups cannot be asked there
        return {group for group in groups if process_alive(group)}
    known = {group for group in groups if _has_members(group)}
    table = process_table.groups() if known else {}
    return known.intersection(table.values()) if table else known


if sys.platform != "win32":

    def _has_members(group: int) -> bool:
        """Whether the group exists, be it with dead members only."""
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS answers so when all members are dead; else it is someone else's
            return False
        return True


def signal_group(group: int, hard: bool) -> None:
    """Ask a process group to end, or kill it when `hard`. One that is gone already is fine."""
    if sys.platform == "win32":  # untested; without a console only /F has an effect
        os.system(f"taskkill /T /F /PID {group} >NUL 2>&1")
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL if hard else signal.SIGTERM)


def marked_processes(marker: str) -> list[int]:
    """Processes whose `MARKER` has a value that begins with `marker`.

    Linux only, by /proc; elsewhere the list is empty and only process groups are known."""
    wanted = marker.encode()
    return [pid for pid, value in process_table.marks().items() if value.startswith(wanted)]


def end_processes(
    groups: Iterable[int], marker: str, grace: float, reap: Callable[[], object] = lambda: None
) -> bool:
    """End these process groups and every marked process: ask, wait up to `grace` seconds, kill.

    Blocks; returns whether all are gone. `reap` is called while waiting, for the caller's own children.
    What is forked during the killing is found by looking again until nothing is left.
    """
    known = list(groups)
    for hard, seconds in ((False, grace), (True, _AFTER_KILL)):
        deadline = time.monotonic() + seconds
        looks = 0
        while True:
            reap()
            left = live_groups(known)
            # Reading all of /proc is the slow part: at first, and then when the groups are gone.
            escaped = marked_processes(marker) if looks == 0 or not left else []
            if not left and not escaped:
                reap()  # what ended since the last time
                return True
            if hard or looks == 0:
                _signal_all(left, escaped, hard)
            if time.monotonic() >= deadline:
                break
            looks += 1
            time.sleep(_LOOK_AGAIN)
    return False


def _signal_all(groups: set[int], pids: list[int], hard: bool) -> None:
    for group in groups:
        signal_group(group, hard)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL if hard and sys.platform != "win32" else signal.SIGTERM)

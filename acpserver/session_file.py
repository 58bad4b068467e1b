"""The file of one session: append, read what is new, hold it for a turn, delete.

A JSON Lines file that is only ever appended to, and beside it a lock file. Any thread may call. A line that
was acknowledged is never changed or removed, whatever else the file holds.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from acpserver import jsontext
from acpserver.errors import StoreError
from acpserver.records import Record

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger(__name__)

POLL_SECONDS = 0.02  # between two looks at a lock that another process holds
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def warm_up() -> ModuleType:
    """Load what the first turn needs, on any thread."""
    import filelock  # measured: 40 ms that the editor would wait for at the start

    return filelock


class SessionFile:
    """The file of one session. One object for each session of a process."""

    def __init__(self, path: str, session_id: str):
        self.path = path
        self.session_id = session_id
        self.offset = 0
        """How much of the file has been read or written here: what is behind it came from elsewhere."""
        self.stored = True
        """Whether there was a file at all: without one, a missing file does not mean "deleted"."""
        self.problem = ""
        """Why the last append did not reach the disk, for a person; "" when it did."""
        self._write_lock = threading.Lock()  # guards the offset, the backlog and the order of lines
        self._backlog: list[bytes] = []

    def append(self, record: Record) -> None:
        """Write one record, behind whatever the file ends with.

        When the disk does not take it, it is kept and written with the next one; `problem` says so.
        """
        line = jsontext.dumps(record).encode("ascii") + b"\n"
        with self._write_lock:
            self._backlog.append(line)
            try:
                self._write_backlog()
            except FileNotFoundError:
                if self.stored:
                    self._backlog.clear()  # the session was deleted; it must not come back
            except OSError as error:
                self.fail(error)
            else:
                self.problem = ""

    def _write_backlog(self) -> None:
        """Append with one write, which the system keeps apart from those of other processes (POSIX
        write, O_APPEND). A torn last line, from a crash or a full disk, is closed off first."""
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | NO_FOLLOW)
        try:
            size = os.lseek(fd, 0, os.SEEK_END)
            if size:
                os.lseek(fd, -1, os.SEEK_END)
                if os.read(fd, 1) != b"\n":
                    self._backlog.insert(0, b"\n")
            written = os.write(fd, b"".join(self._backlog))
        finally:
            os.close(fd)
        if self.offset == size:
            self.offset += written
        while self._backlog and written >= len(self._backlog[0]):
            written -= len(self._backlog.pop(0))
        if self._backlog:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(self, error: OSError) -> None:
        """Note that the disk does not take it."""
        self.problem = f"The session cannot be saved: {error.strerror or error}"
        log.info("%s: %s", self.path, error)

    def sync(self) -> None:
        """Make sure that what was appended survives a power cut. Blocks for the disk."""
        try:
            fd = os.open(self.path, os.O_RDONLY | NO_FOLLOW)
        except OSError:
            return  # deleted, or `problem` says why it could not be written either
        try:
            os.fsync(fd)
        except OSError as error:
            self.fail(error)
        finally:
            os.close(fd)

    def read(self) -> Iterator[Record | None]:
        """All records, and None for each line that is damaged; from now on all of them are known here.

        A last line without its end is left for later: it may still be being written.
        """
        with self._write_lock:
            data = self._read_all()
            self.offset = data.rfind(b"\n") + 1
            end = self.offset
        return parse_lines(data[:end])

    def read_only(self) -> Iterator[Record | None]:
        """As `read`, for a replay: what is known here stays as it is."""
        data = self._read_all()
        return parse_lines(data[: data.rfind(b"\n") + 1])

    def has_news(self) -> bool:
        """Whether another process has appended something."""
        try:
            return os.stat(self.path).st_size > self.offset
        except OSError:
            return False

    def _read_all(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except OSError:
            return b""

    @contextmanager
    def turn(self, cancelled: Callable[[], bool], on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the session against other processes for the time of a turn.

        `on_wait` is called once when another process holds it. Raises `TimeoutError` when `cancelled`
        says so meanwhile. The system releases the lock of a process that dies. A folder that takes no
        lock file does not stop the conversation.
        """
        try:
            lock = self._acquire(cancelled, on_wait)
        except OSError as error:
            log.info("no lock for %s: %s", self.path, error)
            lock = None
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _acquire(self, cancelled: Callable[[], bool], on_wait: Callable[[], None]) -> BaseFileLock:
        filelock = warm_up()
        lock: BaseFileLock = filelock.FileLock(self.path + ".lock", mode=0o600)
        try:
            lock.acquire(blocking=False)
            return lock
        except filelock.Timeout:
            on_wait()
        try:
            lock.acquire(poll_interval=POLL_SECONDS, cancel_check=cancelled)
        except filelock.Timeout:
            raise TimeoutError("cancelled while another process holds the session") from None
        return lock

    def delete(self) -> None:
        """Remove the file and its lock; one that is gone is fine. Raises `StoreError`."""
        for path in (self.path, self.path + ".lock"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"The session cannot be deleted: {error.strerror}") from error


def parse_lines(data: bytes) -> Iterator[Record | None]:
    """The record in each line, None for a line that holds none; blank lines are left out."""
    for line in data.split(b"\n"):
        if line.strip():
            try:
                record = jsontext.loads(line.decode("utf-8"))
            except ValueError:
                record = None
            yield record if isinstance(record, dict) else None

"""The file of one session: create, append, read, hold it for a turn, delete.

A JSON Lines file that is only ever appended to, and beside it a lock file. Any thread may call, one at a
time: `Session.story` sees to that. A line that was acknowledged is never changed or removed, whatever else
the file holds.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING

from acpserver import jsontext, system
from acpserver.errors import RESOURCE_NOT_FOUND, Cancelled, StoreError
from acpserver.records import Record, reported

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger(__name__)

POLL_SECONDS = 0.02  # between two looks at a lock that another process holds
WRITE_SECONDS = 1.0  # that one write of another process may take; a user waits for what follows ours
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
DELETED = "The session was deleted elsewhere"


def warm_up() -> ModuleType:
    """Load what the first turn needs, on any thread."""
    import filelock  # measured: 40 ms that the editor would wait for at the start

    return filelock


class SessionFile:
    """The file of one session. One object for each session of a process."""

    def __init__(self, path: str, session_id: str):
        self.path = path
        self.session_id = session_id
        self.stored = True
        """Whether there was a file at all: without one, a missing file does not mean "deleted"."""
        self.problem = ""
        """Why the last record did not reach the disk, for a person; "" when it did."""
        self._known = 0
        """How much of the file has been read or written here: what is behind it came from elsewhere."""
        self._backlog: list[bytes] = []
        """Lines that the disk did not take."""
        self._torn = False
        """Whether the file ends with a piece of the first of them."""

    def create(self, records: Iterable[Record]) -> None:
        """Make the file of a new session, on disk with these records when this returns.

        When the disk does not take it, `problem` says so, and the next `append` tries again.
        """
        self.stored = False
        self._backlog = [_line(record) for record in records]
        self._flush()

    def append(self, record: Record) -> None:
        """Write one record, behind whatever the file ends with.

        When the disk does not take it, it is kept and written with the next one; `problem` says so.
        """
        self._backlog.append(_line(record))
        self._flush()

    def _flush(self) -> None:
        try:
            if self.stored:
                self._append_backlog()
            else:
                self._create_with_backlog()
        except OSError as error:
            if self.stored and isinstance(error, FileNotFoundError):
                self._backlog.clear()  # it must not come back
                self.problem = DELETED
            else:
                self._fail(error)
        else:
            self.problem = ""

    def _append_backlog(self) -> None:
        """Append with one write. A torn last line, from a crash or a full disk, is closed off first.

        Held against other processes meanwhile: they keep their writes apart (POSIX write, O_APPEND), but a
        write that is under way can be seen in part, and would be taken for a torn one.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | NO_FOLLOW)
        try:
            with system.exclusive(fd, WRITE_SECONDS):
                size = os.lseek(fd, 0, os.SEEK_END)
                closing = b""
                if size and _last_byte(fd, size) != b"\n":
                    closing = self._closing(_content(fd))
                data = closing + b"".join(self._backlog)
                written = os.write(fd, data)
                system.stamp(fd)  # by which sessions are listed
        finally:
            os.close(fd)
        if self._known == size:
            self._known += written
        self._torn = written < len(data) and not data[:written].endswith(b"\n")
        written -= len(closing)
        while self._backlog and written >= len(self._backlog[0]):
            written -= len(self._backlog.pop(0))
        if self._backlog:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _closing(self, data: bytes) -> bytes:
        """What to write behind a last line without its end, so that it is set aside or, if only the end is
        missing, kept. Nobody was told of what it was to hold, so there is no damage to report."""
        if self._torn:
            return b"\0\n" + _line(reported(1))  # not to be kept: it stands in the backlog as well
        tail = _tail(data)
        return b"\n" if _is_record(tail) or not tail.strip() else b"\n" + _line(reported(1))

    def _create_with_backlog(self) -> None:
        """A file that is there whole or not at all."""
        folder = os.path.dirname(self.path)
        _make_folder(folder)
        data = b"".join(self._backlog)
        temporary = self.path + ".new"
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                system.stamp(fd)
                os.fsync(fd)
            os.rename(temporary, self.path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync(folder)
        self.stored = True
        self._known = len(data)
        self._backlog.clear()

    def _fail(self, error: OSError) -> None:
        self.problem = f"The session cannot be saved: {error.strerror or error}"
        log.info("%s: %s", self.path, error)

    def sync(self) -> None:
        """Make sure that what was appended survives a power cut. Blocks for the disk."""
        error = _sync(self.path)
        if error is not None and not isinstance(error, FileNotFoundError):
            self._fail(error)

    def read(self) -> list[Record | None]:
        """All records, and None for each line that is damaged; from now on all of them are known here.

        A piece of a line at the end is left for later: it may still be being written. Raises `StoreError`
        when the file cannot be read, since a conversation must not go on as if it were empty.
        """
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            if self.stored:
                raise StoreError(DELETED, RESOURCE_NOT_FOUND) from None
            data = b""
        except OSError as error:
            if self.stored:
                raise StoreError(f"The session cannot be read: {error.strerror or error}") from error
            data = b""
        tail = _tail(data)
        self._known = len(data) - len(tail)
        lines = data[: self._known].split(b"\n")
        if _is_record(tail) and not self._torn:
            lines.append(tail)
        return list(parse_lines([*lines, *self._backlog]))

    def has_news(self) -> bool:
        """Whether another process has changed the file."""
        try:
            return os.stat(self.path).st_size != self._known
        except OSError:
            return False

    def is_gone(self) -> bool:
        """Whether the file was there and is not any more."""
        return self.stored and not os.path.lexists(self.path)

    @contextmanager
    def turn(self, cancelled: Callable[[], bool], on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the session against other processes for the time of a turn.

        `on_wait` is called once when another process holds it. Raises `Cancelled` when `cancelled` says so
        meanwhile. The system releases the lock of a process that dies. A session that is only in memory
        needs no lock, and a folder that takes no lock file does not stop the conversation.
        """
        lock = None
        if self.stored and not self.is_gone():
            try:
                lock = self._acquire(cancelled, on_wait)
            except OSError as error:
                log.info("no lock for %s: %s", self.path, error)
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
            raise Cancelled("another process holds the session") from None
        return lock

    def delete(self) -> None:
        """Remove the file and its lock; one that is gone is fine. Raises `StoreError`."""
        for path in (self.path, self.path + ".lock"):
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise StoreError(f"The session cannot be deleted: {error.strerror}") from error


def parse_lines(lines: Iterable[bytes]) -> Iterator[Record | None]:
    """The record in each line, None for a line that holds none; blank lines are left out."""
    for line in lines:
        if line.strip():
            try:
                record = jsontext.loads(line.decode("utf-8"))
            except ValueError:
                record = None
            yield record if isinstance(record, dict) else None


def _last_byte(fd: int, size: int) -> bytes:
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1)  # a file object would double the time of a record


def _content(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def _tail(data: bytes) -> bytes:
    """What stands behind the last line end."""
    return data[data.rfind(b"\n") + 1 :]


def _is_record(line: bytes) -> bool:
    return next(parse_lines([line]), None) is not None


def _line(record: Record) -> bytes:
    return jsontext.dumps(record).encode("ascii") + b"\n"


def _make_folder(path: str) -> None:
    """As `os.makedirs`, but each folder that is made is private. Raises `OSError`."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent) and parent != path:
        _make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _sync(path: str) -> OSError | None:
    """Bring a file or a folder to the disk; the error, if there was one."""
    try:
        fd = os.open(path, os.O_RDONLY | NO_FOLLOW)
    except OSError as error:
        return error
    try:
        os.fsync(fd)
    except OSError as error:
        return error
    finally:
        os.close(fd)
    return None

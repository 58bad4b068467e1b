"""The folder of session files: create, find, list, sweep.

`sessions/<hash of the real cwd>/<id>.jsonl` under the state folder. Any thread may call; several server
processes may share the folder.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from acpserver.errors import INVALID_PARAMS, RpcError, StoreError
from acpserver.records import Record
from acpserver.session_file import SessionFile, parse_lines

log = logging.getLogger(__name__)

ID = re.compile(r"sess_[0-9a-f]{32}")
PAGE = 50  # sessions in one page of a list
UNUSED_SECONDS = 24 * 3600.0  # how long a session that was never prompted is kept


class Entry(NamedTuple):
    """A stored session as a list shows it; entries sort by time. `changed` is in nanoseconds since 1970."""

    changed: int
    session_id: str
    path: str


class Store:
    """All session files of a state folder. `folder` "" (no home) means that nothing can be stored."""

    def __init__(self, state_dir: str):
        self.folder = os.path.join(state_dir, "sessions") if state_dir else ""

    def create(self, session_id: str, cwd: str, records: list[Record]) -> SessionFile:
        """A new file that holds these records, on disk when this returns.

        When it cannot be written its `problem` says why, and the session lives in memory.
        """
        path = os.path.join(self.folder or os.devnull, folder_of(cwd), session_id + ".jsonl")
        file = SessionFile(path, session_id)
        file.create(records)
        return file

    def find(self, session_id: str) -> SessionFile | None:
        """The file of a session, None when there is none. An id of another shape touches no path."""
        if not ID.fullmatch(session_id):
            return None
        for folder in self._folders():
            path = os.path.join(folder, session_id + ".jsonl")
            if os.path.isfile(path):
                return SessionFile(path, session_id)
        return None

    def find_by_prefix(self, prefix: str) -> list[str]:
        """The ids that begin with this text, at most two: enough to tell that it is not unique."""
        if not re.fullmatch(r"sess_[0-9a-f]{4,32}", prefix):
            return []
        found = (entry.session_id for entry in self._entries(None) if entry.session_id.startswith(prefix))
        return list(islice(found, 2))

    def page(
        self, cwd: str | None, cursor: str | None, used: Callable[[Entry], bool]
    ) -> tuple[list[Entry], str]:
        """One page of stored sessions that are `used`, the latest first, and the cursor of the next page.

        The cursor is "" at the end. It names a place in time, so pages stay right while sessions are added.
        Raises `RpcError` -32602 for a cursor that is none of ours.
        """
        before = _place(cursor) if cursor else None
        entries = [entry for entry in self._entries(cwd) if before is None or entry[:2] < before]
        entries.sort(reverse=True)
        page = list(islice(filter(used, entries), PAGE + 1))
        more = len(page) > PAGE
        return page[:PAGE], _cursor(page[PAGE - 1]) if more else ""

    def sweep(self, used: Callable[[Entry], bool]) -> None:
        """Remove the files of sessions that are not `used` and are older than a day, and what a crash or a
        deletion left beside session files."""
        limit = time.time_ns() - int(UNUSED_SECONDS * 1e9)
        for entry in self._entries(None):
            if entry.changed < limit and not used(entry):
                with suppress(StoreError):  # there is no hurry
                    SessionFile(entry.path, entry.session_id).delete()
        for folder in self._folders():
            for path in _leftovers(folder, limit):
                with suppress(OSError):  # as above
                    os.unlink(path)

    def _folders(self) -> list[str]:
        folders = _files(self.folder or os.devnull)
        return [folder.path for folder in folders if folder.is_dir(follow_symlinks=False)]

    def _entries(self, cwd: str | None) -> Iterator[Entry]:
        """Every session file, or those of one working directory."""
        folders = self._folders() if cwd is None else [os.path.join(self.folder, folder_of(cwd))]
        for folder in folders:
            for file in _files(folder):
                session_id = file.name.removesuffix(".jsonl")
                if session_id != file.name and ID.fullmatch(session_id) and file.is_file():
                    try:
                        changed = file.stat(follow_symlinks=False).st_mtime_ns
                    except FileNotFoundError:
                        continue  # removed meanwhile
                    yield Entry(changed, session_id, file.path)


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return  # removed meanwhile, or there was none


def _leftovers(folder: str, limit: int) -> Iterator[str]:
    """The paths of unfinished files, and of locks without a session, that are older than `limit`."""
    for file in _files(folder):
        session = file.path.removesuffix(".lock")
        orphan = session.endswith(".jsonl") and session != file.path and not os.path.lexists(session)
        if orphan or file.name.endswith(".jsonl.new"):
            with suppress(FileNotFoundError):
                if file.stat(follow_symlinks=False).st_mtime_ns < limit:
                    yield file.path


def folder_of(cwd: str) -> str:
    """The name of the folder for the sessions of a working directory: links, `.`, `..`, a slash at the end
    and the form of Unicode make no difference."""
    try:
        real = unicodedata.normalize("NFC", os.path.realpath(cwd))
    except ValueError:  # no file system can hold such a name, so there is nothing to resolve
        real = cwd
    import hashlib  # measured: 3 ms for a library of ciphers, at a start that needs none

    return hashlib.sha256(real.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def same_folder(one: str, other: str) -> bool:
    """Whether two spellings name the same working directory."""
    return folder_of(one) == folder_of(other)


def read_head(path: str) -> Iterator[Record | None]:
    """The records of a file up to its first prompt: enough for its working directory and its title.
    Raises `OSError`."""
    with open(path, "rb") as file:
        for record in parse_lines(file):
            yield record
            if record and record.get("type") == "user":
                return


def _cursor(entry: Entry) -> str:
    return base64.urlsafe_b64encode(f"{entry.changed}:{entry.session_id}".encode()).decode()


def _place(cursor: str) -> tuple[int, str]:
    try:
        changed, _, session_id = base64.b64decode(cursor, b"-_", validate=True).decode().partition(":")
        if ID.fullmatch(session_id) and re.fullmatch(r"\d{1,20}", changed):
            return int(changed), session_id
    except (binascii.Error, ValueError):
        pass  # the same answer as for text that decodes to something else
    raise RpcError.with_details(INVALID_PARAMS, "cursor: not one that session/list gave")

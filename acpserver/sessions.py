"""All sessions of this process: in memory by id, and the store behind them.

The reader only looks sessions up; everything that touches the disk runs on control workers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from acpserver import records
from acpserver.conversation import Conversation, add_up
from acpserver.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from acpserver.records import Record
from acpserver.session import Session
from acpserver.session_file import SessionFile
from acpserver.store import Entry, Store, read_head, same_folder

IDLE_SECONDS = 3600.0  # after which a conversation leaves the memory
SWEEP_SECONDS = 3600.0  # between two looks for sessions that were never used


def new_id() -> str:
    """A session id: 128 random bits, in a fixed pattern that is safe in a file name (`store.ID`)."""
    return "sess_" + os.urandom(16).hex()


class Sessions:
    """The registry. `models` are those that can be chosen; the first is the one of new sessions."""

    def __init__(self, store: Store, models: Sequence[str]):
        self.store = store
        self._models = models
        self._sessions_lock = threading.Lock()  # guards what is below
        self._sessions: dict[str, Session] = {}
        self._leaving: list[Session] = []
        self._next_sweep = 0.0  # time.monotonic()

    def create(self, cwd: str, roots: tuple[str, ...]) -> Session:
        """A new session, on disk when this returns (or not at all: see `SessionFile.problem`)."""
        session_id = new_id()
        file = self.store.create(session_id, cwd, [records.header(session_id, cwd)])
        return self._remember(Session(session_id, cwd, roots, file, self._models))

    def get(self, session_id: str) -> Session:
        """A session that is in use in this process. Raises `RpcError` -32002."""
        session = self.peek(session_id)
        if session is None:
            raise not_found(session_id)
        return session

    def peek(self, session_id: str) -> Session | None:
        """A session that is in use in this process, if it is."""
        with self._sessions_lock:
            return self._sessions.get(session_id)

    def open(self, session_id: str, cwd: str, roots: tuple[str, ...], by_prefix: bool = False) -> Session:
        """A stored session, for load and resume; one that is in use already goes on as it is.

        Raises `RpcError` -32002 when there is none, -32602 when it belongs to another folder.
        """
        session = self.peek(session_id)
        if session is not None and session.file.is_gone() and not session.turns.busy:
            with self.leaving(session):  # deleted by another process
                servers = session.use_servers(None)
                if servers is not None:
                    servers.close()
            session = None
        if session is None:
            file = self._find(session_id, by_prefix)
            _need_folder(_head(file.path).cwd, cwd)
            session = self._remember(Session(session_id, cwd, roots, file, self._models))
        else:
            _need_folder(session.cwd, cwd)
        session.roots = roots
        session.last_used = time.monotonic()
        return session

    def fork(self, session_id: str, cwd: str, roots: tuple[str, ...], message_id: str | None) -> Session:
        """A new session with the same records, up to the last finished one or up to a message.

        Raises `RpcError` -32002 when there is no such session or message, -32602 for another folder.
        """
        active = self.peek(session_id)
        stored = active.records() if active else self._find(session_id, by_prefix=False).read()
        conversation, source = add_up(stored)
        _need_folder(conversation.cwd, cwd)
        new = new_id()
        origin: Record = {"sessionId": session_id}
        if message_id:
            origin["messageId"] = message_id
        file = self.store.create(new, cwd, [records.header(new, cwd, origin), *_until(source, message_id)])
        return self._remember(Session(new, cwd, roots, file, self._models))

    @contextmanager
    def leaving(self, session: Session) -> Iterator[None]:
        """Take a session out of use; while the block ends what runs in it, only `using` finds it."""
        with self._sessions_lock:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
            self._leaving.append(session)
        try:
            yield
        finally:
            with self._sessions_lock:
                self._leaving.remove(session)

    def delete(self, session_id: str) -> None:
        """Remove a stored session; one that is not there is fine. Raises `StoreError`."""
        file = self.store.find(session_id)
        if file is not None:
            file.delete()

    def using(self, session_id: str) -> list[Session]:
        """The sessions of this process that use the file of this one, also those that are being closed: a
        client may know it by the beginning of its id, too."""
        with self._sessions_lock:
            sessions = [*self._sessions.values(), *self._leaving]
        return [session for session in sessions if session_id in (session.id, session.file.session_id)]

    def all(self) -> list[Session]:
        """The sessions that are in memory."""
        with self._sessions_lock:
            return list(self._sessions.values())

    def tidy(self) -> None:
        """Drop conversations that have been idle for long from memory. Not for the reader: it may wait."""
        limit = time.monotonic() - IDLE_SECONDS
        for session in self.all():
            if session.last_used < limit:
                session.unload()

    def page(self, cwd: str | None, cursor: str | None) -> tuple[list[tuple[Entry, Conversation]], str]:
        """One page of the sessions that were prompted, the latest first, each with the beginning of its
        conversation; and the cursor of the next page, "" at the end. Raises `RpcError` -32602."""
        heads: dict[str, Conversation] = {}

        def used(entry: Entry) -> bool:
            heads[entry.path] = _head(entry.path)
            return heads[entry.path].turns > 0

        entries, following = self.store.page(cwd, cursor, used)
        return [(entry, heads[entry.path]) for entry in entries], following

    def sweep(self) -> None:
        """Remove stored sessions that were never prompted and are older than a day; once in a while."""
        now = time.monotonic()
        with self._sessions_lock:
            if now < self._next_sweep:
                return
            self._next_sweep = now + SWEEP_SECONDS
            mine = {session.file.session_id for session in self._sessions.values()}
        self.store.sweep(lambda entry: entry.session_id in mine or _head(entry.path).turns > 0)

    def _find(self, session_id: str, by_prefix: bool) -> SessionFile:
        file = self.store.find(session_id)
        if file is None and by_prefix:
            matches = self.store.find_by_prefix(session_id)
            if len(matches) > 1:
                details = f"sessionId: {session_id} is the beginning of more than one session"
                raise RpcError.with_details(INVALID_PARAMS, details)
            file = self.store.find(matches[0]) if matches else None
        if file is None:
            raise not_found(session_id)
        return file

    def _remember(self, session: Session) -> Session:
        """Register a session; one that came first stays."""
        self.tidy()
        with self._sessions_lock:
            return self._sessions.setdefault(session.id, session)


def not_found(session_id: str) -> RpcError:
    """The error for an unknown session (rule L4)."""
    details = f"Session not found: {session_id[:200]}. Create one with session/new."
    return RpcError(RESOURCE_NOT_FOUND, "Session not found", {"details": details})


def _need_folder(own: str, given: str) -> None:
    """Rule S9. A file whose first line is lost knows no folder and fits any."""
    if own and not same_folder(own, given):
        raise RpcError.with_details(INVALID_PARAMS, f"cwd: the session belongs to {own}, not to {given}")


def _head(path: str) -> Conversation:
    conversation = Conversation()
    try:
        for record in read_head(path):
            conversation.add(record)
    except OSError:
        pass  # deleted since it was listed
    return conversation


def _until(source: list[Record | None], message_id: str | None) -> Iterator[Record]:
    """The records of a fork: the good ones, up to the prompt or the answer that holds the message, with its
    results; without the header, and without what was said of damage, which stays behind."""
    found = goes_on = False
    for record in source:
        if record is None or record.get("type") in ("session", "reported"):
            continue
        if found and (record.get("type") == "user" or (record.get("type") == "assistant" and not goes_on)):
            return
        if record.get("type") in ("user", "assistant"):
            goes_on = bool(record.get("more"))
        ids = record.get("messageIds")
        found = found or (
            message_id is not None
            and (record.get("messageId") == message_id or (isinstance(ids, list) and message_id in ids))
        )
        yield record
    if message_id is not None and not found:
        raise RpcError.with_details(RESOURCE_NOT_FOUND, f"No message {message_id[:100]} in this session")

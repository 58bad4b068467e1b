"""The methods that begin, end and list sessions. They touch the disk, so they run on control workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

from acpserver import config_file, workspace
from acpserver.agent import translate
from acpserver.agent.replay import replay
from acpserver.client import Client, Update
from acpserver.config_file import Permissions
from acpserver.conversation import Conversation
from acpserver.errors import INVALID_PARAMS, REQUEST_CANCELLED, RpcError
from acpserver.llm.pairing import NO_RESULT
from acpserver.llm.providers import Models
from acpserver.llm.types import ToolResult
from acpserver.mcp import McpServers
from acpserver.options import session_state
from acpserver.processes import Children
from acpserver.rpc.call import Call
from acpserver.session import Session
from acpserver.sessions import Sessions
from acpserver.store import Entry

LONGEST_TURN = 24 * 3600.0  # seconds that servers which a turn uses are kept for it
CLOSE_SECONDS = 5.0  # how long close and delete wait for the turn that they cancelled

CAPABILITIES: dict[str, object] = {
    "list": {},
    "resume": {},
    "close": {},
    "delete": {},
    "fork": {},
    "additionalDirectories": {},
}
"""What `initialize` says of these methods (`sessionCapabilities`); `loadSession` is beside it."""


class SessionMethods:
    """One handler for each method; the parameters have been checked against the schema.

    `permissions` gives those of the user; `opened` is called, after the answer, with each session that the
    client may use from now on and the models that it was told of.
    """

    def __init__(
        self,
        sessions: Sessions,
        models: Models,
        children: Children,
        permissions: Callable[[], Permissions],
        opened: Callable[[Session, list[tuple[str, str]]], None],
    ):
        self._sessions = sessions
        self._models = models
        self._children = children
        self._permissions = permissions
        self._opened = opened

    def new(self, call: Call) -> None:
        """Answered once the session is on disk: some clients end the process at once and load it later."""
        session = self._sessions.create(*_folders(call))
        self._prepare(session, call)
        self._answer(call, session, {"sessionId": session.id})

    def load(self, call: Call, client: Client) -> None:
        """Replay the whole conversation, then answer (rule S2)."""
        session = self._sessions.open(_session_id(call), *_folders(call))
        self._prepare(session, call)
        updates = client.updates(session.id, session.story, call)
        with session.story:
            for update in _told(session):
                if call.cancel.is_set():
                    raise RpcError(REQUEST_CANCELLED)
                updates.send(update, checked=True)
            self._answer(call, session, {})

    def resume(self, call: Call) -> None:
        """Go on without a replay (rule S3); the beginning of an id is enough when it is unique."""
        session = self._sessions.open(_session_id(call), *_folders(call), by_prefix=True)
        self._prepare(session, call)
        self._answer(call, session, {})

    def fork(self, call: Call) -> None:
        """A new session with the same history; `_meta.messageId` names the last message it takes."""
        meta = call.params.get("_meta")
        message_id = meta.get("messageId") if isinstance(meta, dict) else None
        session = self._sessions.fork(
            _session_id(call), *_folders(call), message_id if isinstance(message_id, str) else None
        )
        self._prepare(session, call)
        self._answer(call, session, {"sessionId": session.id})

    def list(self, call: Call) -> None:
        """One page of stored sessions (rule S7)."""
        cwd, cursor = call.params.get("cwd"), call.params.get("cursor")
        if isinstance(cwd, str) and not os.path.isabs(cwd):
            raise RpcError.with_details(INVALID_PARAMS, f"cwd must be an absolute path: {cwd[:200]!r}")
        page, following = self._sessions.page(
            cwd if isinstance(cwd, str) else None, cursor if isinstance(cursor, str) else None
        )
        result: dict[str, object] = {"sessions": [_info(entry, head) for entry, head in page]}
        if following:
            result["nextCursor"] = following
        call.answer(result)
        self._sessions.sweep()

    def close(self, call: Call, client: Client) -> None:
        """Cancel what runs, wait for its answer, forget the session; its file stays (rule S5).

        A turn that does not end in `CLOSE_SECONDS` (nothing can stop a thread) is answered all the same, and
        heard of no more. It keeps the file locked: loaded again, the session shows its call as failed, and a
        prompt waits until it has ended.
        """
        session = self._sessions.get(_session_id(call))
        self._end(session, "session/close", client)
        session.file.sync()
        call.answer({})

    def delete(self, call: Call, client: Client) -> None:
        """Close the session if it is open, and remove its file; twice is fine (rule S6)."""
        for session in self._sessions.using(_session_id(call)):
            self._end(session, "session/delete", client)
            session.file.delete()
        self._sessions.delete(_session_id(call))
        call.answer({})

    def _end(self, session: Session, reason: str, client: Client) -> None:
        with self._sessions.leaving(session):
            session.turns.cancel(reason)
            if not session.turns.wait_idle(CLOSE_SECONDS):
                _abandon(session, client)
            servers = session.use_servers(None)
            if servers is not None:
                servers.close()

    def _prepare(self, session: Session, call: Call) -> None:
        session.permissions = config_file.with_project(self._permissions(), session.cwd)
        self._connect_servers(session, call)

    def _answer(self, call: Call, session: Session, result: dict[str, object]) -> None:
        shown = self._models.names()
        call.answer({**result, **session_state(session, self._models)})
        self._opened(session, shown)

    def _connect_servers(self, session: Session, call: Call) -> None:
        """Begin to connect the request's MCP servers; those that the session has already are kept."""
        given = call.params.get("mcpServers")
        specs = [spec for spec in given if isinstance(spec, dict)] if isinstance(given, list) else []
        servers = McpServers(specs, self._children, session.cwd)
        unused = session.use_servers(servers)
        if unused is not servers:
            servers.connect()
        if unused is not None and unused is not servers and session.turns.busy:
            # The turn that runs goes on with the servers that it began with.
            threading.Thread(target=_close_later, args=(session, unused), daemon=True).start()
        elif unused is not None:
            unused.close()


def _abandon(session: Session, client: Client) -> None:
    """Answer the turns that did not end when they were cancelled. Nothing is told of them any more."""
    with session.story:  # else a turn could end its call, or say something, between the two
        for turn in session.turns.all():
            running = turn.running_call
            if running is not None:
                cut_off = ToolResult(running.id, running.name, NO_RESULT, is_error=True)
                client.update(session.id, translate.tool_ended(cut_off, {}))
            turn.call.answer({"stopReason": "cancelled"})


def _close_later(session: Session, servers: McpServers) -> None:
    session.turns.wait_idle(LONGEST_TURN)
    servers.close()


def _told(session: Session) -> Iterator[Update]:
    """Everything that the client has been told of the conversation, also by the turn that runs now."""
    unfinished = session.unfinished
    yield from replay(session.records(), running=unfinished is not None)
    if unfinished is not None:
        yield from unfinished()


def _session_id(call: Call) -> str:
    return str(call.params.get("sessionId", ""))


def _folders(call: Call) -> tuple[str, tuple[str, ...]]:
    """The working directory and all roots of a request. Raises `RpcError` -32602."""
    cwd = workspace.validate_cwd(str(call.params.get("cwd", "")))
    more = call.params.get("additionalDirectories")
    names = more if isinstance(more, list) else []
    for number, name in enumerate(names):
        workspace.validate_cwd(str(name), f"additionalDirectories[{number}]")
    return cwd, (cwd, *(name for name in names if name != cwd))


def _info(entry: Entry, head: Conversation) -> dict[str, object]:
    """One ACP SessionInfo."""
    info: dict[str, object] = {
        "sessionId": entry.session_id,
        "cwd": head.cwd,
        "updatedAt": translate.iso_time(entry.changed / 1e9),
    }
    if head.title:
        info["title"] = head.title
    return info

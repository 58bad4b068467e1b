"""The life of sessions: who opens, replays, lists, closes and deletes them.

Rules S1 to S11, S13 and T6. Writes down which sessions there are. One thread at a time.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator

from acpserver.validate.findings import AGENT, CLIENT, ERROR, WARNING
from acpserver.validate.state import Answer, Breach, Call, Mark, Recent, Session, objects, text
from acpserver.validate.world import World

REPLAYED = {
    "user_message_chunk", "agent_message_chunk", "agent_thought_chunk",
    "tool_call", "tool_call_update", "plan",
}  # fmt: skip
"""Updates that belong to a turn or to a replay."""

_OPENERS = ("session/new", "session/load", "session/resume", "session/fork")
_BY_ID = ("session/load", "session/resume", "session/fork", "session/delete")
_ONE_SESSION = re.compile(r"(only|single|one) .{0,20}session|session .{0,20}(already|in use)", re.IGNORECASE)
_NOT_FOUND = re.compile(r"not found|no such session|unknown session|does not exist", re.IGNORECASE)
_ZONED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class Sessions:
    """Follows sessions from the request that opens them to the one that ends them."""

    def __init__(self, world: World):
        self._world = world
        self._deleted: Recent = Recent()
        self._cursors: Recent = Recent()
        self._strange: set[int] = set()
        """Orders of open requests that name a session or a cursor that was never given."""

    def called(self, call: Call) -> Iterator[Breach]:
        """A call that opens, names or ends a session."""
        if call.side == AGENT:
            yield from self._by_agent(call)
            return
        if call.method in _OPENERS:
            yield from self._folders(call)
        if call.method in ("session/load", "session/resume") and call.session:
            session = self._world.session(call.session)
            if session is None:
                session = Session(call.session)
                self._world.remember(session)
            session.is_closed = False
            if call.method == "session/load":
                session.loads.append(call)
                session.replayed = 0
                session.messages = Recent()
                if not session.turns:
                    session.calls.clear()
                    session.ended = Recent()
            else:
                session.resumes.append(call)
        elif call.session and call.method not in _BY_ID:
            yield from self._named(call)
        cursor = text(call.params, "cursor")
        if call.method == "session/list" and cursor and cursor not in self._cursors:
            self._strange.add(call.order)

    def _folders(self, call: Call) -> Iterator[Breach]:
        cwd = text(call.params, "cwd")
        if cwd and not is_absolute(cwd):
            yield Breach("S1", CLIENT, "params.cwd", f"{cwd!r} is not absolute")
        folders = call.params.get("additionalDirectories")
        for index, folder in enumerate(folders if isinstance(folders, list) else ()):
            if isinstance(folder, str) and not is_absolute(folder):
                place = f"params.additionalDirectories[{index}]"
                yield Breach("S8", CLIENT, place, f"{folder!r} is not absolute")

    def _named(self, call: Call) -> Iterator[Breach]:
        session = self._world.session(call.session)
        if self._world.is_blurred or self._world.client is None:
            return
        if session is None:
            if self._world.may_have_had(call.session):
                return
            self._strange.add(call.order)
            yield Breach("S4", CLIENT, "params.sessionId", f"{call.session!r} was never given out", WARNING)
        elif session.is_closed and call.method != "session/cancel":
            yield Breach("S5", CLIENT, "params.sessionId", f"{call.session!r} is not open", WARNING)

    def _by_agent(self, call: Call) -> Iterator[Breach]:
        if not call.session:
            return
        session = self._world.session(call.session)
        kind = text(call.params.get("update"), "sessionUpdate")
        if session is None:
            yield from self._unknown(call)
        elif session.is_closed and not session.turns:
            yield Breach("S5", AGENT, "params.sessionId", f"{call.session!r} is not open")
        elif session.loads:
            session.replayed += kind in REPLAYED
            if not session.is_open and kind == "available_commands_update":
                reason = "commands before the answer that opens the session; clients lose them"
                yield Breach("S13", AGENT, "params.update.sessionUpdate", reason)
        elif session.resumes and not session.turns and kind in REPLAYED:
            related = session.resumes[0].mark.line
            reason = f"{kind} while session/resume is open"
            yield Breach("S3", AGENT, "params.update.sessionUpdate", reason, related=related)

    def _unknown(self, call: Call) -> Iterator[Breach]:
        if self._world.is_blurred or self._world.client is None or self._world.may_have_had(call.session):
            return
        opening = [
            *self._world.requests(CLIENT, "session/new"),
            *self._world.requests(CLIENT, "session/fork"),
        ]
        if opening:
            reason = f"{call.method} for {call.session!r} before the answer that opens it; clients drop it"
            yield Breach("S13", AGENT, "params.sessionId", reason, ERROR, opening[0].mark.line)
        else:
            yield Breach("S4", AGENT, "params.sessionId", f"there is no session {call.session!r}")

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """An answer that opens, lists or ends a session."""
        call = answer.call
        if call.side == AGENT:
            return
        if call.order in self._strange:
            self._strange.discard(call.order)
            yield from self._answered_strange(answer)
        if call.method in ("session/new", "session/fork"):
            yield from self._opened(answer)
        elif call.method in ("session/load", "session/resume"):
            yield from self._reopened(answer)
        elif call.method == "session/close":
            yield from self._closed(answer)
        elif call.method == "session/delete":
            yield from self._removed(answer)
        elif call.method == "session/list" and answer.error is None:
            yield from self._listed(answer)

    def _answered_strange(self, answer: Answer) -> Iterator[Breach]:
        call, related = answer.call, answer.call.mark.line
        if call.method == "session/list":
            if answer.error is None or answer.code != -32602:
                reason = "a cursor that was never given out: -32602 is due"
                yield Breach("S7", AGENT, "", reason, related=related)
        elif answer.error is None or answer.code != -32002:
            found = "a result" if answer.error is None else answer.code
            reason = f"there is no session {call.session!r}: -32002 is due, not {found}"
            yield Breach("S4", AGENT, "", reason, related=related)

    def _opened(self, answer: Answer) -> Iterator[Breach]:
        call, related = answer.call, answer.call.mark.line
        if answer.error is not None:
            yield from self._refused(answer)
            return
        new_id = text(answer.result, "sessionId")
        if not new_id:
            self._world.is_blurred = True
            return
        if self._world.had(new_id):
            rule = "S10" if call.method == "session/fork" else "S1"
            yield Breach(
                rule, AGENT, "result.sessionId", f"{new_id!r} is the id of another session", related=related
            )
        cwd = text(call.params, "cwd")
        if call.method == "session/new" and cwd and not is_absolute(cwd):
            yield Breach("S1", AGENT, "", f"cwd {cwd!r} is not absolute: -32602 is due", related=related)
        self._world.remember(Session(new_id, cwd, is_open=True))

    def _refused(self, answer: Answer) -> Iterator[Breach]:
        call, related = answer.call, answer.call.mark.line
        said = text(answer.error, "message") + " " + repr((answer.error or {}).get("data", ""))
        servers = objects(call.params, "mcpServers")
        names = [text(server, "name") for server in servers if text(server, "name")]
        if servers and not call.faults and ("mcp" in said.lower() or any(name in said for name in names)):
            yield Breach(
                "S11", AGENT, "error", "an MCP server that fails must not fail the session", related=related
            )
        elif call.method == "session/new" and self._world.sessions and _ONE_SESSION.search(said):
            yield Breach("T6", AGENT, "error", "one process must serve many sessions", related=related)

    def _reopened(self, answer: Answer) -> Iterator[Breach]:
        call, related = answer.call, answer.call.mark.line
        session = self._world.session(call.session)
        if session is None:
            return
        waiting = session.loads if call.method == "session/load" else session.resumes
        if call in waiting:
            waiting.remove(call)
        if answer.error is not None:
            said = text(answer.error, "message") + " " + repr((answer.error or {}).get("data", ""))
            if answer.code not in (-32002, -32601) and _NOT_FOUND.search(said):
                reason = f"there is no session {call.session!r}: -32002 is due, not {answer.code}"
                yield Breach("S4", AGENT, "error.code", reason, related=related)
            if not session.is_open and not session.loads and not session.resumes:
                del self._world.sessions[call.session]
            return
        cwd = text(call.params, "cwd")
        if session.cwd and not _is_same(cwd, session.cwd):
            reason = f"cwd is {cwd!r}, the session's {session.cwd!r}: -32602 is due unless a link joins them"
            yield Breach("S9", AGENT, "", reason, WARNING, related)
        if call.method == "session/load" and session.has_text and not session.replayed:
            yield Breach(
                "S2", AGENT, "", "the conversation was not replayed before this answer", related=related
            )
        session.is_open, session.cwd = True, session.cwd or cwd
        session.is_loaded = call.method == "session/load"
        if not session.turns:
            session.turn_count = 0

    def _closed(self, answer: Answer) -> Iterator[Breach]:
        session = self._world.session(answer.call.session)
        if session is None or answer.error is not None:
            return
        for turn in session.turns:
            if turn.call.order < answer.call.order:
                related = turn.call.mark.line
                reason = "the running prompt must be answered (cancelled) before this"
                yield Breach("S5", AGENT, "", reason, related=related)
        session.is_closed, session.is_open = True, False
        session.calls.clear()

    def _removed(self, answer: Answer) -> Iterator[Breach]:
        call = answer.call
        if answer.error is None:
            self._deleted.add(call.session)
            session = self._world.session(call.session)
            if session is not None:
                session.is_closed, session.is_open = True, False
        elif not call.faults and answer.code not in (-32601, -32600, -32000):
            reason = "deleting succeeds, also for a session that is not there"
            yield Breach("S6", AGENT, "error", reason, related=call.mark.line)

    def _listed(self, answer: Answer) -> Iterator[Breach]:
        related, wanted = answer.call.mark.line, text(answer.call.params, "cwd")
        self._cursors.add(text(answer.result, "nextCursor"))
        before = ""
        for index, info in enumerate(objects(answer.result, "sessions")):
            place, name = f"result.sessions[{index}]", text(info, "sessionId")
            cwd, when = text(info, "cwd"), text(info, "updatedAt")
            if name in self._deleted:
                yield Breach("S6", AGENT, f"{place}.sessionId", f"{name!r} was deleted", related=related)
            if wanted and cwd and not _is_same(cwd, wanted):
                reason = f"{cwd!r}, though {wanted!r} was asked for; right only if a link joins them"
                yield Breach("S7", AGENT, f"{place}.cwd", reason, WARNING, related)
            elif cwd and not is_absolute(cwd):
                yield Breach("S7", AGENT, f"{place}.cwd", f"{cwd!r} is not absolute")
            if when and not _ZONED.fullmatch(when):
                yield Breach("S7", AGENT, f"{place}.updatedAt", f"{when!r} is no ISO 8601 time with a zone")
            elif before and when[-1:] == before[-1:] == "Z" and when[:19] > before[:19]:
                yield Breach("S7", AGENT, f"{place}.updatedAt", "newer than the session before it")
            if name not in self._world.sessions and cwd:
                self._world.remember(Session(name, cwd, is_closed=True))
            before = when

    def disturbed(self, side: str) -> None:
        """A lost message may have opened a session."""
        self._world.blur()

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """Nothing is only wrong at the end."""
        return iter(())


def _is_same(one: str, other: str) -> bool:
    """Whether two paths are spellings of one folder, as far as the text shows it."""
    first, second = (posixpath.normpath(unicodedata.normalize("NFC", path)) for path in (one, other))
    return first == second


def is_absolute(path: str) -> bool:
    """Whether a path is absolute on any system: /a, C:\\a, \\\\host\\a."""
    return path.startswith(("/", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", path) is not None

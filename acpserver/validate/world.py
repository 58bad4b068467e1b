"""What is known of a conversation so far: both sides' capabilities, open requests, sessions.

One thread at a time (the validator's). Nothing here judges; the `state_*` rooms do, and write down here what
the next message will be judged by. What has ended is forgotten, so that a long conversation takes no more
memory than a busy one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from acpserver.validate.state import REMEMBERED, Call, Json, Recent, Session

MOST_SESSIONS = 1000  # that are remembered, unless more are at work at once


class World:
    """Everything that is known, for one conversation."""

    def __init__(self) -> None:
        self.client: Json | None = None
        """The client's capabilities; None before `initialize`."""
        self.agent: Json | None = None
        """The agent's capabilities; None before its answer."""
        self.auth: dict[str, str] | None = None
        """The announced auth methods and their types; None before the answer."""
        self.sessions: dict[str, Session] = {}
        """To be added to by `remember`."""
        self._forgotten = Recent()
        self.open: dict[str, OrderedDict[str, Call]] = {"client": OrderedDict(), "agent": OrderedDict()}
        """Requests without an answer, by side and by the JSON text of the id."""
        self.answered: dict[str, Recent] = {"client": Recent(), "agent": Recent()}
        """Ids of answered requests, by the side that asked, with the line of the answer."""
        self.is_blurred = False
        """A damaged message may have hidden a session, or the beginning was not recorded."""

    def can(self, side: str, *path: str) -> bool:
        """Whether a capability was announced; yes while nothing is known."""
        value: object = self.client if side == "client" else self.agent
        if value is None:
            return True
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value is not None and value is not False

    def session(self, session_id: str) -> Session | None:
        """The session of this id, if it is open or being opened."""
        return self.sessions.get(session_id)

    def remember(self, session: Session) -> None:
        """Note a session. Of too many, one that is not busy is forgotten, a closed one if there is one."""
        self._forgotten.discard(session.id)
        self.sessions[session.id] = session
        if len(self.sessions) > MOST_SESSIONS:
            idle = [one for one in self.sessions.values() if one is not session and not one.is_busy]
            goes = next((one for one in idle if one.is_closed), idle[0] if idle else None)
            if goes:
                self._forgotten.add(goes.id)
                del self.sessions[goes.id]

    def may_have_had(self, session_id: str) -> bool:
        """Whether a session that is not known now may have been known and forgotten."""
        return session_id in self._forgotten or len(self._forgotten) >= REMEMBERED

    def had(self, session_id: str) -> bool:
        """Whether this is, or certainly was, a session."""
        return session_id in self.sessions or session_id in self._forgotten

    def blur(self) -> None:
        """A message could not be read: what it said about any session is not known."""
        self.is_blurred = True
        for session in self.sessions.values():
            session.is_blurred = True

    def requests(self, side: str, method: str) -> Iterator[Call]:
        """The open requests of one method, oldest first."""
        return (call for call in self.open[side].values() if call.method == method)

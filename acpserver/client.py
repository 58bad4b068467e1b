"""The editor as an object: one method per ACP client method, its capability checked first.

`Client` may be used by any thread. `TurnUpdates` belongs to one turn and its thread, or to one replay; it
merges text that follows text while the line before still waits to be written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

from acpserver import jsontext
from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled, ConnectionClosed, RpcError, ToolError
from acpserver.rpc.call import Call
from acpserver.rpc.connection import Connection
from acpserver.rpc.pending import Late
from acpserver.tools.content import safe_cut

Update = dict[str, object]
Story = AbstractContextManager[object]

LONGEST_TEXT = 4_000
"""Characters in one text chunk: even when every one is escaped the line stays under 64 KiB, the limit of
some clients' readers."""


READ_SECONDS = 60.0
"""A file that the editor has not handed over by then counts as unreadable. Writing has no such limit: the
editor may ask the user first."""
START_SECONDS = 60.0  # for a terminal to be made


class Client:
    """What the server asks of the editor, and tells it."""

    def __init__(self, connection: Connection, capabilities: dict[str, object]):
        self._connection = connection
        self._capabilities = capabilities

    def can(self, *path: str) -> bool:
        """Whether the client announced the capability at `path`, e.g. can("session", "notices")."""
        value: object = self._capabilities
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value is not None and value is not False

    def update(self, session_id: str, update: Update) -> None:
        """Send one session/update. Never waits."""
        self._connection.notify("session/update", {"sessionId": session_id, "update": update})

    def request_permission(
        self, session_id: str, tool_call: Update, options: list[dict[str, object]], cancel: CancelFlag
    ) -> str | None:
        """Ask the user; blocks. The id of the chosen option, or None for every other answer (rule M3).

        Raises `Cancelled` when `cancel` is set first, and when there is nobody left to ask.
        """
        params: Update = {"sessionId": session_id, "toolCall": tool_call, "options": options}
        try:
            answer = self._connection.request("session/request_permission", params, cancel)
        except ConnectionClosed as error:
            raise Cancelled(str(error)) from error
        except RpcError:  # an error, or an answer of another shape: not allowed
            return None
        chosen = answer["outcome"]
        if not isinstance(chosen, dict) or chosen.get("outcome") != "selected":
            return None
        return chosen.get("optionId")

    def ask(self, session_id: str, question: str, cancel: CancelFlag) -> str | None:
        """Put one question to the user as a form; blocks. None when that cannot be done or was declined."""
        if not self.can("elicitation", "form"):
            return None
        params: dict[str, object] = {
            "sessionId": session_id,
            "mode": "form",
            "message": question,
            "requestedSchema": {
                "type": "object",
                "properties": {"answer": {"type": "string", "title": "Answer"}},
                "required": ["answer"],
            },
        }
        try:
            answer = self._connection.request("elicitation/create", params, cancel)
        except ConnectionClosed as error:
            raise Cancelled(str(error)) from error
        except RpcError:
            return None
        content = answer.get("content")
        if answer.get("action") != "accept" or not isinstance(content, dict):
            return None
        return str(content.get("answer", ""))

    def read_text_file(self, session_id: str, path: str, cancel: CancelFlag) -> str:
        """The text of a file (absolute path), unsaved changes included. Raises `ToolError`, `Cancelled`."""
        params: Update = {"sessionId": session_id, "path": path}
        return str(self._demand("fs/read_text_file", params, cancel, READ_SECONDS)["content"])

    def write_text_file(self, session_id: str, path: str, text: str, cancel: CancelFlag) -> None:
        """Replace or create a file (absolute path). Raises `ToolError`, `Cancelled`."""
        params: Update = {"sessionId": session_id, "path": path, "content": text}
        self._demand("fs/write_text_file", params, cancel)

    def create_terminal(self, session_id: str, command: Update, cancel: CancelFlag) -> str:
        """Start a command; `command` is a CreateTerminalRequest without the session. The terminal's id.

        Raises `ToolError` and `Cancelled`; a terminal that comes too late is released.
        """

        def release(result: object) -> None:
            if isinstance(result, dict) and isinstance(result.get("terminalId"), str):
                self.terminal_post("release", session_id, result["terminalId"])

        params: Update = {"sessionId": session_id, **command}
        return str(self._demand("terminal/create", params, cancel, START_SECONDS, release)["terminalId"])

    def terminal(
        self, action: str, session_id: str, terminal_id: str, cancel: CancelFlag, timeout: float
    ) -> Update:
        """Ask for "output", "wait_for_exit", "kill" or "release" of a terminal; the result.

        Raises `ToolError`, `Cancelled`, and `TimeoutError` after `timeout` seconds.
        """
        params: Update = {"sessionId": session_id, "terminalId": terminal_id}
        return self._request(f"terminal/{action}", params, cancel, timeout)

    def terminal_post(self, action: str, session_id: str, terminal_id: str) -> None:
        """The same without waiting for the answer. Never fails: without an editor there is no terminal."""
        with suppress(ConnectionClosed):
            self._connection.post(f"terminal/{action}", {"sessionId": session_id, "terminalId": terminal_id})

    def _demand(
        self,
        method: str,
        params: Update,
        cancel: CancelFlag,
        timeout: float | None = None,
        late: Late | None = None,
    ) -> Update:
        try:
            return self._request(method, params, cancel, timeout, late)
        except TimeoutError as error:
            raise ToolError(f"The editor did not answer: {error}.") from error

    def _request(
        self,
        method: str,
        params: Update,
        cancel: CancelFlag,
        timeout: float | None,
        late: Late | None = None,
    ) -> Update:
        """The result of a request that a tool call depends on: an error fails the call, not the turn."""
        try:
            return self._connection.request(method, params, cancel, timeout, late)
        except ConnectionClosed as error:
            raise Cancelled(str(error)) from error
        except RpcError as error:
            raise ToolError(f"The editor refused {method}: {error.details[:500]}") from error

    def updates(self, session_id: str, story: Story, call: Call) -> TurnUpdates:
        """The updates of one prompt, or of one load; `story` keeps the two apart (`Session.story`)."""
        return TurnUpdates(self._connection, session_id, story, call, self.can("session", "notices"))


class TurnUpdates:
    """Sends the updates of one turn, in order, waiting while the client is far behind; none once the turn was
    answered."""

    def __init__(self, connection: Connection, session_id: str, story: Story, call: Call, notices: bool):
        self._connection = connection
        self._session_id = session_id
        self._story = story
        self._call = call
        self._notices = notices
        self._last: _TextLine | None = None

    def send(self, update: Update, checked: bool = False) -> None:
        """Send any update; `checked` as in `Connection.notify`."""
        self._connection.wait_for_room(self._call.cancel)
        with self._story:
            self._last = None
            if self._call.answered:
                return
            params: Update = {"sessionId": self._session_id, "update": update}
            self._connection.notify("session/update", params, checked)

    def break_text(self) -> None:
        """Let text that follows begin a new line, behind what has been queued meanwhile."""
        self._last = None

    def remark(self, text: str) -> None:
        """Tell the user something that is not the model's: as a notice, or else as a thought."""
        if self._notices:
            self.send({"sessionUpdate": "notice", "severity": "info", "title": text})
        else:
            self.text("agent_thought_chunk", str(uuid.uuid4()), text)

    def text(self, kind: str, message_id: str, text: str) -> None:
        """Send text of a message; `kind` is "agent_message_chunk" or "agent_thought_chunk"."""
        with self._story:
            if self._call.answered:
                return
            last = self._last
            if last and last.key == (kind, message_id) and len(text) <= last.room:
                if self._connection.extend(last, text):
                    return
            for piece in split_text(text):
                self._connection.wait_for_room(self._call.cancel)
                self._last = line = _TextLine(self._session_id, kind, message_id, piece)
                self._connection.put_growing(line, "session/update", line.params)


class _TextLine:
    """A text chunk that may still grow in the writer's queue (`transports.stdio.Growing`)."""

    def __init__(self, session_id: str, kind: str, message_id: str, text: str):
        self.key = (kind, message_id)
        self.queued = False
        self.size = len(text) + 200
        self.room = LONGEST_TEXT - len(text)
        self._pieces = [text]
        self._content: dict[str, object] = {"type": "text", "text": text}
        update = {"sessionUpdate": kind, "content": self._content, "messageId": message_id}
        self.params: dict[str, object] = {"sessionId": session_id, "update": update}

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)
        self.room -= len(text)

    def render(self) -> bytes:
        self._content["text"] = "".join(self._pieces)
        wire = {"jsonrpc": "2.0", "method": "session/update", "params": self.params}
        return jsontext.dumps(wire).encode("ascii") + b"\n"


def split_text(text: str) -> Iterator[str]:
    """Pieces of at most `LONGEST_TEXT` characters; where it can be, no character is separated from what
    modifies it."""
    start = 0
    while len(text) - start > LONGEST_TEXT:
        piece = text[start : start + LONGEST_TEXT + 1]
        end = start + (safe_cut(piece, LONGEST_TEXT) or LONGEST_TEXT)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]

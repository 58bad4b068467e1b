"""Commands in terminals of the editor: `tools.base.Terminals`.

The user sees such a command while it runs, in the tool call. One `ClientTerminals` belongs to one tool call
and the turn's thread. Releasing must go out whatever happens, and must never be waited for.
"""

from __future__ import annotations

from acpserver.cancel import CancelFlag
from acpserver.client import Client
from acpserver.errors import ToolError
from acpserver.tools.base import Content, Ended, Terminal, Terminals


def terminals_for(client: Client, session_id: str, cancel: CancelFlag) -> Terminals | None:
    """The terminals that the editor offers, if it does."""
    return ClientTerminals(client, session_id, cancel) if client.can("terminal") else None


class ClientTerminals:
    """See `tools.base.Terminals`."""

    def __init__(self, client: Client, session_id: str, cancel: CancelFlag):
        self._client = client
        self._session_id = session_id
        self._cancel = cancel

    def create(self, command: str, args: list[str], cwd: str, limit: int) -> Terminal:
        """See `Terminals`. No variables are set: some editors take those for the whole environment."""
        request: dict[str, object] = {"command": command, "args": args, "cwd": cwd, "outputByteLimit": limit}
        terminal_id = self._client.create_terminal(self._session_id, request, self._cancel)
        return ClientTerminal(self._client, self._session_id, terminal_id, self._cancel)


class ClientTerminal:
    """See `tools.base.Terminal`."""

    def __init__(self, client: Client, session_id: str, terminal_id: str, cancel: CancelFlag):
        self._client = client
        self._session_id = session_id
        self._id = terminal_id
        self._cancel = cancel
        self.content: Content = {"type": "terminal", "terminalId": terminal_id}

    def wait(self, seconds: float) -> Ended | None:
        """See `Terminal`."""
        try:
            told = self._client.terminal("wait_for_exit", self._session_id, self._id, self._cancel, seconds)
        except TimeoutError:
            return None
        code, signal = told.get("exitCode"), told.get("signal")
        return Ended(code if isinstance(code, int) else None, str(signal) if signal else None)

    def kill(self, seconds: float) -> None:
        """See `Terminal`. An error means that there is nothing to kill any more, and is none here."""
        if not seconds:
            self._client.terminal_post("kill", self._session_id, self._id)
            return
        try:
            self._client.terminal("kill", self._session_id, self._id, self._cancel, seconds)
        except (TimeoutError, ToolError):
            return  # the release that follows ends the command too

    def output(self, seconds: float, after_cancel: bool = False) -> tuple[str, bool]:
        """See `Terminal`."""
        cancel = CancelFlag() if after_cancel else self._cancel
        try:
            told = self._client.terminal("output", self._session_id, self._id, cancel, seconds)
        except TimeoutError as error:
            raise ToolError(f"The editor did not answer: {error}.") from error
        return str(told["output"]), bool(told["truncated"])

    def release(self) -> None:
        """See `Terminal`."""
        self._client.terminal_post("release", self._session_id, self._id)

"""The agent side of the protocol: the table of methods, who runs what, and the end of the process.

The reader thread runs the handlers marked inline, which only touch memory; slow ones go to the control
pool, turns to the turn pool. Follow one prompt: `_prompt` -> `_work_through` -> `_run_turn` -> `TurnLoop`.
"""

from __future__ import annotations

import logging
import threading
import time

from acpserver import workspace
from acpserver.agent import translate
from acpserver.agent.loop import TurnLoop
from acpserver.client import Client, Update
from acpserver.config import OFFLINE, Config
from acpserver.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    ProviderError,
    RpcError,
)
from acpserver.llm import http
from acpserver.llm.providers import Models
from acpserver.options import apply_option, config_options, session_state
from acpserver.processes import Children
from acpserver.rpc.call import Call, Handler, run_handler
from acpserver.rpc.connection import Connection
from acpserver.session import Session, Turn, new_id
from acpserver.tools.builtin import builtin_tools
from acpserver.version import __version__
from acpserver.workers import WorkerPool

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
MOST_TURNS = 256  # that run at once
MOST_CONTROL = 4
CLOSE_SECONDS = 5.0  # how long session/close waits for the turn that it cancelled
STOP_SECONDS = 1.2  # how long the end of input waits for turns and slow requests

CONFIGURED = {"id": "configured", "name": "Use the configured model", "description": "Nothing to do."}
OFFLINE_METHOD = {
    "id": OFFLINE,
    "name": "Use the offline model",
    "description": "No key and no network: a demo that follows simple commands. For a real model, set "
    "ACPSERVER_MODEL and, for an endpoint of your own, ACPSERVER_BASE_URL, or start acpserver with --model.",
}


class Server:
    """One agent process. `connect` gives it the link to the editor before `run`."""

    def __init__(self, config: Config):
        self.config = config
        self.models = Models(config)
        self.children = Children([config.api_key_env])
        self.tools = builtin_tools(self.children)
        self._client: Client | None = None
        self._sessions_lock = threading.Lock()  # guards _sessions
        self._sessions: dict[str, Session] = {}
        self._authenticated = self.models.configured  # written by the reader only
        self._turns = WorkerPool("turn", MOST_TURNS)
        self._control = WorkerPool("control", MOST_CONTROL)

    def handlers(self) -> dict[str, Handler]:
        """The method table."""
        return {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._controlled(self._new),
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/close": self._controlled(self._close),
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_config_option,
        }

    def connect(self, connection: Connection) -> None:
        """Set the link that the handlers use."""
        self._connection = connection

    def admit(self, method: str) -> None:
        """Raise `RpcError` for a method that comes before `initialize` (rule I1)."""
        if self._client is None and method != "initialize":
            raise RpcError.with_details(INVALID_REQUEST, "The first request must be initialize")

    def stop(self, reason: str) -> None:
        """End everything: turns, requests to the client, children. Takes at most about two seconds."""
        with self._sessions_lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.cancel(reason)
        self._connection.close()
        deadline = time.monotonic() + STOP_SECONDS
        # Slow requests that were read are answered too: some clients send session/new and end the input.
        self._control.wait_idle(STOP_SECONDS)
        self._turns.wait_idle(max(0.0, deadline - time.monotonic()))
        self.children.close()

    # Handshake

    def _initialize(self, call: Call) -> None:
        """The answer says what works; asked again, it starts over with the new capabilities."""
        capabilities = call.params.get("clientCapabilities")
        self._client = Client(self._connection, capabilities if isinstance(capabilities, dict) else {})
        method = CONFIGURED if self.models.configured else OFFLINE_METHOD
        call.answer(
            {
                "protocolVersion": PROTOCOL_VERSION,
                "agentCapabilities": {
                    "loadSession": False,
                    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                    "mcpCapabilities": {"http": False, "sse": False},
                    "sessionCapabilities": {"close": {}},
                    "auth": {"logout": {}},
                },
                "agentInfo": {"name": "acpserver", "title": "acpserver", "version": __version__},
                "authMethods": [method],
            }
        )
        if self.models.configured and self.config.model != OFFLINE:
            threading.Thread(target=http.warm_up, name="warm-up", daemon=True).start()

    def _authenticate(self, call: Call) -> None:
        expected = "configured" if self.models.configured else OFFLINE
        if call.params.get("methodId") not in (expected, OFFLINE):
            raise RpcError.with_details(
                INVALID_PARAMS, f"methodId: unknown, the methods are those of initialize ({expected})"
            )
        self._authenticated = True
        call.answer({})

    def _logout(self, call: Call) -> None:
        self._authenticated = False
        call.answer({})

    def _need_authentication(self) -> None:
        if not self._authenticated:
            details = self.config.missing or "You are logged out: authenticate first"
            raise RpcError.with_details(AUTH_REQUIRED, f"{details}. Or authenticate with the offline model.")

    # Sessions

    def _new(self, call: Call) -> None:
        self._need_authentication()
        cwd = workspace.validate_cwd(str(call.params.get("cwd", "")))
        session = Session(new_id(), cwd, (cwd,), self.models.default)
        with self._sessions_lock:
            self._sessions[session.id] = session
        call.answer({"sessionId": session.id, **session_state(session, self.models)})
        servers = call.params.get("mcpServers")
        if servers:
            log.info("session/new: %d MCP servers are not connected: not supported yet", len(servers))  # type: ignore[arg-type]

    def _session(self, call: Call) -> Session:
        session_id = str(call.params.get("sessionId", ""))
        with self._sessions_lock:
            session = self._sessions.get(session_id)
        if session is None:
            raise RpcError(
                RESOURCE_NOT_FOUND,
                "Session not found",
                {"details": f"Session not found: {session_id[:200]}. Create one with session/new."},
            )
        return session

    def _close(self, call: Call) -> None:
        """Cancel what runs, wait for its answer, forget the session (rule S5)."""
        session = self._session(call)
        with self._sessions_lock:
            self._sessions.pop(session.id, None)
        session.cancel("session/close")
        session.wait_idle(CLOSE_SECONDS)
        call.answer({})

    # Options

    def _set_mode(self, call: Call) -> None:
        self._apply(call, "mode", call.params.get("modeId"), {})

    def _set_model(self, call: Call) -> None:
        self._apply(call, "model", call.params.get("modelId"), {})

    def _set_config_option(self, call: Call) -> None:
        self._apply(call, str(call.params.get("configId")), call.params.get("value"), None)

    def _apply(self, call: Call, option: str, value: object, result: dict[str, object] | None) -> None:
        """Set one option; the answer first, then the updates that make every view of it agree (rule N2)."""
        session = self._session(call)
        apply_option(session, self.models, option, value)
        options = config_options(session, self.models)
        call.answer({"configOptions": options} if result is None else result)
        assert self._client is not None
        if option == "mode":
            update: Update = {"sessionUpdate": "current_mode_update", "currentModeId": session.mode}
            self._client.update(session.id, update)
        if result is not None:
            update = {"sessionUpdate": "config_option_update", "configOptions": options}
            self._client.update(session.id, update)

    # Turns

    def _prompt(self, call: Call) -> None:
        """Register the turn before the next line is read, so that a cancel right behind it finds it."""
        if not call.is_request:
            return
        self._need_authentication()
        session = self._session(call)
        prompt = call.params.get("prompt")
        if not isinstance(prompt, list) or not prompt:
            raise RpcError.with_details(INVALID_PARAMS, "params.prompt: must hold at least one content block")
        turn = Turn(call, prompt, time_limit(call.params))
        start = session.add(turn)
        call.cancel.on_set(lambda: self._withdraw(session, turn))
        if start:
            self._turns.submit(lambda: self._work_through(session))

    def _cancel(self, call: Call) -> None:
        with self._sessions_lock:
            session = self._sessions.get(str(call.params.get("sessionId", "")))
        if session is not None:
            session.cancel("session/cancel")
        call.answer({})

    def _withdraw(self, session: Session, turn: Turn) -> None:
        """Answer a turn that was cancelled alone before it began; when all of a session's turns are, the
        worker answers them, in order."""
        if turn.cancel.reason == "$/cancel_request" and session.withdraw(turn):
            turn.call.answer({"stopReason": "cancelled"})

    def _work_through(self, session: Session) -> None:
        """Run the session's turns, one after another, until none waits."""
        while (turn := session.next_turn()) is not None:
            run_handler(lambda _call, turn=turn: self._run_turn(session, turn), turn.call)  # type: ignore[misc]

    def _run_turn(self, session: Session, turn: Turn) -> None:
        assert self._client is not None
        session.turn_count += 1
        provider = self.models.provider(session.model)
        loop = TurnLoop(session, turn, self._client, provider, self.tools, self.config)
        try:
            with turn.timed():
                reason = loop.run()
        except ProviderError as error:
            code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL_ERROR
            raise RpcError.with_details(code, str(error)) from error
        turn.call.answer(prompt_result(reason, loop, session, turn))

    def _controlled(self, handler: Handler) -> Handler:
        """The handler, run on the control pool."""
        return lambda call: self._control.submit(lambda: run_handler(handler, call))


def prompt_result(reason: str, loop: TurnLoop, session: Session, turn: Turn) -> dict[str, object]:
    """The answer to a prompt, with usage and time (rule L6)."""
    meta: dict[str, object] = {
        "elapsedMs": round((time.monotonic() - turn.started) * 1000),
        "turnCount": session.turn_count,
    }
    result: dict[str, object] = {"stopReason": reason, "_meta": {"acpserver": meta}}
    if loop.usage:
        result["usage"] = usage = translate.prompt_usage(loop.usage)
        meta.update(usage)
    return result


def time_limit(params: dict[str, object]) -> float | None:
    """The time limit of a prompt in seconds, from `_meta.timeoutMs` or `metadata.timeout_ms` (rule L5)."""
    for holder, key in (("_meta", "timeoutMs"), ("metadata", "timeout_ms")):
        values = params.get(holder)
        limit = values.get(key) if isinstance(values, dict) else None
        if isinstance(limit, (int, float)) and not isinstance(limit, bool) and 0 < limit < 1e9:
            return limit / 1000
    return None

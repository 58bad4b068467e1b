"""The agent side of the protocol: the table of methods, who runs what, and the end of the process.

The reader thread runs the handlers marked inline, which only touch memory; slow ones go to the control
pool, turns to the turn pool. Follow one prompt: `_prompt` -> `_work_through` -> `_run_turn` -> `TurnLoop`.
"""

from __future__ import annotations

import logging
import threading
import time

from acpserver import session_file
from acpserver.agent import translate
from acpserver.agent.loop import TurnLoop
from acpserver.client import Client
from acpserver.config import OFFLINE, Config
from acpserver.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Cancelled,
    ProviderError,
    RpcError,
)
from acpserver.llm import http
from acpserver.llm.providers import Models
from acpserver.options import config_options, valid_choice
from acpserver.processes import Children
from acpserver.rpc.call import Call, Handler, run_handler
from acpserver.rpc.connection import Connection
from acpserver.session import Session, Turn
from acpserver.session_methods import CAPABILITIES, SessionMethods
from acpserver.sessions import Sessions
from acpserver.store import Store
from acpserver.tools.base import Tool
from acpserver.tools.builtin import builtin_tools
from acpserver.version import __version__
from acpserver.workers import WorkerPool

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
MOST_TURNS = 256  # that run at once
MOST_CONTROL = 4
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
        self._sessions = Sessions(Store(config.state_dir), [model for model, _ in self.models.names()])
        self._authenticated = self.models.configured  # written by the reader only
        self._turns = WorkerPool("turn", MOST_TURNS)
        self._control = WorkerPool("control", MOST_CONTROL)
        self._choices = WorkerPool("choice", 1)  # one thread: the choice that came last must hold

    def handlers(self) -> dict[str, Handler]:
        """The method table."""
        methods = SessionMethods(self._sessions, self.models, self.children)
        return {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._opening(methods.new),
            "session/load": self._opening(lambda call: methods.load(call, self._editor)),
            "session/resume": self._opening(methods.resume),
            "session/fork": self._opening(methods.fork),
            "session/list": self._controlled(methods.list),
            "session/delete": self._controlled(methods.delete),
            "session/close": self._controlled(methods.close),
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
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
        for session in self._sessions.all():
            session.cancel(reason)
        self._connection.close()
        deadline = time.monotonic() + STOP_SECONDS
        # Slow requests that were read are answered too: some clients send session/new and end the input.
        for pool in (self._control, self._choices, self._turns):
            pool.wait_idle(max(0.0, deadline - time.monotonic()))
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
                    "loadSession": True,
                    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                    "mcpCapabilities": {"http": False, "sse": False},
                    "sessionCapabilities": CAPABILITIES,
                    "auth": {"logout": {}},
                },
                "agentInfo": {"name": "acpserver", "title": "acpserver", "version": __version__},
                "authMethods": [method],
            }
        )
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()

    def _warm_up(self) -> None:
        """Load what the first prompt needs while the user is still writing it."""
        session_file.warm_up()
        if self.models.default != OFFLINE:
            http.warm_up()

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

    # Options

    def _set_mode(self, call: Call) -> None:
        self._apply(call, "mode", call.params.get("modeId"), {})

    def _set_model(self, call: Call) -> None:
        self._apply(call, "model", call.params.get("modelId"), {})

    def _set_config_option(self, call: Call) -> None:
        self._apply(call, str(call.params.get("configId")), call.params.get("value"), None)

    def _apply(self, call: Call, option: str, value: object, result: dict[str, object] | None) -> None:
        """Set one option: at once in memory, then on disk; the answer after that, and the updates that make
        every view of it agree (rule N2)."""
        session = self._sessions.get(str(call.params.get("sessionId", "")))
        choice = valid_choice(self.models, option, value)
        session.choose(option, choice)

        def finish(call: Call) -> None:
            session.record_choice(option, choice)
            options = config_options(session, self.models)
            call.answer({"configOptions": options} if result is None else result)
            if option == "mode":
                self._editor.update(session.id, translate.current_mode(choice))
            if result is not None:
                self._editor.update(session.id, translate.config_options(options))

        self._choices.submit(lambda: run_handler(finish, call))

    # Turns

    def _prompt(self, call: Call) -> None:
        """Register the turn before the next line is read, so that a cancel right behind it finds it."""
        if not call.is_request:
            return
        self._need_authentication()
        session = self._sessions.get(str(call.params.get("sessionId", "")))
        prompt = call.params.get("prompt")
        if not isinstance(prompt, list) or not prompt:
            raise RpcError.with_details(INVALID_PARAMS, "params.prompt: must hold at least one content block")
        turn = Turn(call, prompt, time_limit(call.params))
        start = session.add(turn)
        call.cancel.on_set(lambda: self._withdraw(session, turn))
        if start:
            self._turns.submit(lambda: self._work_through(session))

    def _cancel(self, call: Call) -> None:
        session = self._sessions.peek(str(call.params.get("sessionId", "")))
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
        """One turn, with the session's file held against other processes; its answer comes last."""
        with turn.timed():
            try:
                with session.file.turn(turn.cancel.is_set, lambda: self._tell_waiting(session, turn)):
                    session.refresh()
                    provider = self.models.provider(session.model)
                    tools = {**self.tools, **self._server_tools(session, turn)}
                    loop = TurnLoop(session, turn, self._editor, provider, tools, self.config)
                    reason = loop.run()
            except Cancelled:  # cancelled before it could begin
                turn.call.answer({"stopReason": "cancelled"})
                return
            except ProviderError as error:
                code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL_ERROR
                raise RpcError.with_details(code, str(error)) from error
            finally:
                session.file.sync()
        turn.call.answer(prompt_result(reason, loop, session, turn))

    def _server_tools(self, session: Session, turn: Turn) -> dict[str, Tool]:
        """The tools of the session's MCP servers; the user is told of servers that failed."""
        if session.servers is None:
            return {}
        tools = session.servers.tools(turn.cancel)
        for failure in session.servers.take_failures():
            self._editor.updates(session.id, session.story, turn.cancel).remark(failure)
        return tools

    def _tell_waiting(self, session: Session, turn: Turn) -> None:
        updates = self._editor.updates(session.id, session.story, turn.cancel)
        updates.remark("Another process runs a turn in this session; this one waits for it.")

    @property
    def _editor(self) -> Client:
        assert self._client is not None  # `admit` lets nothing through before initialize
        return self._client

    def _opening(self, handler: Handler) -> Handler:
        """A handler that needs authentication, run on the control pool."""

        def run(call: Call) -> None:
            self._need_authentication()
            self._controlled(handler)(call)

        return run

    def _controlled(self, handler: Handler) -> Handler:
        """The handler, run on the control pool."""
        return lambda call: self._control.submit(lambda: run_handler(handler, call))


def prompt_result(reason: str, loop: TurnLoop, session: Session, turn: Turn) -> dict[str, object]:
    """The answer to a prompt, with usage and time (rule L6)."""
    meta: dict[str, object] = {
        "elapsedMs": round((time.monotonic() - turn.started) * 1000),
        "turnCount": session.conversation.turns,
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

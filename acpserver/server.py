"""The agent side of the protocol: the table of methods, who runs what, and the end of the process.

The reader thread runs the handlers that only touch memory; slow ones go to the control pool, turns to
`turns.Turns`, where one can follow a prompt on its way.
"""

from __future__ import annotations

import logging
import threading
import time

from acpserver import session_file
from acpserver.agent import translate
from acpserver.client import Client
from acpserver.config import OFFLINE, Config
from acpserver.errors import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    RpcError,
)
from acpserver.llm import http
from acpserver.llm.providers import Models
from acpserver.options import config_options, valid_choice
from acpserver.processes import Children
from acpserver.rpc.call import Call, Handler, run_handler
from acpserver.rpc.connection import Connection
from acpserver.session import Turn
from acpserver.session_methods import CAPABILITIES, SessionMethods
from acpserver.sessions import Sessions
from acpserver.store import Store
from acpserver.tools.builtin import builtin_tools
from acpserver.turns import Turns, time_limit
from acpserver.version import __version__
from acpserver.workers import WorkerPool

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
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
        self._client: Client | None = None
        self._sessions = Sessions(Store(config.state_dir), [model for model, _ in self.models.names()])
        self._authenticated = self.models.configured  # written by the reader only
        tools = builtin_tools(self.children)
        self._turns = Turns(self.models, tools, config, lambda: self._editor)
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
        self._turns.add(session, Turn(call, prompt, time_limit(call.params)))

    def _cancel(self, call: Call) -> None:
        session = self._sessions.peek(str(call.params.get("sessionId", "")))
        if session is not None:
            session.cancel("session/cancel")
        call.answer({})

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

"""The agent side of the protocol: the table of methods, who runs what, and the end of the process.

The reader thread runs the handlers that only touch memory; slow ones go to the control pool, turns to
`turns.Turns`, where one can follow a prompt on its way.
"""

from __future__ import annotations

import gc
import logging
import time

from acpserver import session_file
from acpserver.auth_methods import AuthMethods
from acpserver.client import Client
from acpserver.config import OFFLINE, Config, Loader
from acpserver.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from acpserver.llm import http
from acpserver.llm.providers import Models
from acpserver.model_lists import ModelLists
from acpserver.option_methods import OptionMethods
from acpserver.processes import Children
from acpserver.provider_methods import ProviderMethods
from acpserver.redaction import Secrets
from acpserver.rpc.call import Call, Handler, run_handler
from acpserver.rpc.connection import Connection
from acpserver.session import Session
from acpserver.session_methods import CAPABILITIES, SessionMethods
from acpserver.sessions import Sessions
from acpserver.store import Store
from acpserver.tools.builtin import builtin_tools
from acpserver.turn_queue import Turn
from acpserver.turns import Turns, time_limit
from acpserver.version import __version__
from acpserver.workers import WorkerPool, start_thread

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
MOST_CONTROL = 4
STOP_SECONDS = 1.2  # how long the end of input waits for turns and slow requests


class Server:
    """One agent process. `connect` gives it the link to the editor before `run`.

    `load` reads the configuration anew; `secrets` is what log and trace hide.
    """

    def __init__(self, config: Config, load: Loader | None = None, secrets: Secrets | None = None):
        self.models = Models(config)
        self.children = Children(lambda: self._auth.config.key_variables)
        self._client: Client | None = None
        self._sessions = Sessions(Store(config.state_dir), self.models.ids)
        self._options = OptionMethods(self._sessions, self.models, lambda: self._editor)
        self._lists = ModelLists(self.models, config.state_dir, self._options.announce)
        self._lists.use_stored()
        secrets = secrets or Secrets(config.secrets)
        self._auth = AuthMethods(config, self.models, load, secrets, self._offer_changed)
        self._providers = ProviderMethods(self.models, secrets, self._offer_changed)
        tools = builtin_tools(self.children)
        self._turns = Turns(
            self.models,
            tools,
            lambda: self._auth.config,
            lambda: self._editor,
            secrets,
            self._sessions.tidy,
        )
        self._control = WorkerPool("control", MOST_CONTROL)

    def handlers(self) -> dict[str, Handler]:
        """The method table."""
        methods = SessionMethods(
            self._sessions, self.models, self.children, lambda: self._auth.config.permissions, self._opened
        )
        return {
            "initialize": self._initialize,
            "authenticate": lambda call: self._controlled(self._auth.authenticate(call))(call),
            "logout": lambda call: self._controlled(self._auth.logout(call))(call),
            "session/new": self._opening(methods.new),
            "session/load": self._opening(lambda call: methods.load(call, self._editor)),
            "session/resume": self._opening(methods.resume),
            "session/fork": self._opening(methods.fork),
            "session/list": self._controlled(methods.list),
            "session/delete": self._controlled(lambda call: methods.delete(call, self._editor)),
            "session/close": self._controlled(lambda call: methods.close(call, self._editor)),
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            **self._options.handlers(),
            **self._providers.handlers(),
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
            session.turns.cancel(reason)
        self._lists.close()
        self._connection.close()
        deadline = time.monotonic() + STOP_SECONDS
        # Slow requests that were read are answered too: some clients send session/new and end the input.
        for pool in (self._control, self._options, self._turns):
            pool.wait_idle(max(0.0, deadline - time.monotonic()))
        self.children.close()

    # Handshake

    def _initialize(self, call: Call) -> None:
        """The answer says what works; asked again, it starts over with the new capabilities."""
        capabilities = call.params.get("clientCapabilities")
        self._client = Client(self._connection, capabilities if isinstance(capabilities, dict) else {})
        taken = self.models.media_types(self.models.default)
        call.answer(
            {
                "protocolVersion": PROTOCOL_VERSION,
                "agentCapabilities": {
                    "loadSession": True,
                    "promptCapabilities": {
                        "image": "image" in taken,
                        "audio": "audio" in taken,
                        "embeddedContext": True,
                    },
                    "mcpCapabilities": {"http": False, "sse": False},
                    "sessionCapabilities": CAPABILITIES,
                    "auth": {"logout": {}},
                    "providers": {},
                },
                "agentInfo": {"name": "acpserver", "title": "acpserver", "version": __version__},
                "authMethods": self._auth.announce(self._client),
            }
        )
        start_thread(self._warm_up, "warm-up")

    def _warm_up(self) -> None:
        """Load what the first prompt needs while the user is still writing it."""
        gc.disable()  # as in `__main__`: looking for garbage takes 4 ms, and a prompt may wait
        try:
            session_file.warm_up()
            if self.models.default != OFFLINE:
                http.warm_up()
        finally:
            gc.enable()

    def _opened(self, session: Session, shown: list[tuple[str, str]]) -> None:
        """The client knows the session now: tell it of models that have come since, and look for more."""
        self._options.opened(session, shown)
        self._refresh_lists()

    def _offer_changed(self) -> None:
        """Another configuration holds, or a provider was set: its list may be stored, or must be fetched."""
        self._lists.use_stored()
        self._options.announce()
        if self._client is not None:
            self._refresh_lists()

    def _refresh_lists(self) -> None:
        config = self._auth.config
        if config.list_models and config.model != OFFLINE:
            self._lists.refresh()

    # Turns

    def _prompt(self, call: Call) -> None:
        """Register the turn before the next line is read, so that a cancel right behind it finds it."""
        if not call.is_request:
            return
        self._auth.need()
        session = self._sessions.get(str(call.params.get("sessionId", "")))
        prompt = call.params.get("prompt")
        if not isinstance(prompt, list) or not prompt:
            raise RpcError.with_details(INVALID_PARAMS, "params.prompt: must hold at least one content block")
        self._turns.add(session, Turn(call, prompt, time_limit(call.params)))

    def _cancel(self, call: Call) -> None:
        session = self._sessions.peek(str(call.params.get("sessionId", "")))
        if session is not None:
            session.turns.cancel("session/cancel")
        call.answer({})

    @property
    def _editor(self) -> Client:
        assert self._client is not None  # `admit` lets nothing through before initialize
        return self._client

    def _opening(self, handler: Handler) -> Handler:
        """A handler that needs authentication, run on the control pool."""

        def run(call: Call) -> None:
            self._auth.need(reload=True)
            handler(call)

        return self._controlled(run)

    def _controlled(self, handler: Handler) -> Handler:
        """The handler, run on the control pool."""
        return lambda call: self._control.submit(lambda: run_handler(handler, call))

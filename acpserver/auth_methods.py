"""Who may use the models: the announced ways to authenticate, `authenticate`, `logout`, and the check.

The reader decides what needs no disk, so that a request right behind `authenticate` finds it done; what reads
the configuration anew runs on a control worker. No key is ever asked for, or told, over the protocol.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from acpserver import credentials
from acpserver.client import Client
from acpserver.config import OFFLINE, Config, Loader
from acpserver.errors import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_PARAMS, ConfigError, RpcError
from acpserver.llm.providers import Models
from acpserver.redaction import Secrets
from acpserver.rpc.call import Call

log = logging.getLogger(__name__)

CONFIGURED, LOGIN = "configured", "login"

CONFIGURED_METHOD: dict[str, object] = {
    "id": CONFIGURED,
    "name": "Use the configured model",
    "description": "Nothing to do. Reads the configuration and the stored keys anew.",
}
OFFLINE_METHOD: dict[str, object] = {
    "id": OFFLINE,
    "name": "Use the offline model",
    "description": "No key and no network: a demo that follows simple commands. For a real model, run "
    "'acpserver login' in a terminal, or set a provider's key such as ANTHROPIC_API_KEY, or set "
    "ACPSERVER_MODEL and ACPSERVER_BASE_URL for an endpoint of your own.",
}
OFFLINE_INSTEAD = (
    "Or use the offline model, a demo: authenticate with it, or set the model to offline (--model)."
)

LOGIN_METHOD: dict[str, object] = {
    "id": LOGIN,
    "name": "Log in",
    "description": "Choose a provider in the terminal and give it your key.",
    "type": "terminal",
    "args": [LOGIN],
}
LOGIN_COMMAND: dict[str, object] = {
    "label": "acpserver login",
    "command": sys.executable,
    "args": ["-m", "acpserver", LOGIN],
    "env": {"PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(__file__)))},
}
"""What clients run that know the method only from its `_meta`."""


class AuthMethods:
    """The state of one process. `load` reads the configuration anew, `changed` is called when that changed
    the offer of models."""

    def __init__(
        self,
        config: Config,
        models: Models,
        load: Loader | None,
        secrets: Secrets,
        changed: Callable[[], None],
    ):
        self.config = config
        """The configuration as it was last read."""
        self._models = models
        self._load = load
        self._secrets = secrets
        self._changed = changed
        self._announced: tuple[str, ...] = ()
        # Single values, written by the reader; a control worker only ever takes the offline choice back.
        self._offline_chosen = False
        self._logged_out = False

    def announce(self, client: Client) -> list[dict[str, object]]:
        """The methods for this client: first one that succeeds at once (some clients always call it), the
        login in a terminal only where there is one (rule A2)."""
        methods = [dict(CONFIGURED_METHOD if self._models.configured else OFFLINE_METHOD)]
        self._announced = (str(methods[0]["id"]),)
        typed, older = client.can("auth", "terminal"), client.can("_meta", "terminal-auth")
        if typed or older:
            login = dict(LOGIN_METHOD)
            if older:
                login["_meta"] = {"terminal-auth": LOGIN_COMMAND}
            if not typed:
                del login["type"], login["args"]
            methods.append(login)
        return methods

    def authenticate(self, call: Call) -> Callable[[Call], None]:
        """On the reader: take the choice. Returns what is left to do on a control worker.

        Raises `RpcError` -32602 for every other method, also for the one in the terminal (rule A3).
        """
        method = call.params.get("methodId")
        if method not in (*self._announced, OFFLINE, CONFIGURED if self._models.configured else OFFLINE):
            known = ", ".join(dict.fromkeys((*self._announced, OFFLINE)))
            raise RpcError.with_details(
                INVALID_PARAMS, f"methodId: unknown, the methods to call are those of initialize ({known})"
            )
        self._logged_out = False
        self._offline_chosen = method == OFFLINE
        return self._finish

    def logout(self, call: Call) -> Callable[[Call], None]:
        """On the reader: nobody is authenticated from now on (rule A4). Returns what removes stored keys."""
        self._logged_out = True
        self._offline_chosen = False
        return self._forget

    def need(self, reload: bool = False) -> None:
        """Raise `RpcError` -32000 when no model may be used. With `reload`, which needs the disk, a login in
        another process counts, too."""
        if reload and not self._allowed() and not self._logged_out:
            self._reload()
        if self._allowed():
            return
        details = self._models.missing or "You are logged out: authenticate first"
        raise RpcError.with_details(AUTH_REQUIRED, f"{details}. {OFFLINE_INSTEAD}")

    def _allowed(self) -> bool:
        return not self._logged_out and (self._offline_chosen or self._models.configured)

    def _finish(self, call: Call) -> None:
        self._reload()
        self.need()
        call.answer({})

    def _forget(self, call: Call) -> None:
        try:
            credentials.remove_keys(self.config.credentials_file)
        except OSError as error:
            raise RpcError.with_details(
                INTERNAL_ERROR, f"The stored keys could not be removed: {error.strerror}"
            ) from error
        self._reload()
        call.answer({})

    def _reload(self) -> None:
        """Read the environment and the files anew. Raises `RpcError` -32000 when they cannot be used."""
        if self._load is None:
            return
        try:
            config = self._load()
        except ConfigError as error:
            raise RpcError.with_details(AUTH_REQUIRED, str(error)) from error
        self._secrets.add(config.secrets)
        self.config = config
        self._models.reload(config)
        self._changed()

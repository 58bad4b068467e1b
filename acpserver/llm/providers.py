"""Which provider serves which model: the table of models that this process can use.

Used by any thread; providers are made once and shared by all turns.
"""

from __future__ import annotations

import threading

from acpserver.config import OFFLINE, Config
from acpserver.llm.http import HttpProvider
from acpserver.llm.offline import OfflineModel
from acpserver.llm.types import Endpoint, Provider


class Models:
    """The configured model, if there is one, and the offline model."""

    def __init__(self, config: Config):
        self._config = config
        self._made_lock = threading.Lock()  # guards _http
        self._http: HttpProvider | None = None
        self._offline = OfflineModel()

    @property
    def configured(self) -> bool:
        """Whether the configuration names a model that can be called."""
        return not self._config.missing

    @property
    def default(self) -> str:
        """The model that a new session starts with."""
        return self._config.model if self.configured else OFFLINE

    def names(self) -> list[tuple[str, str]]:
        """(id, name to show) of each model that can be chosen, the default first."""
        offline = (OFFLINE, "Offline demo (no language model)")
        if self.default == OFFLINE:
            return [offline]
        return [(self._config.model, self._config.model), offline]

    def provider(self, model: str) -> Provider:
        """The provider for a model of `names()`."""
        if model == OFFLINE:
            return self._offline
        with self._made_lock:
            if self._http is None:
                self._http = HttpProvider(endpoint(self._config))
            return self._http


def endpoint(config: Config) -> Endpoint:
    """The endpoint that the configuration names."""
    return Endpoint(
        base_url=config.base_url,
        dialect=config.dialect,
        api_key=config.api_key,
        api_key_source=f"environment variable {config.api_key_env}",
        connect_timeout=config.connect_timeout,
        idle_timeout=config.idle_timeout,
        retry_seconds=config.retry_seconds,
    )

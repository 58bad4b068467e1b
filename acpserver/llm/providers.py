"""Which provider serves which model: the models that this process can use now.

Any thread may ask. What can change (the configuration that is read anew, a provider that the client sets, a
list of models that has come) replaces the whole table in one step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acpserver import provider_setup
from acpserver.cancel import CancelFlag
from acpserver.catalog import AUDIO_SENT, ModelInfo
from acpserver.config import OFFLINE, Config
from acpserver.errors import Cancelled, ProviderError
from acpserver.llm.http import HttpProvider
from acpserver.llm.offline import OfflineModel
from acpserver.llm.types import Endpoint, ModelDetails, Provider
from acpserver.model_choice import choose
from acpserver.prices import Price
from acpserver.prompts import AUDIO_FORMATS, IMAGE_TYPES
from acpserver.provider_setup import ProviderSetup

log = logging.getLogger(__name__)

MOST_LISTED = 60
"""Models of one provider's own list that are offered: some have hundreds, and the whole offer stands in one
line, which some clients cannot read when it is long."""

SHOW_SECONDS = 5.0
"""How long a turn waits, once for a model, to learn its window."""

OLLAMA_WINDOW = 32_768
"""Tokens that Ollama is told to keep at most: a model's whole window may need more memory than there is."""

OFFLINE_NAME = "Offline demo (no language model)"
OFFLINE_INFO = ModelInfo(OFFLINE, context_window=128_000, price=Price(0, 0))
"""It reads anything; a window is named so that a client's display of usage can be tried with it too."""


class _Table(NamedTuple):
    """One state of everything. The first id is that of the default model."""

    usable: Mapping[str, ProviderSetup]
    names: Mapping[str, str]  # id -> the name to show
    missing: str  # why there is no default model but the offline one


class Models:
    """The models of all usable providers, and the offline model."""

    def __init__(self, config: Config):
        self._changing = threading.Lock()  # guards what the table is made of, _shown and _http
        self._config = config
        self._client_set: dict[str, ProviderSetup] = {}  # what the client has routed or disabled
        self._listed: dict[str, Mapping[str, ModelDetails]] = {}  # a provider's own list
        self._shown: dict[tuple[str, str], ModelDetails] = {}  # (base URL, name) -> what `learn` was told
        self._http: dict[Endpoint, HttpProvider] = {}
        self._offline = OfflineModel()
        self.ids: list[str] = []
        """Always the same list, changed in one step: the ids that can be chosen, the default first."""
        self._table = self._made()

    @property
    def configured(self) -> bool:
        """Whether a model other than the offline one can be called, or the offline one is configured."""
        return not self._table.missing

    @property
    def missing(self) -> str:
        """Why not, for a person."""
        return self._table.missing

    @property
    def default(self) -> str:
        """The model that a new session starts with."""
        return self.ids[0]

    def names(self) -> list[tuple[str, str]]:
        """(id, name to show) of each model that can be chosen, the default first."""
        return list(self._table.names.items())

    def setups(self) -> list[tuple[ProviderSetup, bool]]:
        """Every provider, as it is or would be set up, and whether it is in use."""
        with self._changing:
            given = {one.name: one for one in self._config.providers}
            usable = self._table.usable
            return [(usable.get(name, one), name in usable) for name, one in given.items()]

    def usable(self) -> list[ProviderSetup]:
        """The providers that can be asked now."""
        return list(self._table.usable.values())

    def info(self, model: str) -> ModelInfo:
        """What is known of a model of `names()`; `name` is what its provider calls it."""
        setup, name = self._find(model)
        if setup is None:
            return OFFLINE_INFO
        shown = self._shown.get((setup.base_url, name)) or self._in_list(setup, name)
        return _with_details(setup, name, self._config.context_window, shown)

    def learn(self, model: str, cancel: CancelFlag) -> None:
        """Ask Ollama what it knows of a model, once, since its list says nothing of windows.

        Blocks for at most five seconds; what fails leaves the model unknown. Raises `Cancelled`.
        """
        setup, name = self._find(model)
        if setup is None or setup.dialect != "ollama" or (setup.base_url, name) in self._shown:
            return
        provider = HttpProvider(self.endpoint(setup))
        try:
            with cancel.within(SHOW_SECONDS) as flag:
                told = provider.model_details(name, flag)
        except Cancelled:
            cancel.check()
            told = self._in_list(setup, name)  # too slow: the next call does not wait again
        except ProviderError as error:  # it costs no time to ask again at the next call
            log.info("what there is to know of %s: %s", model, error)
            return
        finally:
            provider.close()
        with self._changing:
            self._shown[setup.base_url, name] = told

    def media_types(self, model: str) -> dict[str, Sequence[str]]:
        """The media types that a model can be sent, for each kind that it takes: "image", "audio"."""
        info, dialect = self.info(model), self.dialect(model)
        found: dict[str, Sequence[str]] = {"image": IMAGE_TYPES} if info.images else {}
        formats = AUDIO_SENT.get(dialect, ()) if info.audio else ()
        if formats:
            found["audio"] = [mime for mime, name in AUDIO_FORMATS.items() if name in formats]
        return found

    def dialect(self, model: str) -> str:
        """How the model's server is spoken to; "" for the offline model."""
        setup, _ = self._find(model)
        return setup.dialect if setup else ""

    def provider(self, model: str) -> Provider:
        """The provider for a model of `names()`; the offline model for any other."""
        setup, _ = self._find(model)
        if setup is None:
            return self._offline
        wanted = self.endpoint(setup)
        with self._changing:
            if wanted not in self._http:
                # What is set up so no more (a gateway whose token was renewed) keeps no connections.
                current = {self.endpoint(one) for one in self._table.usable.values()}
                self._http = {one: kept for one, kept in self._http.items() if one in current}
                self._http[wanted] = HttpProvider(wanted)
            return self._http[wanted]

    def endpoint(self, setup: ProviderSetup) -> Endpoint:
        """How a provider is reached, with the limits of the configuration."""
        return endpoint(setup, self._config)

    def reload(self, config: Config) -> None:
        """Use another configuration. What the client has set stays."""
        with self._changing:
            self._config = config
            self._table = self._made()

    def route(self, name: str, dialect: str, base_url: str, headers: Mapping[str, str]) -> None:
        """Reach a provider as the client says, for as long as this process lives. The user's own key is not
        sent there. Raises `KeyError` for an unknown provider."""
        with self._changing:
            self._client_set[name] = self._configured(name)._replace(
                dialect=dialect,
                base_url=base_url,
                headers=tuple(headers.items()),
                api_key="",
                needs_key=False,
            )
            self._table = self._made()

    def disable(self, name: str) -> None:
        """Use a provider no more, for as long as this process lives. Raises `KeyError` for an unknown one."""
        with self._changing:
            self._client_set[name] = self._configured(name)._replace(is_disabled=True)
            self._table = self._made()

    def take_lists(self, listed: Mapping[str, Mapping[str, ModelDetails]]) -> bool:
        """Offer what providers say that they have; by provider. Returns whether that changes the offer."""
        with self._changing:
            names, facts = list(self._table.names), dict(self._listed)
            self._listed.update(listed)
            self._table = self._made()
            return names != list(self._table.names) or facts != self._listed

    def _configured(self, name: str) -> ProviderSetup:
        return {one.name: one for one in self._config.providers}[name]

    def _in_list(self, setup: ProviderSetup, name: str) -> ModelDetails:
        return self._listed.get(setup.name, {}).get(name, ModelDetails())

    def _find(self, model: str) -> tuple[ProviderSetup | None, str]:
        """The usable provider of a model, and its name there."""
        return _owner(self._table.usable, model)

    def _made(self) -> _Table:
        """The table, from what it is made of; `ids` follows it."""
        setups = [self._client_set.get(one.name, one) for one in self._config.providers]
        usable = {one.name: one for one in setups if not one.missing}
        default, missing = choose(setups, self._config.model)
        names: dict[str, str] = {}
        for one in usable.values():
            listed = _newest(self._listed.get(one.name, {}), one)
            for name in (*(model.name for model in one.models), *listed):
                if _owner(usable, one.id_of(name))[0] is one:
                    shown = name if one.name == provider_setup.MAIN else f"{name} ({one.title})"
                    names[one.id_of(name)] = shown
        names[OFFLINE] = OFFLINE_NAME
        first = default or OFFLINE
        names = {first: names.get(first, first), **names}
        self.ids[:] = names
        return _Table(usable, names, missing)


def _owner(usable: Mapping[str, ProviderSetup], model: str) -> tuple[ProviderSetup | None, str]:
    """The provider that a model's id stands for, and its name there.

    The endpoint of the flat settings has what no other claims: its list may name "openai/x", as gateways do,
    beside a provider of that name.
    """
    main = usable.get(provider_setup.MAIN)
    if model == OFFLINE:
        return None, model
    prefix, _, name = model.partition("/")
    if name and prefix in usable and not (main and main.info(model) in main.models):
        return usable[prefix], name
    return main, model


def _newest(listed: Mapping[str, ModelDetails], one: ProviderSetup) -> list[str]:
    """The names of a provider's own list that are offered, the newest first; without times, in its
    order."""
    chatting = [name for name in listed if one.chats(name)]
    return sorted(chatting, key=lambda name: -(listed[name].created or 0))[:MOST_LISTED]


def _with_details(
    setup: ProviderSetup, model: str, user_window: int | None, details: ModelDetails
) -> ModelInfo:
    """What is known of a model: what its server says comes after the configuration and the catalog."""
    info = setup.info(model)
    window = details.context_window
    if window and setup.dialect == "ollama":
        window = min(window, OLLAMA_WINDOW)
    info = info._replace(
        context_window=info.context_window or user_window or window,
        output_limit=info.output_limit or details.output_limit,
    )
    return setup.with_habits(
        info._replace(
            images=details.images if info.images is None else info.images,
            thinking=details.thinks if info.thinking is None else info.thinking,
            audio=details.audio if info.audio is None else info.audio,
        )
    )


def endpoint(setup: ProviderSetup, config: Config) -> Endpoint:
    """How a provider is reached, with the limits of the configuration."""
    return Endpoint(
        base_url=setup.base_url,
        dialect=setup.dialect,
        api_key=setup.api_key,
        api_key_source=setup.key_source,
        headers=setup.headers,
        connect_timeout=config.connect_timeout,
        idle_timeout=config.idle_timeout,
        retry_seconds=config.retry_seconds,
        server=setup.server,
    )

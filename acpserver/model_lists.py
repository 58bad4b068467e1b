"""The providers' own lists of models: fetched in the background, kept in the state folder for a day.

Never in anybody's way: a fetch runs on a thread of its own pool, is short, and what fails is only logged. The
stored lists are read once at start.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from acpserver import plain_file
from acpserver.addresses import is_on_this_machine, shown
from acpserver.cancel import CancelFlag
from acpserver.config import Config, NoModel, load
from acpserver.errors import Cancelled, ConfigError, ProviderError
from acpserver.llm.http import HttpProvider
from acpserver.llm.providers import Models
from acpserver.llm.providers import endpoint as endpoint_of
from acpserver.llm.types import Endpoint, ModelDetails
from acpserver.provider_setup import ProviderSetup
from acpserver.workers import WorkerPool

log = logging.getLogger(__name__)

FILE_NAME = "models.json"
FRESH_SECONDS = 24 * 3600.0
KEPT_SECONDS = 30 * FRESH_SECONDS  # then nobody asks that provider any more, or it is somewhere else
AGAIN_SECONDS = 300.0  # after a failure
CONNECT_SECONDS = 3.0
IDLE_SECONDS = 5.0
WHOLE_SECONDS = 10.0  # for one list
LONGEST_NAME = 200  # characters; longer ones are left out
MOST_NAMES = 2_000
MOST_BYTES = 64 << 20  # of all stored lists
SHOWN_NAMES = 8  # in an error


class ModelLists:
    """Keeps `models` up to date. `changed` is called, on a background thread, when the offer has changed."""

    def __init__(self, models: Models, state_dir: str, changed: Callable[[], None]):
        self._models = models
        self._path = os.path.join(state_dir, FILE_NAME) if state_dir else ""
        self._changed = changed
        self._pool = WorkerPool("lists", 4)
        self._end = CancelFlag()
        self._file_lock = threading.Lock()  # guards the file; held while it is written
        self._lock = threading.Lock()  # guards the two below
        self._known = self._read()
        self._next: dict[str, float] = {}  # key and mark -> time.time() before which it is not fetched

    def use_stored(self) -> None:
        """Offer what is stored of the providers that are usable now, and of no other key."""
        with self._lock:
            known = dict(self._known)
        self._models.take_lists({one.name: _details(_entry(known, one)) for one in self._models.usable()})

    def refresh(self) -> None:
        """Begin to fetch every list that is not fresh. Never waits."""
        now = time.time()
        with self._lock:
            due = [one for one in self._models.usable() if self._is_due(one, now)]
            self._next.update((_key(one) + _mark(one), now + AGAIN_SECONDS) for one in due)
        for one in due:
            self._pool.submit(lambda one=one: self._fetch(one))  # type: ignore[misc]

    def close(self) -> None:
        """Break off what is being fetched."""
        self._end.set("end")

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is fetched. False when `timeout` seconds were not enough."""
        return self._pool.wait_idle(timeout)

    def _is_due(self, one: ProviderSetup, now: float) -> bool:
        if now < self._next.get(_key(one) + _mark(one), 0.0):
            return False
        # A server of this machine is started anew with other models, and asking it costs nothing.
        fresh = AGAIN_SECONDS if is_on_this_machine(one.base_url) else FRESH_SECONDS
        # A clock that went back must not make a list fresh for years.
        return not now - fresh < _entry(self._known, one)["time"] <= now

    def _fetch(self, one: ProviderSetup) -> None:
        try:
            found = fetch_list(self._models.endpoint(one), self._end)
        except (ProviderError, Cancelled) as error:
            log.info("the list of models of %s: %s", one.name, error)
            return
        if one not in self._models.usable():
            return  # another key, or none, was set meanwhile
        names = [name for name in found if _is_name(name)][:MOST_NAMES]
        listed = {name: found[name] for name in names}
        self._keep(one, listed)
        if self._models.take_lists({one.name: listed}):
            self._changed()

    def _keep(self, one: ProviderSetup, listed: Mapping[str, ModelDetails]) -> None:
        """Remember a list, also for the next process."""
        with self._file_lock:
            facts = {name: list(details) for name, details in listed.items() if any(details)}
            now = time.time()
            entry = {"time": now, "models": list(listed), "details": facts, "mark": _mark(one)}
            stored = {key: old for key, old in self._read().items() if old["time"] > now - KEPT_SECONDS}
            known = {**stored, _key(one): entry}
            with self._lock:
                self._known = known
            if not self._path:
                return
            new = f"{self._path}.{os.getpid()}.new"
            try:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    json.dump(known, file)
                os.replace(new, self._path)
            except OSError as error:  # it is fetched again some other time
                log.info("the lists of models cannot be stored: %s", error)

    def _read(self) -> dict[str, dict[str, Any]]:
        """What is stored and looks as it should."""
        try:
            value = json.loads(plain_file.read(self._path, MOST_BYTES).decode("utf-8"))
        except (OSError, ValueError, RecursionError):  # nothing stored, or nothing of use
            return {}
        found: Mapping[object, object] = value if isinstance(value, dict) else {}
        return {str(key): one for key, one in found.items() if _is_list(one)}  # type: ignore[misc]


def load_with_model(flags: dict[str, object], environ: Mapping[str, str]) -> Config:
    """`config.load`, for whoever needs a model. An endpoint that is named without one is asked, for at most
    ten seconds, and the only model that it has is taken, also into `flags`.

    Raises `ConfigError`, which names the models where there are more.
    """
    try:
        return load(flags, environ)
    except NoModel as error:
        main = error.config.main
        assert main is not None
        try:
            listed = fetch(endpoint_of(main, error.config), CancelFlag())
        except ProviderError as failure:
            raise ConfigError(f"{error}. Its models are not known: {failure}") from None
        names = [name for name in listed if main.chats(name) and _is_name(name)]
        if len(names) != 1:
            more = ", ..." if len(names) > SHOWN_NAMES else ""
            raise ConfigError(f"{error}. It has {', '.join(names[:SHOWN_NAMES]) or 'none'}{more}.") from None
    flags["model"] = names[0]
    found = load(flags, environ)
    return found._replace(sources={**found.sources, "model": "the endpoint's list, which has no other"})


def fetch(endpoint: Endpoint, cancel: CancelFlag) -> list[str]:
    """The names of the models that an endpoint offers; see `fetch_list`."""
    return list(fetch_list(endpoint, cancel))


def fetch_list(endpoint: Endpoint, cancel: CancelFlag) -> dict[str, ModelDetails]:
    """The models that an endpoint offers, by name; blocks for at most ten seconds.

    Raises `ProviderError`, and `Cancelled` when `cancel` is set.
    """
    hurried = replace(
        endpoint,
        connect_timeout=min(CONNECT_SECONDS, endpoint.connect_timeout),
        idle_timeout=min(IDLE_SECONDS, endpoint.idle_timeout),
    )
    provider = HttpProvider(hurried)
    try:
        with cancel.within(WHOLE_SECONDS) as flag:
            return provider.list_models(flag)
    except Cancelled:
        cancel.check()
        raise ProviderError(
            f"The list of models did not come within {WHOLE_SECONDS:.0f} seconds.", kind="network"
        ) from None
    finally:
        provider.close()


def _key(one: ProviderSetup) -> str:
    """A list belongs to a provider at an address; what the address may hold as a secret stays out."""
    return f"{one.name} {shown(one.base_url)}"


def _mark(one: ProviderSetup) -> str:
    """Tells one key (or secret header or address) from another: 32 bits of a hash, too few to find it by."""
    import hashlib  # measured: 3 ms, at a start that mostly needs none

    secret = repr((one.api_key, one.headers, one.base_url)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(secret).hexdigest()[:8]


def _entry(known: Mapping[str, dict[str, Any]], one: ProviderSetup) -> dict[str, Any]:
    """What is stored for a provider, if it was this key that was told it: another may have other models."""
    entry = known.get(_key(one))
    return entry if entry and entry.get("mark") == _mark(one) else {"time": 0.0, "models": []}


def _details(entry: Mapping[str, Any]) -> dict[str, ModelDetails]:
    """The models of a stored list; facts that do not look as they should are left out."""
    facts = entry.get("details")
    facts = facts if isinstance(facts, dict) else {}
    return {name: _detail(facts.get(name)) for name in entry["models"]}


def _detail(value: object) -> ModelDetails:
    if not isinstance(value, list) or len(value) != len(ModelDetails._fields):
        return ModelDetails()
    found = ModelDetails(*value)
    counts = (found.context_window, found.output_limit, found.created)
    flags = (found.images, found.tools, found.thinks, found.audio)
    sound = all(one is None or (type(one) is int and 0 < one < 2**53) for one in counts)
    return found if sound and all(one is None or type(one) is bool for one in flags) else ModelDetails()


def _is_name(name: str) -> bool:
    """Whether a name can be shown to people, here and in editors."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def _is_list(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("time"), (int, float))
        and isinstance(value.get("models"), list)
        and all(isinstance(name, str) for name in value["models"])
    )

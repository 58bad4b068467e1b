"""Providers as this user has set them up: the known ones with their variables and stored keys, those of
config.json, and the endpoint that the flat settings name. Values and pure functions; any thread.

A provider is usable when it has an address and the key that it needs. A key goes only where it belongs: a
variable that an endpoint of the user's own takes is not given to the vendor it is named after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from acpserver.catalog import KNOWN, KnownProvider, ModelInfo, known, usual_dialect
from acpserver.prices import LongPrompt, Price

MAIN = "main"
"""The name of the endpoint of the flat settings; its models are called by their bare names."""

OFFLINE = "offline"
"""The name of the built-in model that needs no network and no key."""


class ProviderSetup(NamedTuple):
    """One provider. The key and the headers are secret: never printed, never logged."""

    name: str
    title: str
    dialect: str
    base_url: str
    api_key: str = ""
    key_variable: str = ""  # the environment variable that holds it, or would
    key_is_stored: bool = False  # it was not in the environment, but `acpserver login` has stored it
    needs_key: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    models: tuple[ModelInfo, ...] = ()  # the first one is what new sessions start with
    images: bool = False  # of models of which neither `models` nor the provider's list says it
    audio: tuple[str, ...] = ()  # parts of the names of models that take audio
    thinking: tuple[str, ...] = ()  # how the names of models begin that can be told how much to think
    not_chat: tuple[str, ...] = ()
    open_list: bool = False
    server: str = ""  # which OpenAI-compatible server it is, where its address does not tell
    is_disabled: bool = False  # by the client, for as long as this process lives

    def __repr__(self) -> str:
        return f"ProviderSetup({self.name!r}, {self.dialect!r})"

    @property
    def missing(self) -> str:
        """Why it cannot be used, for a person; "" when it can."""
        if self.is_disabled:
            return f"The editor has disabled the provider {self.name}"
        if not self.base_url:
            whose = "Your endpoint" if self.name == MAIN else f"The provider {self.name}"
            return f"{whose} has no base URL"
        if self.needs_key and not self.api_key:
            login = "" if self.name == MAIN else f", or run 'acpserver login {self.name}'"
            return f"{self.title} needs a key: set the environment variable {self.key_variable}{login}"
        return ""

    @property
    def key_source(self) -> str:
        """Where the key is from, or would have to be, for people."""
        if self.key_is_stored:
            return f"key stored by 'acpserver login {self.name}'"
        return f"environment variable {self.key_variable}" if self.key_variable else "configuration"

    def id_of(self, model: str) -> str:
        """The id under which a session knows a model of this provider."""
        return model if self.name == MAIN else f"{self.name}/{model}"

    def info(self, model: str) -> ModelInfo:
        """What the configuration or the catalog says of a model: the longest listed name that its name is, or
        is a dated form of."""
        listed = [one for one in self.models if model == one.name or model.startswith(f"{one.name}-20")]
        if not listed:
            return ModelInfo(model)
        return max(listed, key=lambda one: len(one.name))._replace(name=model)

    def with_habits(self, info: ModelInfo) -> ModelInfo:
        """What is known of a model; what nobody has said of it is as the provider's models usually are."""
        name = info.name
        return info._replace(
            images=self.images if info.images is None else info.images,
            thinking=name.startswith(self.thinking) if info.thinking is None else info.thinking,
            audio=any(part in name for part in self.audio) if info.audio is None else info.audio,
        )

    def chats(self, model: str) -> bool:
        """Whether a name in the provider's own list stands for a model that one can talk to."""
        return not any(part in model for part in self.not_chat)


def set_up(
    given: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    stored: Mapping[str, str],
    taken: Iterable[str],
) -> tuple[ProviderSetup, ...]:
    """All providers, those of config.json (`given`) first, then the other known ones.

    `stored` are keys by provider; the environment comes before them. `taken` names variables whose key
    belongs to an endpoint of the user's own.
    """
    reserved = {*taken, *(str(one["apiKeyEnv"]) for one in given.values() if "apiKeyEnv" in one)}
    found = [_given(name, one, environ, stored, reserved) for name, one in given.items()]
    for provider in KNOWN:
        if provider.name not in given:
            found.append(_known(provider, environ, stored.get(provider.name, ""), reserved))
    return tuple(found)


def _known(
    provider: KnownProvider, environ: Mapping[str, str], stored: str, reserved: Iterable[str]
) -> ProviderSetup:
    """A known provider with what the environment says of it; without a key nobody meant for it."""
    variable = _first_set([name for name in provider.key_variables if name not in reserved], environ)
    url = environ.get(_first_set(provider.url_variables, environ), "").strip()
    if provider.dialect == "ollama":
        url = _ollama_url(url)
    key = environ.get(variable, "").strip()
    setup = ProviderSetup(
        provider.name,
        provider.title,
        provider.dialect,
        provider.base_url,
        api_key=key or stored,
        key_variable=variable or next(iter(provider.key_variables), ""),
        key_is_stored=bool(stored and not key),
        needs_key=bool(provider.key_variables) and not url,
        models=provider.models,
        images=provider.images,
        audio=provider.audio,
        thinking=provider.thinking,
        not_chat=provider.not_chat,
        open_list=provider.open_list,
        server=provider.server,
    )
    if not provider.key_variables and not url:
        return setup._replace(base_url="")  # a local server that nobody has spoken of
    return _elsewhere(setup, url) if url else setup


def _elsewhere(setup: ProviderSetup, url: str) -> ProviderSetup:
    """The provider at another address: what is known of the vendor's own server need not hold there.

    Servers that only resemble OpenAI's speak its older dialect.
    """
    dialect = usual_dialect(url) if setup.dialect == "openai-responses" else setup.dialect
    return setup._replace(dialect=dialect, base_url=url.rstrip("/"), open_list=False)


def _given(
    name: str,
    one: Mapping[str, Any],
    environ: Mapping[str, str],
    stored: Mapping[str, str],
    reserved: Iterable[str],
) -> ProviderSetup:
    """A provider of config.json; what it leaves out of a known one is as known."""
    base = known(name)
    variable = str(one.get("apiKeyEnv", ""))
    if base is None:
        dialect = usual_dialect(str(one["baseUrl"]))
        setup = ProviderSetup(name, name, dialect, "", stored.get(name, ""), needs_key=bool(variable))
    else:
        setup = _known(base, environ, stored.get(name, ""), reserved)
        if "baseUrl" in one:
            setup = _elsewhere(setup, str(one["baseUrl"]))._replace(needs_key=bool(variable))
        elif not base.key_variables:
            setup = setup._replace(base_url=setup.base_url or base.base_url)
    if variable:
        key, kept = environ.get(variable, "").strip(), stored.get(name, "")
        setup = setup._replace(
            api_key=key or kept,
            key_variable=variable,
            key_is_stored=bool(kept and not key),
            needs_key=True,
        )
    models = tuple(_model(model, info, setup) for model, info in one.get("models", {}).items())
    listed = {model.name for model in models}
    return setup._replace(
        title=str(one.get("title", setup.title)),
        dialect=str(one.get("dialect", setup.dialect)),
        base_url=str(one.get("baseUrl", setup.base_url)).strip().rstrip("/"),
        headers=tuple(one.get("headers", {}).items()),
        server=str(one.get("server", setup.server)),
        models=(*models, *(model for model in setup.models if model.name not in listed)),
    )


def _model(name: str, given: Mapping[str, Any], setup: ProviderSetup) -> ModelInfo:
    before = setup.info(name)
    return ModelInfo(
        name,
        given.get("contextWindow", before.context_window),
        given.get("outputLimit", before.output_limit),
        _price(given["price"]) if "price" in given else before.price,
        given.get("images", before.images),
        given.get("thinking", before.thinking),
        given.get("audio", before.audio),
    )


def _price(given: Mapping[str, Any]) -> Price:
    long = given.get("long")
    return Price(
        given["input"],
        given["output"],
        given.get("cached"),
        given.get("written"),
        LongPrompt(long["above"], long["input"], long["output"]) if long else None,
    )


def _first_set(variables: Iterable[str], environ: Mapping[str, str]) -> str:
    """The first of these variables that is set and not blank; "" when none is."""
    return next((name for name in variables if environ.get(name, "").strip()), "")


def _ollama_url(host: str) -> str:
    """OLLAMA_HOST is written without a scheme, and as the address to listen on."""
    if host and "://" not in host:
        host = f"127.0.0.1{host}" if host.startswith(":") else host
        host = f"http://{host}" if ":" in host else f"http://{host}:11434"
    return host.replace("://0.0.0.0", "://127.0.0.1", 1)

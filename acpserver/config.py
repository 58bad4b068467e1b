"""The configuration: file, variables, stored keys and flags become one frozen value, with sources.

Read once at start, before any thread, and again on a control worker when somebody authenticates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from acpserver import config_file, credentials, provider_setup
from acpserver.addresses import is_address
from acpserver.catalog import KNOWN, ModelInfo, known, speaker, usual_dialect
from acpserver.config_file import Permissions
from acpserver.errors import ConfigError
from acpserver.model_choice import choose
from acpserver.provider_setup import MAIN, OFFLINE, ProviderSetup
from acpserver.redaction import secrets_in, secrets_in_url
from acpserver.settings import SETTINGS, convert

__all__ = ["OFFLINE", "Config", "Loader", "NoModel", "load"]

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Config(NamedTuple):
    """What holds for this process. `sources` maps the name of each setting that was set to where."""

    model: str = ""
    base_url: str = ""
    dialect: str = ""
    api_key_env: str = ""
    max_tokens: int | None = None
    max_steps: int = 50
    trace: str = ""
    log_file: str = ""
    log_level: str = "warning"
    strict: bool = False
    context_window: int | None = None
    images: bool | None = None
    audio: bool | None = None
    server: str = ""
    connect_timeout: float = 10.0
    idle_timeout: float = 120.0
    retry_seconds: float = 60.0
    list_models: bool = True
    api_key: str = ""
    """The key of the endpoint that the flat settings name."""
    others: tuple[ProviderSetup, ...] = ()
    """The providers of config.json and the known ones."""
    permissions: Permissions = Permissions()
    config_file: str = ""  # its path, whether it exists or not; "" without a home folder
    state_dir: str = ""
    sources: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Config(model={self.model!r})"  # the rest may hold keys

    @property
    def main(self) -> ProviderSetup | None:
        """The endpoint that the flat settings name, if they do."""
        if not (self.base_url or self.dialect or self.api_key_env):
            return None
        vendor = speaker(self.dialect or "openai")
        base_url = self.base_url or vendor.base_url
        is_vendor = base_url == vendor.base_url
        model = ModelInfo(self.model, self.context_window, images=self.images, audio=self.audio)
        return ProviderSetup(
            MAIN,
            base_url,
            self.dialect or usual_dialect(base_url),
            base_url,
            self.api_key,
            self.key_variable,
            needs_key=not self.base_url and bool(vendor.key_variables),
            models=(model,) if self.model and self.model != OFFLINE else (),
            images=is_vendor and vendor.images,
            audio=vendor.audio if is_vendor else (),
            thinking=vendor.thinking if is_vendor else (),
            not_chat=vendor.not_chat if is_vendor else ("embed", "rerank"),
            server=self.server,
        )

    @property
    def key_variable(self) -> str:
        """The variable that holds the key of that endpoint."""
        return self.api_key_env or (*speaker(self.dialect or "openai").key_variables, "OPENAI_API_KEY")[0]

    @property
    def providers(self) -> tuple[ProviderSetup, ...]:
        """All providers in the order of preference, usable or not."""
        return (self.main, *self.others) if self.main else self.others

    @property
    def missing(self) -> str:
        """Why no model can be called with this configuration, for a person; "" when one can."""
        return choose(self.providers, self.model)[1]

    @property
    def credentials_file(self) -> str:
        """Where `acpserver login` stores keys; "" without a home folder."""
        return credentials.path_beside(self.config_file)

    @property
    def secrets(self) -> list[str]:
        """Everything that must never be shown."""
        return [
            secret
            for one in self.providers
            for secret in (one.api_key, *secrets_in(one.headers), *secrets_in_url(one.base_url))
        ]

    @property
    def key_variables(self) -> list[str]:
        """The variables that may hold keys: no program that the agent runs may see them."""
        vendors = [variable for provider in KNOWN for variable in provider.key_variables]
        return [*vendors, *(one.key_variable for one in self.providers if one.key_variable)]


class NoModel(ConfigError):
    """An endpoint is named, and no model. `config` is what holds apart from that."""

    def __init__(self, config: Config):
        given = config.sources["base_url"]
        super().__init__(f"{given}: an endpoint needs a model too (--model or ACPSERVER_MODEL)")
        self.config = config


Loader = Callable[[], Config]
"""Reads the configuration anew. Raises `ConfigError`."""


def load(flags: Mapping[str, object], environ: Mapping[str, str]) -> Config:
    """Read config.json, the stored keys and the environment; flags (by setting name, None when not given) win
    over variables, and these over the file.

    Raises `ConfigError` for a file that cannot be read and for values that do not fit, and `NoModel`.
    """
    path, state_dir = _folders(environ)
    content = config_file.read(path)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        for value, source in (
            (flags.get(setting.name), f"--{setting.name.replace('_', '-')}"),
            (environ.get(setting.variable) or None, f"environment variable {setting.variable}"),
            (content.get(setting.key), path),
        ):
            if value is not None and setting.name not in values:
                values[setting.name] = convert(setting, value, source)
                sources[setting.name] = source
    values["base_url"] = str(values.get("base_url", "")).strip().rstrip("/")
    _check_address(values["base_url"], f"{sources.get('base_url')}: baseUrl")
    found = Config(
        **values,
        permissions=config_file.permissions_of(content),
        config_file=path,
        state_dir=state_dir,
        sources=sources,
    )
    found = _with_keys(found, content.get("providers", {}), environ)
    if found.base_url and not found.model:
        # Else the prompt, and a key, would go to some other endpoint than the one that was named.
        raise NoModel(found)
    return found


def _with_keys(config: Config, given: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """The configuration with its providers and their keys. Raises `ConfigError`."""
    if MAIN in given or OFFLINE in given:
        raise ConfigError(f"{config.config_file}: providers: the names {MAIN} and {OFFLINE} are taken")
    for name in given:
        if not name or "/" in name:
            raise ConfigError(f"{config.config_file}: providers: a name is not empty and has no slash")
    for name, one in given.items():
        if "baseUrl" not in one and known(name) is None:
            raise ConfigError(f"{config.config_file}: providers.{name}.baseUrl: required but missing")
        _check_address(str(one.get("baseUrl", "")), f"{config.config_file}: providers.{name}.baseUrl")
        _check_variable(one.get("apiKeyEnv", ""), f"{config.config_file}: providers.{name}.apiKeyEnv")
    _check_variable(config.api_key_env, f"{config.sources.get('api_key_env')}: apiKeyEnv")
    taken = [config.key_variable] if config.main else []
    stored = credentials.stored_keys(config.credentials_file) if config.credentials_file else {}
    return config._replace(
        api_key=environ.get(config.key_variable, "").strip() if config.main else "",
        others=provider_setup.set_up(given, environ, stored, taken),
    )


def _check_variable(name: str, place: str) -> None:
    """Raise `ConfigError`, without the value, where a key stands instead of its variable's name."""
    if name and not _VARIABLE.fullmatch(name):
        raise ConfigError(f"{place}: must be the name of an environment variable, and never a key itself")


def _check_address(url: str, place: str) -> None:
    """Raise `ConfigError`, without the value, which may hold a password, for what is no address."""
    if url and not is_address(url):
        raise ConfigError(f"{place} must look like https://host/v1")


def credentials_file(environ: Mapping[str, str]) -> str:
    """Where stored keys are, whatever else the configuration says."""
    return credentials.path_beside(_folders(environ)[0])


def _folders(environ: Mapping[str, str]) -> tuple[str, str]:
    """The path of config.json and of the state folder (XDG base directory specification 0.8)."""
    home = environ.get("ACPSERVER_HOME", "")
    if home:
        home = os.path.abspath(home)
        return os.path.join(home, "config.json"), os.path.join(home, "state")
    user = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(user):
        return "", ""
    config = environ.get("XDG_CONFIG_HOME", "")
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(config):
        config = os.path.join(user, ".config")
    if not os.path.isabs(state):
        state = os.path.join(user, ".local", "state")
    return os.path.join(config, "acpserver", "config.json"), os.path.join(state, "acpserver")

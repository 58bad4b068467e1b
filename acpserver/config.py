"""The configuration: file, environment and flags become one frozen value, with the source of each part.

Read once at start, before any thread. The table `SETTINGS` is the only list of settings: the command
line, the variables, `config.json` and the documents follow it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from acpserver.errors import ConfigError

OFFLINE = "offline"
"""The name of the built-in model that needs no network and no key."""

OPENAI_URL = "https://api.openai.com/v1"
DIALECTS = ("openai",)
LOG_LEVELS = ("debug", "info", "warning", "error")


class Setting(NamedTuple):
    """One setting. `kind`: "text", "count", "seconds" or "switch"; `flag` is False where only the file and
    the variable can set it."""

    name: str
    kind: str
    help: str
    choices: tuple[str, ...] = ()
    flag: bool = True

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "ACPSERVER_" + self.name.upper()

    @property
    def key(self) -> str:
        """The key in config.json."""
        head, *rest = self.name.split("_")
        return head + "".join(word.capitalize() for word in rest)


SETTINGS = (
    Setting("model", "text", 'the model to use; "offline" is built in and needs no network'),
    Setting("base_url", "text", f"the endpoint's base URL (default {OPENAI_URL})"),
    Setting("dialect", "text", "how the endpoint is spoken to", choices=DIALECTS),
    Setting("api_key_env", "text", "the environment variable that holds the key (default OPENAI_API_KEY)"),
    Setting("max_tokens", "count", "the most tokens one answer may have (default: the server's limit)"),
    Setting("max_steps", "count", "the most model calls in one turn (default 50)"),
    Setting("trace", "text", "write every message of both directions to this file as JSON lines"),
    Setting("log_file", "text", "write the log to this file instead of stderr"),
    Setting("log_level", "text", "what is logged (default warning)", choices=LOG_LEVELS),
    Setting("strict", "switch", "treat an outgoing message that does not fit the schema as an error"),
    Setting("context_window", "count", "the model's context window in tokens, for usage updates", flag=False),
    Setting("connect_timeout", "seconds", "how long connecting may take (default 10)", flag=False),
    Setting("idle_timeout", "seconds", "how long the model may be silent (default 120)", flag=False),
    Setting("retry_seconds", "seconds", "how long a failing call is retried (default 60)", flag=False),
)


@dataclass(frozen=True)
class Config:
    """What holds for this process. `sources` maps the name of each setting that was set to where."""

    model: str = ""
    base_url: str = OPENAI_URL
    dialect: str = "openai"
    api_key_env: str = "OPENAI_API_KEY"
    max_tokens: int | None = None
    max_steps: int = 50
    trace: str = ""
    log_file: str = ""
    log_level: str = "warning"
    strict: bool = False
    context_window: int | None = None
    connect_timeout: float = 10.0
    idle_timeout: float = 120.0
    retry_seconds: float = 60.0
    api_key: str = field(default="", repr=False)
    config_file: str = ""  # its path, whether it exists or not; "" without a home folder
    state_dir: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> str:
        """Why no model can be called with this configuration, for a person; "" when one can."""
        if not self.model:
            return "No model is configured: set ACPSERVER_MODEL (or --model) and ACPSERVER_BASE_URL"
        if self.model != OFFLINE and self.base_url == OPENAI_URL and not self.api_key:
            return f"{OPENAI_URL} needs a key, and the environment variable {self.api_key_env} is not set"
        return ""


def load(flags: Mapping[str, object], environ: Mapping[str, str]) -> Config:
    """Read config.json and the environment; flags (by setting name, None when not given) win over
    variables, and these over the file.

    Raises `ConfigError` for a file that cannot be read and for values that do not fit.
    """
    config_file, state_dir = _folders(environ)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    from_file = _read_file(config_file)
    for setting in SETTINGS:
        for value, source in (
            (flags.get(setting.name), f"--{setting.name.replace('_', '-')}"),
            (environ.get(setting.variable) or None, f"environment variable {setting.variable}"),
            (from_file.pop(setting.key, None), config_file),
        ):
            if value is not None and setting.name not in values:
                values[setting.name] = _convert(setting, value, source)
                sources[setting.name] = source
    if from_file:
        raise ConfigError(f"{config_file}: unknown setting {sorted(from_file)[0]!r}")
    if "base_url" not in values and environ.get("OPENAI_BASE_URL"):
        values["base_url"] = environ["OPENAI_BASE_URL"]
        sources["base_url"] = "environment variable OPENAI_BASE_URL"
    values["base_url"] = str(values.get("base_url", OPENAI_URL)).rstrip("/")
    key = environ.get(str(values.get("api_key_env", "OPENAI_API_KEY")), "").strip()
    return Config(
        **values, api_key=key, config_file=config_file, state_dir=state_dir, sources=sources
    )


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


def _read_file(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            value = json.load(file)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}  # no file of ours to read is the normal case, and no reason not to start
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must hold a JSON object")
    return value


def _convert(setting: Setting, value: object, source: str) -> object:
    """The value in the setting's type. Numbers and switches may be text, as variables are."""
    try:
        if setting.kind == "switch":
            return _SWITCH[str(value).lower()]
        if setting.kind == "count":
            return _positive(_whole(_number(value)))
        if setting.kind == "seconds":
            return _positive(float(_number(value)))
    except (KeyError, ValueError):
        raise _bad(setting, value, source, _EXPECTED[setting.kind]) from None
    if not isinstance(value, str) or "\0" in value:
        raise _bad(setting, value, source, "text")
    if setting.choices and value not in setting.choices:
        raise _bad(setting, value, source, f"one of {', '.join(setting.choices)}")
    return value


def _bad(setting: Setting, value: object, source: str, expected: str) -> ConfigError:
    return ConfigError(f"{source}: {setting.key} must be {expected}, not {value!r}")


_SWITCH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
_EXPECTED = {
    "switch": "true or false",
    "count": "a whole number above 0",
    "seconds": "a number of seconds above 0",
}


def _number(value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    return value


def _whole(number: str | int | float) -> int:
    if isinstance(number, float) and not number.is_integer():
        raise ValueError
    return int(number)


def _positive(number: float) -> float:
    if not 0 < number < 1e9:
        raise ValueError
    return number

"""The table of settings: the only list of them. The command line, the variables, `config.json` and the
documents follow it. Pure; any thread.
"""

from __future__ import annotations

from typing import NamedTuple

from acpserver.catalog import DIALECTS, SERVERS
from acpserver.errors import ConfigError

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
    Setting("model", "text", 'the model: "provider/model", a name, or "offline", which needs no network'),
    Setting("base_url", "text", "the base URL of an endpoint of your own"),
    Setting("dialect", "text", "how that endpoint is spoken to (default openai)", choices=DIALECTS),
    Setting("api_key_env", "text", "the environment variable that holds its key (default OPENAI_API_KEY)"),
    Setting("max_tokens", "count", "the most tokens one answer may have (default: the server's limit)"),
    Setting("max_steps", "count", "the most model calls in one turn (default 50)"),
    Setting("trace", "text", "write every message of both directions to this file as JSON lines"),
    Setting("log_file", "text", "write the log to this file instead of stderr"),
    Setting("log_level", "text", "what is logged (default warning)", choices=LOG_LEVELS),
    Setting("strict", "switch", "treat an outgoing message that does not fit the schema as an error"),
    Setting("context_window", "count", "the context window of that endpoint's model, in tokens", flag=False),
    Setting("images", "switch", "that endpoint's model takes images", flag=False),
    Setting("audio", "switch", "that endpoint's model takes audio", flag=False),
    Setting("server", "text", "which server that is, if its address does not tell", SERVERS, flag=False),
    Setting("connect_timeout", "seconds", "how long connecting may take (default 10)", flag=False),
    Setting("idle_timeout", "seconds", "how long the model may be silent (default 120)", flag=False),
    Setting("retry_seconds", "seconds", "how long a failing call is retried (default 60)", flag=False),
    Setting("list_models", "switch", "ask providers which models they have (default true)", flag=False),
)


def convert(setting: Setting, value: object, source: str) -> object:
    """The value in the setting's type. Numbers and switches may be text, as variables are.

    Raises `ConfigError`, which names `source`.
    """
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
_SECONDS = "a number of seconds above 0"
_EXPECTED = {"switch": "true or false", "count": "a whole number above 0", "seconds": _SECONDS}


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

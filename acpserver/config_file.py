"""config.json: read, and checked against `schema/config_file.json`; also a project's own one, which may only
tighten. Reads the disk: at start, and on control workers.

What is said about a file names the place and the reason, never a value: a header may hold a secret.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from acpserver import jsontext, plain_file
from acpserver.errors import ConfigError
from acpserver.rpc import checker, definitions

PROJECT_FILE = os.path.join(".acpserver", "config.json")
MODES = ("read_only", "default", "accept_edits", "bypass")
"""The modes, each allowing more than the one before."""

_MOST_FAULTS = 5  # that are told of one file


class Permissions(NamedTuple):
    """How a session starts, and what it never gets."""

    mode: str = "default"
    denied: frozenset[str] = frozenset()  # names of tools
    remarks: tuple[str, ...] = ()  # what the user should know about the project's file


def read(path: str) -> dict[str, Any]:
    """The checked content of config.json; empty when there is no file that we may read.

    Raises `ConfigError` with the path of the file, the place in it and the reason of each fault.
    """
    try:
        value = jsontext.loads(plain_file.read(path).decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}  # no file of ours to read is the normal case, and no reason not to start
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    faults = check(value)
    if faults or not isinstance(value, dict):
        raise ConfigError(f"{path}: {'; '.join(faults)}")
    return value


def check(value: object) -> list[str]:
    """What does not fit in the content of a config.json: place and reason."""
    errors = checker.checker_of(definitions.config_file()).iter_errors(value)
    faults = sorted((".".join(map(str, error.path)), error.message) for error in errors)
    return [f"{place or 'the whole file'}: {reason}" for place, reason in faults[:_MOST_FAULTS]]


def permissions_of(content: dict[str, Any]) -> Permissions:
    """What the user's own file says of permissions."""
    given = content.get("permissions", {})
    return Permissions(given.get("mode", "default"), frozenset(given.get("deny", ())))


def with_project(own: Permissions, cwd: str) -> Permissions:
    """The user's permissions, tightened by the file of the project in `cwd`.

    Whatever else stands there is left out with a remark: a project that was only downloaded must not send
    prompts and keys to another address, run programs, or allow more than the user does.
    """
    try:
        value = _read_project(os.path.join(cwd, PROJECT_FILE))
    except ValueError as error:
        return own._replace(remarks=(f"The project's {PROJECT_FILE} is left out: {error}",))
    given = value.pop("permissions", {})
    value.pop("$schema", None)
    unused = list(value)
    if not isinstance(given, dict):
        given, unused = {}, [*unused, "permissions"]
    mode, deny = given.pop("mode", own.mode), given.pop("deny", [])
    unused += [f"permissions.{name}" for name in given]
    if mode not in MODES or MODES.index(mode) > MODES.index(own.mode):
        mode, unused = own.mode, [*unused, "permissions.mode"]
    if not isinstance(deny, list) or not all(isinstance(name, str) for name in deny):
        deny, unused = [], [*unused, "permissions.deny"]
    return Permissions(mode, own.denied.union(deny), _remarks(unused))


def _read_project(path: str) -> dict[str, Any]:
    """The JSON object in a project's file, {} without one. Raises `ValueError`, which says why not."""
    try:
        content = plain_file.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ValueError(error.strerror) from None
    value = jsontext.loads(content.decode("utf-8-sig"))
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def _remarks(unused: list[str]) -> tuple[str, ...]:
    if not unused:
        return ()
    names = ", ".join(checker.excerpt(name)[1:-1] for name in sorted(unused)[:_MOST_FAULTS])
    return (
        f"The project's {PROJECT_FILE} may only tighten permissions (a stricter mode, denied tools). "
        f"Left out: {names}.",
    )

"""The keys that `acpserver login` stored: one file beside config.json that nobody else may read.

`{"keys": {provider: key}}`, mode 0600, replaced as a whole. Any thread may call; it touches the disk, so the
reader must not. A key is never logged and stands in no error text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from acpserver import plain_file
from acpserver.errors import ConfigError

FILE_NAME = "credentials.json"


def path_beside(config_file: str) -> str:
    """Where the keys are: beside config.json; "" without a home folder."""
    return os.path.join(os.path.dirname(config_file), FILE_NAME) if config_file else ""


def stored_keys(path: str) -> dict[str, str]:
    """The stored keys by provider; none without a file. Raises `ConfigError` for a damaged one."""
    try:
        value = json.loads(plain_file.read(path).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}  # no login yet, or none of this user's
    except (OSError, ValueError, RecursionError):  # their words could quote a key
        raise ConfigError(f"{path}: cannot be read as JSON; run 'acpserver logout' to begin anew") from None
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, dict):
        raise ConfigError(f"{path}: must hold {{\"keys\": ...}}; run 'acpserver logout' to begin anew")
    return {name: key for name, key in keys.items() if isinstance(key, str) and key}


def store_key(path: str, provider: str, key: str) -> None:
    """Add or replace one key. Raises `OSError`, and `ConfigError` for a damaged file."""
    _write(path, {**stored_keys(path), provider: key})


def remove_keys(path: str, provider: str = "") -> list[str]:
    """Remove one provider's key, or all with the file. Returns whose keys were there. Raises `OSError`."""
    try:
        keys = stored_keys(path)
    except ConfigError:
        if provider:
            raise
        keys = {}  # damaged: there is nothing in it to name, and removing it is the way out
    if not provider:
        if path and os.path.lexists(path):
            os.unlink(path)
        return list(keys)
    if provider not in keys:
        return []
    _write(path, {name: key for name, key in keys.items() if name != provider})
    return [provider]


def _write(path: str, keys: Mapping[str, str]) -> None:
    """Replace the file in one step; it is private from its first byte on."""
    if not path:
        raise ConfigError("there is no home folder to store a key in: set HOME or ACPSERVER_HOME")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    new = f"{path}.{os.getpid()}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"keys": keys}, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise

"""The schema files: the table of methods and the definitions. Read on first use, kept for good.

Any thread may call everything here; two threads that come first both read, and get equal values. Nothing
is read at import, and nothing that was returned may be changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

Schema = dict[str, Any]
"""One JSON Schema as it stands in the files."""

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "schema", _PACKAGE.parent / "schema")  # installed; checkout and editable install
_TABLE = "methods.json"
_CONFIG_FILE = "config_file.json"  # no part of the protocol: what the user's config.json may hold


class Method(NamedTuple):
    """One method of the protocol."""

    name: str
    receiver: str  # "agent", "client" or "both"
    is_request: bool  # otherwise a notification
    experimental: bool  # not in the stable protocol, or no longer in it
    params: str  # name of the definition
    result: str | None  # name of the definition; None for a notification


@cache
def methods() -> Mapping[str, Method]:
    """Every method of the protocol by its name on the wire."""
    table = _read(_folder() / _TABLE)
    return MappingProxyType({name: _method(name, row) for name, row in table.items()})


def _method(name: str, row: Schema) -> Method:
    return Method(
        name=name,
        receiver=row["receiver"],
        is_request="result" in row,
        experimental=row.get("experimental", False),
        params=row["params"],
        result=row.get("result"),
    )


@cache
def definitions() -> Mapping[str, Schema]:
    """The definitions of all files by name; a name stands in one file only."""
    found: dict[str, Schema] = {}
    for path in sorted(_folder().glob("*.json")):
        if path.name not in (_TABLE, _CONFIG_FILE):
            found.update(_read(path)["$defs"])
    return MappingProxyType(found)


def config_file() -> Schema:
    """The schema of config.json, which stands alone."""
    return _read(_folder() / _CONFIG_FILE)


def target(reference: str) -> str:
    """The name of the definition that a `$ref` points to, in whatever file it is."""
    return reference.rpartition("/")[2]


@cache
def _folder() -> Path:
    for folder in _FOLDERS:
        if (folder / _TABLE).is_file():
            return folder
    raise FileNotFoundError(f"schema files: none in {' or '.join(map(str, _FOLDERS))}")


def _read(path: Path) -> Schema:
    document: Schema = json.loads(path.read_text(encoding="utf-8"))
    return document

"""Mending what comes in: what the protocol's schema forgives, and what real clients are known to get wrong.

Pure functions on values, for any thread. The input is never changed; what cannot be mended is left as it
is, for the check to find. Nothing that goes out passes through here.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

from acpserver.rpc.checker import Checker, fits

Path = tuple["str | int", ...]
Notes = list[tuple[Path, str]]
"""What was mended: where, and in which way."""

# -- What real clients get wrong ---------------------------------------------------------------------------


def _no_servers(params: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """CodeCompanion, among others, sends no `mcpServers` when there are none, though it is required."""
    if "mcpServers" in params:
        return params
    notes.append((("mcpServers",), "missing, taken as []"))
    return {**params, "mcpServers": []}


def _blank_client(params: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """AionUi sends a `clientInfo` of empty strings, which says no more than none at all."""
    info = params.get("clientInfo")
    if not isinstance(info, dict) or info.get("name") != "":
        return params
    notes.append((("clientInfo",), "left out: its name is empty"))
    return {key: value for key, value in params.items() if key != "clientInfo"}


_HABITS: dict[str, Callable[[dict[str, Any], Notes], dict[str, Any]]] = {
    "initialize": _blank_client,
    "session/new": _no_servers,
    "session/load": _no_servers,
}


def mend_habits(method: str, params: object, notes: Notes) -> object:
    """`params` without the faults that are known of the clients of this one method."""
    habit = _HABITS.get(method)
    return habit(params, notes) if habit and isinstance(params, dict) else params


def _mend_general(value: object, checker: Checker, required: bool) -> tuple[object, str] | None:
    """Two habits that any field may show: the value to take instead, and what was done. None: neither."""
    types = checker.schema.get("type", ())
    if value == {} and isinstance(value, dict) and "array" in types and "object" not in types:
        # Lua has one empty table for both, and Neovim clients send it for mcpServers, args and env.
        return [], "{} taken as []"
    if value is None and not required:
        # Many write null for an optional field that they have no value for.
        return _LEFT_OUT, "null, taken as absent"
    return None


# -- What the schema forgives ------------------------------------------------------------------------------

_LEFT_OUT = object()  # stands for a field or an item that is to be left out


def mend(value: object, checker: Checker, path: Path, notes: Notes) -> object:
    """`value` with every part mended that its schema or a known habit allows; itself if nothing was."""
    if fits(checker, value):
        return value
    schema = checker.schema
    if "nullable" in schema:
        return mend(value, schema["nullable"], path, notes)
    if isinstance(value, dict) and "properties" in schema:
        value = _mend_fields(value, schema, path, notes)
    elif isinstance(value, list) and "items" in schema:
        value = _mend_items(value, schema, path, notes)
    if "union" in schema:
        member = schema["union"].best(value)
        return value if member is None else mend(value, member, path, notes)
    return value


def _mend_fields(value: dict[str, Any], schema: Any, path: Path, notes: Notes) -> dict[str, Any]:
    mended = value
    for name, checker in schema["properties"].items():
        if name not in value:
            continue
        field = _mend_field(value[name], checker, name in schema.get("required", ()), (*path, name), notes)
        if field is value[name]:
            continue
        mended = dict(mended) if mended is value else mended
        if field is _LEFT_OUT:
            del mended[name]
        else:
            mended[name] = field
    return mended


def _mend_field(value: object, checker: Checker, required: bool, path: Path, notes: Notes) -> object:
    """What to take for one field. Parts are mended first, so that only what is left is given up."""
    if fits(checker, value):
        return value
    if value is None and checker.schema.get("x-deserialize-default-on-null"):
        notes.append((path, "null, taken as the default"))
        return _default(checker.schema, required)
    general = _mend_general(value, checker, required)
    if general is None:
        value = mend(value, checker, path, notes)
        if fits(checker, value) or not checker.schema.get("x-deserialize-default-on-error"):
            return value
        general = _default(checker.schema, required), f"taken as the default: {_why(checker, value)}"
    notes.append((path, general[1]))
    return general[0]


def _mend_items(value: list[Any], schema: Any, path: Path, notes: Notes) -> list[Any]:
    checker, skips = schema["items"], schema.get("x-deserialize-skip-invalid-items")
    mended = []
    for index, given in enumerate(value):
        item = mend(given, checker, (*path, index), notes)
        if skips and not fits(checker, item):
            notes.append(((*path, index), f"left out: {_why(checker, item)}"))
        else:
            mended.append(item)
    unchanged = len(mended) == len(value) and all(map(operator.is_, mended, value))
    return value if unchanged else mended


def _default(schema: Any, required: bool) -> object:
    """The default of a field: the one that is written down, or the empty value of a type without null."""
    if "default" in schema:
        return copy.deepcopy(schema["default"])
    types = schema.get("type", ())
    if len(types) == 1 and (required or schema.get("x-deserialize-default-on-null")):
        return {"array": [], "object": {}}.get(types[0], _LEFT_OUT)
    return _LEFT_OUT


def _why(checker: Checker, value: object) -> str:
    """The first fault of `value`, with the name of the field in it."""
    error = next(checker.iter_errors(value))
    return " ".join([*map(str, error.path), str(error.message)])

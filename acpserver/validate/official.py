"""An official schema file of the protocol in place of ours (`--schema FILE`). Read once, pure afterwards.

The file names the method and the side of each definition (`x-method`, `x-side`), and may carry the keywords
that say what receivers forgive. Unions are followed to the member that the tag names, so that a fault names
the field that is really wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

from acpserver.errors import ConfigError
from acpserver.rpc.definitions import Method

Steps = tuple["str | int", ...]


class Fault(NamedTuple):
    """One thing that does not fit. `steps` lead from the value at hand to the place."""

    steps: Steps
    reason: str


_SIDES = {"agent": "agent", "client": "client", "protocol": "both"}


class OfficialSchema:
    """The shapes of one official schema file. Raises `ConfigError` for a file that is none."""

    def __init__(self, path: Path):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            self._definitions: dict[str, Any] = document["$defs"]
        except OSError as error:
            raise ConfigError(f"--schema {path}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"--schema {path}: not a JSON Schema with $defs") from None
        if not self._methods:
            raise ConfigError(f"--schema {path}: no definition names its method (x-method)")
        self._validators: dict[str, Any] = {}

    def method(self, name: str) -> Method | None:
        """The method of this name; None for one outside the protocol."""
        return self._methods.get(name)

    def methods(self) -> list[str]:
        """The names of all methods."""
        return list(self._methods)

    def faults(self, definition: str, value: object) -> Iterator[Fault]:
        """What does not fit."""
        if definition not in self._definitions:
            return
        told = set()
        for error in self._validator(definition).iter_errors(value):
            for fault in _deepest(error):
                if fault.steps not in told:
                    told.add(fault.steps)
                    yield fault

    def forgiveness(self, definition: str, value: object, steps: Steps) -> str:
        """Why a receiver goes on in spite of a fault at `steps`; "" when nothing says so."""
        schema: Any = {"$ref": f"#/$defs/{definition}"}
        for step in (*steps, None):
            if isinstance(step, int) and _flag(schema, "x-deserialize-skip-invalid-items"):
                return "such items are left out"
            if _flag(schema, "x-deserialize-default-on-error"):
                return "the field counts as absent"
            if step is None:
                break
            schema = self._below(schema, value, step)
            value = _part(value, step)
            if schema is None:
                break
            if value is None and _flag(schema, "x-deserialize-default-on-null"):
                return "null counts as absent"
        return ""

    def unknown(self, definition: str, value: object) -> Iterator[tuple[Steps, list[str]]]:
        """Fields that the schema does not know, with the names that it knows there."""
        return self._unknown({"$ref": f"#/$defs/{definition}"}, value, ())

    def names(self, definition: str, value: object, steps: Steps) -> list[str]:
        """The names or values that are allowed at `steps`."""
        schema: Any = {"$ref": f"#/$defs/{definition}"}
        for step in steps:
            schema, value = self._below(schema, value, step), _part(value, step)
            if schema is None:
                return []
        found: list[str] = []
        for part in self._parts(schema, None):
            found += [str(item) for item in (*part.get("enum", ()), *part.get("properties", ())) if item]
            found += [str(part["const"])] if "const" in part else []
        return found

    @cached_property
    def _methods(self) -> dict[str, Method]:
        found: dict[str, dict[str, str]] = {}
        sides: dict[str, str] = {}
        for name, schema in self._definitions.items():
            if "x-method" in schema:
                part = "result" if name.endswith("Response") else "params"
                found.setdefault(schema["x-method"], {})[part] = name
                sides[schema["x-method"]] = _SIDES.get(schema.get("x-side", ""), "both")
        return {
            name: Method(name, sides[name], "result" in parts, False, parts["params"], parts.get("result"))
            for name, parts in found.items()
            if "params" in parts
        }

    def _validator(self, definition: str) -> Any:
        if definition not in self._validators:
            schema = {"$ref": f"#/$defs/{definition}", "$defs": self._definitions}
            self._validators[definition] = jsonschema.Draft202012Validator(schema)
        return self._validators[definition]

    def _parts(self, schema: Any, value: object) -> Iterator[Any]:
        """`schema` with everything that it is made of; of a union only the members that the tag of
        `value` allows."""
        yield schema
        if "$ref" in schema:
            yield from self._parts(self._definitions[schema["$ref"].rpartition("/")[2]], value)
        for part in (*schema.get("allOf", ()), *schema.get("oneOf", ()), *schema.get("anyOf", ())):
            if value is None or _tag_allows(part, value):
                yield from self._parts(part, value)

    def _below(self, schema: Any, value: object, step: str | int) -> Any:
        for part in self._parts(schema, value):
            if isinstance(step, int):
                if isinstance(part.get("items"), dict):
                    return part["items"]
            elif step in part.get("properties", {}):
                return part["properties"][step]
            elif isinstance(part.get("additionalProperties"), dict):
                return part["additionalProperties"]
        return None

    def _unknown(self, schema: Any, value: object, steps: Steps) -> Iterator[tuple[Steps, list[str]]]:
        if isinstance(value, list):
            below = self._below(schema, value, 0)
            for index, item in enumerate(value if below else ()):
                yield from self._unknown(below, item, (*steps, index))
        if not isinstance(value, dict):
            return
        parts = list(self._parts(schema, value))
        known = {name for part in parts for name in part.get("properties", {})}
        if not known or any(isinstance(part.get("additionalProperties"), dict) for part in parts):
            return
        for name, part in value.items():
            if name not in known:
                yield (*steps, name), sorted(known)
            elif name != "_meta":
                yield from self._unknown(self._below(schema, value, name), part, (*steps, name))


def _flag(schema: Any, name: str) -> bool:
    return bool(schema.get(name))


def _part(value: object, step: str | int) -> object:
    try:
        return value[step]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return ()  # nothing, and no null


def _tag_allows(member: Any, value: object) -> bool:
    for name, field in member.get("properties", {}).items():
        if "const" in field and isinstance(value, dict) and value.get(name) != field["const"]:
            return False
    return True


def _deepest(error: Any) -> Iterator[Fault]:
    """The faults behind one error of `jsonschema`: those of the member of a union that was meant."""
    if error.validator not in ("oneOf", "anyOf") or not error.context:
        yield _fault(error)
        return
    members: dict[int, list[Any]] = {}
    for inner in error.context:
        members.setdefault(inner.schema_path[0], []).append(inner)
    tags = {index: _tag_of(member) for index, member in enumerate(error.validator_value)}
    about_tag = {
        index: [one for one in found if _is_tag(one, tags[index])] for index, found in members.items()
    }
    named = [found for index, found in members.items() if tags[index] and not about_tag[index]]
    nearly = [
        found for index, found in members.items() if tags[index] and len(found) == len(about_tag[index])
    ]
    untagged = [found for index, found in members.items() if not tags[index] and not about_tag[index]]
    if named or (untagged and not nearly):
        for inner in min(named or untagged, key=_unlikeness):
            yield from _deepest(inner)
        return
    values = ", ".join(sorted({_const(member) for member in error.validator_value} - {""}))
    name = next(filter(None, tags.values()), "")
    yield Fault((*error.absolute_path, *([name] if name else [])), f"not one of {values}")


def _fault(error: Any) -> Fault:
    if error.validator == "required":
        missing = error.message.split("'")[1]
        return Fault((*error.absolute_path, missing), "required but missing")
    return Fault(tuple(error.absolute_path), _reason(error))


def _unlikeness(errors: list[Any]) -> tuple[int, int]:
    """How little a value looks like the member of a union that gives these errors."""
    return sum(error.validator == "required" for error in errors), len(errors)


def _tag_of(member: Any) -> str:
    """The field whose one value says which member of a union is meant; "" for a member without one."""
    return next((name for name, field in member.get("properties", {}).items() if "const" in field), "")


def _const(member: Any) -> str:
    """That one value; also of a member that is nothing but a value."""
    field = member.get("properties", {}).get(_tag_of(member), member)
    return str(field.get("const", ""))


def _is_tag(error: Any, tag: str) -> bool:
    """Whether an error says only that another member is meant."""
    if error.validator == "required":
        return bool(tag) and not error.relative_path and f"'{tag}'" in error.message
    return error.validator in ("const", "not") or (bool(tag) and list(error.relative_path) == [tag])


def _reason(error: Any) -> str:
    """One short sentence that does not repeat the whole value."""
    if error.validator == "type":
        return f"expected {error.validator_value}, found {type(error.instance).__name__}"
    if error.validator in ("enum", "const"):
        return f"not one of {error.validator_value}"[:200]
    return str(error.message)[-160:]

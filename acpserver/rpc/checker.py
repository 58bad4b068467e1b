"""A definition compiled into a checker: `jsonschema` with a few keywords of our own.

Any thread may call everything here. Checkers are built on first use, one definition at a time, and kept;
two threads that come first both build one, and either will do. No reason that is given repeats more of a
value than a few characters of a tag: what is checked may be large, and may hold secrets.

Compiling follows every `$ref`, and turns a union into the keyword `union`, which picks the member by its
tag: one small definition is tried, and a fault names the field that is really wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from acpserver.rpc.definitions import Schema, definitions, target

Faults = Iterable[Any]
"""Errors of `jsonschema`: `path` from the value at hand downwards, and `message`."""


class Checker(Protocol):
    """A compiled schema: a validator of `jsonschema` whose subschemas are checkers too."""

    @property
    def schema(self) -> Any:
        """Its keywords, ours among them."""

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """The faults of `instance`, found one by one."""


@cache
def checker(definition: str) -> Checker:
    """The checker of the definition of this name."""
    return _build(definitions()[definition])


def checker_of(schema: Schema) -> Checker:
    """The checker of a schema that stands alone, such as that of a file."""
    return _build(schema)


def fits(checker: Checker, value: object) -> bool:
    """Whether `value` has no fault at all."""
    return next(checker.iter_errors(value), None) is None


# -- Keywords ----------------------------------------------------------------------------------------------
# Each is called by jsonschema with the checker, the keyword's value, the instance and the whole schema. They
# stand in for the library's own because those put the whole instance into their messages.

_TYPE_NAMES = {
    str: "string", dict: "object", list: "array", int: "integer", bool: "boolean", float: "number",
    type(None): "null",
}  # fmt: skip


def _type_name(value: object) -> str:
    """The JSON type; bool is not an integer, and a subclass (an enum of strings) counts as its base."""
    name = _TYPE_NAMES.get(type(value))
    if name is None:
        bases = (_TYPE_NAMES[base] for base in type(value).__mro__ if base in _TYPE_NAMES)
        name = next(bases, type(value).__name__)
    return name


def _type(checker: Checker, allowed: tuple[str, ...], instance: Any, schema: Schema) -> Faults | None:
    found = _type_name(instance)
    if found in allowed:
        return None
    if found == "integer" and "number" in allowed:
        return None
    if found == "number" and "integer" in allowed and instance.is_integer():
        return None  # JSON Schema: 1.0 is an integer
    return [_error(f"expected {' or '.join(allowed)}, found {found}")]


def _required(checker: Checker, names: tuple[str, ...], instance: Any, schema: Schema) -> Faults | None:
    if not isinstance(instance, dict):
        return None
    return [_error("required but missing", name) for name in names if name not in instance]


def _enum(checker: Checker, values: tuple[str, ...], instance: Any, schema: Schema) -> Faults | None:
    if not isinstance(instance, str) or instance in values:
        return None
    return [_error(_not_one_of(instance, values))]


def _properties(checker: Checker, known: dict[str, Checker], instance: Any, schema: Schema) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for name, child in known.items():
        if name in instance:
            yield from _below(name, child, instance[name])


def _other_properties(
    checker: Checker, child: Checker | None, instance: Any, schema: Schema
) -> Iterator[Any]:
    """`child` is for every property that is not listed; None: there must be none."""
    if not isinstance(instance, dict):
        return
    known = schema.get("properties", ())
    for name, value in instance.items():
        if name in known:
            continue
        if child is None:
            yield _error(f"unknown, known are {_listed(known)}", name)
        else:
            yield from _below(name, child, value)


def _items(checker: Checker, child: Checker, instance: Any, schema: Schema) -> Iterator[Any]:
    if not isinstance(instance, list):
        return
    for index, value in enumerate(instance):
        yield from _below(index, child, value)


def _below(part: str | int, child: Checker, value: object) -> Iterator[Any]:
    for error in child.iter_errors(value):
        error.path.appendleft(part)
        yield error


def _nullable(checker: Checker, child: Checker, instance: Any, schema: Schema) -> Faults | None:
    return None if instance is None else child.iter_errors(instance)


class Union(NamedTuple):
    """The members of a union and how to tell which of them a value is meant to be."""

    tag: str  # the property that tells them apart; "" if there is none
    tagged: Mapping[str, Checker]  # by the value of the tag
    other: Checker | None  # for every other value of the tag
    untagged: tuple[Checker, ...]  # members that say nothing about a tag

    def by_tag(self, value: object) -> Checker | None:
        """The member that the tag of `value` names."""
        tag = value.get(self.tag) if isinstance(value, dict) else None
        return self.tagged.get(tag, self.other) if isinstance(tag, str) else None

    def best(self, value: object) -> Checker | None:
        """The member that `value` was most likely meant to be; None if its tag names none."""
        member = self.by_tag(value)
        if member is None and self.untagged:
            member = max(self.untagged, key=lambda one: _likeness(one, value))
        return member


def _likeness(checker: Checker, value: object) -> int:
    """How many of the fields that `checker` requires are there; for a list, in its first item."""
    schema = checker.schema
    if isinstance(value, list) and value and "items" in schema:
        return _likeness(schema["items"], value[0])
    return sum(name in value for name in schema.get("required", ())) if isinstance(value, dict) else 0


def _union(checker: Checker, union: Union, instance: Any, schema: Schema) -> Faults | None:
    best = union.best(instance)
    if best is None:
        return [_tag_error(union, instance)]
    if not union.untagged:
        return best.iter_errors(instance)
    # Without a tag any member will do: a stdio server is one even if its type says "http".
    if fits(best, instance) or any(fits(member, instance) for member in union.untagged):
        return None
    return best.iter_errors(instance)


def _tag_error(union: Union, instance: object) -> Any:
    if not isinstance(instance, dict):
        return _error(f"expected object, found {_type_name(instance)}")
    if union.tag not in instance:
        return _error(f"required but missing, one of {_listed(union.tagged)}", union.tag)
    tag = instance[union.tag]
    if not isinstance(tag, str):
        return _error(f"expected string, found {_type_name(tag)}", union.tag)
    return _error(_not_one_of(tag, union.tagged), union.tag)


def _not_one_of(found: str, values: Iterable[str]) -> str:
    return f"{excerpt(found)} is not one of {_listed(values)}"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values)


def excerpt(text: str) -> str:
    """`text` as a JSON string in ASCII, which any log can hold; cut after 40 characters."""
    return json.dumps(text if len(text) <= 40 else text[:37] + "...")


# -- Compiling ---------------------------------------------------------------------------------------------

_KEYWORDS = {
    "type": _type,
    "enum": _enum,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _other_properties,
    "items": _items,
    "nullable": _nullable,
    "union": _union,
}

_KEPT = (
    "minimum", "maximum", "minLength",  # checked by the library itself
    "enum", "default",
    "x-deserialize-default-on-error", "x-deserialize-default-on-null", "x-deserialize-skip-invalid-items",
)  # fmt: skip


def _build(schema: Schema) -> Checker:
    """The checker of one schema; a bare reference gives the checker of its definition itself."""
    if "$ref" in schema and schema.keys() <= {"$ref", "description"}:
        return checker(target(schema["$ref"]))
    return _engine().evolve(schema=_compile(schema))  # type: ignore[no-any-return]


def _compile(schema: Schema, tag: str = "") -> Schema:
    """`schema` with checkers for subschemas, without `tag` (whoever comes here has looked at it)."""
    compiled = dict(checker(target(schema["$ref"])).schema) if "$ref" in schema else {}
    compiled.update((key, schema[key]) for key in _KEPT if key in schema)
    if "type" in schema:
        types = schema["type"]
        compiled["type"] = (types,) if isinstance(types, str) else tuple(types)
    if "required" in schema:
        own = (name for name in schema["required"] if name != tag)
        compiled["required"] = (*compiled.get("required", ()), *own)
    if "properties" in schema:
        own_properties = {name: _build(one) for name, one in schema["properties"].items() if name != tag}
        compiled["properties"] = {**compiled.get("properties", {}), **own_properties}
    for key in ("items", "additionalProperties"):
        if key in schema:
            compiled[key] = _build(schema[key]) if schema[key] is not False else None
    members = schema.get("oneOf") or schema.get("anyOf")
    if members and members[1:] == [{"type": "null"}]:
        compiled["nullable"] = _build(members[0])
    elif members:
        compiled["union"] = _build_union(members)
    return compiled


def _build_union(members: list[Schema]) -> Union:
    tag = next(filter(None, map(_tag_of, members)), "")
    tagged: dict[str, Checker] = {}
    other = None
    untagged = []
    for member in members:
        if _tag_of(member):
            value = member["properties"][tag]["const"]
            tagged[value] = _engine().evolve(schema=_compile(member, tag))
        elif "not" in member:
            other = _engine().evolve(schema=_compile(member, tag))
        else:
            untagged.append(_build(member))
    return Union(tag, tagged, other, tuple(untagged))


def _tag_of(member: Schema) -> str:
    """The property that a member of a union fixes to one value."""
    return next((name for name, one in member.get("properties", {}).items() if "const" in one), "")


@cache
def _jsonschema() -> Any:
    """The library, whose import takes longer than everything else until the first answer."""
    import jsonschema

    return jsonschema


def _error(reason: str, *path: str) -> Any:
    return _jsonschema().ValidationError(reason, path=path)


@cache
def _engine() -> Any:
    """A validator of our dialect. Every checker is an `evolve` of it, much cheaper than a new one."""
    library = _jsonschema()
    dialect = library.validators.extend(library.Draft202012Validator, _KEYWORDS)
    return dialect({})

"""The project's own schema as a source of shapes, with the compiled checkers that the server uses.

Pure; any thread. `rpc.checker` says what does not fit; here is added what it means for a receiver, which
fields are none, and which names are allowed where.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from acpserver import jsontext
from acpserver.rpc import definitions
from acpserver.rpc.checker import Checker, checker
from acpserver.rpc.definitions import Method
from acpserver.validate.hints import for_value
from acpserver.validate.official import Fault, Steps


class BuiltinSchema:
    """The shapes of the schema that ships with the package."""

    def method(self, name: str) -> Method | None:
        """The method of this name; None for one outside the protocol."""
        return definitions.methods().get(name)

    def methods(self) -> list[str]:
        """The names of all methods."""
        return list(definitions.methods())

    def faults(self, definition: str, value: object) -> Iterator[Fault]:
        """What does not fit."""
        root, told = checker(definition), set()
        for error in root.iter_errors(value):
            fault = _about_tag(root, value, Fault(tuple(error.path), str(error.message)))
            if fault not in told:
                told.add(fault)
                yield fault

    def forgiveness(self, definition: str, value: object, steps: Steps) -> str:
        """Why a receiver goes on in spite of a fault at `steps`; "" when nothing says so."""
        for node, part, step in _walk(checker(definition), value, steps):
            if "x-deserialize-skip-invalid-items" in node.schema and isinstance(step, int):
                return "such items are left out"
            if "x-deserialize-default-on-error" in node.schema:
                return "the field counts as absent"
            if part is None and "x-deserialize-default-on-null" in node.schema:
                return "null counts as absent"
        return ""

    def unknown(self, definition: str, value: object) -> Iterator[tuple[Steps, list[str]]]:
        """Fields that the schema does not know, with the names that it knows there."""
        return _unknown(checker(definition), value, ())

    def names(self, definition: str, value: object, steps: Steps) -> list[str]:
        """The names or values that are allowed at `steps`."""
        nodes = list(_walk(checker(definition), value, steps))
        node, part, _ = nodes[-1]
        node = _resolve(node, part)
        found = [*node.schema.get("enum", ()), *node.schema.get("properties", ())]
        if "union" in node.schema:
            found += [node.schema["union"].tag, *node.schema["union"].tagged]
        return [str(name) for name in found if name]


def _about_tag(root: Checker, value: object, fault: Fault) -> Fault:
    """The fault of a tag that made its object be taken for another member of a union, in place of `fault`."""
    for depth, (node, part, _) in enumerate(_walk(root, value, fault.steps)):
        node = node.schema.get("nullable", node)
        union = node.schema.get("union")
        if union is None or not union.untagged or not isinstance(part, dict) or union.tag not in part:
            continue
        tag = part[union.tag]
        if not isinstance(tag, str) or for_value(tag, union.tagged):
            found = jsontext.dumps(tag)[:40]
            steps = (*fault.steps[:depth], union.tag)
            return Fault(steps, f"{found} is not one of {', '.join(union.tagged)}")
    return fault


def _walk(node: Checker, value: object, steps: Steps) -> Iterator[tuple[Checker, object, str | int | None]]:
    """(schema, value, the step that is taken next) for each place on the way, as far as it goes."""
    for index, step in enumerate((*steps, None)):
        # a nullable field carries its flags outside, and its shape inside
        yield node, value, step
        if step is None or index == len(steps):
            return
        inner = _resolve(node, value)
        if isinstance(step, int):
            child = inner.schema.get("items")
        else:
            child = inner.schema.get("properties", {}).get(step, inner.schema.get("additionalProperties"))
        if child is None:
            return
        node = child
        try:
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            value = _MISSING


_MISSING = object()


def _resolve(node: Checker, value: object) -> Checker:
    """The schema that `value` was meant for: through null and unions."""
    while True:
        if "nullable" in node.schema:
            node = node.schema["nullable"]
        elif "union" in node.schema and (member := node.schema["union"].best(value)) is not None:
            node = _merged(node, member)
        else:
            return node


class _Joined(NamedTuple):
    """A member of a union together with the fields that all members share."""

    schema: Any

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Nothing: this one is only looked at."""
        return iter(())


def _merged(node: Checker, member: Checker) -> Checker:
    properties = {**node.schema.get("properties", {}), **member.schema.get("properties", {})}
    tag = node.schema["union"].tag
    if tag and tag not in properties:
        properties[tag] = _Joined({"enum": tuple(node.schema["union"].tagged)})
    return _Joined({**member.schema, "properties": properties})


def _unknown(node: Checker, value: object, steps: Steps) -> Iterator[tuple[Steps, list[str]]]:
    schema = _resolve(node, value).schema
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _unknown(schema["items"], item, (*steps, index))
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    if not isinstance(value, dict) or not (known or others):
        return
    for name, part in value.items():
        if name in known:
            if name != "_meta":
                yield from _unknown(known[name], part, (*steps, name))
        elif others is None:
            yield (*steps, name), list(known)
        else:
            yield from _unknown(others, part, (*steps, name))


@cache
def experimental_fields() -> frozenset[str]:
    """Names of fields that the stable protocol does not know; no other field has one of these names."""
    names: set[str] = set()
    stable: set[str] = set()
    for schema in definitions.definitions().values():
        for name, field in schema.get("properties", {}).items():
            (names if "x-experimental" in field else stable).add(name)
    return frozenset(names - stable)

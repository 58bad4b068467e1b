"""The contents of a message against a schema: ours, or any official schema file. Pure once built.

What the schema itself tells receivers to forgive (a field that falls back to its default, an item that is
left out) comes back as a warning with that reason; everything else as an error. `hints` says what was
probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from acpserver import jsontext
from acpserver.rpc import definitions
from acpserver.rpc.checker import Checker, checker
from acpserver.rpc.definitions import Method
from acpserver.validate.findings import ERROR, INFO, WARNING
from acpserver.validate.hints import for_fault, for_value, respelt
from acpserver.validate.official import Fault, OfficialSchema, Steps
from acpserver.validate.state import Breach

MAX_FAULTS = 20  # of one message; the first ones say what is wrong
_MAX_REASON = 160  # characters, before the hint


class Schemas(Protocol):
    """Where the shapes come from."""

    def method(self, name: str) -> Method | None:
        """The method of this name; None for one outside the protocol."""

    def methods(self) -> list[str]:
        """The names of all methods."""

    def faults(self, definition: str, value: object) -> Iterable[Fault]:
        """What does not fit."""

    def forgiveness(self, definition: str, value: object, steps: Steps) -> str:
        """Why a receiver goes on in spite of a fault at `steps`; "" when nothing says so."""

    def unknown(self, definition: str, value: object) -> Iterator[tuple[Steps, list[str]]]:
        """Fields that the schema does not know, with the names that it knows there."""

    def names(self, definition: str, value: object, steps: Steps) -> list[str]:
        """The names or values that are allowed at `steps`: fields of an object, values of an enumeration."""


class Judge:
    """Checks params, results and errors, and says it in findings."""

    def __init__(self, schema: Path | None = None, unstable: bool = False, pedantic: bool = False):
        self._schemas: Schemas = OfficialSchema(schema) if schema else _Own()
        self._experimental = frozenset() if unstable or schema else _experimental_fields()
        self._unstable = unstable or schema is not None
        self._pedantic = pedantic

    def method(self, name: str) -> Method | None:
        """The method of this name; None for one outside the protocol."""
        return self._schemas.method(name)

    def methods(self) -> list[str]:
        """The names of all methods."""
        return self._schemas.methods()

    def is_experimental(self, method: Method) -> bool:
        """Whether only `--unstable` takes this method for granted."""
        return method.experimental and not self._unstable

    def params(self, side: str, method: str, params: object) -> list[Breach]:
        """What is wrong with the params of a call."""
        known = self.method(method)
        if known is None:
            return []
        return self._check(side, known.params, {} if params is None else params, "params")

    def unknown(self, method: str, params: object) -> list[str]:
        """Names of fields in params that the schema does not know."""
        known = self.method(method)
        found = self._schemas.unknown(known.params, params) if known else ()
        return [str(steps[-1]) for steps, _ in found]

    def result(self, side: str, method: str, result: object) -> list[Breach]:
        """What is wrong with the result of a request."""
        known = self.method(method)
        if known is None or known.result is None:
            return []
        if result is None and not any(self._schemas.faults(known.result, {})):
            text = "null, where {} is meant; receivers take it as that"
            return [Breach("forgiven", side, "result", text, WARNING)]
        return self._check(side, known.result, result, "result")

    def error(self, side: str, error: object) -> list[Breach]:
        """What is wrong with the `error` member of an answer."""
        return self._check(side, "Error", error, "error")

    def _check(self, side: str, definition: str, value: object, prefix: str) -> list[Breach]:
        found = []
        for fault in islice(self._schemas.faults(definition, value), MAX_FAULTS):
            if self._experimental.intersection(map(str, fault.steps)):
                continue
            found.append(self._breach(side, definition, value, prefix, fault))
        found += self._strange(side, definition, value, prefix, found)
        return found

    def _breach(self, side: str, definition: str, value: object, prefix: str, fault: Fault) -> Breach:
        hint = for_fault(self._schemas, definition, value, fault.steps)
        reason = fault.reason if len(fault.reason) <= _MAX_REASON else fault.reason[:_MAX_REASON] + "..."
        text = f"{reason}{'; ' + hint if hint else ''}"
        why = self._schemas.forgiveness(definition, value, fault.steps)
        path = path_text(prefix, fault.steps)
        if why:
            return Breach("forgiven", side, path, f"{text}; receivers go on: {why}", WARNING)
        return Breach(_rule(definition, fault.steps), side, path, text, ERROR)

    def _strange(
        self, side: str, definition: str, value: object, prefix: str, found: list[Breach]
    ) -> Iterator[Breach]:
        """Unknown fields: those that are a known one misspelt always, the others when asked for."""
        hinted = " ".join(breach.text for breach in found)
        for steps, names in self._schemas.unknown(definition, value):
            name = str(steps[-1])
            if name == "_meta" or self._experimental.intersection(map(str, steps)):
                continue
            meant = respelt(name, names)
            path = path_text(prefix, steps)
            if meant and f'"{name}"' not in hinted:
                text = f"no such field; v1 spells it {meant}"
                yield Breach("unknown", side, path, text, WARNING)
            elif self._pedantic:
                yield Breach("unknown", side, path, "no field of the protocol; put it into _meta", INFO)


class _Own:
    """The project's own schema, with the compiled checkers that the server uses."""

    def method(self, name: str) -> Method | None:
        return definitions.methods().get(name)

    def methods(self) -> list[str]:
        return list(definitions.methods())

    def faults(self, definition: str, value: object) -> Iterator[Fault]:
        root, told = checker(definition), set()
        for error in root.iter_errors(value):
            fault = _about_tag(root, value, Fault(tuple(error.path), str(error.message)))
            if fault not in told:
                told.add(fault)
                yield fault

    def forgiveness(self, definition: str, value: object, steps: Steps) -> str:
        for node, part, step in _walk(checker(definition), value, steps):
            if "x-deserialize-skip-invalid-items" in node.schema and isinstance(step, int):
                return "such items are left out"
            if "x-deserialize-default-on-error" in node.schema:
                return "the field counts as absent"
            if part is None and "x-deserialize-default-on-null" in node.schema:
                return "null counts as absent"
        return ""

    def unknown(self, definition: str, value: object) -> Iterator[tuple[Steps, list[str]]]:
        return _unknown(checker(definition), value, ())

    def names(self, definition: str, value: object, steps: Steps) -> list[str]:
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


def _rule(definition: str, steps: Steps) -> str:
    """The rule of the protocol that a fault of the schema breaks, or "schema"."""
    if definition == "PromptResponse" and steps[:1] == ("stopReason",):
        return "P3"
    if definition == "Error":
        return "error"
    return "schema"


@cache
def _experimental_fields() -> frozenset[str]:
    """Names of fields that the stable protocol does not know; no other field has one of these names."""
    names: set[str] = set()
    stable: set[str] = set()
    for schema in definitions.definitions().values():
        for name, field in schema.get("properties", {}).items():
            (names if "x-experimental" in field else stable).add(name)
    return frozenset(names - stable)


def path_text(prefix: str, steps: Steps) -> str:
    """The place as it is written in findings: `params.prompt[0].type`."""
    text = prefix
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text[:200]

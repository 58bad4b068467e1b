"""The contents of a message against a schema: ours, or any official schema file. Pure once built.

What the schema itself tells receivers to forgive (a field that falls back to its default, an item that is
left out) comes back as a warning with that reason; everything else as an error. `hints` says what was
probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

from acpserver.rpc.definitions import Method
from acpserver.validate.builtin import BuiltinSchema, experimental_fields
from acpserver.validate.findings import ERROR, REMARK, WARNING
from acpserver.validate.hints import for_fault, respelt
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


_DRAFTS = (
    "auth/status", "document/", "mcp/", "nes/", "proxy/",
    "session/archive", "session/set_title", "session/status", "session/unarchive",
)  # fmt: skip
"""Beginnings of methods that only unstable schemas of the SDKs have: no mistake, and nothing to check by."""


class Judge:
    """Checks params, results and errors, and says it in findings."""

    def __init__(self, schema: Path | None = None, unstable: bool = False, pedantic: bool = False):
        self._schemas: Schemas = OfficialSchema(schema) if schema else BuiltinSchema()
        self._experimental = frozenset() if unstable or schema else experimental_fields()
        self._unstable = unstable or schema is not None
        self._pedantic = pedantic

    def method(self, name: str) -> Method | None:
        """The method of this name; None for one outside the protocol."""
        return self._schemas.method(name)

    def methods(self) -> list[str]:
        """The names of all methods."""
        return self._schemas.methods()

    def is_draft(self, name: str) -> bool:
        """Whether a method is one that only the unstable schemas of SDKs have."""
        return name.startswith(_DRAFTS) and self.method(name) is None

    def is_experimental(self, name: str) -> bool:
        """Whether only `--unstable` takes this method for granted."""
        known = self.method(name)
        return not self._unstable and (known.experimental if known else self.is_draft(name))

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
                yield Breach("unknown", side, path, "no field of the protocol; put it into _meta", REMARK)


def _rule(definition: str, steps: Steps) -> str:
    """The rule of the protocol that a fault of the schema breaks, or "schema"."""
    if definition == "PromptResponse" and steps[:1] == ("stopReason",):
        return "P3"
    if definition == "Error":
        return "error"
    return "schema"


def path_text(prefix: str, steps: Steps) -> str:
    """The place as it is written in findings: `params.prompt[0].type`."""
    text = prefix
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text[:200]

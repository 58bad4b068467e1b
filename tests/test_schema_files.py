"""The schema files, and a golden sample of every kind of message that they describe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing

from acpserver.rpc import checker as checkers
from acpserver.rpc import definitions, schema

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
OTHERS = ("methods.json", "config_file.json")
FILES = sorted(path for path in (ROOT / "schema").glob("*.json") if path.name not in OTHERS)
METHODS = sorted(schema.methods())


def golden(method: str) -> dict[str, dict[str, Any]]:
    """The samples of one method: {"params": {what it shows: sample}, "result": {...}}."""
    return json.loads((GOLDEN / f"{method.replace('/', '_')}.json").read_text())


def samples() -> Iterator[tuple[str, Any]]:
    """Every golden sample with the name of its definition."""
    for method in schema.methods().values():
        for side, definition in (("params", method.params), ("result", method.result)):
            for sample in golden(method.name).get(side, {}).values():
                yield str(definition), sample
    for sample in golden("error")["error"].values():
        yield "Error", sample


# -- Golden samples --


@pytest.mark.parametrize("method", METHODS)
def test_golden_samples_fit_and_need_no_mending(method: str) -> None:
    content = golden(method)
    assert content["params"], "no sample of the params"
    for sample in content["params"].values():
        assert schema.check_params(method, sample) == []
        mended, notes = schema.forgive_params(method, sample)
        assert mended is sample and notes == []
    known = schema.method(method)
    assert known and known.is_request == bool(content.get("result")), "a request needs a sample of its result"
    for sample in content.get("result", {}).values():
        assert schema.check_result(method, sample) == []
        mended, notes = schema.forgive_result(method, sample)
        assert mended is sample and notes == []


def test_golden_samples_of_errors_fit() -> None:
    for sample in golden("error")["error"].values():
        assert schema.check_error(sample) == []


def test_every_golden_file_belongs_to_a_method() -> None:
    names = {f"{method.replace('/', '_')}.json" for method in METHODS}
    assert {path.name for path in GOLDEN.glob("*.json")} - names == {"error.json"}


def walk(checker: Any, value: Any) -> Iterator[tuple[int, int | str]]:
    """What a sample shows: every field (checker, name) and every member of a union (union, tag or place)."""
    rules = checker.schema
    if value is not None and "nullable" in rules:
        yield from walk(rules["nullable"], value)
    if isinstance(value, dict):
        for name, child in rules.get("properties", {}).items():
            if name in value:
                yield id(child), name
                yield from walk(child, value[name])
        for name in value.keys() - rules.get("properties", {}).keys():
            if "additionalProperties" in rules:
                yield from walk(rules["additionalProperties"], value[name])
    if isinstance(value, list) and "items" in rules:
        for item in value:
            yield from walk(rules["items"], item)
    if "union" in rules:
        member = rules["union"].best(value)
        yield id(rules["union"]), id(member)
        yield from walk(member, value)


def parts(checker: Any, seen: set[int], where: str) -> Iterator[tuple[tuple[int, int | str], str]]:
    """Everything that `walk` could find below a checker, with a name for each."""
    if id(checker) in seen:
        return
    seen.add(id(checker))
    rules = checker.schema
    for name, child in rules.get("properties", {}).items():
        yield (id(child), name), f"{where}.{name}"
        yield from parts(child, seen, f"{where}.{name}")
    for key in ("items", "additionalProperties", "nullable"):
        if key in rules:
            yield from parts(rules[key], seen, f"{where}[]" if key == "items" else where)
    if "union" in rules:
        union = rules["union"]
        members = [*union.tagged.items(), *[("other", union.other)] * bool(union.other)]
        members += [(f"member {index}", member) for index, member in enumerate(union.untagged)]
        for label, member in members:
            yield (id(union), id(member)), f"{where}<{label}>"
            yield from parts(member, seen, f"{where}<{label}>")


def test_every_kind_and_every_field_has_a_golden_sample() -> None:
    shown = {found for name, sample in samples() for found in walk(checkers.checker(name), sample)}
    roots = {name for name, _ in samples()}
    seen: set[int] = set()
    missing = [
        label
        for root in sorted(roots)
        for key, label in parts(checkers.checker(root), seen, root)
        if key not in shown
    ]
    assert missing == []


# -- The files --


def test_every_definition_stands_in_one_file_and_is_described() -> None:
    names: list[str] = []
    for path in FILES:
        document = json.loads(path.read_text())
        jsonschema.Draft202012Validator.check_schema(document)
        assert document["title"]
        names += document["$defs"]
        assert [name for name, one in document["$defs"].items() if not one.get("description")] == []
    assert len(names) == len(set(names)) == len(definitions.definitions())


def references(value: object) -> Iterator[str]:
    """The name of every definition that is referred to below `value`."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield definitions.target(value["$ref"])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_definition_is_used() -> None:
    todo = {"Error", "ExtRequest", "ExtResponse", "ExtNotification"}
    todo |= {name for method in schema.methods().values() for name in (method.params, method.result) if name}
    used: set[str] = set()
    while todo:
        name = todo.pop()
        used.add(name)
        todo |= set(references(definitions.definitions()[name])) - used
    assert used == set(definitions.definitions())


def test_any_other_validator_reads_the_files_as_they_are() -> None:
    """The files alone, with plain jsonschema, give our verdict on samples, good and spoilt."""
    resources = [
        (path.name, referencing.Resource.from_contents(json.loads(path.read_text()))) for path in FILES
    ]
    registry = referencing.Registry().with_resources(resources)
    home = {name: path.name for path in FILES for name in json.loads(path.read_text())["$defs"]}

    def plain(name: str) -> jsonschema.Draft202012Validator:
        rules = {"$ref": f"{home[name]}#/$defs/{name}"}
        return jsonschema.Draft202012Validator(rules, registry=registry)

    for name, sample in samples():
        plain(name).validate(sample)
        if isinstance(sample, dict):
            for field in sample:  # each of them refuses, or accepts, a null in the same place
                worse = {**sample, field: None}
                fits = next(checkers.checker(name).iter_errors(worse), None) is None
                assert plain(name).is_valid(worse) == fits, (name, field)

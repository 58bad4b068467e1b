"""Our schema agrees with the official one: field by field, and in its verdict on generated messages."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import official_schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpserver.rpc import checker as checkers
from acpserver.rpc import schema
from acpserver.rpc.definitions import definitions, target

OURS = definitions()

# Envelopes of JSON-RPC: `rpc/message.py` reads them, and the table of methods says what they carry.
ENVELOPES = {
    f"{side}{kind}" for side in ("Agent", "Client") for kind in ("Request", "Response", "Notification")
}

# What we have beyond the stable schema. Experimental parts are compared with the official unstable one;
# legacy parts were in the protocol once and are in no official file any more.
EXPERIMENTAL = {
    *("ForkSessionRequest", "ForkSessionResponse", "SessionForkCapabilities", "SessionCapabilities.fork"),
    *("Usage", "PromptResponse.usage"),
    *("ListProvidersRequest", "ListProvidersResponse", "ProviderInfo", "ProviderId", "ProviderCurrentConfig"),
    *("LlmProtocol", "SetProviderRequest", "SetProviderResponse", "DisableProviderRequest"),
    *("DisableProviderResponse", "ProvidersCapabilities", "AgentCapabilities.providers"),
}
LEGACY = {
    *("SessionModelState", "ModelId", "ModelInfo", "SetSessionModelRequest", "SetSessionModelResponse"),
    *("NewSessionResponse.models", "LoadSessionResponse.models", "ResumeSessionResponse.models"),
    "ForkSessionResponse.models",
}
LEFT_OUT = {("ForkSessionRequest", "systemPrompt")}  # of what is compared with the unstable file: not served

GOLDEN = Path(__file__).parent / "golden"
PLAIN_TYPES = {"null", "string", "integer", "number", "boolean", "array"}


@pytest.fixture(scope="module")
def stable() -> dict[str, Any]:
    """The official definitions without what is experimental."""
    return fetched(official_schema.STABLE)


@pytest.fixture(scope="module")
def unstable() -> dict[str, Any]:
    """The official definitions with what is experimental."""
    return fetched(official_schema.UNSTABLE)


@cache
def fetched(file: str) -> dict[str, Any]:
    try:
        return official_schema.definitions(file)
    except official_schema.Unreachable as error:
        pytest.skip(f"the official schema is out of reach: {error}")


def extras(mark: str) -> set[str]:
    """Our definitions, and fields of the others, that carry a mark."""
    found = {name for name, rules in OURS.items() if mark in rules}
    for name, rules in OURS.items():
        found |= {f"{name}.{field}" for field, one in rules.get("properties", {}).items() if mark in one}
    return found


def without_extras(rules: dict[str, Any]) -> dict[str, Any]:
    fields = rules.get("properties", {})
    kept = {name: one for name, one in fields.items() if not {"x-experimental", "x-legacy"} & one.keys()}
    return {**rules, "properties": kept} if fields else rules


# -- Facts: both ways of writing a schema brought to one --


def facts(rules: dict[str, Any]) -> dict[str, Any]:
    """What a schema demands, without texts, and the same for both ways of writing it."""
    reference = rules.get("$ref") or (rules["allOf"][0]["$ref"] if "allOf" in rules else None)
    if reference and target(reference) == "Meta":
        return facts(OURS["Meta"])
    found = {
        key: rules[key] for key in ("format", "minimum", "maximum", "minLength", "default") if key in rules
    }
    found |= {key: value for key, value in rules.items() if key.startswith("x-deserialize")}
    if reference:
        found["reference"] = target(reference)
    elif "type" in rules:
        found["types"] = {rules["type"]} if isinstance(rules["type"], str) else set(rules["type"])
    if "properties" in rules:
        found["fields"] = {name: facts(one) for name, one in rules["properties"].items()}
    if isinstance(rules.get("additionalProperties"), dict):
        found["other fields"] = facts(rules["additionalProperties"])
    if "items" in rules:
        found["items"] = facts(rules["items"])
    if "required" in rules:
        found["required"] = set(rules["required"])
    return found | values(rules) | union(rules)


def values(rules: dict[str, Any]) -> dict[str, Any]:
    """The values that are allowed (all others are not) or known (others are allowed too)."""
    members = rules.get("oneOf") or rules.get("anyOf") or []
    constants = [member["const"] for member in members if "const" in member]
    if "const" in rules or "enum" in rules:
        constants = rules.get("enum") or [rules["const"]]
        return {"types": {type_name(one) for one in constants}, "values": constants}
    if "x-known-values" in rules:
        return {"known values": rules["x-known-values"]}
    if not constants:
        return {}
    types = {type_name(one) for one in constants}
    if len(constants) == len(members):
        return {"types": types, "values": constants}
    format_ = {key: one for key, one in members[-1].items() if key == "format"}
    return {"types": types, "known values": constants, **format_}


def type_name(constant: object) -> str:
    return "string" if isinstance(constant, str) else "integer"


def union(rules: dict[str, Any]) -> dict[str, Any]:
    """The members of a union of objects, or of types."""
    key = "oneOf" if "oneOf" in rules else "anyOf"
    members = rules.get(key, [])
    if not members or any("const" in member for member in members):
        return {}
    types = [member.get("type") for member in members]
    if len(set(map(str, types))) == len(types) > 1 and all(str(one) in PLAIN_TYPES for one in types):
        items = [facts(member["items"]) for member in members if "items" in member]
        format_ = next((member["format"] for member in members if "format" in member), None)
        return {"types": set(types), **({"items": items[0]} if items else {"format": format_})}
    found: dict[str, Any] = {key: [member_facts(member) for member in members]}
    if "discriminator" in rules:
        found["tag"] = rules["discriminator"]["propertyName"]
    return found


def member_facts(member: dict[str, Any]) -> dict[str, Any]:
    found = facts(member)
    if "reference" in found:
        found.pop("types", None)
    if "not" in member:
        found["not"] = set(excluded(member["not"]))
    return found


def excluded(rules: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The values of a tag that the last member of an open union does not take."""
    for one in rules.get("anyOf", [rules]):
        for tag, allowed in one["properties"].items():
            yield from ((tag, value) for value in values(allowed)["values"])


# -- Comparing --


def test_the_extras_are_the_ones_listed_here() -> None:
    assert extras("x-experimental") == EXPERIMENTAL
    assert extras("x-legacy") == LEGACY


def test_every_stable_definition_says_the_same(stable: dict[str, Any]) -> None:
    assert set(stable) - set(OURS) == ENVELOPES
    whole = {name for name in EXPERIMENTAL | LEGACY if "." not in name}
    assert set(OURS) - set(stable) - whole == {"Meta"}  # `_meta`, which the official file repeats everywhere
    for name in sorted(set(stable) & set(OURS)):
        assert facts(without_extras(OURS[name])) == facts(stable[name]), name


def test_every_experimental_part_says_the_same_as_the_unstable_schema(unstable: dict[str, Any]) -> None:
    for part in sorted(EXPERIMENTAL):
        name, _, field = part.partition(".")
        if field:
            assert facts(OURS[name]["properties"][field]) == facts(unstable[name]["properties"][field]), part
            continue
        official = copy.deepcopy(unstable[name])
        for _, missing in (one for one in LEFT_OUT if one[0] == name):
            del official["properties"][missing]
        assert facts(without_extras(OURS[name])) == facts(official), part


def test_the_table_of_methods_is_the_official_one(stable: dict[str, Any], unstable: dict[str, Any]) -> None:
    sides = {"protocol": "both", "agent": "agent", "client": "client"}
    for name, rules in unstable.items():
        method = schema.method(rules.get("x-method", ""))
        if method is None:
            assert name not in stable or "x-method" not in rules, name
            continue
        assert method.receiver == sides[rules["x-side"]]
        assert name == (method.result if name.endswith("Response") else method.params)
        assert method.is_request != name.endswith("Notification")
        assert method.experimental == (name not in stable)
    official = {rules["x-method"] for rules in unstable.values() if "x-method" in rules}
    assert set(schema.methods()) - official == {"session/set_model"}


def test_the_comparison_sees_a_difference(stable: dict[str, Any]) -> None:
    for change in (
        {"required": []},
        {"properties": {**OURS["ToolCall"]["properties"], "kind": {"type": "string"}}},
        {"properties": {**OURS["ToolCall"]["properties"], "title": {"type": ["string", "null"]}}},
    ):
        assert facts({**OURS["ToolCall"], **change}) != facts(stable["ToolCall"])


# -- Verdicts on generated messages --

ROOTS = sorted(
    {name for method in schema.methods().values() for name in (method.params, method.result) if name}
)
STABLE_ROOTS = [name for name in [*ROOTS, "Error"] if name not in EXPERIMENTAL | LEGACY]
EXPERIMENTAL_ROOTS = [name for name in ROOTS if name in EXPERIMENTAL]
JUNK = [
    *(None, True, 0, -1, 1.0, 1.5, 65536, 2**70, "", "x", [], {}, [None], {"type": "text"}),
    *("text", "select", "boolean", "form", "http", "string", "accept"),  # tags, most often of something else
]
GONE = object()  # instead of one of them: the field or item is not there
TAGS = ["type", "mode", "value"]  # what unions without a required tag are told apart by


@st.composite
def messages(draw: st.DrawFn, source: dict[str, Any], roots: list[str]) -> tuple[str, Any]:
    """A definition out of `roots`, and a value that fits it."""
    root = draw(st.sampled_from(roots))
    return root, value_of(draw, source[root], source)


def value_of(draw: st.DrawFn, rules: dict[str, Any], source: dict[str, Any]) -> Any:
    rules = flat(without_extras(rules), source)
    members = rules.pop("oneOf", None) or rules.pop("anyOf", None)
    if members:
        return value_of(draw, merged(rules, flat(draw(st.sampled_from(members)), source)), source)
    if "const" in rules or "enum" in rules:
        return draw(st.sampled_from(rules.get("enum") or [rules["const"]]))
    kinds = rules.get("type", ["null", "boolean"])
    kind = draw(st.sampled_from([kinds] if isinstance(kinds, str) else kinds))
    if kind == "object":
        return object_of(draw, rules, source)
    if kind == "array":
        return [value_of(draw, rules["items"], source) for _ in range(draw(st.integers(0, 2)))]
    if kind == "integer":
        return draw(st.integers(rules.get("minimum", -(2**63)), rules.get("maximum", 2**63 - 1)))
    if kind == "string":
        return draw(st.text("ab é", min_size=rules.get("minLength", 0), max_size=3))
    plain = {"null": st.none(), "boolean": st.booleans(), "number": st.floats(-1e9, 1e9) | st.integers()}
    return draw(plain[kind])


def object_of(draw: st.DrawFn, rules: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, one in rules.get("properties", {}).items():
        if name in rules.get("required", ()) or draw(st.booleans()):
            found[name] = value_of(draw, one, source)
    if isinstance(rules.get("additionalProperties"), dict):
        for name in draw(st.sets(st.sampled_from(["one", "two three"]))):
            found[name] = value_of(draw, rules["additionalProperties"], source)
    return found


def flat(rules: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """`rules` with what they refer to put in their place."""
    found = {key: one for key, one in rules.items() if key not in ("$ref", "allOf")}
    for one in [rules, *rules.get("allOf", [])]:
        if "$ref" in one:
            found = merged(found, flat(without_extras(source[target(one["$ref"])]), source))
    return found


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {**other, **one}
    both["properties"] = {**other.get("properties", {}), **one.get("properties", {})}
    both["required"] = [*one.get("required", []), *other.get("required", [])]
    return both


def spoilt(value: Any, place: int, junk: object) -> Any:
    """A copy of `value` with `junk` in one of its places, counted from the top (modulo their number)."""
    value = copy.deepcopy(value)
    places = list(containers(value))
    if not places:
        return junk if junk is not GONE else None
    container, key = places[place % len(places)]
    if junk is not GONE:
        container[key] = junk
    elif not isinstance(container, dict) or key in container:
        del container[key]
    return value


def containers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (object or array, key or index) in `value`; of an object also the tags that it could have."""
    keys: Iterable[Any] = ()
    if isinstance(value, dict):
        keys = [*value, *(tag for tag in TAGS if tag not in value)]
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value, list) or key in value:
            yield from containers(value[key])


@cache
def official(file: str, root: str) -> Any:
    """The official validator of one definition."""
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{root}", "$defs": fetched(file)})


def our_verdict(root: str, value: Any) -> bool:
    return checkers.fits(checkers.checker(root), value)


def check_both(data: st.DataObject, source: dict[str, Any], roots: list[str], file: str) -> None:
    root, value = data.draw(messages(source, roots))
    assert our_verdict(root, value), value
    assert official(file, root).is_valid(value), value
    for _ in range(8):
        place, junk = data.draw(st.integers(0, 200)), data.draw(st.sampled_from([*JUNK, GONE]))
        check_same(file, root, spoilt(value, place, junk))


def check_same(file: str, root: str, value: Any) -> None:
    assert our_verdict(root, value) == official(file, root).is_valid(value), (root, value)


@settings(max_examples=300)
@given(data=st.data())
def test_verdicts_agree_on_messages_made_from_our_schema(data: st.DataObject, stable: dict[str, Any]) -> None:
    check_both(data, dict(OURS), STABLE_ROOTS, official_schema.STABLE)


@settings(max_examples=300)
@given(data=st.data())
def test_verdicts_agree_on_messages_made_from_the_official_schema(
    data: st.DataObject, stable: dict[str, Any]
) -> None:
    check_both(data, stable, STABLE_ROOTS, official_schema.STABLE)


@settings(max_examples=60)
@given(data=st.data())
def test_verdicts_agree_on_experimental_messages(data: st.DataObject, unstable: dict[str, Any]) -> None:
    check_both(data, dict(OURS), EXPERIMENTAL_ROOTS, official_schema.UNSTABLE)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_verdicts_agree_on_golden_samples_spoilt_in_every_place(path: Path, unstable: dict[str, Any]) -> None:
    roots = {"error": "Error"}
    for method in schema.methods().values():
        if path.stem == method.name.replace("/", "_"):
            roots = {"params": method.params, "result": method.result or ""}
    for side, samples in json.loads(path.read_text()).items():
        if roots[side] in LEGACY:
            continue
        for sample in map(without_own_fields, samples.values()):
            for place in range(len(list(containers(sample)))):
                for junk in (GONE, *(JUNK[(place + step) % len(JUNK)] for step in (0, 9))):
                    check_same(official_schema.UNSTABLE, roots[side], spoilt(sample, place, junk))


def without_own_fields(sample: Any) -> Any:
    """`sample` without the legacy field of some answers, of which the official schema knows nothing."""
    return {name: one for name, one in sample.items() if name != "models"}

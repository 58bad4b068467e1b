"""Does a message fit the schema of its method: lookup, precise faults, forgiveness, cost."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from acpserver.rpc import checker as checkers
from acpserver.rpc import definitions, schema
from acpserver.rpc.schema import Fault

ROOT = Path(__file__).parent.parent
SELECT = {"type": "select", "id": "m", "name": "M", "currentValue": "a"}
GROUP = {"group": "g", "name": "G"}
SET_OPTION = {"sessionId": "s", "configId": "mode"}
METHODS = sorted(schema.methods())


def faults(*pairs: tuple[str, str]) -> list[Fault]:
    return [Fault(path, reason) for path, reason in pairs]


def update(kind: str, **fields: object) -> dict[str, object]:
    return {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}


def prompt(*blocks: object) -> dict[str, object]:
    return {"sessionId": "s", "prompt": list(blocks)}


# -- The table of methods --


def test_a_method_says_who_receives_it_and_what_it_carries() -> None:
    found = schema.method("session/fork")
    assert found == schema.Method(
        name="session/fork",
        receiver="agent",
        is_request=True,
        experimental=True,
        params="ForkSessionRequest",
        result="ForkSessionResponse",
    )
    notification = schema.method("session/update")
    assert notification and not notification.is_request and notification.receiver == "client"
    both = schema.method("$/cancel_request")
    assert both and both.receiver == "both" and not both.experimental


def test_every_method_names_definitions_that_exist() -> None:
    for method in schema.methods().values():
        assert method.params in definitions.definitions()
        assert method.result in definitions.definitions() or not method.is_request
        assert method.receiver in ("agent", "client", "both")


def test_a_method_outside_the_protocol_has_no_faults_and_is_not_mended() -> None:
    assert schema.method("_acpserver/ping") is None
    assert schema.check_params("_acpserver/ping", 5) == []
    assert schema.check_result("_acpserver/ping", 5) == []
    assert schema.forgive_params("_acpserver/ping", None) == (None, [])
    assert schema.forgive_result("_acpserver/ping", None) == (None, [])
    assert schema.check_result("session/update", 5) == []  # a notification has no result


# -- Faults --

Expected = dict[str, str]
"""Faults as the tables write them: reason by path."""

MISSING = "required but missing"
STRING_NOT_INTEGER = "expected string, found integer"
NULL = "null, taken as the default"
DEFAULT = "taken as the default"
KINDS = ", ".join(["text", "image", "audio", "resource_link", "resource"])

WRONG_PARAMS: list[tuple[str, object, Expected]] = [
    ("session/prompt", prompt({"type": "foo"}), {"params.prompt[0].type": f'"foo" is not one of {KINDS}'}),
    (
        "session/prompt",
        prompt({"text": "x"}),
        {"params.prompt[0].type": f"required but missing, one of {KINDS}"},
    ),
    ("session/prompt", prompt({"type": 5}), {"params.prompt[0].type": STRING_NOT_INTEGER}),
    ("session/prompt", prompt("hi"), {"params.prompt[0]": "expected object, found string"}),
    ("session/prompt", prompt({"type": "text"}), {"params.prompt[0].text": MISSING}),
    ("session/prompt", {"sessionId": "s"}, {"params.prompt": MISSING}),
    ("session/prompt", [], {"params": "expected object, found array"}),
    ("session/prompt", None, {"params.prompt": MISSING, "params.sessionId": MISSING}),
    (
        "session/prompt",
        prompt({"type": "resource", "resource": {"uri": "a", "blob": 5}}),
        {"params.prompt[0].resource.blob": STRING_NOT_INTEGER},
    ),
    ("initialize", {"protocolVersion": "1"}, {"params.protocolVersion": "expected integer, found string"}),
    ("initialize", {"protocolVersion": True}, {"params.protocolVersion": "expected integer, found boolean"}),
    ("initialize", {"protocolVersion": None}, {"params.protocolVersion": "expected integer, found null"}),
    ("initialize", {"protocolVersion": 1.5}, {"params.protocolVersion": "expected integer, found number"}),
    ("initialize", {"protocolVersion": 1.0}, {}),
    ("initialize", {"protocolVersion": -1}, {"params.protocolVersion": "-1 is less than the minimum of 0"}),
    (
        "initialize",
        {"protocolVersion": 65536},
        {"params.protocolVersion": "65536 is greater than the maximum of 65535"},
    ),
    ("initialize", None, {"params.protocolVersion": MISSING}),
    ("session/new", {"cwd": 5, "mcpServers": []}, {"params.cwd": STRING_NOT_INTEGER}),
    (
        "session/new",
        {"cwd": "/", "mcpServers": [{"name": "x", "command": "y", "args": [1], "env": []}]},
        {"params.mcpServers[0].args[0]": STRING_NOT_INTEGER},
    ),
    (
        "session/new",
        {"cwd": "/", "mcpServers": [{"type": "http", "name": "x", "url": "u"}]},
        {"params.mcpServers[0].headers": MISSING},
    ),
    # No tag is required of a stdio server, so any other one does no harm.
    (
        "session/new",
        {"cwd": "/", "mcpServers": [{"type": "x", "name": "x", "command": "y", "args": [], "env": []}]},
        {},
    ),
    ("session/new", {"cwd": "/", "mcpServers": [], "unknown": 1, "_meta": {"a": 1}}, {}),
    ("session/set_config_option", {**SET_OPTION, "value": 5}, {"params.value": STRING_NOT_INTEGER}),
    (
        "session/set_config_option",
        {**SET_OPTION, "type": "boolean", "value": 5},
        {"params.value": "expected boolean, found integer"},
    ),
    ("session/set_config_option", SET_OPTION, {"params.value": MISSING}),
    ("session/list", None, {}),
    ("session/list", {"cwd": None, "cursor": None}, {}),
    ("session/cancel", {}, {"params.sessionId": MISSING}),
    (
        "$/cancel_request",
        {"requestId": True},
        {"params.requestId": "expected null or integer or string, found boolean"},
    ),
    ("session/update", update("tool_call", toolCallId="1"), {"params.update.title": MISSING}),
    (
        "session/update",
        update("tool_call", toolCallId="1", title="x", status="done"),
        {"params.update.status": '"done" is not one of pending, in_progress, completed, failed'},
    ),
    (
        "session/update",
        update("tool_call", toolCallId="1", title="x", content=[{"type": "text", "text": "x"}]),
        {"params.update.content[0].type": '"text" is not one of content, diff, terminal'},
    ),
    (
        "session/update",
        update("usage_update", used=None, size=1),
        {"params.update.used": "expected integer, found null"},
    ),
    ("session/update", {"sessionId": "s", "update": None}, {"params.update": "expected object, found null"}),
    (
        "session/update",
        update(
            "config_option_update",
            configOptions=[{**SELECT, "options": [{**GROUP, "options": [{"value": 1, "name": "x"}]}]}],
        ),
        {"params.update.configOptions[0].options[0].options[0].value": STRING_NOT_INTEGER},
    ),
    (
        "providers/set",
        {"providerId": "p", "apiType": "openai", "baseUrl": "u", "headers": {"X-A b": 5}},
        {'params.headers["X-A b"]': STRING_NOT_INTEGER},
    ),
    (
        "elicitation/create",
        {"message": "m", "mode": "form", "requestedSchema": {}},
        {"params.sessionId": MISSING},
    ),
]


@pytest.mark.parametrize(("method", "params", "expected"), WRONG_PARAMS)
def test_a_fault_names_the_field_and_the_reason(method: str, params: object, expected: Expected) -> None:
    assert schema.check_params(method, params) == faults(*expected.items())


def test_an_unknown_update_kind_is_one_fault_that_lists_the_kinds_it_knows() -> None:
    [fault] = schema.check_params("session/update", update("agent_message", content=5))
    assert fault.path == "params.update.sessionUpdate"
    assert fault.reason.startswith('"agent_message" is not one of user_message_chunk, agent_message_chunk, ')


@pytest.mark.parametrize(
    ("outcome", "path"),
    [
        (None, "result.outcome"),
        ("selected", "result.outcome"),
        ({"outcome": "allow"}, "result.outcome.outcome"),
        ({"outcome": "selected"}, "result.outcome.optionId"),
        ({"selected": {"optionId": "x"}}, "result.outcome.outcome"),
    ],
)
def test_an_odd_permission_outcome_is_a_fault_and_is_never_mended(outcome: object, path: str) -> None:
    result = {"outcome": outcome}
    mended, notes = schema.forgive_result("session/request_permission", result)
    assert mended is result and notes == []
    assert [fault.path for fault in schema.check_result("session/request_permission", result)] == [path]


def test_results_and_errors_have_their_own_prefix() -> None:
    assert schema.check_result("session/prompt", {"stopReason": "done"})[0].path == "result.stopReason"
    assert schema.check_result("session/close", None) == faults(("result", "expected object, found null"))
    assert schema.check_error({"code": "-32603", "message": "x"}) == faults(
        ("error.code", "expected integer, found string")
    )
    assert schema.check_error(None) == faults(("error", "expected object, found null"))


def test_many_faults_are_cut_and_sorted() -> None:
    found = schema.check_params("session/prompt", prompt(*range(1000)))
    assert len(found) == 20
    assert found == sorted(found)


def test_a_fault_is_short_and_does_not_repeat_what_was_sent() -> None:
    secret = "sk-" + "x" * 1_000_000
    headers = [{"name": "Authorization", "value": [secret]}]
    params = {"cwd": "/", "mcpServers": [{"type": "http", "name": "x", "url": "u", "headers": headers}]}
    assert "sk-" not in str(schema.check_params("session/new", params))
    [fault] = schema.check_params("session/prompt", prompt({"type": secret}))
    assert len(fault.reason) <= 200
    [fault] = schema.check_params("session/prompt", prompt({"type": "line\n\ud800é"}))
    assert fault.reason == f'"line\\n\\ud800\\u00e9" is not one of {KINDS}'
    env = {"providerId": "p", "apiType": "a", "baseUrl": "u", "headers": {secret: 1}}
    [fault] = schema.check_params("providers/set", env)
    assert len(fault.path) <= 200


def test_what_has_no_rules_may_nest_as_deep_as_it_likes() -> None:
    deep: object = "x"
    for _ in range(50_000):
        deep = [deep]
    assert schema.check_params("session/list", {"_meta": {"deep": deep}}) == []
    assert schema.check_params("session/list", {"cwd": deep}) == faults(
        ("params.cwd", "expected string or null, found array")
    )


# -- Forgiveness --

SERVER = {"name": "x", "command": "y", "args": [], "env": []}

FORGIVEN: list[tuple[str, object, object, Expected]] = [
    # What real clients get wrong.
    (
        "session/new",
        {"cwd": "/"},
        {"cwd": "/", "mcpServers": []},
        {"params.mcpServers": "missing, taken as []"},
    ),
    (
        "session/load",
        {"cwd": "/", "sessionId": "s"},
        {"cwd": "/", "sessionId": "s", "mcpServers": []},
        {"params.mcpServers": "missing, taken as []"},
    ),
    (
        "session/new",
        {"cwd": "/", "mcpServers": {}},
        {"cwd": "/", "mcpServers": []},
        {"params.mcpServers": "{} taken as []"},
    ),
    (
        "session/new",
        {"cwd": "/", "mcpServers": [{**SERVER, "args": {}, "env": None}]},
        {"cwd": "/", "mcpServers": [SERVER]},
        {"params.mcpServers[0].args": "{} taken as []", "params.mcpServers[0].env": NULL},
    ),
    ("session/list", None, {}, {}),
    (
        "initialize",
        {"protocolVersion": 1, "clientInfo": {"name": "", "version": ""}},
        {"protocolVersion": 1},
        {"params.clientInfo": "left out: its name is empty"},
    ),
    (
        "initialize",
        {"protocolVersion": 1, "clientCapabilities": None},
        {"protocolVersion": 1},
        {"params.clientCapabilities": "null, taken as absent"},
    ),
    # What the schema forgives.
    (
        "session/new",
        {"cwd": "/", "mcpServers": None, "additionalDirectories": None},
        {"cwd": "/", "mcpServers": [], "additionalDirectories": []},
        {
            "params.additionalDirectories": NULL,
            "params.mcpServers": NULL,
        },
    ),
    (
        "initialize",
        {"protocolVersion": 1, "clientInfo": "zed", "_meta": []},
        {"protocolVersion": 1},
        {
            "params._meta": f"{DEFAULT}: expected object or null, found array",
            "params.clientInfo": f"{DEFAULT}: expected object, found string",
        },
    ),
    (
        "initialize",
        {"protocolVersion": 1, "clientInfo": {"name": "zed"}},
        {"protocolVersion": 1},
        {"params.clientInfo": f"{DEFAULT}: version required but missing"},
    ),
    (
        "initialize",
        {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": "yes", "writeTextFile": True}}},
        {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": True}}},
        {"params.clientCapabilities.fs.readTextFile": f"{DEFAULT}: expected boolean, found string"},
    ),
    (
        "session/prompt",
        prompt(
            {"type": "text", "text": "x", "annotations": {"audience": ["user", "all"], "priority": "high"}}
        ),
        prompt({"type": "text", "text": "x", "annotations": {"audience": ["user"]}}),
        {
            "params.prompt[0].annotations.audience[1]": 'left out: "all" is not one of assistant, user',
            "params.prompt[0].annotations.priority": f"{DEFAULT}: expected number or null, found string",
        },
    ),
]


@pytest.mark.parametrize(("method", "params", "meant", "notes"), FORGIVEN)
def test_what_is_known_to_be_wrong_is_mended_and_reported(
    method: str, params: object, meant: object, notes: Expected
) -> None:
    before = copy.deepcopy(params)
    assert schema.forgive_params(method, params) == (meant, faults(*notes.items()))
    assert params == before, "the input was changed"
    assert schema.check_params(method, meant) == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", {"protocolVersion": "1"}),
        ("initialize", {"protocolVersion": None}),
        ("session/prompt", prompt({"type": "foo"})),
        ("session/prompt", {"sessionId": "s", "prompt": None}),
        ("session/new", {"cwd": None, "mcpServers": []}),
        ("session/new", {"cwd": "/", "mcpServers": [{"command": "only"}]}),
        ("session/new", {"cwd": "/", "mcpServers": {"files": {"command": "x"}}}),
        ("session/new", []),
    ],
)
def test_what_cannot_be_mended_is_left_for_the_check(method: str, params: object) -> None:
    mended, notes = schema.forgive_params(method, params)
    assert mended is params and notes == []
    assert schema.check_params(method, params) != []


def test_null_for_a_result_without_fields_is_taken_as_an_empty_object() -> None:
    assert schema.forgive_result("fs/write_text_file", None) == ({}, faults(("result", "null, taken as {}")))
    assert schema.forgive_result("terminal/create", None) == (None, [])
    result = {"output": "", "truncated": False, "exitStatus": {"exitCode": -1, "signal": None}}
    mended, notes = schema.forgive_result("terminal/output", result)
    assert mended == {"output": "", "truncated": False, "exitStatus": {"signal": None}}
    assert [note.path for note in notes] == ["result.exitStatus.exitCode"]


def test_a_default_is_a_copy_that_its_owner_may_change() -> None:
    params = {"protocolVersion": 1, "clientCapabilities": 5}
    first, _ = schema.forgive_params("initialize", params)
    first["clientCapabilities"]["fs"]["readTextFile"] = True  # type: ignore[index]
    second, _ = schema.forgive_params("initialize", params)
    assert second["clientCapabilities"]["fs"]["readTextFile"] is False  # type: ignore[index]


# -- Cost and threads --


def test_importing_reads_no_file_of_the_schema_and_loads_no_jsonschema() -> None:
    code = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import acpserver.rpc.schema as schema
assert "jsonschema" not in sys.modules
assert not [path for path in opened if path.endswith(".json")], opened
assert schema.check_params("session/list", {}) == []
assert "jsonschema" in sys.modules and [path for path in opened if path.endswith("session.json")]
"""
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=30)


def test_many_threads_may_be_the_first_to_ask() -> None:
    for cached in (checkers.checker, definitions.definitions, definitions.methods):
        cached.cache_clear()
    start = threading.Barrier(8)
    found: list[object] = []

    def ask() -> None:
        start.wait(timeout=10)
        wrong = schema.check_params("session/update", update("plan", entries=[{}]))
        found.append((wrong, [schema.check_params(name, {"sessionId": "s"}) for name in METHODS]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    entry = "params.update.entries[0]"
    wrong = faults(*((f"{entry}.{name}", MISSING) for name in ("content", "priority", "status")))
    others = [schema.check_params(name, {"sessionId": "s"}) for name in METHODS]
    assert found == [(wrong, others)] * 8

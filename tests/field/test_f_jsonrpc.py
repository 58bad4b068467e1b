"""Ids, requests, notifications and answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.moments import Stage, stalled_stream
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import Stall, text

IDS = [0, -1, 2**53, "", "0", "a-b", "7f0c5e0e-3c46-4d39-9a52-0d6d1f3a2f6b", 1.5]


def answers(at: Stage, *messages: object) -> list[dict[str, Any]]:
    """What the agent says to these lines, up to the answer to a request after them."""
    before = len(at.editor.received)
    for message in messages:
        at.editor.send(message)
    at.editor.ping()
    return at.editor.received[before:-1]  # type: ignore[return-value]


def call(method: str, params: object = None, **more: object) -> dict[str, object]:
    """A message with a method."""
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more}


@pytest.mark.parametrize("request_id", IDS, ids=repr)
def test_row_086_ids_come_back_as_they_were(at: Stage, request_id: object) -> None:
    """Ids that were texts came back as numbers, or not at all."""
    mode = {"sessionId": at.session, "modeId": "default"}
    assert at.editor.request("session/set_mode", mode, id=request_id).result == {}
    assert at.editor.request("_unknown", {}, id=request_id).code == -32601  # the editor looks at the ids


@pytest.mark.parametrize("request_id", IDS, ids=repr)
def test_row_086_a_request_of_any_id_can_be_cancelled(at: Stage, request_id: object) -> None:
    """Only ids of one kind could be cancelled."""
    stall = Stall()
    at.llm.script(text("never").answer().insert(0, stall))
    prompt = [{"type": "text", "text": "go"}]
    at.editor.send(call("session/prompt", {"sessionId": at.session, "prompt": prompt}, id=request_id))
    assert stall.reached.wait(5)
    # The same id in another type is another request.
    other = str(request_id) if not isinstance(request_id, str) else f"{request_id} "
    at.editor.notify("$/cancel_request", {"requestId": other})
    at.editor.ping()
    at.editor.notify("$/cancel_request", {"requestId": request_id})

    def answered() -> bool:
        return any("method" not in m and json.dumps(m["id"]) == json.dumps(request_id) for m in mine(at))

    at.editor.wait_for(answered, f"an answer to {request_id!r}")


def mine(at: Stage) -> list[dict[str, Any]]:
    """What came since the session of this test was made."""
    received: list[dict[str, Any]] = at.editor.received  # type: ignore[assignment]
    first = next(n for n, m in enumerate(received) if m.get("result", {}).get("sessionId") == at.session)
    return received[first + 1 :]


@pytest.mark.parametrize("request_id", [True, False, [], {}, None], ids=repr)
def test_row_088_and_089_an_impossible_id_is_refused(at: Stage, request_id: object) -> None:
    """Such ids were turned into others, and the answers found nobody."""
    (answer,) = answers(at, call("session/list", id=request_id))
    assert answer["id"] is None
    assert answer["error"]["code"] == -32600


STRAY = [
    {"id": None, "error": {"code": -32601, "message": "Method not found"}},
    {"id": 424242, "result": {}},
    {"id": 424242, "error": {"code": 1, "message": "x"}},
    {"id": 424242, "result": {}, "error": {"code": 1, "message": "x"}},
    {"id": 424242},
    {"id": "text", "result": None},
    {"id": 1_000_000, "result": {}},
    {"result": {}},
    {"error": {}},
]


@pytest.mark.parametrize("message", STRAY, ids=json.dumps)
def test_row_090_answers_to_nothing_are_ignored(at: Stage, message: dict[str, object]) -> None:
    """Clients answer notifications that they dislike, and the agent complained in turn."""
    assert answers(at, {"jsonrpc": "2.0", **message}) == []


def test_row_092_a_cancel_with_an_id_cancels_and_is_answered(at: Stage) -> None:
    """A cancel sent as a request was either not done or not answered."""
    turn = stalled_stream(at).turn
    assert at.editor.request("session/cancel", {"sessionId": at.session}).result == {}
    assert turn.wait() == "cancelled"


def test_row_092_a_prompt_without_an_id_does_no_harm(at: Stage) -> None:
    """A prompt that nobody waits for broke the agent."""
    prompt = {"sessionId": at.session, "prompt": [{"type": "text", "text": "hello"}]}
    assert answers(at, call("session/prompt", prompt)) == []
    assert at.prompt(text("fine")).wait() == "end_turn"


def test_row_093_everything_that_changes_a_session_is_there(at: Stage) -> None:
    """Clients gave up when a method that they always call was missing."""
    session = {"sessionId": at.session}
    for method, params in (
        ("session/set_model", {"modelId": "fake", **session}),
        ("session/set_mode", {"modeId": "default", **session}),
        ("session/set_config_option", {"configId": "mode", "value": "default", **session}),
        ("session/close", session),
    ):
        assert "result" in at.editor.request(method, params).message


@pytest.mark.parametrize("name", ["load", "list", "resume", "fork", "delete"])
def test_row_093_a_method_is_there_exactly_if_it_is_announced(tmp_path: Path, name: str) -> None:
    """A method was announced and missing, or there and unknown to the client."""
    with Editor("--model", "offline") as editor:
        capabilities: dict[str, Any] = editor.initialize()["agentCapabilities"]  # type: ignore[assignment]
        announced = name in capabilities["sessionCapabilities"]
        if name == "load":
            announced = capabilities["loadSession"]
        params = {} if name == "list" else {"sessionId": "no such", "cwd": str(tmp_path), "mcpServers": []}
        answer = editor.request(f"session/{name}", params).message
        missing = "error" in answer and answer["error"]["code"] == -32601  # type: ignore[index]
        assert missing is not announced


def test_row_093_the_account_methods_are_there() -> None:
    """The same for authenticate and logout."""
    with Editor("--model", "offline") as editor:
        method = editor.initialize()["authMethods"][0]["id"]  # type: ignore[index]
        assert editor.request("authenticate", {"methodId": method}).result == {}
        assert editor.request("logout", {}).result == {}


def test_row_094_set_config_option_answers_with_all_options(at: Stage) -> None:
    """An empty answer made clients fail that look for the options in it."""
    params = {"sessionId": at.session, "configId": "mode", "value": "read_only"}
    options = at.editor.request("session/set_config_option", params).result["configOptions"]
    assert [(o["id"], o["currentValue"]) for o in options] == [("mode", "read_only"), ("model", "fake")]  # type: ignore[union-attr]


def test_row_096_without_token_counts_none_are_told(at: Stage) -> None:
    """Usage that was not known went out as null."""
    turn = at.prompt(text("hello").no_usage())
    assert turn.wait() == "end_turn"
    assert turn.of_kind("usage_update") == []
    assert turn.reply is not None and "usage" not in turn.reply.result


NO_SERVERS = [{}, {"mcpServers": None}, {"mcpServers": {}}, {"mcpServers": [], "type": "x"}]


@pytest.mark.parametrize("more", NO_SERVERS, ids=json.dumps)
def test_row_097_no_list_of_servers_is_an_empty_one(at: Stage, tmp_path: Path, more: dict[str, Any]) -> None:
    """Clients leave the list out, or their language has only one kind of empty table."""
    assert at.editor.request("session/new", {"cwd": str(tmp_path), **more}).result["sessionId"]


@pytest.mark.parametrize(
    ("params", "works"),
    [
        ({"methodId": "configured"}, True),
        ({"methodId": "configured", "_meta": {"x": 1}}, True),
        ({}, False),
        ({"methodId": "no such"}, False),
        ({"methodId": None}, False),
        (None, False),
    ],
    ids=repr,
)
def test_row_098_authenticate_takes_a_known_method(at: Stage, params: object, works: bool) -> None:
    """Small differences in the parameters broke the handshake."""
    reply = at.editor.request("authenticate", params)
    if works:
        assert reply.result == {}
    else:
        assert reply.code == -32602
        assert "methodId" in reply.details or "params" in reply.details


@pytest.mark.parametrize("version", [0, 1, 2, 7, 65535])
def test_row_100_the_version_is_the_number_1(version: int) -> None:
    """The version came back in the type in which it was asked for."""
    with Editor("--model", "offline") as editor:
        reply = editor.request("initialize", {"protocolVersion": version})
        assert json.dumps(reply.result["protocolVersion"]) == "1"


@pytest.mark.parametrize("version", ["1", True, None, 1.5, {}], ids=repr)
def test_row_100_a_version_of_another_type_is_never_echoed(version: object) -> None:
    """The same for texts and truth values."""
    with Editor("--model", "offline") as editor:
        reply = editor.request("initialize", {"protocolVersion": version})
        assert "error" in reply.message or json.dumps(reply.result["protocolVersion"]) == "1"
        editor.initialize()


@pytest.mark.parametrize("server", [{"command": "x"}, {}, "x", None, {"name": 1, "command": 2}], ids=repr)
def test_row_101_a_broken_server_entry_is_told_or_survived(at: Stage, tmp_path: Path, server: object) -> None:
    """Entries that were not understood made the session unusable."""
    reply = at.editor.request("session/new", {"cwd": str(tmp_path), "mcpServers": [server]})
    if "error" in reply.message:
        assert reply.code == -32602
        assert "mcpServers" in reply.details
    else:
        at.llm.script(text("fine"))
        assert at.editor.prompt(str(reply.result["sessionId"]), "go").wait() == "end_turn"


def test_row_102_capabilities_are_objects() -> None:
    """A capability that was just true could not be read by clients with strict types."""
    with Editor("--model", "offline") as editor:
        capabilities: dict[str, Any] = editor.initialize()["agentCapabilities"]  # type: ignore[assignment]
        for group in ("sessionCapabilities", "auth"):
            assert all(isinstance(value, dict) for value in capabilities[group].values())


CLIENTS = {
    "empty": {"name": "", "version": ""},
    "null": None,
    "huge": {"name": "x" * 100_000, "version": "1"},
    "line break": {"name": "a\r\nX-Evil: 1", "version": "1\n2"},
    "wrong types": {"name": 1, "version": []},
    "text": "editor",
}


@pytest.mark.parametrize("info", CLIENTS.values(), ids=CLIENTS.keys())
def test_row_104_what_the_client_says_of_itself_does_no_harm(at: Stage, tmp_path: Path, info: object) -> None:
    """It was passed on to the model's server, which refused the request."""
    at.editor.initialize(clientInfo=info)
    assert at.prompt(text("fine")).wait() == "end_turn"
    request = at.llm.requests[-1]
    assert "x-evil" not in request.headers
    assert b"X-Evil" not in request.raw_body


NOTIFICATIONS = [
    call("example/unknown"),
    call("_example.com/unknown", {"x": 1}),
    call("session/cancel"),
    call("session/cancel", {}),
    call("session/cancel", {"sessionId": 1}),
    call("session/cancel", {"sessionId": "no such"}),
    call("session/cancel", []),
    call("session/new", {"cwd": "relative"}),
    call("initialize", "x"),
    call("$/cancel_request"),
    call("$/cancel_request", {"requestId": "no such"}),
    call("$/cancel_request", {"requestId": None}),
    call("session/update", {}),
]


@pytest.mark.parametrize("message", NOTIFICATIONS, ids=json.dumps)
def test_row_105_notifications_are_never_answered(at: Stage, message: object) -> None:
    """Notifications that were wrong in some way got error answers."""
    assert answers(at, message) == []


def test_row_106_two_requests_with_one_id_lose_nothing(at: Stage) -> None:
    """One of two requests in flight under the same id was never answered."""
    mode = {"sessionId": at.session, "modeId": "default"}
    same = [at.editor.send_request("session/set_mode", mode, id="same") for _ in range(2)]
    assert [pending.wait_reply().result for pending in same] == [{}, {}]
    stall = Stall()
    at.llm.script(text("said").answer().insert(0, stall))
    prompt = {"sessionId": at.session, "prompt": [{"type": "text", "text": "go"}]}
    at.editor.send(call("session/prompt", prompt, id="both"))
    assert stall.reached.wait(5)
    at.editor.send(call("session/set_mode", mode, id="both"))
    at.editor.wait_for(lambda: any(m.get("id") == "both" for m in mine(at)), "the second answer first")
    stall.release()
    at.editor.wait_for(lambda: len([m for m in mine(at) if m.get("id") == "both"]) == 2, "two answers")
    both = [m["result"].get("stopReason") for m in mine(at) if m.get("id") == "both"]
    assert both == [None, "end_turn"]


def test_row_108_the_order_of_the_first_requests_matters_not_for_survival(tmp_path: Path) -> None:
    """A second handshake, or a request before the first one, broke the agent."""
    with Editor("--model", "offline") as editor:
        new = {"cwd": str(tmp_path), "mcpServers": []}
        assert editor.request("session/new", new).code == -32600
        assert editor.request("session/prompt", {"sessionId": "x", "prompt": []}).code == -32600
        editor.initialize()
        prompt = {"sessionId": "no such", "prompt": [{"type": "text", "text": "x"}]}
        assert editor.request("session/prompt", prompt).code == -32002
        session = editor.new_session(tmp_path)
        editor.initialize()
        assert editor.prompt(session, "say still here").wait() == "end_turn"

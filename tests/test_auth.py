"""Authentication (rules A1 to A4): what is announced to whom, and a login that happens in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acpserver import credentials
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import text
from tests.fakes.llm_server import FakeLlm

KEY = "sk-the-stored-key"


def configure(home: Path, llm: FakeLlm) -> None:
    """A provider that needs a key."""
    provider = {"baseUrl": llm.base_url, "apiKeyEnv": "WORK_KEY", "models": {"fake": {}}}
    content = {"providers": {"work": provider}, "listModels": False}
    (home / "config.json").write_text(json.dumps(content))


def editor(home: Path, **environ: str) -> Editor:
    return Editor(env={"ACPSERVER_HOME": str(home), **environ})


def methods(editor: Editor, capabilities: dict[str, Any]) -> list[dict[str, Any]]:
    return editor.initialize(capabilities)["authMethods"]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        ({}, [None]),
        ({"auth": {"terminal": False}}, [None]),
        ({"terminal": True}, [None]),  # the other terminal: to run the agent's commands in
        ({"auth": {"terminal": True}}, [None, "terminal"]),
        ({"_meta": {"terminal-auth": True}}, [None, None]),
        ({"_meta": {"terminal-auth": True}, "auth": {"terminal": True}}, [None, "terminal"]),
        ({"_meta": {"terminal-auth": False}}, [None]),
    ],
)
@pytest.mark.parametrize("model", ["", "offline"])
def test_a_login_is_announced_to_clients_with_a_terminal_and_never_first(
    tmp_path: Path, capabilities: dict[str, Any], kinds: list[str | None], model: str
) -> None:
    """A2, A3"""
    with editor(tmp_path, ACPSERVER_MODEL=model) as client:
        found = methods(client, capabilities)
        assert [method.get("type") for method in found] == kinds
        assert found[0]["id"] == ("configured" if model else "offline")
        if len(found) > 1:
            assert found[1]["id"] == "login"
            if kinds[1]:
                assert found[1]["args"] == ["login"]
            assert ("_meta" in found[1]) == ("_meta" in capabilities)
        assert client.request("authenticate", {"methodId": "login"}).code == -32602
        assert client.request("authenticate", {"methodId": found[0]["id"]}).result == {}


def test_the_announced_command_of_older_clients_runs(tmp_path: Path) -> None:
    with editor(tmp_path) as client:
        login = methods(client, {"_meta": {"terminal-auth": True}})[1]["_meta"]["terminal-auth"]
    environ = {"PATH": "/usr/bin:/bin", "ACPSERVER_HOME": str(tmp_path), **login["env"]}
    done = subprocess.run(
        [login["command"], *login["args"]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ,
        timeout=20,
    )
    assert "anthropic" in done.stdout and "Nothing was stored." in done.stdout
    assert (done.returncode, done.stderr) == (1, "")


def test_a_login_in_another_process_is_seen_by_the_next_session(tmp_path: Path) -> None:
    """A1: the client runs the login and asks again; it must not call authenticate for that."""
    with FakeLlm(api_key=KEY) as llm:
        configure(tmp_path, llm)
        with editor(tmp_path) as client:
            assert methods(client, {})[0]["id"] == "offline"
            new = {"cwd": str(tmp_path), "mcpServers": []}
            refused = client.request("session/new", new)
            assert refused.code == -32000 and "No model is configured" in refused.details
            credentials.store_key(str(tmp_path / "credentials.json"), "work", KEY)
            result: Any = client.request("session/new", new).result
            assert result["models"]["currentModelId"] == "work/fake"
            llm.script(text("hello"))
            turn = client.prompt(result["sessionId"], "hi")
            assert turn.wait() == "end_turn" and turn.text == "hello"
            assert llm.requests[-1].body["model"] == "fake"


def test_authenticate_reads_files_anew(tmp_path: Path) -> None:
    with FakeLlm(api_key=KEY) as llm, editor(tmp_path) as client:
        client.initialize()
        configure(tmp_path, llm)
        credentials.store_key(str(tmp_path / "credentials.json"), "work", KEY)
        assert client.request("authenticate", {"methodId": "offline"}).result == {}
        assert client.request("authenticate", {"methodId": "configured"}).result == {}
        result: Any = client.request("session/new", {"cwd": str(tmp_path), "mcpServers": []}).result
        assert [model["modelId"] for model in result["models"]["availableModels"]] == ["work/fake", "offline"]


def test_the_limits_of_the_files_that_were_read_anew_hold_for_the_next_turn(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": "offline"}))
    with editor(tmp_path) as client:
        method = methods(client, {})[0]["id"]
        session = client.new_session(tmp_path)
        assert client.prompt(session, "list .\nsay done").wait() == "end_turn"
        path.write_text(json.dumps({"model": "offline", "maxSteps": 1}))
        assert client.request("authenticate", {"methodId": method}).result == {}
        assert client.prompt(session, "list .\nsay done").wait() == "max_turn_requests"


def test_a_file_that_breaks_is_told_and_the_old_configuration_holds(tmp_path: Path) -> None:
    with editor(tmp_path, ACPSERVER_MODEL="offline") as client:
        client.initialize()
        (tmp_path / "config.json").write_text('{"maxStep": 1}')
        refused = client.request("authenticate", {"methodId": "configured"})
        assert refused.code == -32000 and "config.json: maxStep: unknown" in refused.details
        session = client.new_session(tmp_path)
        assert client.prompt(session, "say hi").wait() == "end_turn"


def test_logout_removes_stored_keys_and_sessions_need_authentication_again(tmp_path: Path) -> None:
    """A4"""
    with FakeLlm(api_key=KEY) as llm:
        configure(tmp_path, llm)
        credentials.store_key(str(tmp_path / "credentials.json"), "work", KEY)
        with editor(tmp_path) as client:
            assert methods(client, {})[0]["id"] == "configured"
            session = client.new_session(tmp_path)
            assert client.request("logout").result == {}
            assert not (tmp_path / "credentials.json").exists()
            new = {"cwd": str(tmp_path), "mcpServers": []}
            for params in (new, {**new, "sessionId": session}):
                method = "session/load" if "sessionId" in params else "session/new"
                assert client.request(method, params).code == -32000
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
            assert client.request("session/prompt", prompt).code == -32000
            missing = client.request("authenticate", {"methodId": "configured"})
            assert missing.code == -32000 and "No model is configured" in missing.details
            credentials.store_key(str(tmp_path / "credentials.json"), "work", KEY)
            assert client.request("authenticate", {"methodId": "configured"}).result == {}
            assert client.new_session(tmp_path)
        assert llm.requests == []


def test_logout_keeps_what_the_environment_says_for_the_next_authenticate(tmp_path: Path) -> None:
    with FakeLlm() as llm:
        configure(tmp_path, llm)
        with editor(tmp_path, WORK_KEY=KEY) as client:
            client.initialize()
            client.new_session(tmp_path)
            assert client.request("logout").result == {}
            refused = client.request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
            assert refused.code == -32000 and "logged out" in refused.details
            assert client.request("authenticate", {"methodId": "configured"}).result == {}
            client.new_session(tmp_path)


def test_a_refused_key_of_the_model_is_an_authentication_error(tmp_path: Path) -> None:
    with FakeLlm(api_key="another") as llm:
        configure(tmp_path, llm)
        with editor(tmp_path, WORK_KEY=KEY) as client:
            client.initialize()
            turn = client.prompt(client.new_session(tmp_path), "hi")
            assert turn.wait_reply().code == -32000 and KEY not in turn.wait_reply().details


@pytest.mark.parametrize("arguments", [["login", "--help"], ["logout", "--help"], ["acp", "login"]])
def test_the_command_line_knows_them(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acpserver", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.stderr == "" and done.stdout

"""providers/list, providers/set, providers/disable: the client routes the agent through its own gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acpserver.addresses import shown
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import text
from tests.fakes.llm_server import FakeLlm

KEY = "sk-the-users-own"
TOKEN = "gateway-token-1234"


@pytest.fixture
def gateway() -> Iterator[FakeLlm]:
    with FakeLlm(api_key=TOKEN) as gateway:
        yield gateway


def editor(**environ: str) -> Editor:
    return Editor(env={"ACPSERVER_LIST_MODELS": "0", **environ})


def listed(client: Editor) -> dict[str, dict[str, Any]]:
    """The providers by id."""
    found: Any = client.request("providers/list").result["providers"]
    return {one["providerId"]: one for one in found}


def route(client: Editor, provider: str, gateway: FakeLlm, **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    params = {
        "providerId": provider,
        "apiType": "openai",
        "baseUrl": gateway.base_url,
        "headers": headers,
        **more,
    }
    return client.request("providers/set", params)


def test_the_capability_is_announced_and_all_are_listed() -> None:
    with editor(ANTHROPIC_API_KEY=KEY) as client:
        assert client.initialize()["agentCapabilities"]["providers"] == {}  # type: ignore[index]
        found = listed(client)
        assert {"anthropic", "openai", "gemini", "ollama"} <= found.keys()
        current = {"apiType": "anthropic", "baseUrl": "https://api.anthropic.com/v1"}
        assert found["anthropic"]["current"] == current
        assert found["openai"]["current"] is None
        assert all(one["supported"] == ["openai", "anthropic"] for one in found.values())
        assert not any(one["required"] for one in found.values())


def test_a_gateway_gets_the_calls_and_not_the_users_key(gateway: FakeLlm, tmp_path: Path) -> None:
    with editor(OPENAI_API_KEY=KEY) as client:
        client.initialize()
        session = client.new_session(tmp_path)
        assert route(client, "openai", gateway).result == {}
        gateway.script(text("through the gateway"))
        turn = client.prompt(session, "hi")
        assert turn.wait() == "end_turn" and turn.text == "through the gateway"
        request = gateway.requests[-1]
        assert request.body["model"] == "gpt-6.2-sol"
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert KEY not in json.dumps(request.headers) + request.raw_body.decode()
        shown = json.dumps(listed(client)["openai"])
        assert TOKEN not in shown and gateway.base_url in shown


def test_a_gateway_is_all_that_an_agent_without_keys_needs(gateway: FakeLlm, tmp_path: Path) -> None:
    with editor() as client:
        client.initialize()
        new = {"cwd": str(tmp_path), "mcpServers": []}
        assert client.request("session/new", new).code == -32000
        assert route(client, "anthropic", gateway).result == {}
        result: Any = client.request("session/new", new).result
        assert result["models"]["currentModelId"] == "anthropic/claude-sonnet-5-5"
        gateway.script(text("hello"))
        assert client.prompt(result["sessionId"], "hi").wait() == "end_turn"
        assert gateway.requests[-1].path == "/v1/chat/completions"


def test_setting_again_replaces_everything(gateway: FakeLlm) -> None:
    with editor() as client:
        client.initialize()
        assert route(client, "openai", gateway).result == {}
        again = {"providerId": "openai", "apiType": "anthropic", "baseUrl": "https://gateway.example/a/"}
        assert client.request("providers/set", again).result == {}
        current = {"apiType": "anthropic", "baseUrl": "https://gateway.example/a"}
        assert listed(client)["openai"]["current"] == current


def test_a_disabled_provider_stays_listed_and_is_not_used(gateway: FakeLlm, tmp_path: Path) -> None:
    with editor(OPENAI_API_KEY=KEY) as client:
        client.initialize()
        session = client.new_session(tmp_path)
        for provider in ("openai", "openai", "nobody"):
            assert client.request("providers/disable", {"providerId": provider}).result == {}
        assert listed(client)["openai"]["current"] is None
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        assert client.request("session/prompt", prompt).code == -32000

        def told() -> Any:
            found = [u for u in client.updates(session) if u["sessionUpdate"] == "config_option_update"]
            return found and found[-1]["configOptions"][1]["currentValue"] == "offline"  # type: ignore[index]

        client.wait_for(told, "the update that the model is gone")
        assert route(client, "openai", gateway).result == {}
        gateway.script(text("again"))
        assert client.prompt(session, "x").wait() == "end_turn"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"providerId": "nobody"}, "providerId: unknown"),
        ({"apiType": "bedrock"}, "apiType: must be one of openai, anthropic"),
        ({"baseUrl": ""}, "baseUrl"),
        ({"baseUrl": "ftp://x"}, "baseUrl"),
        ({"baseUrl": "http://user:pass-word@"}, "baseUrl"),
        ({"headers": {"X-Key": "gateway\ntoken"}}, "X-Key header"),
    ],
)
def test_what_cannot_be_set_changes_nothing(gateway: FakeLlm, change: dict[str, Any], reason: str) -> None:
    with editor() as client:
        client.initialize()
        before = listed(client)
        refused = route(client, "openai", gateway, **change)
        assert refused.code == -32602 and reason in refused.details
        assert "pass-word" not in refused.details and "gateway\ntoken" not in refused.details
        assert listed(client) == before


def test_nothing_of_it_is_stored(gateway: FakeLlm, tmp_path: Path) -> None:
    environ = {"ACPSERVER_HOME": str(tmp_path / "home")}
    with editor(**environ) as client:
        client.initialize()
        assert route(client, "openai", gateway).result == {}
        client.new_session(tmp_path)
    written = [path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert written and not [one for one in written if TOKEN in one or gateway.base_url in one]
    with editor(**environ) as client:
        client.initialize()
        assert listed(client)["openai"]["current"] is None


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://me:pass-word@host:8/v1/?key=secret", "https://host:8/v1"),
        ("https://host/run/@cf/v1", "https://host/run/@cf/v1"),
        ("me:pass-word@host", ""),
        ("http://[::1", ""),
    ],
)
def test_what_of_an_address_is_told(address: str, told: str) -> None:
    assert shown(address) == told

"""Models in a running server: what is offered, what a choice changes, what it costs, what projects may."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.editor import Editor
from tests.fakes.llm_answers import Stall, error, text, tool_call
from tests.fakes.llm_server import FakeLlm, Request

PRICE = {"input": 1000, "output": 10_000, "cached": 100}
MODELS = {
    "priced": {"contextWindow": 5000, "outputLimit": 400, "price": PRICE, "images": True, "thinking": True},
    "hears": {"audio": True},
    "plain": {"contextWindow": 900},
    "unknown": {},
}


@contextmanager
def serving(tmp_path: Path, *llms: FakeLlm, dialect: str = "openai", **more: Any) -> Iterator[Editor]:
    """A server with one provider for each model server: p0, p1, ..."""
    home = tmp_path / "home"
    home.mkdir()
    providers = {
        f"p{number}": {"baseUrl": llm.base_url, "dialect": dialect, "models": MODELS}
        for number, llm in enumerate(llms)
    }
    (home / "config.json").write_text(json.dumps({"providers": providers, "listModels": False, **more}))
    (tmp_path / "project").mkdir()
    with Editor(env={"ACPSERVER_HOME": str(home)}) as editor:
        yield editor


def option(editor: Editor, session: str, name: str, value: str) -> list[dict[str, Any]]:
    params = {"sessionId": session, "configId": name, "value": value}
    return editor.request("session/set_config_option", params).result["configOptions"]  # type: ignore[return-value]


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as llm:
        yield llm
        assert llm.violations == []


# -- Offer --


def test_a_list_that_comes_is_told_after_the_session(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm, listModels=True) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")

        def told() -> Any:
            found = [u for u in editor.updates(session) if u["sessionUpdate"] == "config_option_update"]
            return found and found[-1]["configOptions"][1]  # type: ignore[index]

        editor.wait_for(told, "the list of models")
        values = [choice["value"] for choice in told()["options"]]
        assert values == ["p0/priced", "p0/hears", "p0/plain", "p0/unknown", "p0/fake", "offline"]
        assert [request.path for request in llm.lists] == ["/v1/models"]
        option(editor, session, "model", "p0/fake")
        llm.script(text("x"))
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert llm.requests[-1].body["model"] == "fake"
    with Editor(env={"ACPSERVER_HOME": str(tmp_path / "home")}) as editor:  # known from the start, and kept
        editor.initialize()
        params = {"sessionId": session, "cwd": str(tmp_path / "project"), "mcpServers": []}
        result: Any = editor.request("session/resume", params).result
        assert result["models"]["currentModelId"] == "p0/fake"
        editor.ping()
        assert editor.updates(session) == []
    assert (len(llm.lists), len(llm.requests)) == (1, 1)


def test_the_list_of_an_endpoint_of_ones_own_tells_the_window(llm: FakeLlm, tmp_path: Path) -> None:
    llm.models = ("m", "other")
    llm.entries = {"m": {"meta": {"n_ctx": 8192}, "architecture": {"input_modalities": ["text", "image"]}}}
    environ = {"ACPSERVER_HOME": str(tmp_path / "home")}
    flags = ("--model", "m", "--base-url", llm.base_url)
    with Editor(*flags, env=environ) as editor:
        capabilities: Any = editor.initialize()["agentCapabilities"]
        assert capabilities["promptCapabilities"]["image"] is False
        session = editor.new_session(tmp_path)
        editor.wait_for(lambda: editor.updates(session), "the list of models")
        (offer,) = editor.updates(session)
        values = [choice["value"] for choice in offer["configOptions"][1]["options"]]  # type: ignore[index]
        assert values == ["m", "other", "offline"]
        llm.script(text("x").used(100, 10), text("y").used(100, 10))
        turn = editor.prompt(session, "x")
        assert turn.wait() == "end_turn" and usage(turn) == [(110, 8192, None)]
    with Editor(*flags, env=environ) as editor:
        capabilities = editor.initialize()["agentCapabilities"]
        assert capabilities["promptCapabilities"]["image"] is True
        turn = editor.prompt(editor.new_session(tmp_path), "x")
        assert turn.wait() == "end_turn" and usage(turn) == [(110, 8192, None)]
    assert [request.path for request in llm.lists] == ["/v1/models"]


@pytest.mark.parametrize("listed", ["nothing", "silence"])
def test_an_endpoint_without_a_list_works_and_nobody_hears_of_it(tmp_path: Path, listed: str) -> None:
    stall = Stall()

    class Bare(FakeLlm):
        def _check(self, request: Request) -> Any:
            if request.method != "GET":
                return super()._check(request)
            return error(404, "") if listed == "nothing" else text("x").answer().insert(0, stall)

    with Bare() as llm, Editor("--model", "m", "--base-url", llm.base_url) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        llm.wait_for_lists(1)
        llm.script(text("x").used(100, 10))
        turn = editor.prompt(session, "x")
        assert turn.wait() == "end_turn" and usage(turn) == []
        told = [one["sessionUpdate"] for one in editor.updates(session)]
        assert told == ["session_info_update", "agent_message_chunk"] and editor.stderr() == ""


def test_nothing_is_asked_before_there_is_a_session_nor_for_the_offline_model(
    llm: FakeLlm, tmp_path: Path
) -> None:
    with serving(tmp_path, llm, listModels=True, model="offline") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        assert editor.prompt(session, "say hi").wait() == "end_turn"
    with Editor(env={"ACPSERVER_HOME": str(tmp_path / "home"), "ACPSERVER_MODEL": "p0/plain"}) as editor:
        editor.initialize()
        editor.ping()
    assert llm.lists == llm.requests == []


@pytest.mark.parametrize(
    ("model", "dialect", "image", "audio"),
    [
        ("p0/priced", "openai", True, False),
        ("p0/hears", "openai", False, True),
        ("p0/hears", "gemini", False, True),
        ("p0/hears", "ollama", False, True),
        ("p0/hears", "anthropic", False, False),  # whatever the configuration says, this API takes none
        ("p0/hears", "openai-responses", False, False),
        ("p0/plain", "openai", False, False),
        ("offline", "openai", False, False),
    ],
)
def test_what_the_configured_model_takes_is_announced(
    llm: FakeLlm, tmp_path: Path, model: str, dialect: str, image: bool, audio: bool
) -> None:
    with serving(tmp_path, llm, model=model, dialect=dialect) as editor:
        capabilities: Any = editor.initialize()["agentCapabilities"]
        told = {"image": image, "audio": audio, "embeddedContext": True}
        assert capabilities["promptCapabilities"] == told


@pytest.mark.parametrize(("name", "kind"), [("IMAGES", "image"), ("AUDIO", "audio")])
def test_so_is_what_the_flat_settings_say(llm: FakeLlm, tmp_path: Path, name: str, kind: str) -> None:
    environ = {"ACPSERVER_BASE_URL": llm.base_url, "ACPSERVER_MODEL": "m", f"ACPSERVER_{name}": "1"}
    with Editor(env={"ACPSERVER_HOME": str(tmp_path), **environ}) as editor:
        capabilities: Any = editor.initialize()["agentCapabilities"]
        told = {"image": False, "audio": False, "embeddedContext": True, kind: True}
        assert capabilities["promptCapabilities"] == told


BROKEN = {"type": "image", "mimeType": "image/png", "data": "no base64!"}
CLIP = {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}


def test_what_one_model_read_as_text_spoils_nothing_at_the_next(llm: FakeLlm, tmp_path: Path) -> None:
    """An image that no model takes is refused only where the model has eyes, and must never be sent later."""
    with serving(tmp_path, llm, model="p0/plain") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        llm.script(text("x"), text("x"), text("x"))
        assert editor.prompt(session, [BROKEN, CLIP]).wait() == "end_turn"
        assert llm.requests[-1].messages[-1]["content"] == "[image: image/png][audio: audio/wav]"
        option(editor, session, "model", "p0/priced")
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert llm.requests[-1].messages[-3]["content"] == "[image: image/png][audio: audio/wav]"
        option(editor, session, "model", "p0/hears")
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert llm.requests[-1].messages[-5]["content"] == [
            {"type": "text", "text": "[image: image/png]"},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        ]


# -- Choices --


def test_a_model_of_another_provider_holds_from_the_next_call_on(llm: FakeLlm, tmp_path: Path) -> None:
    """N3, in mid-turn: the next step of the same turn asks the other server by the other name."""
    with FakeLlm() as other, serving(tmp_path, llm, other) as editor:
        editor.permission = lambda params: _switch_then_allow(editor, params)
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        llm.script(tool_call("bash", {"command": "true"}))
        other.script(text("from the other"))
        turn = editor.prompt(session, "go")
        assert turn.wait() == "end_turn" and turn.text == "from the other"
        assert [request.body["model"] for request in llm.requests] == ["priced"]
        assert [request.body["model"] for request in other.requests] == ["plain"]
        assert other.violations == []


def _switch_then_allow(editor: Editor, params: dict[str, Any]) -> str:
    choice = {"sessionId": params["sessionId"], "configId": "model", "value": "p1/plain"}
    editor.send_request("session/set_config_option", choice)  # read before the answer to the question
    return "allow_once"


def test_the_effort_reaches_the_model_and_is_kept(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        llm.script(text("a"), text("b"), text("c"))
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert "reasoning_effort" not in llm.requests[-1].body
        options = option(editor, session, "thought_level", "low")
        assert [one["category"] for one in options] == ["mode", "model", "thought_level"]
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert llm.requests[-1].body["reasoning_effort"] == "low"
        assert [one["id"] for one in option(editor, session, "model", "p0/plain")] == ["mode", "model"]
        assert editor.prompt(session, "x").wait() == "end_turn"
        assert "reasoning_effort" not in llm.requests[-1].body
        option(editor, session, "model", "p0/priced")
        params = {"sessionId": session, "cwd": str(tmp_path / "project"), "mcpServers": []}
        result: Any = editor.request("session/resume", params).result
        assert result["configOptions"][2]["currentValue"] == "low"


@pytest.mark.parametrize(
    ("dialect", "settings", "limit"),
    [
        ("openai", {}, None),
        ("openai", {"maxTokens": 100}, 100),
        ("openai", {"maxTokens": 1000}, 400),
        ("anthropic", {}, 400),
        ("anthropic", {"maxTokens": 100}, 100),
    ],
)
def test_the_limit_of_an_answer(
    tmp_path: Path, dialect: str, settings: dict[str, int], limit: int | None
) -> None:
    with FakeLlm(dialect=dialect) as llm, serving(tmp_path, llm, dialect=dialect, **settings) as editor:
        editor.initialize()
        llm.script(text("x"))
        assert editor.prompt(editor.new_session(tmp_path / "project"), "x").wait() == "end_turn"
        assert llm.requests[-1].body.get("max_tokens") == limit


def test_a_model_that_is_gone_is_told_and_holds_again_when_it_is_back(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        option(editor, session, "model", "p0/plain")
    home = tmp_path / "home"
    config = json.loads((home / "config.json").read_text())
    told = {}
    for name in ("without", "with"):
        models = {"priced": {}} if name == "without" else MODELS
        config["providers"]["p0"]["models"] = models
        (home / "config.json").write_text(json.dumps(config))
        with Editor(env={"ACPSERVER_HOME": str(home)}) as editor:
            editor.initialize()
            params = {"sessionId": session, "cwd": str(tmp_path / "project"), "mcpServers": []}
            assert editor.request("session/resume", params).result
            llm.script(text("x"), text("x"))
            turns = [editor.prompt(session, "go") for _ in range(2)]
            assert [turn.wait() for turn in turns] == ["end_turn", "end_turn"]
            told[name] = [turn.thoughts for turn in turns]
    assert told == {
        "without": [
            "The model p0/plain, which was chosen for this session, is not available: p0/priced answers "
            "instead. The choice is kept, and holds again when the model is back.",
            "",
        ],
        "with": ["", ""],
    }
    assert [request.body["model"] for request in llm.requests] == ["priced", "priced", "plain", "plain"]


# -- Usage and cost --


def usage(turn: Any) -> list[tuple[int, int, float | None]]:
    found = turn.of_kind("usage_update")
    assert all(update.get("cost", {"currency": "USD"})["currency"] == "USD" for update in found)
    return [(one["used"], one["size"], one.get("cost", {}).get("amount")) for one in found]


def test_the_cost_adds_up_over_calls_turns_and_processes(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        llm.script(tool_call("bash", {"command": "true"}).used(100, 10), text("x").used(200, 20, cached=100))
        turn = editor.prompt(session, "x")
        assert turn.wait() == "end_turn"
        assert usage(turn) == [(110, 5000, 0.2), (220, 5000, 0.51)]
        assert turn.wait_reply().result["_meta"]["acpserver"]["costUsd"] == 0.51  # type: ignore[index]
    with Editor(env={"ACPSERVER_HOME": str(tmp_path / "home")}) as editor:
        editor.initialize()
        params = {"sessionId": session, "cwd": str(tmp_path / "project"), "mcpServers": []}
        assert editor.request("session/resume", params).result
        llm.script(text("x").used(100, 10))
        turn = editor.prompt(session, "x")
        assert turn.wait() == "end_turn" and usage(turn) == [(110, 5000, 0.71)]
        assert turn.wait_reply().result["_meta"]["acpserver"]["costUsd"] == 0.2  # type: ignore[index]


def test_no_cost_is_told_once_a_price_was_not_known(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm, model="p0/plain") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        llm.script(text("x").used(100, 10), text("x").used(100, 10), text("x").used(100, 10))
        first = editor.prompt(session, "x")
        assert first.wait() == "end_turn" and usage(first) == [(110, 900, None)]
        assert "costUsd" not in first.wait_reply().result["_meta"]["acpserver"]  # type: ignore[index,operator]
        option(editor, session, "model", "p0/priced")
        second = editor.prompt(session, "x")
        assert second.wait() == "end_turn" and usage(second) == [(110, 5000, None)]
        option(editor, session, "model", "p0/unknown")
        third = editor.prompt(session, "x")
        assert third.wait() == "end_turn" and usage(third) == []


def test_the_offline_model_costs_nothing(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        option(editor, session, "model", "offline")
        assert editor.prompt(session, "say x").wait() == "end_turn"
        option(editor, session, "model", "p0/priced")
        llm.script(text("x").used(100, 10))
        turn = editor.prompt(session, "x")
        assert turn.wait() == "end_turn" and usage(turn) == [(110, 5000, 0.2)]


# -- Permissions of the user and of the project --


def project(tmp_path: Path, content: object) -> None:
    folder = tmp_path / "project" / ".acpserver"
    folder.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "config.json").write_text(text)


def start(editor: Editor, llm: FakeLlm, tmp_path: Path) -> tuple[str, set[str], str]:
    """(mode, names of the tools that the model gets, what the user is told) in the project."""
    editor.initialize()
    params = {"cwd": str(tmp_path / "project"), "mcpServers": []}
    result: Any = editor.request("session/new", params).result
    llm.script(text("x"), text("x"))
    turn = editor.prompt(result["sessionId"], "x")
    assert turn.wait() == "end_turn"
    tools = {tool["function"]["name"] for tool in llm.requests[-1].body["tools"]}
    again = editor.prompt(result["sessionId"], "x")
    assert again.wait() == "end_turn" and again.thoughts == ""
    return result["modes"]["currentModeId"], tools, turn.thoughts


def test_the_user_sets_the_mode_and_denies_tools(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm, permissions={"mode": "bypass", "deny": ["bash", "none"]}) as editor:
        mode, tools, told = start(editor, llm, tmp_path)
        assert mode == "bypass" and "bash" not in tools and "read_file" in tools and told == ""


def test_a_project_tightens(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm, permissions={"mode": "accept_edits", "deny": ["bash"]}) as editor:
        (tmp_path / "project").rmdir()
        project(tmp_path, {"$schema": "x", "permissions": {"mode": "read_only", "deny": ["web_fetch"]}})
        mode, tools, told = start(editor, llm, tmp_path)
        assert mode == "read_only" and not tools & {"bash", "web_fetch"} and told == ""


def test_a_project_does_nothing_else(llm: FakeLlm, tmp_path: Path) -> None:
    evil = {
        "baseUrl": "http://evil.example",
        "providers": {"p0": {"baseUrl": "http://evil.example"}},
        "model": "evil",
        "permissions": {"mode": "bypass", "deny": "bash", "allow": ["bash"]},
    }
    with serving(tmp_path, llm) as editor:
        (tmp_path / "project").rmdir()
        project(tmp_path, evil)
        mode, tools, told = start(editor, llm, tmp_path)
        assert mode == "default" and "bash" in tools
        left_out = "baseUrl, model, permissions.allow, permissions.deny, permissions.mode"
        assert told.startswith("The project's .acpserver/config.json may only tighten") and left_out in told
        assert "evil.example" not in told


def test_a_pipe_in_the_place_of_the_projects_file_holds_nothing_up(llm: FakeLlm, tmp_path: Path) -> None:
    with serving(tmp_path, llm) as editor:
        (tmp_path / "project" / ".acpserver").mkdir()
        os.mkfifo(tmp_path / "project" / ".acpserver" / "config.json")
        mode, _, told = start(editor, llm, tmp_path)
        assert mode == "default" and told.endswith("is left out: it is no file")


@pytest.mark.parametrize("content", ["{", "[]", '"x"', " " * (1 << 20) + "{}"])
def test_a_project_file_that_is_none_is_told(llm: FakeLlm, tmp_path: Path, content: str) -> None:
    with serving(tmp_path, llm) as editor:
        (tmp_path / "project").rmdir()
        project(tmp_path, content)
        mode, _, told = start(editor, llm, tmp_path)
        assert mode == "default" and told.startswith("The project's .acpserver/config.json is left out: ")


# -- Windows of models that nobody has listed --


def test_what_a_list_says_of_a_model_holds_also_in_the_next_process(llm: FakeLlm, tmp_path: Path) -> None:
    llm.entries["fake"] = {"context_length": 7000}
    with serving(tmp_path, llm, listModels=True) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        editor.wait_for(
            lambda: "config_option_update" in [one["sessionUpdate"] for one in editor.updates(session)],
            "the list of models",
        )
        llm.script(text("x").used(100, 10), text("x").used(100, 10))
        option(editor, session, "model", "p0/fake")
        turn = editor.prompt(session, "x")
        assert turn.wait() == "end_turn" and usage(turn) == [(110, 7000, None)]
    with Editor(env={"ACPSERVER_HOME": str(tmp_path / "home"), "ACPSERVER_MODEL": "p0/fake"}) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path / "project"), "x")
        assert turn.wait() == "end_turn" and usage(turn) == [(110, 7000, None)]


def shown(window: int) -> dict[str, Any]:
    """An answer of Ollama's /api/show."""
    return {"model_info": {"qwen3.context_length": window}, "capabilities": ["completion", "thinking"]}


@pytest.mark.parametrize(
    ("model", "window", "settings", "told"),
    [
        ("p0/new", 8192, {}, 8192),
        ("p0/new", 262_144, {}, 32_768),
        ("p0/new", None, {}, None),
        ("p0/new", 262_144, {"contextWindow": 65_536}, 65_536),
        ("p0/plain", 262_144, {}, 900),
        ("p0/unknown", 8192, {}, 8192),
    ],
)
def test_ollama_is_asked_once_and_told_how_much_to_keep(
    tmp_path: Path, model: str, window: int | None, settings: dict[str, int], told: int | None
) -> None:
    with (
        FakeLlm(dialect="ollama") as llm,
        serving(tmp_path, llm, dialect="ollama", model=model, **settings) as editor,
    ):
        name = model.removeprefix("p0/")
        llm.shows = {name: shown(window)} if window else {}
        editor.initialize()
        session = editor.new_session(tmp_path / "project")
        assert llm.shown == []
        for _ in range(2):
            llm.script(text("x").used(100, 10))
            turn = editor.prompt(session, "x")
            assert turn.wait() == "end_turn"
            assert llm.requests[-1].body.get("options", {}).get("num_ctx") == told
            assert usage(turn) == ([(110, told, None)] if told else [])
        assert llm.shown == [name] * (1 if window else 2)
        assert llm.violations == []


def test_a_turn_that_waits_for_ollamas_answer_can_be_cancelled(tmp_path: Path) -> None:
    stall = Stall()
    with FakeLlm(dialect="ollama") as llm:
        llm.shows["new"] = text("x").answer().insert(0, stall)
        with serving(tmp_path, llm, dialect="ollama", model="p0/new") as editor:
            editor.initialize()
            session = editor.new_session(tmp_path / "project")
            turn = editor.prompt(session, "x")
            assert stall.reached.wait(10)
            editor.cancel(session)
            assert turn.wait() == "cancelled" and llm.requests == []

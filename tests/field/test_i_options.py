"""Modes, models and other options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.moments import Stage, bash, stage, stalled_stream
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import text


def current_mode(at: Stage) -> object:
    """The mode as an answer tells it; setting the model to what it is changes nothing."""
    params = {"sessionId": at.session, "configId": "model", "value": "fake"}
    answer: dict[str, Any] = at.editor.request("session/set_config_option", params).result
    return next(option["currentValue"] for option in answer["configOptions"] if option["id"] == "mode")


def test_row_157_a_model_that_was_set_is_used(at: Stage) -> None:
    """The change was confirmed and had no effect, or it struck the call that was under way."""
    running = stalled_stream(at).turn
    model = {"sessionId": at.session, "configId": "model", "value": "offline"}
    assert at.editor.request("session/set_config_option", model).result
    assert running.reply is None
    at.editor.cancel(at.session)
    assert running.wait() == "cancelled"
    turn = at.editor.prompt(at.session, "say from the other model")
    assert turn.wait() == "end_turn"
    assert turn.text == "from the other model\n"


def test_row_158_a_mode_works_and_every_view_agrees(at: Stage) -> None:
    """The mode was shown, but what it stands for was not applied."""
    mode = {"sessionId": at.session, "modeId": "bypass"}
    assert at.editor.request("session/set_mode", mode).result == {}
    assert at.prompt(bash("true"), text("end")).wait() == "end_turn"
    assert at.asked() == []
    (update,) = [u for u in at.editor.updates(at.session) if u["sessionUpdate"] == "config_option_update"]
    options: list[dict[str, Any]] = update["configOptions"]  # type: ignore[assignment]
    assert next(option["currentValue"] for option in options if option["id"] == "mode") == "bypass"


def test_row_160_161_setting_a_mode_is_told_once_also_for_the_same_one(at: Stage) -> None:
    """Setting the current mode failed, and clients waited for a notification that did not come."""
    for mode in ("default", "read_only"):
        before = len(at.editor.updates(at.session))
        assert at.editor.request("session/set_mode", {"sessionId": at.session, "modeId": mode}).result == {}

        def told(start: int = before) -> list[object]:
            updates = at.editor.updates(at.session)[start:]
            return [u["currentModeId"] for u in updates if u["sessionUpdate"] == "current_mode_update"]

        at.editor.wait_for(told, "current_mode_update", 1.0)
        at.editor.ping()
        assert told() == [mode]


BAD = [
    ("session/set_mode", {"modeId": "nope"}),
    ("session/set_mode", {"modeId": None}),
    ("session/set_mode", {"modeId": ["default"]}),
    ("session/set_model", {"modelId": "nope"}),
    ("session/set_config_option", {"configId": "nope", "value": "default"}),
    ("session/set_config_option", {"configId": "mode", "value": "nope"}),
    ("session/set_config_option", {"configId": "mode", "value": ["default"]}),
    ("session/set_config_option", {"configId": "mode", "value": True, "type": "boolean"}),
    ("session/set_config_option", {"configId": "mode"}),
]


@pytest.mark.parametrize(("method", "params"), BAD, ids=str)
def test_row_162_what_was_not_announced_cannot_be_set(at: Stage, method: str, params: dict[str, Any]) -> None:
    """An unknown mode was accepted, and from then on nothing fitted."""
    assert at.editor.request(method, {"sessionId": at.session, **params}).code == -32602
    assert current_mode(at) == "default"


def test_row_166_the_configured_model_is_the_current_one(tmp_path: Path) -> None:
    """A new session ignored the configuration."""
    with Editor("--model", "my-model", "--base-url", "http://127.0.0.1:9/v1") as editor:
        editor.initialize()
        new: dict[str, Any] = editor.request("session/new", {"cwd": str(tmp_path)}).result
        assert new["models"]["currentModelId"] == "my-model"
        current = {option["id"]: option["currentValue"] for option in new["configOptions"]}
        assert current["model"] == "my-model"


def test_row_184_185_186_the_context_is_that_of_the_last_call(tmp_path: Path) -> None:
    """The counts of several calls were added up, or cached tokens counted twice."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.json").write_text('{"contextWindow": 1000}')
    with stage(tmp_path, env={"ACPSERVER_HOME": str(home)}) as at:
        calls = bash("true").used(100, 10), bash("true").used(150, 20, cached=90), text("end").used(200, 30)
        turn = at.prompt(*calls)
        assert turn.wait() == "end_turn"
        told = [(update["used"], update["size"]) for update in turn.of_kind("usage_update")]
        assert told == [(110, 1000), (170, 1000), (230, 1000)]
        assert turn.reply is not None
        usage: dict[str, Any] = turn.reply.result["usage"]  # type: ignore[assignment]
        assert (usage["totalTokens"], usage["cachedReadTokens"]) == (510, 90)

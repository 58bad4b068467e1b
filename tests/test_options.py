"""Mode and model in every shape in which clients look for them (rules N1 to N3 and L3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from acpserver.config import Config
from acpserver.errors import RpcError
from acpserver.llm.providers import Models
from acpserver.options import config_options, effort, session_state, valid_choice
from acpserver.provider_setup import ProviderSetup, set_up
from acpserver.rpc import schema
from acpserver.session import Session
from acpserver.session_file import SessionFile

MODE_IDS = ["default", "accept_edits", "read_only", "bypass"]


@pytest.fixture
def models() -> Models:
    return Models(Config(model="big", base_url="http://127.0.0.1:9/v1"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "s.jsonl").write_bytes(b"")
    file = SessionFile(str(tmp_path / "s.jsonl"), "s")
    session = Session("s", "/w", ("/w",), file, ["big", "offline"])
    session.records()  # into memory
    return session


def test_every_view_shows_the_same(session: Session, models: Models) -> None:
    session.choose("mode", "read_only")
    session.choose("model", "offline")
    state = session_state(session, models)
    mode, model = state["configOptions"]  # type: ignore[misc]
    assert state["modes"]["currentModeId"] == mode["currentValue"] == session.mode == "read_only"  # type: ignore[index]
    assert state["models"]["currentModelId"] == model["currentValue"] == session.model == "offline"  # type: ignore[index]
    assert [choice["value"] for choice in mode["options"]] == MODE_IDS
    assert [entry["id"] for entry in state["modes"]["availableModes"]] == MODE_IDS  # type: ignore[index]
    assert [choice["value"] for choice in model["options"]] == ["big", "offline"]
    assert [entry["modelId"] for entry in state["models"]["availableModels"]] == ["big", "offline"]  # type: ignore[index]
    assert schema.check_result("session/new", {"sessionId": "s", **state}) == []


def test_only_the_offline_model_where_none_is_configured(session: Session) -> None:
    options = config_options(session, Models(Config()))
    assert [choice["value"] for choice in options[1]["options"]] == ["offline"]  # type: ignore[index,union-attr]


@pytest.mark.parametrize(
    ("option", "value", "details"),
    [
        ("color", "red", "configId: must be one of mode, model, not 'color'"),
        ("mode", "nope", "mode: must be one of default, accept_edits, read_only, bypass, not 'nope'"),
        ("mode", None, "mode: must be one of default, accept_edits, read_only, bypass, not None"),
        ("mode", True, "mode: must be one of default, accept_edits, read_only, bypass, not True"),
        ("model", "small", "model: must be one of big, offline, not 'small'"),
        ("model", ["big"], "model: must be one of big, offline, not ['big']"),
        ("id", "x", "configId: must be one of mode, model, not 'id'"),
    ],
)
def test_unknown_options_and_values(
    session: Session, models: Models, option: str, value: object, details: str
) -> None:
    with pytest.raises(RpcError) as caught:
        valid_choice(session, models, option, value)
    assert caught.value.code == -32602 and caught.value.details == details


@pytest.mark.parametrize(("option", "value"), [("mode", "bypass"), ("model", "big"), ("model", "offline")])
def test_known_options_and_values(session: Session, models: Models, option: str, value: str) -> None:
    assert valid_choice(session, models, option, value) == value


def test_a_long_value_is_not_repeated(session: Session, models: Models) -> None:
    with pytest.raises(RpcError) as caught:
        valid_choice(session, models, "mode", "x" * 10_000)
    assert len(caught.value.details) < 250


def provider(name: str, **models: dict[str, object]) -> ProviderSetup:
    (setup, *_) = set_up({name: {"baseUrl": "http://127.0.0.1:9/v1", "models": models}}, {}, {}, ())
    return setup


def test_the_effort_is_offered_where_the_model_takes_one(session: Session) -> None:
    one = provider("p", deep={"thinking": True}, plain={})
    models = Models(Config(others=(one,)))
    session._models = models.ids
    option = config_options(session, models)[2]
    assert (option["id"], option["category"], option["currentValue"]) == ("thought_level",) * 2 + ("default",)
    levels = [choice["value"] for choice in option["options"]]  # type: ignore[index,union-attr]
    assert levels == ["default", "low", "medium", "high"]
    assert schema.check_result("session/new", {"sessionId": "s", **session_state(session, models)}) == []
    assert effort(session, models) == ""
    session.choose("thought_level", valid_choice(session, models, "thought_level", "high"))
    assert effort(session, models) == "high"
    session.choose("model", "p/plain")
    assert len(config_options(session, models)) == 2 and effort(session, models) == ""
    with pytest.raises(RpcError):
        valid_choice(session, models, "thought_level", "low")


def test_an_error_names_some_of_many_models(session: Session) -> None:
    models = Models(Config(others=(provider("p", **{f"m{n}": {} for n in range(500)}),)))
    with pytest.raises(RpcError) as caught:
        valid_choice(session, models, "model", "nope")
    assert "p/m19, ..., not 'nope'" in caught.value.details and "m20" not in caught.value.details

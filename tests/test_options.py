"""Mode and model in every shape in which clients look for them (rules N1 to N3 and L3)."""

from __future__ import annotations

import pytest

from acpserver.config import Config
from acpserver.errors import RpcError
from acpserver.llm.providers import Models
from acpserver.options import apply_option, config_options, session_state
from acpserver.rpc import schema
from acpserver.session import Session

MODE_IDS = ["default", "accept_edits", "read_only", "bypass"]


@pytest.fixture
def models() -> Models:
    return Models(Config(model="big", base_url="http://127.0.0.1:9/v1"))


@pytest.fixture
def session() -> Session:
    return Session("s", "/w", ("/w",), "big")


def test_every_view_shows_the_same(session: Session, models: Models) -> None:
    apply_option(session, models, "mode", "read_only")
    apply_option(session, models, "model", "offline")
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
    before = dict(vars(session))
    with pytest.raises(RpcError) as caught:
        apply_option(session, models, option, value)
    assert caught.value.code == -32602 and caught.value.details == details
    assert dict(vars(session)) == before


def test_a_long_value_is_not_repeated(session: Session, models: Models) -> None:
    with pytest.raises(RpcError) as caught:
        apply_option(session, models, "mode", "x" * 10_000)
    assert len(caught.value.details) < 250

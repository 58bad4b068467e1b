"""What a user can set in a session: mode and model, in every shape in which clients look for it.

Pure. `modes` and `models` are older views of the same two
options; some clients know only those.
"""

from __future__ import annotations

from collections.abc import Iterable

from acpserver.errors import INVALID_PARAMS, RpcError
from acpserver.llm.providers import Models
from acpserver.permissions import MODES
from acpserver.session import Session


def config_options(session: Session, models: Models) -> list[dict[str, object]]:
    """The full list of ACP SessionConfigOption objects."""
    modes = [(mode.id, mode.name, mode.description) for mode in MODES]
    names = [(model, name, "") for model, name in models.names()]
    return [
        _select("mode", "Mode", session.mode, modes),
        _select("model", "Model", session.model, names),
    ]


def _select(option: str, name: str, current: str, values: list[tuple[str, str, str]]) -> dict[str, object]:
    choices = []
    for value, shown, text in values:
        choices.append({"value": value, "name": shown} | ({"description": text} if text else {}))
    return {
        "id": option,
        "name": name,
        "category": option,
        "type": "select",
        "currentValue": current,
        "options": choices,
    }


def session_state(session: Session, models: Models) -> dict[str, object]:
    """The members `modes`, `models` and `configOptions` of an answer."""
    return {
        "modes": {
            "currentModeId": session.mode,
            "availableModes": [
                {"id": mode.id, "name": mode.name, "description": mode.description} for mode in MODES
            ],
        },
        "models": {
            "currentModelId": session.model,
            "availableModels": [{"modelId": model, "name": name} for model, name in models.names()],
        },
        "configOptions": config_options(session, models),
    }


def valid_choice(models: Models, option: str, value: object) -> str:
    """The value, if it is one of the option's.

    Raises `RpcError` -32602 for an unknown option or value.
    """
    choices = {"mode": [mode.id for mode in MODES], "model": [model for model, _ in models.names()]}
    if option not in choices:
        raise _unknown("configId", choices, option)
    if value not in choices[option]:
        raise _unknown(option, choices[option], value)
    return str(value)


def _unknown(name: str, choices: Iterable[str], value: object) -> RpcError:
    details = f"{name}: must be one of {', '.join(choices)}, not {repr(value)[:100]}"
    return RpcError.with_details(INVALID_PARAMS, details)

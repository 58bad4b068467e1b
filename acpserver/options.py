"""What a user can set in a session: mode, model, effort, in every shape in which clients look for it.

Pure. `modes` and `models` are older views of the first two; some clients know only those.
"""

from __future__ import annotations

from collections.abc import Iterable

from acpserver.errors import INVALID_PARAMS, RpcError
from acpserver.llm.providers import Models
from acpserver.permissions import MODES
from acpserver.session import Session

THOUGHT_LEVEL = "thought_level"
AS_IT_LIKES = "default"
"""The value of that option that tells the model nothing."""

EFFORTS = (
    (AS_IT_LIKES, "Default", "As much as the model likes"),
    ("low", "Low", "Quick answers"),
    ("medium", "Medium", "A balance of both"),
    ("high", "High", "The best answers, slower and at a higher cost"),
)

MOST_TOLD = 20  # values that an error names


def config_options(session: Session, models: Models) -> list[dict[str, object]]:
    """The full list of ACP SessionConfigOption objects; the effort only where the model takes one."""
    modes = [(mode.id, mode.name, mode.description) for mode in MODES]
    names = [(model, name, "") for model, name in models.names()]
    options = [
        _select("mode", "Mode", session.mode, modes),
        _select("model", "Model", session.model, names),
    ]
    if models.info(session.model).thinking:
        level = session.option(THOUGHT_LEVEL, AS_IT_LIKES)
        options.append(_select(THOUGHT_LEVEL, "Thinking", level, list(EFFORTS)))
    return options


def effort(session: Session, models: Models) -> str:
    """How much the session's model should think: "low", "medium", "high", or "" to leave it to the model."""
    level = session.option(THOUGHT_LEVEL, AS_IT_LIKES)
    return level if level != AS_IT_LIKES and models.info(session.model).thinking else ""


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


def valid_choice(session: Session, models: Models, option: str, value: object) -> str:
    """The value, if it is one of the option's in this session. Never touches the disk, for the reader's sake.

    Raises `RpcError` -32602 for an unknown option or value.
    """
    choices = {"mode": [mode.id for mode in MODES], "model": list(models.ids)}
    if not session.knows_options or models.info(session.model).thinking:
        choices[THOUGHT_LEVEL] = [level for level, _, _ in EFFORTS]
    if option not in choices:
        raise _unknown("configId", list(choices), option)
    if value not in choices[option]:
        raise _unknown(option, choices[option], value)
    return str(value)


def _unknown(name: str, choices: list[str], value: object) -> RpcError:
    told: Iterable[str] = choices if len(choices) <= MOST_TOLD else [*choices[:MOST_TOLD], "..."]
    details = f"{name}: must be one of {', '.join(told)}, not {repr(value)[:100]}"
    return RpcError.with_details(INVALID_PARAMS, details)

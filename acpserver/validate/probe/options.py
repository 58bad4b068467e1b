"""Scenarios: modes and configuration options of a session."""

from __future__ import annotations

from acpserver.validate.probe.link import Json, Link
from acpserver.validate.probe.stage import Stage, scenario
from acpserver.validate.probe.verdict import advise, demand, need


def _state(stage: Stage, link: Link, name: str) -> tuple[str, Json]:
    """A new session and what its answer says under `name`."""
    answer = stage.new(link)
    result = answer.result or {}
    need(isinstance(result.get("sessionId"), str), f"session/new does not work: {answer.told()}")
    need(result.get(name), f"the session has no {name}")
    return str(result["sessionId"]), result


def _modes(result: Json) -> tuple[object, list[object]]:
    modes = result.get("modes")
    need(isinstance(modes, dict), "the session has no modes")
    assert isinstance(modes, dict)
    available = modes.get("availableModes")
    ids = (
        [mode.get("id") for mode in available if isinstance(mode, dict)]
        if isinstance(available, list)
        else []
    )
    return modes.get("currentModeId"), ids


@scenario("N2", "options/modes")
def _set_mode(stage: Stage) -> None:
    link = stage.shared()
    session, result = _state(stage, link, "modes")
    current, ids = _modes(result)
    demand(current in ids, f"the current mode {current!r} is none of the available ones")
    demand(len(set(map(str, ids))) == len(ids), "two modes share an id")
    for mode in [*(one for one in ids if one != current)][:1] + [current]:
        answer = link.request("session/set_mode", {"sessionId": session, "modeId": mode})
        demand(
            answer.message is not None and answer.code is None, f"session/set_mode {mode} got {answer.told()}"
        )


@scenario("N3", "options/unknown-mode")
def _unknown_mode(stage: Stage) -> None:
    link = stage.shared()
    session, _ = _state(stage, link, "modes")
    answer = link.request("session/set_mode", {"sessionId": session, "modeId": "no-such-mode"})
    demand(answer.code is not None, "an unknown mode was accepted")
    advise(answer.code == -32602, f"an unknown mode got {answer.told()}, not error -32602")


def _selects(result: Json) -> list[tuple[str, object, list[object]]]:
    """Id, current value and values of each select option; grouped values are taken out of their groups."""
    found = []
    options = result.get("configOptions")
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and isinstance(option.get("options"), list):
            values: list[object] = []
            for choice in option["options"]:
                inner = choice.get("options") if isinstance(choice, dict) else None
                for one in inner if isinstance(inner, list) else [choice]:
                    values.append(one.get("value") if isinstance(one, dict) else one)
            found.append((str(option.get("id")), option.get("currentValue"), values))
    return found


@scenario("N1", "options/set-each-to-what-it-is")
def _set_options(stage: Stage) -> None:
    link = stage.shared()
    session, result = _state(stage, link, "configOptions")
    selects = _selects(result)
    need(selects, "there is no option to select")
    for option, current, values in selects:
        demand(current in values, f"option {option}: the current value {current!r} is none of its values")
        params = {"sessionId": session, "configId": option, "value": current}
        answer = link.request("session/set_config_option", params)
        demand(answer.result is not None, f"setting {option} to its value got {answer.told()}")
        _demand_full(link, session, result, answer.result or {})


def _demand_full(link: Link, session: str, before: Json, now: Json) -> None:
    """All options are due. One may go with a choice of another, such as the effort of a model that has none;
    one that can still be set has not gone."""
    told = {option for option, _, _ in _selects(now)}
    for option, current, _ in _selects(before):
        if option not in told:
            params = {"sessionId": session, "configId": option, "value": current}
            again = link.request("session/set_config_option", params)
            demand(again.result is None, f"the answer lacks the option {option}, which can still be set")


@scenario("N1", "options/change-one")
def _change(stage: Stage) -> None:
    link = stage.shared()
    session, result = _state(stage, link, "configOptions")
    changeable = [
        (option, [one for one in values if one != current]) for option, current, values in _selects(result)
    ]
    option, values = next(((option, values) for option, values in changeable if values), ("", []))
    need(values, "no option has a second value")
    params = {"sessionId": session, "configId": option, "value": values[0]}
    answer = link.request("session/set_config_option", params)
    demand(answer.result is not None, f"setting {option} to {values[0]!r} got {answer.told()}")
    now = {one: value for one, value, _ in _selects(answer.result or {})}
    _demand_full(link, session, result, answer.result or {})
    demand(now.get(option) == values[0], f"after setting {option} to {values[0]!r} it is {now.get(option)!r}")


def _unknown(stage: Stage, what: str, option: str, value: object) -> None:
    link = stage.shared()
    session, result = _state(stage, link, "configOptions")
    option = option or next((one for one, _, _ in _selects(result)), "")
    need(option, "there is no option to select")
    params = {"sessionId": session, "configId": option, "value": value}
    answer = link.request("session/set_config_option", params)
    demand(answer.code is not None, f"{what} was accepted")
    advise(answer.code == -32602, f"{what} got {answer.told()}, not error -32602")


@scenario("N3", "options/unknown-value")
def _unknown_value(stage: Stage) -> None:
    _unknown(stage, "an unknown value", "", "no-such-value")


@scenario("N3", "options/unknown-option")
def _unknown_option(stage: Stage) -> None:
    _unknown(stage, "an unknown option", "no-such-option", "x")


@scenario("L3", "options/models")
def _models(stage: Stage) -> None:
    link = stage.shared()
    session, result = _state(stage, link, "models")
    models = result.get("models")
    known = models.get("availableModels") if isinstance(models, dict) else None
    need(isinstance(models, dict) and isinstance(known, list), "the session has no list of models")
    assert isinstance(models, dict) and isinstance(known, list)
    current = models.get("currentModelId")
    ids = [one.get("modelId") for one in known if isinstance(one, dict)]
    demand(current in ids, f"the current model {current!r} is none of the available ones")
    answer = link.request("session/set_model", {"sessionId": session, "modelId": current})
    demand(answer.message is not None and answer.code is None, f"session/set_model got {answer.told()}")

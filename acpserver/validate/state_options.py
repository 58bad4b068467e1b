"""Modes and config options: what is offered, what is chosen, and that both say the same.

Rules N1 to N3, and I3 for options that a client must have announced. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from acpserver.validate.findings import AGENT, CLIENT, WARNING
from acpserver.validate.state import (
    Answer,
    Breach,
    Call,
    Json,
    Mark,
    Session,
    object_of,
    objects,
    text,
)
from acpserver.validate.world import World

_OPENERS = ("session/new", "session/load", "session/resume", "session/fork")


class Options:
    """Follows the modes and config options of every session."""

    def __init__(self, world: World):
        self._world = world
        self._untold: dict[str, tuple[Mark, str]] = {}
        """Sessions whose mode was set and for which no update has told it: the answer, and the mode."""
        self._strange: dict[int, str] = {}
        """Orders of requests that choose what is not offered, with what that is."""

    def called(self, call: Call) -> Iterator[Breach]:
        """A choice of the client, or a change that the agent tells."""
        session = self._world.session(call.session)
        if session is None or call.is_damaged:
            return
        if call.side == CLIENT and call.method in ("session/set_mode", "session/set_config_option"):
            found = _misfit(session, call)
            if found:
                place, reason = found
                self._strange[call.order] = reason
                yield Breach("N3", CLIENT, place, reason)
        elif call.method == "session/update":
            yield from self._told(session, call)

    def _told(self, session: Session, call: Call) -> Iterator[Breach]:
        update = object_of(call.params, "update")
        kind = text(update, "sessionUpdate")
        if kind == "current_mode_update":
            self._untold.pop(session.id, None)
            mode = text(update, "currentModeId")
            if session.modes and mode not in session.modes:
                reason = f"{mode!r} is none of {_listed(session.modes)}"
                yield Breach("N3", AGENT, "params.update.currentModeId", reason)
        elif kind == "config_option_update":
            self._untold.pop(session.id, None)
            options = objects(update, "configOptions")
            if len(options) == 1:
                yield from _others(session, options, "params.update.configOptions")
            yield from self._offered(session, options, "params.update.configOptions")

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """What is offered when a session opens, and what a choice leads to."""
        call = answer.call
        if call.side == AGENT:
            return
        opens = call.method in ("session/new", "session/fork")
        session = self._world.session(text(answer.result, "sessionId") if opens else call.session)
        reason = self._strange.pop(call.order, "")
        if reason:
            yield from _judge_strange(answer, reason)
        elif session is None or answer.error is not None or answer.is_damaged:
            return
        elif call.method in _OPENERS:
            yield from self._opened(session, answer)
        elif call.method == "session/set_mode":
            self._untold[session.id] = (answer.mark, text(call.params, "modeId"))
        elif call.method == "session/set_config_option":
            yield from self._chosen(session, answer)

    def _opened(self, session: Session, answer: Answer) -> Iterator[Breach]:
        modes, options = object_of(answer.result, "modes"), objects(answer.result, "configOptions")
        session.modes = {text(mode, "id") for mode in objects(modes, "availableModes")}
        session.options.clear()
        current = text(modes, "currentModeId")
        if session.modes and current not in session.modes:
            reason = f"{current!r} is none of {_listed(session.modes)}"
            yield Breach("N3", AGENT, "result.modes.currentModeId", reason)
        for index, option in enumerate(options):
            is_mode = text(option, "category") == "mode" or text(option, "id") == "mode"
            if is_mode and current and text(option, "currentValue") not in ("", current):
                reason = f"the mode option says {text(option, 'currentValue')!r}, modes says {current!r}"
                yield Breach("N2", AGENT, f"result.configOptions[{index}].currentValue", reason)
        yield from self._offered(session, options, "result.configOptions")

    def _offered(self, session: Session, options: list[Json], place: str) -> Iterator[Breach]:
        """The full list of options has been told."""
        if len(options) > 1:  # what is not there any more does not go with another choice
            session.options.clear()
        for index, option in enumerate(options):
            values = _values(option)
            session.options[text(option, "id")] = values
            if text(option, "category") == "thought_level":
                session.efforts.add(text(option, "id"))
            current = text(option, "currentValue")
            if values and current not in values:
                reason = f"{current!r} is none of {_listed(values)}"
                yield Breach("N3", AGENT, f"{place}[{index}].currentValue", reason)
            announced = self._world.can(CLIENT, "session", "configOptions", "boolean")
            if text(option, "type") == "boolean" and not announced:
                reason = "the client did not announce session.configOptions.boolean"
                yield Breach("I3", AGENT, f"{place}[{index}].type", reason)

    def _chosen(self, session: Session, answer: Answer) -> Iterator[Breach]:
        call = answer.call
        options = objects(answer.result, "configOptions")
        if [text(option, "id") for option in options] in ([], [text(call.params, "configId")]):
            yield from _others(session, options, "result.configOptions")
        yield from self._offered(session, options, "result.configOptions")
        for index, option in enumerate(options):
            if text(option, "id") == text(call.params, "configId"):
                wanted, found = call.params.get("value"), option.get("currentValue")
                if found != wanted:
                    place = f"result.configOptions[{index}].currentValue"
                    reason = f"{wanted!r} was set, {found!r} is answered"
                    yield Breach("N1", AGENT, place, reason, related=call.mark.line)

    def disturbed(self, side: str) -> None:
        """A lost message may have told a change."""
        self._untold.clear()

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """Modes that were set and never told."""
        for mark, mode in self._untold.values():
            reason = (
                f"mode {mode!r} was set, but neither current_mode_update nor config_option_update tells it"
            )
            yield Breach("N2", AGENT, "", reason, WARNING, at=mark)


def _misfit(session: Session, call: Call) -> tuple[str, str] | None:
    """(place, reason) of a choice that is not offered."""
    if call.method == "session/set_mode":
        mode = text(call.params, "modeId")
        if session.modes and mode not in session.modes:
            return "params.modeId", f"{mode!r} is none of {_listed(session.modes)}"
        return None
    name, value = text(call.params, "configId"), call.params.get("value")
    if not session.options:
        return None
    if name not in session.options:
        return "params.configId", f"{name!r} is none of {_listed(session.options)}"
    values = session.options[name]
    if values is not None and value not in values:
        return "params.value", f"{value!r} is none of {_listed(values)}"
    return None


def _others(session: Session, options: list[Json], place: str) -> Iterator[Breach]:
    """Options that are missing from a list that looks like what was changed and nothing else."""
    missing = set(session.options) - session.efforts - {text(option, "id") for option in options}
    if missing:
        reason = f"the full list is due; {_listed(missing)} is missing; right only if it is gone"
        yield Breach("N1", AGENT, place, reason, WARNING)


def _judge_strange(answer: Answer, reason: str) -> Iterator[Breach]:
    if answer.error is None or answer.code != -32602:
        found = "a result" if answer.error is None else answer.code
        text_ = f"{reason}: -32602 is due, not {found}"
        yield Breach("N3", AGENT, "", text_, related=answer.call.mark.line)


def _values(option: Json) -> set[str] | None:
    """The values of a select option, also of one in groups; None for one that is no list of choices."""
    if text(option, "type") != "select":
        return None
    entries = objects(option, "options")
    grouped = [inner for entry in entries for inner in objects(entry, "options")]
    return {text(entry, "value") for entry in grouped or entries}


def _listed(names: object) -> str:
    return ", ".join(sorted(map(str, names)))[:120]  # type: ignore[call-overload]

"""What the agent asks of the client: files, terminals, questions to the user.

Rules F2, X1, X2, E1, and K3 for paths. One thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from acpserver.validate.findings import AGENT, CLIENT, WARNING
from acpserver.validate.state import Answer, Breach, Call, Mark, Recent, key, object_of, objects, text
from acpserver.validate.state_sessions import is_absolute
from acpserver.validate.world import World

_SECRET = re.compile(r"passw|secret|token|api.?key|credential|passphrase", re.IGNORECASE)


@dataclass
class _Terminal:
    mark: Mark
    is_embedded: bool = False
    killed: Mark | None = None
    asked_after: bool = False


class ClientCalls:
    """Follows the agent's requests to the client."""

    def __init__(self, world: World):
        self._world = world
        self._terminals: dict[tuple[str, str], _Terminal] = {}
        """By session and id: a client may count the terminals of each session anew."""
        self._released = Recent()
        self._elicitations = Recent()
        self._is_blurred = False

    def called(self, call: Call) -> Iterator[Breach]:
        """A request or an update of the agent."""
        if call.side != AGENT:
            return
        session = self._world.session(call.session)
        if session and session.turn:
            session.turn.used.add(call.method)
        if call.method.startswith("fs/"):
            yield from _file(call)
        elif call.method.startswith("terminal/"):
            yield from self._terminal(call)
        elif call.method == "session/update":
            yield from self._embedded(call)
        elif call.method == "elicitation/create":
            yield from self._question(call)
        elif call.method == "elicitation/complete":
            name = text(call.params, "elicitationId")
            is_whole = self._world.client is not None and not self._is_blurred
            if name and name not in self._elicitations and is_whole:
                yield Breach("E1", AGENT, "params.elicitationId", f"there is no elicitation {name!r}")

    def _terminal(self, call: Call) -> Iterator[Breach]:
        cwd = text(call.params, "cwd")
        if call.method == "terminal/create":
            if cwd and not is_absolute(cwd):
                yield Breach("K3", AGENT, "params.cwd", f"{cwd!r} is not absolute")
            return
        name = text(call.params, "terminalId")
        place = (call.session, name)
        terminal = self._terminals.get(place)
        if terminal is None:
            is_whole = self._world.client is not None and not (self._is_blurred or self._world.is_blurred)
            if name and is_whole:
                reason = "has been released" if key(place) in self._released else "was never created"
                yield Breach("X1", AGENT, "params.terminalId", f"terminal {name!r} {reason}")
        elif call.method == "terminal/kill":
            terminal.killed = call.mark
        elif call.method == "terminal/release":
            self._released.add(key(place))
            del self._terminals[place]
            session = self._world.session(call.session)
            is_cancelled = session and session.turn and session.turn.cancelled
            if terminal.killed and not terminal.asked_after and not is_cancelled:
                related = terminal.killed.line
                reason = f"terminal {name!r} was killed and is released without a look at its output"
                yield Breach("X2", AGENT, "method", reason, WARNING, related)  # if it was for a timeout
            if not terminal.is_embedded:
                reason = f"terminal {name!r} was never shown in a tool call"
                yield Breach("X1", AGENT, "params.terminalId", reason, WARNING, terminal.mark.line)
        elif terminal.killed:
            terminal.asked_after = True

    def _embedded(self, call: Call) -> Iterator[Breach]:
        for index, part in enumerate(objects(object_of(call.params, "update"), "content")):
            if text(part, "type") != "terminal":
                continue
            name = text(part, "terminalId")
            terminal = self._terminals.get((call.session, name))
            is_past = key((call.session, name)) in self._released
            if terminal is not None:
                terminal.is_embedded = True
            elif name and not is_past and not self._is_blurred and self._live(call):
                place = f"params.update.content[{index}].terminalId"
                yield Breach("X1", AGENT, place, f"terminal {name!r} was never created")

    def _live(self, call: Call) -> bool:
        """Whether this is no replay, which may show terminals of the past, and no terminal of the agent's
        own, which some clients show by their `_meta`."""
        session = self._world.session(call.session)
        is_replay = session is None or bool(session.loads)
        return not is_replay and not self._world.is_blurred and self._world.can(CLIENT, "terminal")

    def _question(self, call: Call) -> Iterator[Breach]:
        mode = text(call.params, "mode")
        self._elicitations.add(text(call.params, "elicitationId"))
        if mode in ("form", "url") and not self._world.can(CLIENT, "elicitation", mode):
            yield Breach("E1", AGENT, "params.mode", f"the client did not announce elicitation.{mode}")
        elif self._world.client is not None and "elicitation" not in self._world.client:
            yield Breach(
                "I3", AGENT, "method", f"{call.method} is used, but the client did not announce elicitation"
            )
        fields = object_of(object_of(call.params, "requestedSchema"), "properties")
        for name in fields:
            if mode == "form" and _SECRET.search(name):
                place = f"params.requestedSchema.properties.{name}"
                yield Breach("E1", AGENT, place, "secrets are never asked for by form; use the mode url")

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """The client's answer."""
        call = answer.call
        session = self._world.session(call.session)
        if call.method == "terminal/create" and answer.error is None:
            name = text(answer.result, "terminalId")
            if (call.session, name) in self._terminals:
                yield Breach("X1", CLIENT, "result.terminalId", f"{name!r} is the id of another terminal")
            if name:
                self._terminals[call.session, name] = _Terminal(call.mark)
            else:
                self._is_blurred = True
        elif call.method.startswith("fs/") and answer.error is not None and session and session.turn:
            session.turn.client_failed = answer.mark
        elif call.method == "elicitation/create" and answer.error is None:
            yield from _filled(answer)
        elif call.method == "session/prompt" and answer.error is not None and session:
            turn = session.turn_of(call)
            if turn and turn.client_failed and not turn.cancelled:
                related = turn.client_failed.line
                reason = "the turn fails with a file of the client; the tool call must fail alone"
                yield Breach("F2", AGENT, "error", reason, related=related)

    def disturbed(self, side: str) -> None:
        """A lost message may have made or released a terminal."""
        self._is_blurred = True

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """Terminals that were never released, though their turn is over."""
        running = any(session.turns for session in self._world.sessions.values())
        for (session, name), terminal in self._terminals.items():
            if not self._is_blurred and not running and self._world.session(session):
                yield Breach("X1", AGENT, "", f"terminal {name!r} was never released", at=terminal.mark)


def _file(call: Call) -> Iterator[Breach]:
    path, line = text(call.params, "path"), call.params.get("line")
    if path and not is_absolute(path):
        yield Breach("K3", AGENT, "params.path", f"{path!r} is not absolute")
    if isinstance(line, int) and line < 1:
        yield Breach("K3", AGENT, "params.line", f"lines count from 1, this is {line}")


def _filled(answer: Answer) -> Iterator[Breach]:
    """Does what the user filled in fit the form?"""
    if text(answer.result, "action") != "accept":
        return
    form = object_of(answer.call.params, "requestedSchema")
    content = object_of(answer.result, "content")
    required = form.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in content:
            reason = f"{name!r} is required by the form"
            yield Breach("E1", CLIENT, f"result.content.{name}", reason, related=answer.call.mark.line)

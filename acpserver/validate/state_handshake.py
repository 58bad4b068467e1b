"""The handshake and what follows from it: versions, capabilities, authentication.

Rules I1 to I6 and A1 to A4. Writes down the capabilities of both sides. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from acpserver import jsontext
from acpserver.validate.findings import AGENT, CLIENT, ERROR, REMARK, WARNING
from acpserver.validate.state import Answer, Breach, Call, Mark, object_of, objects, text
from acpserver.validate.world import World

_NEEDS = {
    "session/load": ("loadSession",),
    "session/list": ("sessionCapabilities", "list"),
    "session/delete": ("sessionCapabilities", "delete"),
    "session/close": ("sessionCapabilities", "close"),
    "session/resume": ("sessionCapabilities", "resume"),
    "session/fork": ("sessionCapabilities", "fork"),
    "logout": ("auth", "logout"),
    "providers/list": ("providers",),
    "providers/set": ("providers",),
    "providers/disable": ("providers",),
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    "terminal/create": ("terminal",),
    "terminal/output": ("terminal",),
    "terminal/wait_for_exit": ("terminal",),
    "terminal/kill": ("terminal",),
    "terminal/release": ("terminal",),
}
"""What the receiver of a method must have announced."""

_UPDATE_NEEDS = {
    "notice": ("session", "notices"),
    "compaction_update": ("session", "compaction"),
    "compaction_summary_chunk": ("session", "compaction"),
}
_ALWAYS = {"initialize", "authenticate", "session/new", "session/prompt", "session/cancel"}
_NEED_AUTH = ("session/new", "session/load", "session/resume", "session/fork")


class Handshake:
    """Follows `initialize`, and whether both sides keep to what they announced."""

    def __init__(self, world: World):
        self._world = world
        self._opening: Call | None = None
        self._early: Call | None = None
        """The first request of the client before `initialize`."""
        self._early_answer: Breach | None = None
        """What is wrong with the answer to it, once it is certain that `initialize` comes later."""
        self._logged_out: Mark | None = None

    def called(self, call: Call) -> Iterator[Breach]:
        """Judge a call by what its receiver announced."""
        if call.method == "initialize" and call.side == CLIENT:
            yield from self._initialize(call)
            return
        if self._opening is None and call.side == CLIENT and call.is_request and self._early is None:
            self._early = call
        yield from self._capability(call)
        if call.method == "authenticate":
            yield from self._authenticate(call)

    def _initialize(self, call: Call) -> Iterator[Breach]:
        if self._early is not None and self._opening is None:
            reason = f"{self._early.method} was sent before initialize"
            yield Breach("I1", CLIENT, "method", reason, related=call.mark.line, at=self._early.mark)
            if self._early_answer:
                yield self._early_answer
        if self._opening is not None:
            related = self._opening.mark.line
            yield Breach("I1", CLIENT, "method", "initialize was sent before", WARNING, related)
        self._opening = call
        self._world.client = object_of(call.params, "clientCapabilities")

    def _capability(self, call: Call) -> Iterator[Breach]:
        receiver = AGENT if call.side == CLIENT else CLIENT
        path = _NEEDS.get(call.method)
        if path and not self._world.can(receiver, *path):
            yield _unannounced(call.side, "method", call.method, receiver, path)
        if call.side == AGENT and call.method == "session/update":
            kind = text(call.params.get("update"), "sessionUpdate")
            path = _UPDATE_NEEDS.get(kind)
            if path and not self._world.can(CLIENT, *path):
                yield _unannounced(AGENT, "params.update.sessionUpdate", kind, CLIENT, path)
        if call.side == CLIENT and call.params.get("additionalDirectories"):
            path = ("sessionCapabilities", "additionalDirectories")
            if not self._world.can(AGENT, *path):
                yield _unannounced(CLIENT, "params.additionalDirectories", "the field", AGENT, path)
        for index, server in enumerate(objects(call.params, "mcpServers")):
            kind = text(server, "type")
            if kind in ("http", "sse") and not self._world.can(AGENT, "mcpCapabilities", kind):
                place = f"params.mcpServers[{index}].type"
                yield _unannounced(CLIENT, place, kind, AGENT, ("mcpCapabilities", kind))

    def _authenticate(self, call: Call) -> Iterator[Breach]:
        name, known = text(call.params, "methodId"), self._world.auth
        if known is None or not name:
            return
        if name not in known:
            yield Breach("A3", CLIENT, "params.methodId", f"{name!r} is none of the announced methods")
        elif known[name] == "terminal":
            yield Breach(
                "A3", CLIENT, "params.methodId", f"{name!r} is run in a terminal, not by authenticate"
            )

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """Judge an answer by what its side announced."""
        call = answer.call
        if call.side == AGENT:
            return
        if call.method == "initialize":
            yield from self._initialized(answer)
        elif self._world.agent is None and self._early is not None:
            self._too_early(answer)
        path = _NEEDS.get(call.method)
        works = path is not None and self._announced(path)
        if answer.code == -32601 and (works or call.method in _ALWAYS) and not _names_another(answer):
            why = f"was announced ({'.'.join(path)})" if path else "is part of every agent"
            reason = f"{call.method} {why} and does not work"
            yield Breach("I4", AGENT, "error.code", reason, related=call.mark.line)
        if answer.code == -32000 and self._world.auth == {}:
            reason = "authentication is required, but authMethods of initialize names no way"
            yield Breach("A1", AGENT, "error.code", reason, related=call.mark.line)
        yield from self._authenticated(answer)

    def _announced(self, path: tuple[str, ...]) -> bool:
        return self._world.agent is not None and self._world.can(AGENT, *path)

    def _initialized(self, answer: Answer) -> Iterator[Breach]:
        call, result = answer.call, answer.fields
        if answer.error is not None:
            if not call.faults and call.is_damaged and answer.code == -32602:
                reason = "a malformed optional field must not fail the handshake"
                yield Breach("I6", AGENT, "error", reason, related=call.mark.line)
            return
        self._world.agent = object_of(result, "agentCapabilities")
        asked, got = call.params.get("protocolVersion"), result.get("protocolVersion")
        if isinstance(asked, int) and isinstance(got, int) and asked >= 1 and (got > asked or got < 1):
            reason = f"asked for {asked}, answered {got}: the same, or the latest below it"
            yield Breach("I2", AGENT, "result.protocolVersion", reason, related=call.mark.line)
        if "agentInfo" not in result and not answer.is_damaged:
            yield Breach("I5", AGENT, "result", "no agentInfo says which agent this is")
        methods = objects(result, "authMethods")
        self._world.auth = {text(one, "id"): text(one, "type") for one in methods}
        for index, one in enumerate(methods):
            if text(one, "type") == "terminal" and not self._world.can(CLIENT, "auth", "terminal"):
                reason = "the client did not announce auth.terminal"
                yield Breach("A2", AGENT, f"result.authMethods[{index}].type", reason, related=call.mark.line)

    def _too_early(self, answer: Answer) -> None:
        """A request before `initialize` was answered: well?"""
        if self._opening is None and answer.code != -32600:
            level = ERROR if answer.error is None else WARNING
            reason = f"{answer.call.method} came before initialize: -32600 is due"
            line = answer.call.mark.line
            self._early_answer = Breach("I1", AGENT, "", reason, level, line, answer.mark)

    def _authenticated(self, answer: Answer) -> Iterator[Breach]:
        call = answer.call
        if call.method == "authenticate" and answer.error is None:
            self._logged_out = None
            name, known = text(call.params, "methodId"), self._world.auth
            if known is not None and name and known.get(name, "terminal") == "terminal":
                reason = f"{name!r} cannot be used here: -32602 is due"
                yield Breach("A3", AGENT, "", reason, related=call.mark.line)
        elif call.method == "logout" and answer.error is None:
            self._logged_out = answer.mark
        elif call.method == "session/new" and answer.error is None and self._logged_out:
            reason = "a new session after logout, without authentication"
            yield Breach("A4", AGENT, "", reason, related=self._logged_out.line)

    def disturbed(self, side: str) -> None:
        """A lost message of the client may have been `initialize`."""
        if side == CLIENT and self._opening is None:
            self._world.is_blurred = True

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """A conversation without a handshake."""
        if self._early is None or self._opening is not None or self._world.is_blurred:
            return
        is_whole = self._early.method in _NEED_AUTH
        reason = "there is no initialize" + ("" if is_whole else ": the recording begins later")
        yield Breach("I1", CLIENT, "method", reason, ERROR if is_whole else REMARK, at=self._early.mark)


def _names_another(answer: Answer) -> bool:
    """Whether an error speaks of another method: agents pass on what their own request to the client got."""
    said = jsontext.dumps(answer.error)
    others = {*_NEEDS, "session/request_permission"} - {answer.call.method}
    return any(method in said for method in others)


def _unannounced(side: str, place: str, what: str, receiver: str, path: tuple[str, ...]) -> Breach:
    return Breach("I3", side, place, f"{what} is used, but the {receiver} did not announce {'.'.join(path)}")

"""The turns of all sessions: each session's in order, those of different sessions side by side.

The reader adds turns; a worker takes a session and runs its turns until none waits. Follow one turn:
`add` -> `_work_through` -> `_run` -> `agent.loop.TurnLoop`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from acpserver.agent import translate
from acpserver.agent.loop import TurnLoop
from acpserver.client import Client
from acpserver.config import Config
from acpserver.errors import AUTH_REQUIRED, INTERNAL_ERROR, Cancelled, ProviderError, RpcError
from acpserver.llm.providers import Models
from acpserver.redaction import Secrets
from acpserver.rpc.call import run_handler
from acpserver.session import Session
from acpserver.tools.base import Tool
from acpserver.tools.hiding import HidingTool
from acpserver.turn_queue import Turn
from acpserver.workers import WorkerPool

log = logging.getLogger(__name__)

MOST_TURNS = 256  # that run at once


class Turns:
    """Runs turns. `config` gives the configuration as it was last read, `editor` the client, once it has
    introduced itself; `tidy` is called now and then, when a session has no more turns."""

    def __init__(
        self,
        models: Models,
        tools: dict[str, Tool],
        config: Callable[[], Config],
        editor: Callable[[], Client],
        secrets: Secrets,
        tidy: Callable[[], None],
    ):
        self._models = models
        self._tools = tools
        self._secrets = secrets
        self._config = config
        self._editor = editor
        self._tidy = tidy
        self._pool = WorkerPool("turn", MOST_TURNS)

    def add(self, session: Session, turn: Turn) -> None:
        """Queue a turn. Called by the reader before it reads the next line; never waits."""
        turn.start_clock()
        session.last_used = time.monotonic()
        start = session.turns.add(turn)
        turn.cancel.on_set(lambda: self._withdraw(session, turn))
        if start:
            try:
                self._pool.submit(lambda: self._work_through(session))
            except RpcError as error:
                for waiting in session.turns.drop_waiting():
                    waiting.stop_clock()
                    waiting.call.fail(error)

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no turn runs. False when `timeout` seconds were not enough."""
        return self._pool.wait_idle(timeout)

    def _withdraw(self, session: Session, turn: Turn) -> None:
        """Answer a turn that was cancelled before it began. When all of a session's turns are cancelled and
        one runs, the worker answers them, in order; when none runs yet, nobody else would for long."""
        alone = turn.cancel.reason in ("$/cancel_request", "time limit")
        if (alone or not session.turns.runs) and session.turns.withdraw(turn):
            turn.stop_clock()
            turn.call.answer({"stopReason": "cancelled"})

    def _work_through(self, session: Session) -> None:
        """Run the session's turns, one after another, until none waits."""
        while (turn := session.turns.take()) is not None:
            run_handler(lambda _call, turn=turn: self._run(session, turn), turn.call)  # type: ignore[misc]
            turn.stop_clock()
            if turn.cancel.is_set():
                session.file.sync()  # who cancels is waiting: there the disk comes after the answer
        self._tidy()

    def _run(self, session: Session, turn: Turn) -> None:
        """One turn, with the session's file held against other processes; its answer comes last."""
        reason = "failed"
        try:
            with session.file.turn(turn.cancel.is_set, lambda: self._tell_waiting(session, turn)):
                session.refresh()
                tools = self._allowed_tools(session, turn)
                loop = TurnLoop(session, turn, self._editor(), self._models, tools, self._config())
                log.info("%s: a turn begins with %s", session.id, session.model)
                reason = loop.run()
        except Cancelled:  # cancelled before it could begin
            reason = "cancelled"
            turn.call.answer({"stopReason": reason})
            return
        except ProviderError as error:
            log.info(
                "%s: the model failed: %s, HTTP status %s", session.id, error.kind, error.status or "none"
            )
            code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL_ERROR
            raise RpcError.with_details(code, str(error)) from error
        finally:
            if not turn.cancel.is_set():
                session.file.sync()
            log.info("%s: the turn ends: %s, %.3f s", session.id, reason, time.monotonic() - turn.started)
        turn.call.answer(prompt_result(reason, loop, session, turn))

    def _allowed_tools(self, session: Session, turn: Turn) -> dict[str, Tool]:
        """All tools but those that the user or the project denies; the user is told what of the project's
        file does not hold."""
        for remark in session.untold_remarks():
            self._editor().updates(session.id, session.story, turn.call).remark(remark)
        tools = {**self._tools, **self._server_tools(session, turn)}
        allowed = (tool for name, tool in tools.items() if name not in session.permissions.denied)
        return {tool.name: HidingTool(tool, self._secrets) for tool in allowed}

    def _server_tools(self, session: Session, turn: Turn) -> dict[str, Tool]:
        """The tools of the session's MCP servers; the user is told of servers that failed."""
        servers = session.servers
        if servers is None:
            return {}
        tools = servers.tools(turn.cancel)
        for failure in servers.take_failures():
            self._editor().updates(session.id, session.story, turn.call).remark(failure)
        return tools

    def _tell_waiting(self, session: Session, turn: Turn) -> None:
        updates = self._editor().updates(session.id, session.story, turn.call)
        updates.remark(
            "Another turn runs in this session, of another process perhaps; this one waits for it."
        )


def prompt_result(reason: str, loop: TurnLoop, session: Session, turn: Turn) -> dict[str, object]:
    """The answer to a prompt, with usage and time (rule L6)."""
    meta: dict[str, object] = {
        "elapsedMs": round((time.monotonic() - turn.started) * 1000),
        "turnCount": session.conversation.turns,
    }
    result: dict[str, object] = {"stopReason": reason, "_meta": {"acpserver": meta}}
    if loop.usage:
        result["usage"] = usage = translate.prompt_usage(loop.usage)
        meta.update(usage)
        if loop.cost is not None:
            meta["costUsd"] = round(loop.cost, 6)
    return result


def time_limit(params: dict[str, object]) -> float | None:
    """The time limit of a prompt in seconds, from `_meta.timeoutMs` or `metadata.timeout_ms` (rule L5)."""
    for holder, key in (("_meta", "timeoutMs"), ("metadata", "timeout_ms")):
        values = params.get(holder)
        limit = values.get(key) if isinstance(values, dict) else None
        if isinstance(limit, (int, float)) and not isinstance(limit, bool) and 0 < limit < 1e9:
            return limit / 1000
    return None

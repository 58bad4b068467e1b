"""From `session/cancel` to the answer of the prompt, wherever the turn is at that moment.

Each situation is brought about and seen before the cancel goes out. Where a model call is open, the time
until the model's server sees its connection closed is measured too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from common import Agent, ModelServer, Table, encoded, parser

Measured = tuple[float, float]
"""Milliseconds from the cancel to the answer, and to the end of the connection as the server sees it."""


def wait_for_line(agent: Agent, mark: bytes) -> None:
    """Read until a line holds `mark`."""
    while mark not in agent.line():
        pass


def cancelled(agent: Agent, session: str, asked: int) -> tuple[float, float]:
    """Cancel, and wait for the answer: when that began (monotonic clock), and the milliseconds it took."""
    begin = time.monotonic()
    agent.cancel(session)
    return begin, answered(agent, asked, begin)


def answered(agent: Agent, asked: int, begin: float) -> float:
    """Milliseconds from `begin` to the answer "cancelled"."""
    answer = agent.answer_to(asked)
    if answer.get("result", {}).get("stopReason") != "cancelled":
        raise RuntimeError(f"not cancelled: {answer}")
    return (time.monotonic() - begin) * 1000


def in_a_call(mark: bytes) -> Callable[[Agent, str, ModelServer], Measured]:
    """Cancel while the model's server holds the call, after a line with `mark` (b"": after none)."""

    def measure(agent: Agent, session: str, model: ModelServer) -> Measured:
        asked = agent.prompt(session)
        model.wait_for("asked")
        if mark:
            wait_for_line(agent, mark)
        begin, taken = cancelled(agent, session, asked)
        return taken, (model.wait_for("closed") - begin) * 1000

    return measure


def after(mark: bytes) -> Callable[[Agent, str, ModelServer], Measured]:
    """Cancel after a line with `mark`; no call is open then."""

    def measure(agent: Agent, session: str, _model: ModelServer) -> Measured:
        asked = agent.prompt(session)
        wait_for_line(agent, mark)
        return cancelled(agent, session, asked)[1], 0.0

    return measure


def queued(agent: Agent, session: str, model: ModelServer) -> Measured:
    """Cancel two turns of one session, and wait for the answer of the one that has not begun."""
    agent.prompt(session)
    model.wait_for("asked")
    asked = agent.prompt(session)
    begin, taken = cancelled(agent, session, asked)
    return taken, (model.wait_for("closed") - begin) * 1000


def one_write(agent: Agent, session: str, _model: ModelServer) -> Measured:
    """The prompt and its cancel in one write."""
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
    begin = time.monotonic()
    agent.write(
        encoded({"jsonrpc": "2.0", "id": "both", "method": "session/prompt", "params": prompt})
        + encoded({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
    )
    while (message := agent.line()) and b'"both"' not in message:
        pass
    if b'"cancelled"' not in message:
        raise RuntimeError(f"not cancelled: {message!r}")
    return (time.monotonic() - begin) * 1000, 0.0


SITUATIONS: tuple[tuple[str, str, str, Callable[[Agent, str, ModelServer], Measured], float | None], ...] = (
    # name, behaviour of the model, mode of the session, how to measure, target of the median in ms
    ("stalled stream", "stall", "default", in_a_call(b"agent_message_chunk"), 10),
    ("before the first byte", "silent", "default", in_a_call(b""), None),
    ("back-off sleep", "busy", "default", after(b"agent_thought_chunk"), None),
    ("bash, child ignores SIGTERM", "run", "bypass", after(b"ready-2"), None),
    ("open permission request", "run", "default", after(b"session/request_permission"), None),
    ("queued behind a stalled turn", "stall", "default", queued, None),
    ("prompt and cancel in one write", "stall", "default", one_write, None),
)


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, 20).parse_args()
    table = Table("cancel")
    for name, behaviour, mode, measure, target in SITUATIONS:
        with ModelServer() as model, Agent(model.url(behaviour)) as agent:
            agent.initialize()
            session = agent.new_session()
            agent.ask("session/set_mode", {"sessionId": session, "modeId": mode})
            results = [measure(agent, session, model) for _ in range(options.repeats)]
        answers = [result[0] for result in results]
        table.samples(name, answers, "ms", most=target)
        table.row("    at worst", max(answers), "ms", most=200)
        closed = max(result[1] for result in results)
        if closed:
            table.row("    connection closed, at worst", closed, "ms", most=1000)
    return table.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())

"""A client that stops reading in a flood, and one that writes 40 requests of 1 MB before it reads.

Memory must stay bounded, a cancel must work although nobody reads, and nothing may be lost or out of order.
"""

from __future__ import annotations

import time

from common import Agent, ModelServer, Table, parser, text_of
from model_server import word

REQUESTS, SIZE = 40, 1_000_000


def not_reading(model: ModelServer, table: Table, seconds: float) -> None:
    """A flood, nobody reads, then a cancel, and everything is read."""
    with Agent(model.url("flood")) as agent:
        agent.initialize()
        session = agent.new_session()
        asked = agent.prompt(session)
        first = agent.line()
        while b"agent_message_chunk" not in first:
            first = agent.line()
        before = agent.memory()
        time.sleep(seconds)  # the situation itself, not a way to wait for something
        table.row("peak memory at the first chunk", before, "MiB")
        table.row(f"peak memory after {seconds:g} s without a reader", agent.memory(), "MiB", most=100)
        begin = time.monotonic()
        agent.cancel(session)
        closed = model.wait_for("closed")
        table.row("cancel to closed connection, still not reading", (closed - begin) * 1000, "ms", most=200)
        begin = time.monotonic()
        lines = first + b"\n" + agent.until(b'"stopReason":"cancelled"')
        table.row("reading on: the answer of the prompt after", (time.monotonic() - begin) * 1000, "ms")
        table.row("read then", len(lines) / (1 << 20), "MiB")
        text = text_of(lines)
        if text != "".join(map(word, range(len(text) // len(word(0))))):
            raise RuntimeError(f"prompt {asked}: text is missing or out of order")


def large_requests(model: ModelServer, table: Table) -> None:
    """Prompts of 1 MB, each in a session of its own, all written before anything is read."""
    with Agent(model.url("stream-3")) as agent:
        agent.initialize()
        sessions = [agent.new_session() for _ in range(REQUESTS)]
        text = "x" * SIZE
        before = agent.memory()
        begin = time.monotonic()
        for session in sessions:
            agent.prompt(session, text)
        written = time.monotonic()
        agent.until(b'"stopReason":"end_turn"', REQUESTS)
        done = time.monotonic()
        table.row(f"{REQUESTS} requests of {SIZE / 1e6:g} MB written after", (written - begin) * 1000, "ms")
        table.row("all answered after", (done - begin) * 1000, "ms")
        table.row("peak memory before", before, "MiB")
        table.row("peak memory after", agent.memory(), "MiB")


def main() -> int:
    """Measure and print."""
    flags = parser(__doc__, 1)
    flags.add_argument("--seconds", type=float, default=10, help="how long nobody reads (default 10)")
    options = flags.parse_args()
    table = Table("flood")
    with ModelServer() as model:
        for _ in range(options.repeats):
            not_reading(model, table, options.seconds)
            large_requests(model, table)
    return table.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())

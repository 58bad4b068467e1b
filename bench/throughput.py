"""How fast an answer reaches the client, every line checked, against a bare loop that checks nothing.

Both are child processes that ask the same model server, and one reader reads from both; they take turns. The
server writes each chunk on its own, as real ones do, but without any delay between them. With `--burst` all
chunks of an answer are written at once. Text that waits is merged; how much work an update is that is not
merged shows where the chunks come 0.2 ms apart.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from common import Agent, Child, ModelServer, Table, parser, text_of
from model_server import word

END = b'"stopReason"'
MANY, EACH = 20, 250  # sessions at once, and chunks of each


class Comparison(NamedTuple):
    """Seconds of each run, and what one chunk cost in microseconds of processor time."""

    loops: list[float]
    turns: list[float]
    loop_cpu: float
    turn_cpu: float
    updates: int  # lines in which the last answers came

    @property
    def factor(self) -> float:
        """The median time of the agent, times that of the bare loop."""
        return statistics.median(self.turns) / statistics.median(self.loops)


def bare(child: Child, url: str, threads: int) -> float:
    """Seconds that the bare loop takes."""
    begin = time.perf_counter()
    child.write(f"{url} {threads}\n".encode())
    child.until(END, threads)
    return time.perf_counter() - begin


def checked(agent: Agent, sessions: list[str], chunks: int) -> tuple[float, int]:
    """Seconds that the agent takes for one turn of each session, and how many updates came.

    Fails when any text is not complete or not in order.
    """
    begin = time.perf_counter()
    for session in sessions:
        agent.prompt(session)
    lines = agent.until(END, len(sessions))
    taken = time.perf_counter() - begin
    expected = "".join(map(word, range(chunks)))
    for session in sessions:
        if text_of(lines, session) != expected:
            raise RuntimeError("the text is not complete or not in order")
    return taken, lines.count(b"agent_message_chunk")


def compare(model: ModelServer, kind: str, sessions: int, chunks: int, repeats: int) -> Comparison:
    """The bare loop and the agent in turns, the first run of each left out."""
    url = model.url(f"{kind}-{chunks}")
    with Child([sys.executable, str(Path(__file__).with_name("bare.py"))]) as loop, Agent(url) as agent:
        agent.initialize()
        opened = [agent.new_session() for _ in range(sessions)]
        bare(loop, url, sessions), checked(agent, opened, chunks)
        loops, turns, updates = [], [], 0
        cpu_before = loop.cpu(), agent.cpu()
        for _ in range(repeats):
            loops.append(bare(loop, url, sessions))
            taken, updates = checked(agent, opened, chunks)
            turns.append(taken)
        each = 1e6 / (repeats * sessions * chunks)
        cpu = (loop.cpu() - cpu_before[0]) * each, (agent.cpu() - cpu_before[1]) * each
    return Comparison(loops, turns, *cpu, updates)


def main() -> int:
    """Measure and print."""
    flags = parser(__doc__, 9)
    flags.add_argument("--chunks", type=int, default=5000, help="chunks of the long answer (default 5000)")
    flags.add_argument("--burst", action="store_true", help="the server writes all chunks at once")
    options = flags.parse_args()
    kind = "burst" if options.burst else "stream"
    table = Table("throughput")
    with ModelServer() as model:
        long = compare(model, kind, 1, options.chunks, options.repeats)
        many = compare(model, kind, MANY, EACH, options.repeats)
        paced = compare(model, "paced", 1, options.chunks, 2)
    table.samples("one answer, bare loop", [options.chunks / taken for taken in long.loops], "chunks/s")
    table.samples("one answer, acpserver", [options.chunks / taken for taken in long.turns], "chunks/s")
    table.row(f"rate of {options.chunks} chunks, times the bare loop's", 1 / long.factor, "", least=0.3)
    table.row("updates in which they came", long.updates, "")
    table.row("processor time a chunk, bare loop", long.loop_cpu, "us")
    table.row("processor time a chunk, acpserver", long.turn_cpu, "us")
    name = f"{MANY} answers of {EACH} at once"
    table.samples(f"{name}, bare loop", [taken * 1000 for taken in many.loops], "ms")
    table.samples(f"{name}, acpserver", [taken * 1000 for taken in many.turns], "ms")
    table.row("time, times the bare loop's", many.factor, "", most=3)
    table.row("processor time a chunk, acpserver", many.turn_cpu, "us")
    table.row(f"{options.chunks} chunks, 0.2 ms apart: updates", paced.updates, "")
    table.row("processor time a chunk, bare loop", paced.loop_cpu, "us")
    table.row("processor time a chunk, acpserver", paced.turn_cpu, "us")
    return table.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())

"""How fast an answer reaches the client, every line checked, against a bare loop that checks nothing.

Both are child processes that ask the same model server, and one reader reads from both; they take turns. The
server writes each chunk on its own, as real ones do, but without any delay between them. With `--burst` all
chunks of an answer are written at once.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from common import Agent, Child, ModelServer, Table, parser, text_of
from model_server import word

END = b'"stopReason"'
MANY, EACH = 20, 250  # sessions at once, and chunks of each


def bare(child: Child, url: str, threads: int) -> float:
    """Seconds that the bare loop takes."""
    begin = time.perf_counter()
    child.write(f"{url} {threads}\n".encode())
    child.until(END, threads)
    return time.perf_counter() - begin


def checked(agent: Agent, sessions: list[str], chunks: int) -> float:
    """Seconds that the agent takes for one turn of each session. Fails when any text is not complete."""
    begin = time.perf_counter()
    for session in sessions:
        agent.prompt(session)
    lines = agent.until(END, len(sessions))
    taken = time.perf_counter() - begin
    expected = "".join(map(word, range(chunks)))
    for session in sessions:
        if text_of(lines, session) != expected:
            raise RuntimeError("the text is not complete or not in order")
    return taken


def compare(
    model: ModelServer, kind: str, sessions: int, chunks: int, repeats: int
) -> tuple[list[float], list[float]]:
    """Seconds of the bare loop and of the agent, in turns, the first of each left out."""
    url = model.url(f"{kind}-{chunks}")
    with Child([sys.executable, str(Path(__file__).with_name("bare.py"))]) as loop, Agent(url) as agent:
        agent.initialize()
        opened = [agent.new_session() for _ in range(sessions)]
        loops, turns = [], []
        for _ in range(repeats + 1):
            loops.append(bare(loop, url, sessions))
            turns.append(checked(agent, opened, chunks))
    return loops[1:], turns[1:]


def main() -> int:
    """Measure and print."""
    flags = parser(__doc__, 9)
    flags.add_argument("--chunks", type=int, default=5000, help="chunks of the long answer (default 5000)")
    flags.add_argument("--burst", action="store_true", help="the server writes all chunks at once")
    options = flags.parse_args()
    kind = "burst" if options.burst else "stream"
    table = Table("throughput")
    with ModelServer() as model:
        loops, turns = compare(model, kind, 1, options.chunks, options.repeats)
        table.samples("one answer, bare loop", [options.chunks / taken for taken in loops], "chunks/s")
        table.samples("one answer, acpserver", [options.chunks / taken for taken in turns], "chunks/s")
        ratio = statistics.median(loops) / statistics.median(turns)
        table.row(f"rate of {options.chunks} chunks, times the bare loop's", ratio, "", least=0.3)
        loops, turns = compare(model, kind, MANY, EACH, options.repeats)
        table.samples(f"{MANY} answers of {EACH} at once, bare loop", [taken * 1000 for taken in loops], "ms")
        table.samples(f"{MANY} answers of {EACH} at once, acpserver", [taken * 1000 for taken in turns], "ms")
        ratio = statistics.median(turns) / statistics.median(loops)
        table.row("time, times the bare loop's", ratio, "", most=3)
    return table.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())

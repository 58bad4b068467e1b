"""From spawn to the answer to `initialize`, against `python -c "import jsonschema"`; and the memory taken.

Each measurement of the one is followed by one of the other, in the same interpreter. The agent is measured
as users run it, with an endpoint configured.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from common import Agent, ModelServer, Table, parser


def start(base_url: str) -> tuple[float, float]:
    """Milliseconds from spawn to the answer, and the peak memory in MiB then."""
    begin = time.perf_counter()
    with Agent(base_url) as agent:
        agent.initialize()
        taken = (time.perf_counter() - begin) * 1000
        return taken, agent.memory()


def python(code: str) -> float:
    """Milliseconds that `python -c CODE` takes."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1000


def memory_after_call(base_url: str) -> float:
    """MiB at most in memory when the first model call has been answered."""
    with Agent(base_url) as agent:
        agent.initialize()
        agent.answer_to(agent.prompt(agent.new_session()))
        return agent.memory()


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, 15).parse_args()
    table = Table("start")
    with ModelServer() as model:
        url = model.url("stream-10")
        start(url), python("import jsonschema")  # the files come into the cache
        pairs = [(start(url), python("import jsonschema"), python("pass")) for _ in range(options.repeats)]
        after = [memory_after_call(url) for _ in range(3)]
    starts = [pair[0][0] for pair in pairs]
    imports = [pair[1] for pair in pairs]
    table.samples("python -c pass", [pair[2] for pair in pairs], "ms")
    table.samples("python -c 'import jsonschema'", imports, "ms")
    table.samples("spawn to initialize answer", starts, "ms")
    table.row("ratio of the medians", statistics.median(starts) / statistics.median(imports), "", most=1.4)
    table.samples("peak memory at the initialize answer", [pair[0][1] for pair in pairs], "MiB", most=35)
    table.samples("peak memory after the first model call", after, "MiB", most=55)
    return table.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())

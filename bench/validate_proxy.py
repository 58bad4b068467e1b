"""What `acp-validate run` costs: the added time of a round trip, and bytes a second in both directions.

The agent here only echoes, so that everything that is measured is the way there and back. The same
measurement without the proxy stands beside it; round trips alternate between the two, so that what else
the machine does hits both.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time

from common import ROOT, Child, Table, parser

ECHO = "import os\nwhile data := os.read(0, 1 << 18):\n while data: data = data[os.write(1, data):]"
AGENT = [sys.executable, "-S", "-c", ECHO]
PROXY = [str(ROOT / "bin" / "acp-validate"), "run", "--report", os.devnull, "--"]
SIZES = ((200, "short message"), (20_000, "20 KB message"))


def line_of(size: int) -> bytes:
    """A valid message of about this size."""
    text = "x" * max(1, size - 130)
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    params = {"sessionId": "s", "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"


def round_trip(child: Child, line: bytes) -> float:
    """Milliseconds from the first byte out to the last byte back."""
    start = time.perf_counter()
    child.write(line)
    missing = len(line)
    while missing:
        missing -= len(child.read())
    return (time.perf_counter() - start) * 1000


def megabytes_a_second(child: Child, line: bytes, megabytes: int) -> float:
    """The rate at which so much goes there and comes back."""
    block = line * max(1, (1 << 18) // len(line))
    count = megabytes * 1_000_000 // len(block)
    start = time.perf_counter()
    writer = threading.Thread(target=lambda: [child.write(block) for _ in range(count)])
    writer.start()
    missing = count * len(block)
    while missing:
        missing -= len(child.read())
    writer.join()
    return count * len(block) / 1e6 / (time.perf_counter() - start)


def main() -> int:
    """Run the benchmark."""
    args = parser(__doc__, repeats=1000).parse_args()
    table = Table("acp-validate run")
    for size, name in SIZES:
        line = line_of(size)
        with Child(AGENT) as plain, Child([*PROXY, *AGENT]) as proxied:
            for _ in range(50):  # until both processes and the judge have started
                round_trip(plain, line), round_trip(proxied, line)
            pairs = [(round_trip(plain, line), round_trip(proxied, line)) for _ in range(args.repeats)]
        direct, through = (statistics.median(values) for values in zip(*pairs, strict=True))
        late = sorted(value for _, value in pairs)[int(args.repeats * 0.99)]
        table.row(f"{name}: round trip without the proxy", direct, "ms")
        table.row(f"{name}: the proxy adds, median", through - direct, "ms", most=1)
        table.row(f"{name}: round trip with the proxy, 99th percentile", late, "ms")
    for size, name in SIZES:
        with Child(AGENT) as plain:
            direct = megabytes_a_second(plain, line_of(size), 200)
        with Child([*PROXY, *AGENT]) as proxied:
            through = megabytes_a_second(proxied, line_of(size), 200)
        table.row(f"{name}s: there and back without the proxy", direct, "MB/s")
        table.row(f"{name}s: there and back with the proxy", through, "MB/s", least=50)
    return table.exit_status()


if __name__ == "__main__":
    sys.exit(main())

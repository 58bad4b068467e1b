"""Kill server processes at random moments and count what is lost of what they had acknowledged.

    python bench/sessions_crash.py [--kills 300] [--seed 1]

Target: nothing is lost. Each round kills one or two processes that work on the same sessions; see
`tests/crashing.py`. A loss ends the run with the session's file named; --seed repeats a run's choices (the
moments are also the machine's).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, Table

sys.path.insert(0, str(ROOT))

from tests.crashing import Campaign  # noqa: E402


def main() -> int:
    """Run and return the exit status."""
    parser = argparse.ArgumentParser(description="Crash test of the sessions.")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    table = Table("Processes killed in the middle of their work")
    start = time.monotonic()
    lost = 0
    with tempfile.TemporaryDirectory(prefix="acpserver-crash-") as folder:
        with Campaign(Path(folder), options.seed) as campaign:
            while campaign.counts["kills"] < options.kills:
                try:
                    campaign.round()
                except AssertionError as error:
                    print(f"round {campaign.counts['rounds']}: {error}", file=sys.stderr)
                    lost += 1
    for name in ("rounds", "kills", "sessions", "facts", "torn"):
        table.row(NAMES[name], campaign.counts[name], "")
    table.row("seconds", time.monotonic() - start, "s")
    table.row("rounds in which something was lost", lost, "", most=0)
    return table.exit_status()


NAMES = {
    "rounds": "rounds",
    "kills": "processes killed",
    "sessions": "sessions loaded and prompted after a kill",
    "facts": "acknowledged things compared",
    "torn": "lines torn by a kill",
}

if __name__ == "__main__":
    sys.exit(main())

"""How quick the page of `acp-validate --html` is with many messages, in the browsers that are here.

python -m bench.validate_page [--messages N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from acpserver.validate import page
from bench.common import Table
from tests.fakes import conversation
from tests.fakes.browser import Browser, browser, missing

MEASURES = """
    const find = (id) => document.getElementById(id);
    const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const timed = async (act) => {
        const start = performance.now();
        act();
        await frames();
        return performance.now() - start;
    };
    return (async () => {
        const scroller = find("scroller");
        const scrolls = [];
        for (let step = 1; step <= 50; step += 1) {
            scrolls.push(await timed(() => { scroller.scrollTop = (step / 50) * scroller.scrollHeight; }));
        }
        scrolls.sort((a, b) => a - b);
        const filter = await timed(() => find("faulty").click());
        const all = await timed(() => find("faulty").click());
        const jump = await timed(() => find("next").click());
        const load = performance.getEntriesByType("navigation")[0].domComplete;
        return { load, scroll: scrolls[25], worst: scrolls[49], filter: Math.max(filter, all), jump };
    })();
"""

ROWS = {
    "load": ("loaded and drawn", 3000),
    "scroll": ("far scroll, to the second frame, median", 100),
    "worst": ("far scroll, slowest of 50", None),
    "filter": ("filter to the faults, or back", 300),
    "jump": ("to the next fault", 300),
}
"""What is measured, and the most milliseconds that it may take."""


def measure(tab: Browser, name: str, file: Path, table: Table) -> None:
    """One browser."""
    tab.resize(1440, 900)
    tab.open(file.as_uri())
    found = tab.run(MEASURES)
    for key, (text, most) in ROWS.items():
        table.row(f"{name}: {text}", found[key], "ms", most=most)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    talk = conversation.long(parser.parse_args().messages)
    table = Table(f"the page with {len(talk.entries)} messages")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "page.html"
        start = time.perf_counter()
        page.write(file, talk.entries, talk.findings, title="a long conversation")
        table.row("written", time.perf_counter() - start, "s")
        table.row("size", file.stat().st_size / 1e6, "MB")
        for name in ("chromium", "firefox"):
            if lacking := missing(name):
                print(f"{name} is left out, for lack of: {lacking}")
                continue
            with browser(name, Path(scratch) / name) as tab:
                measure(tab, name, file, table)
    return table.exit_status()


if __name__ == "__main__":
    sys.exit(main())

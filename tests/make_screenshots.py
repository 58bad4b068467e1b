"""Makes the pictures in docs/screenshots: `python -m tests.make_screenshots`. Needs Chromium and pngquant."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from acpserver.validate import page
from tests.fakes import conversation
from tests.fakes.browser import browser

FOLDER = Path(__file__).parent.parent / "docs" / "screenshots"

PICTURES = {"light": ("t", "n", "n", "n"), "dark": ("t",)}
"""The keys that lead from one picture to the next; the theme goes from system to light to dark."""


def main() -> None:
    """Write every picture anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    talk = conversation.faulty()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "page.html"
        page.write(file, talk.entries, talk.findings, title="conversation.jsonl")
        with browser("chromium", Path(scratch) / "chromium") as tab:
            tab.resize(1280, 900)
            tab.open(file.as_uri())
            for name, keys in PICTURES.items():
                tab.press(*keys)
                picture = FOLDER / f"acp-validate-{name}.png"
                picture.write_bytes(tab.screenshot())
                shrink = ["pngquant", "--strip", "--force", "--ext", ".png", "64", str(picture)]
                subprocess.run(shrink, stdin=subprocess.DEVNULL, check=True, timeout=60)


if __name__ == "__main__":
    main()

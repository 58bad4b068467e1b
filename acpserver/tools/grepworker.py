"""The search process: greps a folder tree and prints what it finds.

It runs alone, because Python cannot interrupt a regular expression: one that backtracks without end would
stop every thread of the server. It is started by `search.Grep`, which ends it on cancel and timeout.
"""

from __future__ import annotations

import os
import re
import stat
import sys

from acpserver.tools.walk import PathPattern, walk

MAX_FILE = 10 * 1024 * 1024  # bytes; larger files are left out
MAX_LINE = 10_000  # characters of a line that are searched
SHOWN_LINE = 300  # characters of a line that are printed

# A link to a file may lead out of the session's roots; opening a pipe would wait.
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def main(pattern: str, top: str, only: str, shown_top: str, max_found: str) -> None:
    """Print "path:line: text" for each line that matches, at most `max_found`, then a line of notes.

    `top` is a folder or one file, `only` a glob or empty, `shown_top` stands before each path."""
    regex = re.compile(pattern)
    wanted = PathPattern(only or "*")
    write = sys.stdout.buffer.write
    found, limit = 0, int(max_found)
    paths = [""] if os.path.isfile(top) else walk(top, wanted.skipped)
    for path in paths:
        if path and not wanted.matches(path):
            continue
        shown = f"{shown_top}{path}".encode("utf-8", "replace")
        for number, line in _matching(regex, os.path.join(top, path) if path else top):
            write(shown + f":{number}: {line[:SHOWN_LINE]}\n".encode("utf-8", "replace"))
            found += 1
            if found == limit:
                write(f"(stopped after {limit} matching lines)\n".encode())
                return


def _matching(regex: re.Pattern[str], path: str) -> list[tuple[int, str]]:
    """Number (from 1) and text of the lines that match; none for binary and special files."""
    lines = _text(path).splitlines() if path else []
    return [(number, line) for number, line in enumerate(lines, 1) if regex.search(line[:MAX_LINE])]


def _text(path: str) -> str:
    """The text of a file, or nothing if it is not one that can be searched."""
    try:
        with open(os.open(path, _READING), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
                return ""
            data = file.read(MAX_FILE)
    except OSError:
        return ""  # no permission, or gone meanwhile
    if b"\0" in data[:8192]:
        return ""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")

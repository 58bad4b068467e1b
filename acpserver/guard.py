"""The guard: a small process that ends our commands when the server can no longer do it itself.

The server holds the other end of a pipe that is this process's standard input, and writes one line for
each change: "+GROUP" a command runs, "~GROUP" its first process is gone but others of the group still
run, "-GROUP" the group is over. When the pipe ends, by whatever death of the server, everything that is
still there is ended, and then so is the guard. It runs alone, in its own session, and must never write
anything, nor import more than it needs.
"""

from __future__ import annotations

import os
import sys

from acpserver import system

_GRACE = 0.3  # seconds between asking and killing; everything must be over within 2


def watch(marker: str) -> None:
    """Follow the lines on standard input; at its end, end what is left of the commands."""
    system.ignore_shutdown()
    running, headless = _follow()
    # A number without its first process may have been given to a new, unrelated one in the meantime.
    running.update(group for group in headless if not system.process_alive(group))
    system.end_processes(running, marker, _GRACE)


def _follow() -> tuple[set[int], set[int]]:
    """The groups that run, and those whose first process is gone, when the pipe has ended."""
    running: set[int] = set()
    headless: set[int] = set()
    rest = b""
    while data := os.read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            group = int(line[1:])
            running.discard(group)
            headless.discard(group)
            if line[:1] == b"+":
                running.add(group)
            elif line[:1] == b"~":
                headless.add(group)
    return running, headless


if __name__ == "__main__":
    watch(sys.argv[1])

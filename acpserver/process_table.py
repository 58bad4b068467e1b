"""What Linux tells of all processes (proc(5)): which live, in which group, and with which mark.

Any thread may ask; reading takes a while, so threads that ask at the same time share one reading. Empty
elsewhere, and where `/proc` is missing or another one's. Imported by the small guard process too, so it
imports nothing that is slow or large.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

MARKER = "ACPSERVER_COMMAND"
"""Environment variable that every command inherits; how a descendant is found that left its group."""

Read = TypeVar("Read")


class _Shared(Generic[Read]):
    """A function that takes long, called once for all threads that wait for it: each gets what was read after
    it asked. So ending a hundred commands at once reads `/proc` a few times, and not some hundred times."""

    def __init__(self, read: Callable[[], Read]):
        self._read = read
        self._lock = threading.Lock()  # guards the reading itself and what follows; no lock is taken under it
        self._begun = -1.0  # time.monotonic()
        self._last: Read | None = None

    def __call__(self) -> Read:
        asked = time.monotonic()
        with self._lock:
            if self._last is None or self._begun <= asked:
                self._begun = time.monotonic()
                self._last = self._read()
            return self._last


def _read_groups() -> dict[int, int]:
    if not sys.platform.startswith("linux"):
        return {}
    found = {}
    try:
        # In a sandbox it may be missing, or number the processes as the world outside does.
        names = os.listdir("/proc") if os.readlink("/proc/self") == str(os.getpid()) else []
    except OSError:
        names = []
    for name in filter(str.isdigit, names):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _parent, group = file.read().rpartition(b")")[2].split()[:3]
        except OSError:
            continue  # it ended meanwhile
        if state not in (b"Z", b"X"):
            found[int(name)] = int(group)
    return found


def _read_marks() -> dict[int, bytes]:
    found = {}
    for pid in groups():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                _, name, rest = (b"\0" + file.read()).partition(f"\0{MARKER}=".encode())
        except OSError:
            continue  # it ended meanwhile, or belongs to someone else
        if name:
            found[pid] = rest.partition(b"\0")[0]
    return found


groups = _Shared(_read_groups)
"""The process group of every process that has not ended, by its id; empty when that cannot be known."""

marks = _Shared(_read_marks)
"""The value of `MARKER` of every living process that has it and that is ours to look at."""

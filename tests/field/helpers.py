"""What several field tests need."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.fakes.editor import CHECKOUT

SECRET = "sk-never-shown-0123456789"
"""The key of the fake model server."""

_clock = threading.Event()  # nobody sets it


def eventually(condition: Callable[[], object], what: str, seconds: float = 10.0) -> object:
    """Wait for something outside of the conversation, by looking every 10 ms; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        _clock.wait(0.01)
    return value


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that run; one that ended and waits to be collected does not."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def pids_in(path: Path, count: int) -> list[int]:
    """The process ids that commands have written to a file, once there are so many."""

    def read() -> list[int]:
        words = path.read_text().split() if path.exists() else []
        return [int(word) for word in words] if len(words) >= count else []

    return eventually(read, f"{count} process ids in {path.name}")  # type: ignore[return-value]


def patched(folder: Path, code: str) -> dict[str, str | None]:
    """Variables with which the server process runs `code` before anything else."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(CHECKOUT)])}

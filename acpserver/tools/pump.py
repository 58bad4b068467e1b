"""Reading a child's output so that the wait for it can be woken.

One `OutputPump` per child: its own thread reads, the turn's thread takes.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from typing import IO

from acpserver.errors import ToolError
from acpserver.processes import Child

log = logging.getLogger(__name__)


class OutputPump:
    """Reads a child's output on a thread of its own, so that waiting for it can be woken.

    The thread ends with the output. When nobody wants the rest, `discard()` lets it read on, so that a
    process left in the background neither blocks nor dies on a full or closed pipe.
    """

    _ROOM = 1 << 20  # bytes waiting before reading stops, and with it the child's writing

    def __init__(self, popen: subprocess.Popen[bytes]):
        """Raises `RuntimeError` when the system gives no more threads."""
        assert popen.stdout is not None, "the child was started without an output pipe"
        self._stream: IO[bytes] = popen.stdout
        self._changed = threading.Condition()  # guards everything below
        self._waiting = bytearray()
        self._ended = False
        self._woken = False
        self._discarding = False
        threading.Thread(target=self._run, name="command output", daemon=True).start()

    @classmethod
    def of(cls, child: Child) -> OutputPump:
        """The pump of this child. Raises `ToolError`, and ends the child, when there is no thread for it."""
        try:
            return cls(child.popen)
        except RuntimeError as error:
            child.end(0)
            raise ToolError(f"The output of the command cannot be read: {error}") from None

    def read(self, timeout: float) -> bytes | None:
        """What has come, b"" at the end, None after `timeout` seconds or when woken."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended or self._woken, timeout)
            if self._waiting:
                data = bytes(self._waiting)
                self._waiting.clear()
                self._changed.notify_all()
                return data
            return b"" if self._ended else None

    def wake(self) -> None:
        """Let `read` return at once, now and from now on. Does not block."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def discard(self) -> None:
        """Throw away what is waiting and everything that still comes."""
        with self._changed:
            self._discarding = True
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while data := os.read(self._stream.fileno(), 65536):
                with self._changed:
                    self._changed.wait_for(lambda: len(self._waiting) < self._ROOM)
                    if not self._discarding:
                        self._waiting += data
                    self._changed.notify_all()
        except Exception:  # the top of a thread: the command goes on, its output is over
            log.exception("reading a command's output failed")
        finally:
            self._stream.close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

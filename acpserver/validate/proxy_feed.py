"""The way from the proxy to its judge: a bounded queue, a thread, and blocks with a head in a pipe.

Any thread may offer a block; that never waits. The feeding thread is the only one that writes to the
pipe. When the judge is slower than the conversation, blocks are dropped, and the judge is told how many
bytes are missing where.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from acpserver.validate.findings import AGENT, CLIENT

QUEUE_BYTES = 64 << 20  # that may wait for the judge

CLOSING = "closing"
_KINDS = (CLIENT, AGENT, CLOSING)
_HEAD = struct.Struct(">BdQI")  # kind, seconds since 1970, bytes lost just before, length


class Frame(NamedTuple):
    """One block of one direction; `kind` CLOSING says that the proxy ends in peace."""

    kind: str
    time: float
    lost: int
    """Bytes of this direction that are missing before the block."""
    data: bytes


class Feed:
    """The queue. `fd` is the pipe to the judge, which the feed closes at its end; `on_broken` is called on
    the feeding thread when the judge ends too early."""

    def __init__(self, fd: int, on_broken: Callable[[], object], limit: int = QUEUE_BYTES):
        self._fd = fd
        self._on_broken = on_broken
        self._limit = limit
        self._changed = threading.Condition()  # guards everything below
        self._queue: deque[Frame] = deque()
        self._waiting = 0  # bytes in the queue
        self._lost = {CLIENT: 0, AGENT: 0}
        self._closed = False
        self._broken = False  # the judge is gone
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        """Start the feeding thread."""
        self._thread.start()

    def offer(self, sender: str, block: bytes) -> None:
        """Queue a block, or count it as lost when too much waits already."""
        now = time.time()
        with self._changed:
            if self._closed or self._broken:
                return
            if self._waiting + len(block) > self._limit:
                self._lost[sender] += len(block)
                return
            self._append(Frame(sender, now, self._lost[sender], block))
            self._lost[sender] = 0

    def close(self) -> None:
        """Say that this is the end. What is queued is still written, by the feeding thread."""
        with self._changed:
            for sender, lost in self._lost.items():
                if lost:
                    self._append(Frame(sender, time.time(), lost, b""))
            self._append(Frame(CLOSING, time.time(), 0, b""))
            self._closed = True

    def _append(self, frame: Frame) -> None:
        self._queue.append(frame)
        self._waiting += len(frame.data)
        self._changed.notify()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._queue:
                        self._changed.wait()
                    frame = self._queue.popleft()
                self._write(frame)
                with self._changed:
                    self._waiting -= len(frame.data)
                if frame.kind == CLOSING:
                    return
        except OSError:
            with self._changed:
                self._broken = True
                self._queue.clear()
            self._on_broken()
        finally:
            os.close(self._fd)

    def _write(self, frame: Frame) -> None:
        head = _HEAD.pack(_KINDS.index(frame.kind), frame.time, frame.lost, len(frame.data))
        view = memoryview(head + frame.data)
        while view:
            view = view[os.write(self._fd, view) :]


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """What a feed wrote. Ends without a CLOSING frame when the proxy was killed."""
    while len(head := stream.read(_HEAD.size)) == _HEAD.size:
        kind, at, lost, length = _HEAD.unpack(head)
        data = stream.read(length)
        if len(data) < length:
            return
        yield Frame(_KINDS[kind], at, lost, data)

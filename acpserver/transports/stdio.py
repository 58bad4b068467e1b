"""Lines in from one byte stream, lines out through one writer thread.

`LineReader` belongs to the thread that iterates it. `LineWriter` may be used by any thread; its own
thread is the only one that writes to the descriptor. Nothing here knows what the lines mean.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from acpserver.cancel import CancelFlag

log = logging.getLogger(__name__)

MAX_LINE = 128 << 20  # bytes; twice what the protocol's users may expect to be read
HIGH_WATER = 4 << 20  # bytes queued above which senders that can wait do wait
JOINED = 256 << 10  # bytes joined into one write at most
TOO_LONG = b"\x00"  # no JSON begins so: whoever parses it tells the peer that the line was not read


class LineReader:
    """Splits what comes from a descriptor at the byte `\\n`, without decoding anything.

    The lines end when `stop_fd` becomes readable, as at the end of input.
    """

    def __init__(self, fd: int, max_line: int = MAX_LINE, stop_fd: int | None = None):
        self._fd = fd
        self._max_line = max_line
        self._stop_fd = stop_fd

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line without its end, blank ones left out, until the end of input. Blocks.

        A line longer than `max_line` is dropped; `TOO_LONG` stands in its place.
        """
        pending = bytearray()
        skipping = False
        while block := self._read():
            start = 0
            while (end := block.find(b"\n", start)) >= 0:
                line = _joined(pending, block[start:end])
                pending.clear()
                start = end + 1
                if skipping:
                    skipping = False
                elif line.strip():
                    yield line
            fits = _extend(pending, block[start:])
            if not fits or len(pending) > self._max_line:
                pending.clear()
                if not skipping:
                    skipping = True
                    yield TOO_LONG
        if pending.strip() and not skipping:
            yield bytes(pending)

    def _read(self) -> bytes:
        while True:
            try:
                if self._stop_fd is not None:
                    readable, _, _ = select.select([self._fd, self._stop_fd], [], [])
                    if self._stop_fd in readable:
                        return b""
                return os.read(self._fd, 1 << 18)
            except BlockingIOError:  # a parent may have made the shared pipe non-blocking
                select.select([self._fd], [], [])
            except OSError as error:
                log.debug("reading ended: %s", error)
                return b""


def _joined(pending: bytearray, rest: bytes) -> bytes:
    """One line from its parts; `TOO_LONG` when there is no memory for it."""
    try:
        return bytes(pending + rest) if pending else rest
    except MemoryError:
        return TOO_LONG


def _extend(pending: bytearray, block: bytes) -> bool:
    """Append to `pending`; False when there is no memory for it."""
    try:
        pending += block
    except MemoryError:
        return False
    return True


class Growing(Protocol):
    """A line whose text may still grow while it waits in the queue."""

    queued: bool  # set by the writer: True while the line may still be extended
    size: int  # about how many bytes it will take

    def append(self, text: str) -> None:
        """Add text at the end, and count it in `size`."""

    def render(self) -> bytes:
        """The finished line or lines, with their ends."""


class LineWriter:
    """A queue of lines and the thread that writes them, joining what is waiting into one write.

    `tap` sees every piece of bytes before it is written (the trace); `on_broken` is called once, on the
    writer thread, when the other side no longer reads.
    """

    def __init__(
        self,
        fd: int,
        *,
        tap: Callable[[bytes], None] | None = None,
        on_broken: Callable[[], None] | None = None,
        high_water: int = HIGH_WATER,
    ):
        self._fd = fd
        self._tap = tap
        self._on_broken = on_broken
        self._high_water = high_water
        self._queue_lock = threading.Lock()  # guards the queue, its size and the two states below
        self._changed = threading.Condition(self._queue_lock)
        self._room = threading.Condition(self._queue_lock)
        self._queue: deque[bytes | Growing] = deque()
        self._queued_bytes = 0
        self._writing = False
        self._closed = False
        self.broken = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Start the writer thread."""
        self._thread.start()

    def put(self, line: bytes | Growing) -> None:
        """Queue a line; never waits."""
        with self._queue_lock:
            if self._closed or self.broken:
                return
            if not isinstance(line, bytes):
                line.queued = True
            self._queue.append(line)
            self._queued_bytes += _size(line)
            self._changed.notify()

    def extend(self, line: Growing, text: str) -> bool:
        """Append to a line that is still queued. False when it has already gone out."""
        with self._queue_lock:
            if not line.queued:
                return False
            before = line.size
            line.append(text)
            self._queued_bytes += line.size - before
            return True

    def wait_for_room(self, cancel: CancelFlag) -> None:
        """Wait while too much is queued: this is how a client that does not read slows the model down.

        Returns at once when `cancel` is set, since the last updates of a turn must not be held up.
        """
        if self._queued_bytes < self._high_water:
            return
        with cancel.waking(self._wake_waiting):
            with self._queue_lock:
                while self._queued_bytes >= self._high_water and not (
                    cancel.is_set() or self.broken or self._closed
                ):
                    self._room.wait()

    def close(self, timeout: float) -> bool:
        """Write what is queued, for at most `timeout` seconds, and stop. True if all went out."""
        deadline = time.monotonic() + timeout
        with self._queue_lock:
            while (self._queue or self._writing) and not self.broken:
                left = deadline - time.monotonic()
                if left <= 0 or not self._room.wait(left):
                    break
            done = not (self._queue or self._writing or self.broken)
            self._closed = True
            self._changed.notify()
            self._room.notify_all()
        if done and self._thread.is_alive():
            self._thread.join(max(0.1, deadline - time.monotonic()))
        return done

    def _wake_waiting(self) -> None:
        with self._queue_lock:
            self._room.notify_all()

    def _run(self) -> None:
        while batch := self._take():
            try:
                data = b"".join(map(_bytes, batch))
                if self._tap:
                    self._tap(data)
                self._write(data)
            except OSError as error:
                self._break(error)
                return
            finally:
                with self._queue_lock:
                    self._writing = False
                    self._room.notify_all()

    def _take(self) -> list[bytes | Growing]:
        """The next lines to write together; empty when the writer is closed."""
        batch: list[bytes | Growing] = []
        size = 0
        with self._queue_lock:
            while not self._queue and not self._closed:
                self._changed.wait()
            while self._queue and size < JOINED:
                line = self._queue.popleft()
                size += _size(line)
                if not isinstance(line, bytes):
                    line.queued = False
                batch.append(line)
            self._queued_bytes -= size
            self._writing = bool(batch)
        return batch

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                select.select([], [self._fd], [])

    def _break(self, error: OSError) -> None:
        log.debug("writing ended: %s", error)
        with self._queue_lock:
            self.broken = True
            self._queue.clear()
            self._queued_bytes = 0
            self._room.notify_all()
        if self._on_broken:
            self._on_broken()


def _size(line: bytes | Growing) -> int:
    return len(line) if isinstance(line, bytes) else line.size


def _bytes(line: bytes | Growing) -> bytes:
    if isinstance(line, bytes):
        return line
    try:
        return line.render()
    except ValueError:  # its neighbours in the batch must go out all the same
        log.exception("a line could not be rendered")
        return b""

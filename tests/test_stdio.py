"""Lines in and lines out: whole whatever the pipe does, in order, bounded, and never in anyone's way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from acpserver.cancel import CancelFlag
from acpserver.transports import stdio
from acpserver.transports.stdio import TOO_LONG, LineReader, LineWriter
from tests.fakes.editor import CHECKOUT


@dataclass
class Pipe:
    """Both ends; each is closed at most once."""

    reading: int
    writing: int
    closed: set[int] = field(default_factory=set)

    def close(self, fd: int) -> None:
        if fd not in self.closed:
            self.closed.add(fd)
            os.close(fd)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe(*os.pipe())
    yield pipe
    pipe.close(pipe.reading)
    pipe.close(pipe.writing)


def on_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def feed(pipe: Pipe, *blocks: bytes) -> threading.Thread:
    """Write the blocks, one `os.write` each as far as the pipe allows, and end the input."""

    def run() -> None:
        for block in blocks:
            while block:
                block = block[os.write(pipe.writing, block) :]
        pipe.close(pipe.writing)

    return on_thread(run)


# Reading

LINES = b'{"a":1}\r\n\n  \n{"b":"\xc3\xa4\xe2\x80\xa8\x00\x0b\x0c\x85"}\n\r\n[]\nlast'
EXPECTED = [b'{"a":1}\r', b'{"b":"\xc3\xa4\xe2\x80\xa8\x00\x0b\x0c\x85"}', b"[]", b"last"]


class Blocks(LineReader):
    """A reader that gets exactly these blocks."""

    def __init__(self, blocks: list[bytes], max_line: int = 1 << 20):
        super().__init__(-1, max_line)
        self._blocks = [block for block in blocks if block]

    def _read(self) -> bytes:
        return self._blocks.pop(0) if self._blocks else b""


def test_a_split_at_any_byte_changes_nothing() -> None:
    for split in range(len(LINES) + 1):
        assert list(Blocks([LINES[:split], LINES[split:]])) == EXPECTED, split


def test_single_bytes() -> None:
    assert list(Blocks([bytes([byte]) for byte in LINES])) == EXPECTED


def test_random_splits() -> None:
    chance = random.Random(7)
    for _ in range(100):
        cuts = sorted(chance.sample(range(len(LINES)), 5))
        blocks = [LINES[a:b] for a, b in zip([0, *cuts], [*cuts, len(LINES)], strict=True)]
        assert list(Blocks(blocks)) == EXPECTED


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n\r\n", b"   \n\t\n"])
def test_nothing_but_blank_lines(pipe: Pipe, data: bytes) -> None:
    feed(pipe, data)
    assert list(LineReader(pipe.reading)) == []


def test_a_line_of_64_mib(pipe: Pipe) -> None:
    line = b'"' + b"x" * (64 << 20) + b'"'
    writer = feed(pipe, line, b"\nafter\n")
    start = time.monotonic()
    reader = iter(LineReader(pipe.reading))
    found = next(reader)
    assert len(found) == len(line) and found == line
    assert next(reader) == b"after"
    writer.join(5)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("block", [1, 7, 100, 1_000])
def test_a_line_that_is_too_long_is_dropped_and_told_once(block: int) -> None:
    data = b"a\n" + b"x" * 950 + b"\nb\n" + b"y" * 500 + b"\nc"
    blocks = [data[start : start + block] for start in range(0, len(data), block)]
    found = list(Blocks(blocks, max_line=100))
    if block == 1_000:  # it came with its end in one block: there was no need to drop it
        assert found[0] == b"a" and found[2] == b"b"
    else:
        assert found == [b"a", TOO_LONG, b"b", TOO_LONG, b"c"]


def test_a_line_that_is_too_long_and_has_no_end() -> None:
    assert list(Blocks([b"a\n", b"x" * 101, b"x" * 50], max_line=100)) == [b"a", TOO_LONG]


def test_a_descriptor_that_does_not_block(pipe: Pipe) -> None:
    """Parents share their pipes' flags with us."""
    os.set_blocking(pipe.reading, False)
    found: list[bytes] = []
    first = threading.Event()

    def read() -> None:
        for line in LineReader(pipe.reading):
            found.append(line)
            first.set()

    reader = on_thread(read)
    os.write(pipe.writing, b"one\n")
    assert first.wait(5)
    os.write(pipe.writing, b"two\nthree")
    pipe.close(pipe.writing)
    reader.join(5)
    assert found == [b"one", b"two", b"three"]


def test_a_descriptor_that_cannot_be_read_ends_the_input(pipe: Pipe) -> None:
    assert list(LineReader(pipe.writing)) == []


class NoMemory(bytearray):
    """A buffer for which the memory does not suffice."""

    def __iadd__(self, more: object) -> NoMemory:
        raise MemoryError


def test_a_line_for_which_there_is_no_memory_is_dropped_and_said(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "bytearray", NoMemory, raising=False)
    os.write(pipe.writing, b"one\nhalf")
    pipe.close(pipe.writing)
    assert list(LineReader(pipe.reading)) == [b"one", TOO_LONG]


def test_a_signal_that_interrupts_no_read_is_handled_all_the_same() -> None:
    """It comes to another thread here, which is what one just before the read amounts to."""
    script = """
import os, signal, sys, threading
from acpserver import system
from acpserver.transports.stdio import LineReader
reading, writing = os.pipe()
stop = system.Stop()
def send():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Timer(0.05, send).start()
assert list(LineReader(reading, stop_fd=stop.fd)) == []
sys.exit(7 if stop.signal == "SIGTERM" else 1)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, timeout=10, capture_output=True)
    assert (done.returncode, done.stderr) == (7, b"")


# Writing


class Growing:
    """A line that grows (see `transports.stdio.Growing`)."""

    def __init__(self, text: str):
        self.queued = False
        self.text = text

    @property
    def size(self) -> int:
        return len(self.text)

    def append(self, text: str) -> None:
        self.text += text

    def render(self) -> bytes:
        if "bad" in self.text:
            raise ValueError("cannot be rendered")
        return self.text.encode() + b"\n"


def read_all(fd: int) -> bytes:
    data = b""
    while block := os.read(fd, 1 << 20):
        data += block
    return data


def fill(writer: LineWriter, pipe: Pipe) -> None:
    """Put more than the pipe holds, so that the writer thread is blocked in its write."""
    writer.put(b"f" * (1 << 20) + b"\n")
    deadline = time.monotonic() + 5
    while writer._queue:
        assert time.monotonic() < deadline
        time.sleep(0)


def test_lines_of_many_threads_stay_whole_and_in_each_ones_order(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writing)
    writer.start()

    def put(name: int) -> None:
        for number in range(200):
            writer.put(b"%d %d %s\n" % (name, number, b"x" * (number * 7 % 500)))

    threads = [on_thread(lambda name=name: put(name)) for name in range(8)]  # type: ignore[misc]
    received: list[bytes] = []
    reader = on_thread(lambda: received.append(read_all(pipe.reading)))
    for thread in threads:
        thread.join(5)
    assert writer.close(5)
    pipe.close(pipe.writing)
    reader.join(5)
    lines = received[0].splitlines()
    assert len(lines) == 1_600
    for name in range(8):
        mine = [line.split() for line in lines if line.startswith(b"%d " % name)]
        assert [int(part[1]) for part in mine] == list(range(200))


@pytest.mark.parametrize("blocking", [True, False])
def test_a_large_line_through_a_small_pipe(pipe: Pipe, blocking: bool) -> None:
    os.set_blocking(pipe.writing, blocking)
    writer = LineWriter(pipe.writing)
    writer.start()
    line = os.urandom(3 << 20).hex().encode() + b"\n"
    writer.put(line)
    writer.put(b"end\n")
    received: list[bytes] = []
    reader = on_thread(lambda: received.append(read_all(pipe.reading)))
    assert writer.close(10)
    pipe.close(pipe.writing)
    reader.join(5)
    assert received == [line + b"end\n"]


def test_partial_writes_lose_nothing(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    writer = LineWriter(pipe.writing)
    writer.start()
    writer.put(b"hello\n")
    writer.put(b"world\n")
    assert writer.close(5)
    pipe.close(pipe.writing)
    assert read_all(pipe.reading) == b"hello\nworld\n"


def test_what_waits_goes_out_with_one_write(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = os.write

    def write(fd: int, data: memoryview) -> int:
        writes.append(bytes(data))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    writer = LineWriter(pipe.writing)
    for number in range(5):
        writer.put(b"%d\n" % number)
    writer.start()
    assert writer.close(5)
    assert writes == [b"0\n1\n2\n3\n4\n"]


def test_a_growing_line_takes_text_only_while_it_waits(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writing)
    line, after = Growing("a"), Growing("x")
    writer.put(line)
    writer.put(after)
    assert writer.extend(line, "b") and writer.extend(line, "c")
    assert not writer.extend(Growing("never put"), "z")
    writer.start()
    assert writer.close(5)
    assert not writer.extend(line, "late")
    pipe.close(pipe.writing)
    assert read_all(pipe.reading) == b"abc\nx\n"


def test_a_line_that_cannot_be_rendered_takes_no_neighbour_with_it(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    writer = LineWriter(pipe.writing)
    for line in (b"one\n", Growing("bad"), b"two\n"):
        writer.put(line)
    writer.start()
    assert writer.close(5)
    pipe.close(pipe.writing)
    assert read_all(pipe.reading) == b"one\ntwo\n"
    assert "could not be rendered" in caplog.text


def test_the_tap_sees_what_is_written(pipe: Pipe) -> None:
    seen: list[bytes] = []
    writer = LineWriter(pipe.writing, tap=seen.append)
    writer.put(b"one\n")
    writer.put(Growing("two"))
    writer.start()
    assert writer.close(5)
    assert b"".join(seen) == b"one\ntwo\n"


def test_a_closed_pipe_is_told_once_and_later_lines_vanish(pipe: Pipe) -> None:
    broken: list[str] = []
    told = threading.Event()

    def on_broken() -> None:
        broken.append(threading.current_thread().name)
        told.set()

    writer = LineWriter(pipe.writing, on_broken=on_broken)
    writer.start()
    pipe.close(pipe.reading)
    writer.put(b"x\n")
    assert told.wait(5)
    for _ in range(100):
        writer.put(b"y\n")
    assert writer.broken and not writer._queue
    assert writer.close(1) is False
    assert broken == ["writer"]


def test_senders_wait_while_too_much_is_queued_and_go_on_when_it_is_read(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writing, high_water=1_000)
    writer.start()
    fill(writer, pipe)
    writer.wait_for_room(CancelFlag())  # the queue itself is empty
    writer.put(b"x" * 1_000 + b"\n")
    passed = threading.Event()

    def wait() -> None:
        writer.wait_for_room(CancelFlag())
        passed.set()

    waiter = on_thread(wait)
    assert not passed.wait(0.05)
    reader = on_thread(lambda: read_all(pipe.reading))
    assert passed.wait(5)
    waiter.join(5)
    assert writer.close(5)
    pipe.close(pipe.writing)
    reader.join(5)


@pytest.mark.parametrize("how", ["cancel", "close", "break"])
def test_a_waiting_sender_is_woken(how: str) -> None:
    pipe = Pipe(*os.pipe())
    writer = LineWriter(pipe.writing, high_water=1_000)
    writer.start()
    fill(writer, pipe)
    writer.put(b"x" * 1_000 + b"\n")
    flag, waiting, passed = CancelFlag(), threading.Event(), threading.Event()
    real = flag.on_set

    def on_set(waker: Callable[[], None]) -> Callable[[], None]:
        remove = real(waker)
        waiting.set()
        return remove

    flag.on_set = on_set  # type: ignore[method-assign]

    def wait() -> None:
        writer.wait_for_room(flag)
        passed.set()

    waiter = on_thread(wait)
    assert waiting.wait(5) and not passed.is_set()
    if how == "cancel":
        flag.set()
    elif how == "close":
        assert writer.close(0.01) is False
    else:
        pipe.close(pipe.reading)
    assert passed.wait(5)
    waiter.join(5)
    pipe.close(pipe.reading)
    writer._thread.join(5)
    pipe.close(pipe.writing)


def test_put_never_waits(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writing, high_water=10)
    writer.start()
    fill(writer, pipe)
    start = time.monotonic()
    for _ in range(1_000):
        writer.put(b"x" * 1_000 + b"\n")
    assert time.monotonic() - start < 10
    reader = on_thread(lambda: read_all(pipe.reading))
    assert writer.close(5)
    pipe.close(pipe.writing)
    reader.join(5)


def test_close_gives_up_at_its_time(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writing)
    writer.start()
    fill(writer, pipe)
    start = time.monotonic()
    assert writer.close(0.05) is False
    assert time.monotonic() - start < 10
    writer.put(b"late\n")
    assert not writer._queue
    reader = on_thread(lambda: read_all(pipe.reading))
    writer._thread.join(5)
    assert not writer._thread.is_alive()
    pipe.close(pipe.writing)
    reader.join(5)

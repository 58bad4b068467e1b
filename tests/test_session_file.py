"""The file of one session: what it promises when writes are torn, refused, or come from two sides."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acpserver import session_file, system
from acpserver.errors import Cancelled, StoreError
from acpserver.session_file import DELETED, SessionFile, parse_lines


def numbers(file: SessionFile) -> list[Any]:
    """The numbers of the records of a file; None for a damaged line."""
    return [record["n"] if record and "n" in record else record and record["type"] for record in file.read()]


@pytest.fixture
def file(tmp_path: Path) -> SessionFile:
    """A file with two records in a folder that is not there yet."""
    made = SessionFile(str(tmp_path / "state" / "sessions" / "x" / "s.jsonl"), "s")
    made.create([{"n": 1}, {"n": 2}])
    assert made.problem == "" and made.stored
    return made


def test_create_append_read(file: SessionFile) -> None:
    file.append({"n": 3, "text": "\ud800 \n é"})
    assert numbers(file) == [1, 2, 3]
    data = Path(file.path).read_bytes()
    assert data.isascii() and data.count(b"\n") == 3
    assert not file.has_news() and not file.is_gone()
    assert numbers(SessionFile(file.path, "s")) == [1, 2, 3]


def test_the_order_of_changes_can_be_told_from_their_times(file: SessionFile) -> None:
    """Although the system's own times are some milliseconds apart."""
    other = SessionFile(file.path.replace("s.jsonl", "t.jsonl"), "t")
    other.create([{"n": 1}])
    times = [os.stat(file.path).st_mtime_ns, os.stat(other.path).st_mtime_ns]
    for _ in range(20):
        for each in (file, other):
            each.append({"n": 2})
            times.append(os.stat(each.path).st_mtime_ns)
    assert times == sorted(set(times))


def test_private_folders_and_files(file: SessionFile) -> None:
    with file.turn(lambda: False, lambda: None):
        names = os.listdir(os.path.dirname(file.path))
    assert sorted(names) == ["s.jsonl", "s.jsonl.lock"]
    path = Path(file.path)
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()} == {0o600}
    folders = [path.parent, path.parent.parent, path.parent.parent.parent]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_what_another_process_appends_is_news(file: SessionFile) -> None:
    other = SessionFile(file.path, "s")
    assert other.has_news() and numbers(other) == [1, 2]
    other.append({"n": 3})
    assert file.has_news() and not other.has_news()
    file.append({"n": 4})
    assert file.has_news(), "what stands between what both wrote is not known here"
    assert numbers(file) == numbers(other) == [1, 2, 3, 4]
    assert not file.has_news() and not other.has_news()


@example(b"\t")
@example(b"{}")
@example(b"")
@given(st.binary(max_size=30).filter(lambda piece: not piece.endswith(b"\n")))
def test_a_torn_last_line_is_closed_off(tmp_path_factory: pytest.TempPathFactory, piece: bytes) -> None:
    path = tmp_path_factory.mktemp("torn") / "s.jsonl"
    path.write_bytes(b'{"n":1}\n' + piece)
    file = SessionFile(str(path), "s")
    file.append({"n": 2})
    assert path.read_bytes().startswith(b'{"n":1}\n' + piece)
    assert path.read_bytes().endswith(b'{"n":2}\n')
    found = numbers(file)
    assert found[0] == 1 and found[-1] == 2
    assert ("reported" in found) == bool(piece.strip()) or found == [1, {}, 2]


@pytest.mark.parametrize("end", [b'{"n":2}', b'{"n":2}   '])
def test_a_last_line_that_lacks_only_its_end_is_kept(file: SessionFile, end: bytes) -> None:
    """An editor that strips it, or a crash between two blocks of a disk."""
    Path(file.path).write_bytes(b'{"n":1}\n' + end)
    assert numbers(file) == [1, 2]
    file.append({"n": 3})
    assert numbers(file) == [1, 2, 3]


def test_a_last_line_that_is_still_being_written_is_left_for_later(file: SessionFile) -> None:
    with open(file.path, "ab") as other:
        other.write(b'{"n":')
        other.flush()
        assert numbers(file) == [1, 2]
        other.write(b"3}\n")
    assert file.has_news() and numbers(file) == [1, 2, 3]


class Disk:
    """`os.write` that takes so many bytes and then no more."""

    def __init__(self, room: int):
        self.room = room

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = _write(fd, data[: self.room])
        self.room -= taken
        return taken


_write = os.write


@pytest.mark.parametrize("room", range(32))
def test_a_full_disk_loses_nothing(file: SessionFile, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Whatever fits: nothing stored is damaged, all is known meanwhile, and written once there is room."""
    before = Path(file.path).read_bytes()
    with monkeypatch.context() as full:
        full.setattr(os, "write", Disk(room).write)
        for number in range(3, 7):
            file.append({"n": number})
        assert "cannot be saved" in file.problem and "No space" in file.problem
        known = [n for n in numbers(file) if n is not None and n != "reported"]
        assert known == [1, 2, 3, 4, 5, 6]
        assert Path(file.path).read_bytes().startswith(before)
    file.append({"n": 7})
    assert file.problem == ""
    after = [n for n in numbers(SessionFile(file.path, "s")) if n is not None and n != "reported"]
    assert after == [1, 2, 3, 4, 5, 6, 7]


def test_a_session_that_could_not_be_created_is_stored_later(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    file = SessionFile(str(tmp_path / "state" / "s.jsonl"), "s")
    file.create([{"n": 1}])
    file.append({"n": 2})
    assert not file.stored and "cannot be saved" in file.problem and numbers(file) == [1, 2]
    assert not file.is_gone() and not file.has_news()
    (tmp_path / "state").unlink()
    file.append({"n": 3})
    assert file.stored and file.problem == "" and numbers(SessionFile(file.path, "s")) == [1, 2, 3]
    assert os.listdir(tmp_path / "state") == ["s.jsonl"]


def test_a_deleted_session_does_not_come_back(file: SessionFile) -> None:
    SessionFile(file.path, "s").delete()
    file.append({"n": 3})
    file.append({"n": 4})
    assert file.problem == DELETED and file.is_gone() and not os.path.exists(file.path)
    with pytest.raises(StoreError) as caught:
        file.read()
    assert caught.value.details == DELETED
    file.delete()
    file.sync()


def test_links_are_not_written_through(file: SessionFile, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    os.unlink(file.path)
    os.symlink(victim, file.path)
    os.symlink(victim, file.path + ".lock")
    file.append({"n": 3})
    with file.turn(lambda: False, lambda: None):
        file.append({"n": 4})
    assert "cannot be saved" in file.problem
    assert victim.read_text() == "mine"
    file.delete()
    assert victim.read_text() == "mine"


def test_a_file_that_cannot_be_read_is_an_error(file: SessionFile) -> None:
    os.unlink(file.path)
    os.mkdir(file.path)
    with pytest.raises(StoreError) as caught:
        file.read()
    assert caught.value.code == -32603 and "cannot be read" in caught.value.details
    with pytest.raises(StoreError) as caught:
        file.delete()
    assert "cannot be deleted" in caught.value.details


def test_every_end_of_a_turn_reaches_the_disk(file: SessionFile, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    file.append({"n": 3})
    assert synced == [], "a record costs no wait for the disk"
    file.sync()
    assert synced == [os.stat(file.path).st_ino]

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    file.sync()
    assert "cannot be saved" in file.problem


HOLDER = """\
import sys
from acpserver.session_file import SessionFile
with SessionFile(sys.argv[1], "s").turn(lambda: False, lambda: None):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(file: SessionFile) -> Any:
    """Another process that holds the session."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, file.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("end", [subprocess.Popen.kill, lambda process: process.stdin.close()])
def test_a_turn_waits_for_another_process(
    file: SessionFile, holder: subprocess.Popen[bytes], end: Callable[[Any], None]
) -> None:
    """It says so once, and goes on when the other ends, in whatever way."""
    waits: list[int] = []

    def on_wait() -> None:
        waits.append(1)
        end(holder)

    with file.turn(lambda: False, on_wait):
        assert waits == [1]
    with file.turn(lambda: False, on_wait):
        assert waits == [1]


def test_waiting_can_be_cancelled(file: SessionFile, holder: subprocess.Popen[bytes]) -> None:
    cancelled = threading.Event()
    with pytest.raises(Cancelled), file.turn(cancelled.is_set, cancelled.set):
        raise AssertionError("the session was not held")


def test_a_session_in_memory_needs_no_lock(tmp_path: Path) -> None:
    file = SessionFile(os.path.join(os.devnull, "s.jsonl"), "s")
    file.create([{"n": 1}])
    with file.turn(lambda: False, lambda: None):
        assert numbers(file) == [1]
    gone = SessionFile(str(tmp_path / "no folder" / "s.jsonl"), "s")
    with gone.turn(lambda: False, lambda: None):
        assert list(tmp_path.iterdir()) == []


def test_a_write_that_is_under_way_is_not_taken_for_a_torn_one(
    file: SessionFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system shows the first pages of a long write before the rest has come."""
    monkeypatch.setattr("acpserver.session_file.WRITE_SECONDS", 30.0)
    fd = os.open(file.path, os.O_WRONLY | os.O_APPEND)
    under_way, seen = threading.Event(), []

    def append() -> None:
        under_way.wait(5)
        file.append({"n": 4})
        seen.append(Path(file.path).read_bytes())

    other = threading.Thread(target=append)
    other.start()
    with system.exclusive(fd, 0.0):
        os.write(fd, b'{"n":')
        under_way.set()
        other.join(0.05)
        assert not seen
        os.write(fd, b"3}\n")
    os.close(fd)
    other.join(20)
    assert numbers(file) == [1, 2, 3, 4]


def test_a_process_that_was_stopped_in_a_write_holds_nobody_up(file: SessionFile) -> None:
    fd = os.open(file.path, os.O_WRONLY | os.O_APPEND)
    with system.exclusive(fd, 0.0):
        started = time.monotonic()
        file.append({"n": 3})
        assert 0.9 < time.monotonic() - started < 10
    os.close(fd)
    assert numbers(file) == [1, 2, 3]


def test_options_from_many_processes_never_mix(file: SessionFile) -> None:
    """Appends without the lock of a turn: each line stays whole, and none is taken for a torn one."""
    code = (
        "import sys; from acpserver.session_file import SessionFile; file = SessionFile(sys.argv[1], 's')\n"
        "for number in range(200): file.append({'n': sys.argv[2] * 500, 'number': number})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, file.path, str(name)]) for name in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = file.read()
    assert None not in found and len(found) == 2 + 600
    for name in range(3):
        mine = [record["number"] for record in found if record and record["n"] == str(name) * 500]
        assert mine == list(range(200))


@pytest.mark.parametrize("line", [b"{", b"1", b"[]", b"null", b"\xff", b'{"a":NaN}', b'{"a":1e999}', b"\0"])
def test_a_line_that_is_no_record_is_told(line: bytes) -> None:
    assert list(parse_lines([b'{"n":1}', line, b"", b" \t", b'{"n":2}'])) == [{"n": 1}, None, {"n": 2}]


def test_the_modules_that_a_first_turn_needs() -> None:
    assert session_file.warm_up().__name__ == "filelock"
    assert json.loads('{"n":1}') == next(parse_lines([b'{"n":1}']))

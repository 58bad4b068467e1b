"""The log: nothing secret in it, and nobody waits for whoever should read it."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acpserver import logs

SECRET = "sk-very-secret-123"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """`set_up` changes the logging of the whole process; undo it."""
    root, ours = logging.getLogger(), logging.getLogger("acpserver")
    before = root.handlers[:], root.level, ours.level, logging.raiseExceptions
    yield
    for handler in root.handlers:
        if handler not in before[0]:
            handler.close()
    root.handlers[:], logging.raiseExceptions = before[0], before[3]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.captureWarnings(False)


@contextmanager
def stderr_pipe() -> Iterator[int]:
    """A pipe in the place of descriptor 2; yields the end to read from. No fixture, since pytest takes
    the descriptor for itself again before each test's call."""
    saved = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield reading
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(reading)


def test_a_full_stderr_loses_lines_and_stops_nobody() -> None:
    with stderr_pipe() as reading:
        logs.set_up("warning", "", [])
        log = logging.getLogger("acpserver.test")
        start = time.monotonic()
        for number in range(3_000):
            log.warning("line %d %s", number, "x" * 500)
        assert time.monotonic() - start < 5
        first = os.read(reading, 100)
        assert b"WARNING MainThread acpserver.test: line 0 x" in first


def test_a_line_on_stderr_is_bounded() -> None:
    with stderr_pipe() as reading:
        logs.set_up("warning", "", [])
        logging.getLogger("acpserver.test").error("x" * 100_000)
        assert len(os.read(reading, 1 << 16)) == logs.LONGEST + 1


def test_a_closed_stderr_harms_nobody() -> None:
    with stderr_pipe() as reading:
        logs.set_up("warning", "", [])
        os.close(2)
        try:
            logging.getLogger("acpserver.test").error("nobody hears this")
        finally:
            os.dup2(reading, 2)


def test_secrets_are_hidden_in_messages_arguments_and_tracebacks(tmp_path: Path) -> None:
    file = tmp_path / "log"
    logs.set_up("debug", str(file), [SECRET, ""])
    log = logging.getLogger("acpserver.test")
    log.debug("key %s and %r", SECRET, {"key": SECRET})
    log.info(f"key {SECRET}")
    try:
        raise ValueError(f"bad key {SECRET}")
    except ValueError:
        log.exception("failed with %s", SECRET)
    logging.getLogger("urllib3").warning("header %s", SECRET)
    text = file.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "key *** and {'key': '***'}" in text and "ValueError: bad key ***" in text and "Traceback" in text
    assert "urllib3: header ***" in text


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(tmp_path: Path, level: str, expected: list[str]) -> None:
    file = tmp_path / "log"
    logs.set_up(level, str(file), [])
    for name in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger("acpserver.test"), name)("this is %s", name)
        getattr(logging.getLogger("another"), name)("other %s", name)
    text = file.read_text(encoding="utf-8")
    assert [name for name in ("debug", "info", "warning", "error") if f"this is {name}" in text] == expected
    libraries = [name for name in ("debug", "info", "warning", "error") if f"other {name}" in text]
    assert libraries == (["warning", "error"] if level == "debug" else [])


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_warnings_go_to_the_log_of_who_looks_for_faults(tmp_path: Path, level: str) -> None:
    """In a normal run stderr stays silent: some editors show each of its lines as an error."""
    file = tmp_path / "log"
    logs.set_up(level, str(file), [])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("something is old", UserWarning, stacklevel=1)
    assert ("something is old" in file.read_text(encoding="utf-8")) is (level == "debug")


def test_a_log_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        logs.set_up("warning", str(tmp_path / "missing" / "log"), [])


def test_a_log_file_is_for_its_owner_alone_and_is_added_to(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for word in ("one", "two"):
        logs.set_up("warning", str(file), [])
        logging.getLogger("acpserver.test").warning(word + "\ud800")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [line.partition("test: ")[2] for line in file.read_text().splitlines()] == ["one?", "two?"]


def test_a_log_pipe_that_is_full_loses_lines_and_stops_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        logs.set_up("warning", str(tmp_path / "pipe"), [])
        for _ in range(300):
            logging.getLogger("acpserver.test").warning("x" * 1000)
        assert os.read(reading, 10_000).count(b"\n") > 1
    finally:
        os.close(reading)


def test_a_record_that_cannot_be_formatted_harms_nobody() -> None:
    with stderr_pipe() as reading:
        logs.set_up("warning", "", [])
        log = logging.getLogger("acpserver.test")
        log.warning("%d", "no number")
        log.warning("lone surrogate \ud800")
        log.warning("still there")
        assert b"still there" in os.read(reading, 1 << 16)


def test_threads_are_named(tmp_path: Path) -> None:
    file = tmp_path / "log"
    logs.set_up("warning", str(file), [])
    thread = threading.Thread(target=logging.getLogger("acpserver.x").warning, args=("hi",), name="writer")
    thread.start()
    thread.join(5)
    assert "WARNING writer acpserver.x: hi" in file.read_text(encoding="utf-8")

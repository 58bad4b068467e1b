"""read_file and list_files on real folders, also on what is no text file at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from acpserver.errors import Cancelled, ToolError
from acpserver.tools.base import READ
from acpserver.tools.files import ListFiles, ReadFile
from acpserver.tools.textfile import MAX_BYTES, read_bytes
from tests.fakes.tool_context import Surroundings


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A session in an empty folder."""
    return Surroundings(tmp_path)


def test_a_file_comes_as_it_is_and_reading_is_never_asked_for(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n  two\n\nfour")
    action = here.prepare(ReadFile(), path="a.txt")
    assert (action.title, action.access) == ("Read a.txt", READ)
    assert action.locations == [{"path": str(tmp_path / "a.txt"), "line": 1}]
    assert action.run().text == "one\n  two\n\nfour"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"line": 3}, "l3\nl4\nl5\n(Lines 3 to 5 of 5.)"),
        ({"limit": 2}, "l1\nl2\n(Lines 1 to 2 of 5. Continue with line=3.)"),
        ({"line": 2, "limit": 2}, "l2\nl3\n(Lines 2 to 3 of 5. Continue with line=4.)"),
        ({"line": 5, "limit": 10}, "l5\n(Lines 5 to 5 of 5.)"),
        ({"line": 2.0, "limit": None}, "l2\nl3\nl4\nl5\n(Lines 2 to 5 of 5.)"),
        ({"line": 6}, "(The file has 5 lines; line 6 is beyond its end.)"),
        ({"line": 10**30}, f"(The file has 5 lines; line {10**30} is beyond its end.)"),
    ],
)
def test_parts_of_a_file(here: Surroundings, tmp_path: Path, part: dict[str, object], text: str) -> None:
    (tmp_path / "a").write_text("l1\nl2\nl3\nl4\nl5\n")
    done = here.call(ReadFile(), path="a", **part)
    assert (done.text, done.is_error) == (text, False)


@pytest.mark.parametrize("part", [{"line": 0}, {"limit": 0}, {"line": -1}, {"line": "2"}, {"line": 1.5}])
def test_parts_that_mean_nothing_are_told(here: Surroundings, part: dict[str, object]) -> None:
    with pytest.raises(ToolError, match=next(iter(part))):
        here.prepare(ReadFile(), path="a", **part)


def test_long_files_and_long_lines_are_cut_and_it_is_said(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "many").write_text("".join(f"{number}\n" for number in range(1, 5001)))
    assert here.call(ReadFile(), path="many").text.endswith(
        "\n(Lines 1 to 2000 of 5000. Continue with line=2001.)"
    )
    (tmp_path / "wide").write_text("x" * 10_000 + "\nend")
    text = here.call(ReadFile(), path="wide").text
    assert "[… 8000 more characters in this line]\nend" in text
    (tmp_path / "both").write_text(("y" * 1000 + "\n") * 2000)
    done = here.call(ReadFile(), path="both")
    assert len(done.text) < 60_000 and "Continue with line=50." in done.text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "(The file is empty.)"),
        (b"\n", ""),
        (b"\xef\xbb\xbfmark", "mark"),
        ("ä\U0001f600".encode(), "ä\U0001f600"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"caf\xe9 \x80", "café €\n(The file is cp1252 text, not UTF-8.)"),
        (b"\x81\xe9", "\x81é\n(The file is latin-1 text, not UTF-8.)"),
        ("hi\r\nä".encode("utf-16"), "hi\nä\n(The file is utf-16-le text, not UTF-8.)"),
    ],
)
def test_encodings(here: Surroundings, tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "a").write_bytes(data)
    action = here.prepare(ReadFile(), path="a")
    assert action.run().text == text


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "huge", "loop", "dangling", "binary", "missing"])
def test_what_is_no_text_file_is_an_error_at_once(here: Surroundings, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    surroundings = here
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
        surroundings = Surroundings(tmp_path, Path("/dev"))
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(10 * 1024**3)
    elif kind in ("loop", "dangling"):
        path.symlink_to({"loop": "loop", "dangling": "nowhere"}[kind])
    elif kind == "binary":
        path.write_bytes(b"\x7fELF\0\0\0")
    began = time.monotonic()
    with pytest.raises(ToolError) as caught:
        surroundings.call(ReadFile(), path=kind)
    assert time.monotonic() - began < 5
    assert str(tmp_path) in str(caught.value) or "/dev/zero" in str(caught.value)


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(
    here: Surroundings, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"x" * MAX_BYTES)
    assert here.call(ReadFile(), path="a").text.startswith("xxx")
    (tmp_path / "a").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(ToolError, match="too large"):
        here.prepare(ReadFile(), path="a")


def test_a_link_that_is_put_there_after_the_check_is_not_followed(here: Surroundings, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("fine")
    action = here.prepare(ReadFile(), path="a")
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(ToolError):
        action.run()


def test_a_pipe_that_is_put_there_after_the_check_does_not_hang(here: Surroundings, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("fine")
    action = here.prepare(ReadFile(), path="a")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ToolError, match="not a regular file"):
        action.run()


def test_reading_follows_no_link_by_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(ToolError):
        read_bytes(str(tmp_path / "link"))


def test_folders_come_first_and_hidden_entries_too(here: Surroundings, tmp_path: Path) -> None:
    for name in ("b.txt", ".hidden", "z"):
        (tmp_path / name).write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / ".git").mkdir()
    action = here.prepare(ListFiles())
    assert (action.title, action.access) == ("List .", READ)
    done = action.run()
    assert done.text == ".git/\nsrc/\n.hidden\nb.txt\nz"
    assert done.raw_output == {"entries": 5}
    assert here.call(ListFiles(), path="src").text == "(The folder is empty.)"


def test_a_large_folder_is_listed_in_part(here: Surroundings, tmp_path: Path) -> None:
    for number in range(1010):
        (tmp_path / f"{number:04}").touch()
    text = here.call(ListFiles()).text
    assert text.startswith("0000\n") and text.endswith("\n0999\n(and 10 more of 1010 entries)")


@pytest.mark.parametrize("path", ["missing", "file", "..", "/etc"])
def test_what_is_no_folder_of_the_session_is_an_error(here: Surroundings, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolError):
        here.prepare(ListFiles(), path=path)


def test_listing_is_cancelled(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    action = here.prepare(ListFiles())
    here.cancel.set()
    with pytest.raises(Cancelled):
        action.run()


def test_names_that_are_no_text_are_listed(here: Surroundings, tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"bad\xff")).touch()
    except OSError:
        pytest.skip("this file system only takes names that are text")
    assert "bad" in here.call(ListFiles()).text

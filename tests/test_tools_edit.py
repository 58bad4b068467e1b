"""write_file and edit_file: only what was meant changes, and the user sees it before."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled, ToolError
from acpserver.tools.base import WRITE
from acpserver.tools.edit import EditFile, WriteFile, find_text, replace_text
from tests.fakes.tool_context import Surroundings


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A session in an empty folder."""
    return Surroundings(tmp_path)


def test_a_new_file_is_shown_as_new_and_made_with_its_folders(here: Surroundings, tmp_path: Path) -> None:
    action = here.prepare(WriteFile(), path="a/b/c.txt", content="hi\n")
    path = tmp_path / "a/b/c.txt"
    diff = {"type": "diff", "path": str(path), "oldText": None, "newText": "hi\n"}
    assert (action.title, action.access, action.content) == ("Create a/b/c.txt", WRITE, [diff])
    assert not (tmp_path / "a").exists(), "prepare had an effect"
    done = action.run()
    assert done.content == [diff] and "Created" in done.text
    assert path.read_bytes() == b"hi\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()
    assert [entry.name for entry in path.parent.iterdir()] == ["c.txt"]


def umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


@pytest.mark.parametrize("name", ["x" * 255, "\u6587" * 85], ids=["ascii", "wide"])
def test_the_longest_name_that_a_folder_takes(here: Surroundings, tmp_path: Path, name: str) -> None:
    here.call(WriteFile(), path=name, content="new")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_replaced_file_keeps_its_mode_and_is_shown_with_its_old_text(
    here: Surroundings, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o750)
    done = here.call(WriteFile(), path="run.sh", content="new")
    assert done.content == [{"type": "diff", "path": str(path), "oldText": "old", "newText": "new"}]
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o750


def test_a_link_inside_stays_a_link_and_its_target_is_written(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    here.call(WriteFile(), path="link", content="new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("path", ["../out", "link-out", "folder", "file/below", "fifo", "binary"])
def test_places_that_cannot_be_written_are_refused_before_anyone_is_asked(
    here: Surroundings, tmp_path: Path, path: str
) -> None:
    (tmp_path / "link-out").symlink_to(tmp_path.parent / "elsewhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\0\1")
    with pytest.raises(ToolError):
        here.prepare(WriteFile(), path=path, content="x")
    assert not (tmp_path.parent / "elsewhere").exists()


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        (b"a\r\nb\n", "a\nc\n", b"a\nc\n"),
        (b"a\r\n", "x\r\ny\n", b"x\r\ny\n"),
        (b"\xef\xbb\xbfa", "b", b"\xef\xbb\xbfb"),
        (b"caf\xe9", "th\u00e9", b"th\xe9"),
        (b"caf\xe9", "\u2192", "\u2192".encode()),
        (b"", "x", b"x"),
    ],
)
def test_writing_keeps_the_form_of_the_old_file(
    here: Surroundings, tmp_path: Path, before: bytes, content: str, after: bytes
) -> None:
    (tmp_path / "a").write_bytes(before)
    here.call(WriteFile(), path="a", content=content)
    assert (tmp_path / "a").read_bytes() == after


@pytest.mark.parametrize("change", ["other", None])
def test_a_file_that_changed_after_the_question_is_left_alone(
    here: Surroundings, tmp_path: Path, change: str | None
) -> None:
    path = tmp_path / "a"
    path.write_text("x = 1\n")
    actions = [
        here.prepare(EditFile(), path="a", old_text="1", new_text="2"),
        here.prepare(WriteFile(), path="a", content="new"),
    ]
    if change is None:
        path.unlink()
    else:
        path.write_text(change)
    for action in actions:
        with pytest.raises(ToolError, match="changed meanwhile"):
            action.run()
    assert (path.read_text() if path.exists() else None) == change


def test_a_file_that_appeared_after_the_question_is_left_alone(here: Surroundings, tmp_path: Path) -> None:
    action = here.prepare(WriteFile(), path="a", content="mine")
    (tmp_path / "a").write_text("theirs")
    with pytest.raises(ToolError, match="changed meanwhile"):
        action.run()
    assert (tmp_path / "a").read_text() == "theirs"


def test_a_folder_that_became_a_link_to_the_outside_is_not_written_through(
    here: Surroundings, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (tmp_path / "folder").mkdir()
    action = here.prepare(WriteFile(), path="folder/a", content="x")
    (tmp_path / "folder").rmdir()
    (tmp_path / "folder").symlink_to(outside)
    with pytest.raises(ToolError):
        action.run()
    assert list(outside.iterdir()) == []


EDITS = [
    (b"a\r\nb\r\nc\r\n", "b\nc", "B\nC\nD", b"a\r\nB\r\nC\r\nD\r\n"),
    (b"a\r\nb\r\nc\r\n", "b\r\nc", "B", b"a\r\nB\r\n"),
    (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
    (b"a\nb\nc\r\nd", "b\n", "B\n", b"a\nB\nc\r\nd"),
    (b"a\nb\nc\r\nd\n", "c\nd", "C\nD", b"a\nb\nC\r\nD\n"),
    (b"a\nb\n", "a\r\nb", "x\ny", b"x\ny\n"),
    (b"a\nend", "end", "END", b"a\nEND"),
    (b"\xef\xbb\xbfa b\r\n", "b", "c", b"\xef\xbb\xbfa c\r\n"),
    (b"caf\xe9 one\n", "one", "th\u00e9", b"caf\xe9 th\xe9\n"),
    (b"\x81\x8d one", "one", "two", b"\x81\x8d two"),
    ("é\U0001f600 x\n".encode(), "\U0001f600", "", "é x\n".encode()),
    ("hi x".encode("utf-16"), "x", "ä", "hi ä".encode("utf-16")),
    (b"mixed\rold\r\nx\n", "old\n", "new\n", b"mixed\rnew\r\nx\n"),
]


@pytest.mark.parametrize(("before", "old", "new", "after"), EDITS)
def test_only_the_edited_span_changes(
    here: Surroundings, tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "a").write_bytes(before)
    here.call(EditFile(), path="a", old_text=old, new_text=new)
    assert (tmp_path / "a").read_bytes() == after


def test_an_edit_is_shown_with_path_line_and_diff(here: Surroundings, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n2\nthree\n")
    action = here.prepare(EditFile(), path="a", old_text="three", new_text="3")
    assert (action.title, action.access) == ("Edit a", WRITE)
    assert action.locations == [{"path": str(path), "line": 3}]
    assert action.content == [
        {"type": "diff", "path": str(path), "oldText": "1\n2\nthree\n", "newText": "1\n2\n3\n"}
    ]


def test_a_small_change_in_a_large_file_is_shown_with_its_surroundings(
    here: Surroundings, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("".join(f"line {number}\n" for number in range(20_000)))
    action = here.prepare(EditFile(), path="a", old_text="line 9000\n", new_text="new\n")
    around = "line 8997\nline 8998\nline 8999\n{}line 9001\nline 9002\nline 9003\n"
    assert action.content[0]["oldText"] == around.format("line 9000\n")
    assert action.content[0]["newText"] == around.format("new\n")


def test_text_that_is_there_more_than_once_needs_replace_all(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    with pytest.raises(ToolError, match=r"2 times \(lines 1, 3\)"):
        here.prepare(EditFile(), path="a", old_text="x", new_text="z")
    here.call(EditFile(), path="a", old_text="x", new_text="z", replace_all=True)
    assert (tmp_path / "a").read_text() == "z\ny\nz\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("    def  f(x):", r"most similar line is 2: 'def f\(x\):'"),
        ("def f(x):\n  retur", "first line is there, as line 2"),
        ("zzzzz", r"not found in \S+$"),
    ],
)
def test_text_that_is_not_there_is_told_with_a_hint(
    here: Surroundings, tmp_path: Path, old: str, hint: str
) -> None:
    (tmp_path / "a").write_text("import os\ndef f(x):\n    return x\n")
    with pytest.raises(ToolError, match=hint.replace("$", r"\.$")):
        here.prepare(EditFile(), path="a", old_text=old, new_text="y")


def test_edits_that_cannot_be_are_refused(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9")
    with pytest.raises(ToolError, match="same"):
        here.prepare(EditFile(), path="a", old_text="caf", new_text="caf")
    with pytest.raises(ToolError, match="cp1252"):
        here.prepare(EditFile(), path="a", old_text="caf", new_text="\u2192")
    with pytest.raises(ToolError, match="old_text"):
        here.prepare(EditFile(), path="a", old_text="", new_text="x")
    with pytest.raises(ToolError, match="No such file"):
        here.prepare(EditFile(), path="missing", old_text="a", new_text="x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_write_protected_file_is_refused(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o444)
    with pytest.raises(ToolError):
        here.call(EditFile(), path="a", old_text="x", new_text="y")


PIECES = st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=20).map("".join)


@given(PIECES, st.text("ab\n", min_size=1, max_size=3), st.text("xy", max_size=3))
def test_replacing_changes_nothing_else_whatever_the_line_endings(text: str, old: str, new: str) -> None:
    result = replace_text(text, old, new, CancelFlag())
    flat = text.replace("\r\n", "\n")
    count, lines = find_text(text, old)
    assert count == flat.count(old)
    assert lines == [flat[:place].count("\n") + 1 for place in places(flat, old)][:5]
    assert result.replace("\r\n", "\n") == flat.replace(old, new).replace("\r\n", "\n")
    if not count:
        assert result == text


def places(text: str, piece: str) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(piece), text)]


def test_a_text_that_is_there_very_often_takes_no_longer_than_reading_it(
    here: Surroundings, tmp_path: Path
) -> None:
    """A count of all lines before each of 200,000 places took a minute, which no cancel could end."""
    (tmp_path / "a").write_bytes(b"x\n" * 200_000)
    started = time.process_time()
    with pytest.raises(ToolError, match=r"200000 times \(lines 1, 2, 3, 4, 5, …\)"):
        here.prepare(EditFile(), path="a", old_text="x", new_text="z")
    here.call(EditFile(), path="a", old_text="x", new_text="z", replace_all=True)
    assert (tmp_path / "a").read_bytes() == b"z\n" * 200_000
    assert time.process_time() - started < 5


def test_a_replacement_that_would_fill_the_memory_is_refused(here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 200_000)
    with pytest.raises(ToolError, match="too large"):
        here.prepare(EditFile(), path="a", old_text="x", new_text="z" * 1000, replace_all=True)


@pytest.mark.parametrize("content", ["x\r\n" * 10, "ab\ncd\n"], ids=["replacing", "comparing"])
def test_a_long_search_ends_with_a_cancel(here: Surroundings, tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_bytes(content.encode())
    here.cancel.set()
    with pytest.raises(Cancelled):
        here.prepare(EditFile(), path="a", old_text="x", new_text="z", replace_all=True)

"""glob and grep on real trees, and expressions that would never end."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.errors import Cancelled, ToolError
from acpserver.processes import Children
from acpserver.tools import search as room
from acpserver.tools.base import READ
from acpserver.tools.search import Glob, Grep
from acpserver.tools.walk import PathPattern
from tests.fakes.tool_context import Surroundings


@pytest.fixture
def grep() -> Iterator[Grep]:
    """The tool, with the children of its own."""
    children = Children()
    yield Grep(children)
    children.close()


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A session in a folder with a small tree, and a link that leads out."""
    cwd = tmp_path / "project"
    outside = tmp_path / "outside"
    for folder in (cwd / "src" / "deep", cwd / "node_modules" / "x", cwd / ".git", cwd / ".github", outside):
        folder.mkdir(parents=True)
    for name in (
        "a.py",
        "src/b.py",
        "src/deep/c.py",
        "src/d.txt",
        "node_modules/x/e.py",
        ".git/f.py",
        ".github/g.py",
    ):
        (cwd / name).write_text(f"name = '{name}'\n")
    (outside / "secret.py").write_text("name = 'secret'\n")
    (cwd / "link").symlink_to(outside)
    (cwd / "link.py").symlink_to(outside / "secret.py")
    return Surroundings(cwd)


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", None, ".github/g.py a.py link.py src/b.py src/deep/c.py"),
        ("src/*.py", None, "src/b.py"),
        ("src/**/*.py", None, "src/b.py src/deep/c.py"),
        ("**/*.{txt,md}", None, "src/d.txt"),
        ("./a.py", None, "a.py"),
        ("[bc].py", "src", "src/b.py src/deep/c.py"),
        ("deep/?.py", "src", "src/deep/c.py"),
        ("node_modules/**", None, "node_modules/x/e.py"),
        ("**", "src", "src/b.py src/d.txt src/deep/c.py"),
    ],
)
def test_names_are_found(here: Surroundings, pattern: str, path: str | None, found: str) -> None:
    done = here.call(Glob(), pattern=pattern, path=path)
    assert sorted(done.text.split("\n")) == sorted(found.split())
    assert done.raw_output == {"files": len(found.split())}


def test_a_search_for_names_says_what_it_does_and_finds_nothing_politely(here: Surroundings) -> None:
    action = here.prepare(Glob(), pattern="*.rs")
    assert (action.title, action.access) == ("Find *.rs", READ)
    assert action.run().text == "No file fits."


def test_many_names_are_cut(here: Surroundings, tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / "project" / f"{number:03}.log").touch()
    assert here.call(Glob(), pattern="*.log").text.endswith("\n499.log\n(and 100 more of 600 files)")


@pytest.mark.parametrize(
    "arguments",
    [{"pattern": "*", "path": "missing"}, {"pattern": "*", "path": ".."}, {"pattern": "*", "path": "a.py"},
     {"pattern": "{a,b}" * 20}, {"pattern": ""}],
)  # fmt: skip
def test_bad_searches_for_names_are_told(here: Surroundings, arguments: dict[str, object]) -> None:
    with pytest.raises(ToolError):
        here.prepare(Glob(), **arguments)


def test_walking_is_cancelled(here: Surroundings) -> None:
    action = here.prepare(Glob(), pattern="*")
    here.cancel.set()
    with pytest.raises(Cancelled):
        action.run()


def test_a_pattern_with_many_stars_is_matched_in_no_time() -> None:
    began = time.process_time()
    assert not PathPattern("/".join(["**", "*a" * 30 + "*b"] * 10)).matches("/".join(["a" * 200] * 50))
    assert time.process_time() - began < 2


@given(
    st.lists(st.sampled_from(["**", "*", "a", "b"]), min_size=2, max_size=5),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=5),
)
def test_double_stars_stand_for_any_folders(parts: list[str], names: list[str]) -> None:
    regex = "/".join(parts) + "/"
    regex = regex.replace("**/", "(?:[^/]+/)@").replace("*", "[^/]+").replace("@", "*")
    expected = re.fullmatch(regex, "/".join(names) + "/") is not None
    assert PathPattern("/".join(parts)).matches("/".join(names)) == expected


def test_lines_are_found_with_path_and_number_but_not_through_links(grep: Grep, here: Surroundings) -> None:
    done = here.call(grep, pattern="name = '.*[a-z]'")
    assert sorted(done.text.split()) == sorted(
        ".github/g.py:1: name = '.github/g.py' a.py:1: name = 'a.py' src/b.py:1: name = 'src/b.py' "
        "src/deep/c.py:1: name = 'src/deep/c.py' src/d.txt:1: name = 'src/d.txt'".split()
    )
    assert done.raw_output == {"lines": 5}


def test_lines_are_searched_in_one_folder_one_file_or_some_files(
    grep: Grep, here: Surroundings, tmp_path: Path
) -> None:
    assert here.call(grep, pattern="txt", path="src").text == "src/d.txt:1: name = 'src/d.txt'\n"
    assert here.call(grep, pattern="name", path="a.py").text == "a.py:1: name = 'a.py'\n"
    assert here.call(grep, pattern="name", glob="src/*.py").text == "src/b.py:1: name = 'src/b.py'\n"
    assert here.call(grep, pattern="nothing").text == "No line matches."


def test_only_text_files_are_searched_and_nothing_hangs(
    grep: Grep, here: Surroundings, tmp_path: Path
) -> None:
    cwd = tmp_path / "project"
    (cwd / "binary").write_bytes(b"name\0name")
    os.mkfifo(cwd / "fifo")
    (cwd / "latin").write_bytes(b"x\r\nnam\xe9 \xe9\r\n")
    (cwd / "bom").write_bytes(b"\xef\xbb\xbfnam starts\n")
    done = here.call(grep, pattern="^nam.( |é|s)", glob="[a-z]*")
    assert done.text.count("\n") == done.raw_output["lines"]
    assert "binary" not in done.text and "bom:1: nam starts" in done.text
    assert "latin:2: nam\u00e9 \u00e9\n" in done.text


def test_many_lines_and_long_lines_are_cut(grep: Grep, here: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "project" / "long").write_text(("x" * 1000 + "\n") * 300)
    done = here.call(grep, pattern="x+", path="long")
    assert done.text.count("long:") < 201 and len(done.text) < 31_000 and "cut:" in done.text


@pytest.mark.parametrize(
    "arguments",
    [{"pattern": "("}, {"pattern": "a{99999999999}"}, {"pattern": "\0"}, {"pattern": "x", "path": "missing"},
     {"pattern": "x", "glob": "{a,b}" * 20}, {"pattern": "x", "path": "/etc"}],
)  # fmt: skip
def test_bad_searches_are_told_before_they_run(
    grep: Grep, here: Surroundings, arguments: dict[str, object]
) -> None:
    with pytest.raises(ToolError):
        here.prepare(grep, **arguments)


ENDLESS = "(a+)+b"


def test_an_expression_that_never_ends_is_cancelled_at_once(
    grep: Grep, here: Surroundings, tmp_path: Path
) -> None:
    (tmp_path / "project" / "trap").write_text("a" * 60 + "\n")
    action = here.prepare(grep, pattern=ENDLESS, path="trap")
    ended: list[float] = []

    def run() -> None:
        with pytest.raises(Cancelled):
            action.run()
        ended.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 10
    while not grep._children._running:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    began = time.monotonic()
    here.cancel.set()
    thread.join(10)
    assert ended and ended[0] - began < 0.2


def test_an_expression_that_never_ends_is_ended(
    grep: Grep, here: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_SECONDS", 0.3)
    (tmp_path / "project" / "trap").write_text("a" * 60 + "\n")
    with pytest.raises(ToolError, match="Not finished"):
        here.call(grep, pattern=ENDLESS, path="trap")

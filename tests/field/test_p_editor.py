"""Files and commands that go through the editor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.moments import Stage, stage
from tests.fakes.editor_side import FILES, READS, TERMINAL, WRITES, Buffers, Screens, failure
from tests.fakes.llm_answers import text, tool_call

Json = dict[str, Any]
EDIT = tool_call("edit_file", {"path": "a.txt", "old_text": "two", "new_text": "2"})


@contextmanager
def with_editor(folder: Path, capabilities: Json, side: Buffers | Screens) -> Iterator[Stage]:
    """A server process whose editor can do more than the one of the other tests."""
    with stage(folder, capabilities=capabilities, answers=side.answers) as at:
        yield at


def told(at: Stage) -> str:
    """The last result that the model got."""
    return str(at.llm.requests[-1].messages[-1]["content"])


@pytest.mark.parametrize("capabilities", [FILES, READS, WRITES], ids=["both", "read", "write"])
def test_row_222_an_edit_goes_through_the_editor(tmp_path: Path, capabilities: Json) -> None:
    """Unsaved text in the editor was overwritten, and changes appeared there without a review."""
    path = tmp_path / "a.txt"
    path.write_text("saved two\n")
    buffers = Buffers({str(path): "unsaved two\n"})
    with with_editor(tmp_path, capabilities, buffers) as at:
        turn = at.prompt(EDIT, text("end"))
        assert turn.wait() == "end_turn"
        assert turn.calls[0]["status"] == "completed"
    before = "saved" if capabilities is WRITES else "unsaved"
    if capabilities is READS:
        assert path.read_text() == "unsaved 2\n" and buffers.written == []
    else:
        assert buffers.written == [(str(path), f"{before} 2\n")] and path.read_text() == "saved two\n"


@pytest.mark.parametrize("capabilities", [FILES, READS, WRITES], ids=["both", "read", "write"])
def test_row_222_a_refusal_of_the_editor_fails_the_call(tmp_path: Path, capabilities: Json) -> None:
    """The turn ended with an error, or the file was written behind the editor's back."""
    (tmp_path / "a.txt").write_text("saved two\n")
    with with_editor(tmp_path, capabilities, Buffers(refuses=failure("the file is locked"))) as at:
        turn = at.prompt(EDIT, text("end"))
        assert turn.wait() == "end_turn"
        assert turn.calls[0]["status"] == "failed"
        assert "locked" in told(at)
    assert (tmp_path / "a.txt").read_text() == "saved two\n"


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [({"line": 3}, "3", "50"), ({"limit": 2}, "1", "2"), ({"line": 50, "limit": 9}, "50", "50")],
    ids=str,
)
def test_row_226_a_part_is_cut_from_the_whole(
    tmp_path: Path, arguments: dict[str, int], first: str, last: str
) -> None:
    """Editors gave one line more than the limit, or an error beyond the end."""
    buffers = Buffers({str(tmp_path / "lines"): "".join(f"line{n}\n" for n in range(1, 51))})
    with with_editor(tmp_path, READS, buffers) as at:
        turn = at.prompt(tool_call("read_file", {"path": "lines", **arguments}), text("end"))
        assert turn.wait() == "end_turn"
        numbers = [word.removeprefix("line") for word in told(at).split() if word.startswith("line")]
        numbers = [number for number in numbers if number.isdigit()]
        assert (numbers[0], numbers[-1]) == (first, last)
    assert all("line" not in asked and "limit" not in asked for asked in buffers.asked)


def test_row_226_a_line_beyond_the_end(tmp_path: Path) -> None:
    """An error of the editor ended the turn."""
    with with_editor(tmp_path, READS, Buffers({str(tmp_path / "lines"): "line1\n"})) as at:
        turn = at.prompt(tool_call("read_file", {"path": "lines", "line": 9}), text("end"))
        assert turn.wait() == "end_turn"
        assert "beyond its end" in told(at)


def test_row_228_a_time_limit_kills_the_terminals_command(tmp_path: Path) -> None:
    """The command ran on, or its last output was lost."""
    screens = Screens("begun\n", exit=None)
    with with_editor(tmp_path, TERMINAL, screens) as at:
        turn = at.prompt(tool_call("bash", {"command": "make", "timeout": 1}), text("end"))
        assert turn.wait(3.0) == "end_turn"
        assert turn.reply is not None and turn.reply.seconds >= 1.0
        assert turn.calls[0]["status"] == "failed"
        assert "begun" in told(at) and "1 seconds" in told(at)
    assert screens.story == ["create", "wait_for_exit", "kill", "output", "release"]


def test_row_229_the_end_of_a_terminals_output_is_read(tmp_path: Path) -> None:
    """Only the first characters of the output were read, and how it ended was not."""
    screens = Screens("x" * 200_000 + "\nthe end\n", exit={"exitCode": 7})
    with with_editor(tmp_path, TERMINAL, screens) as at:
        turn = at.prompt(tool_call("bash", {"command": "make"}), text("end"))
        assert turn.wait() == "end_turn"
        assert "the end" in told(at) and "exit code 7" in told(at)
        assert turn.calls[0]["rawOutput"]["exitCode"] == 7

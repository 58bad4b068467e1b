"""What is shown of the tools' work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.moments import Stage, bash
from tests.fakes.llm_answers import text, tool_call


def diffs(call: dict[str, Any]) -> list[dict[str, Any]]:
    """The diffs in the content of a call."""
    return [item for item in call["content"] if item["type"] == "diff"]


def test_row_224_225_a_diff_tells_the_text_before(at: Stage, tmp_path: Path) -> None:
    """Every edit looked like a whole new file, or named it by a relative path."""
    (tmp_path / "old.txt").write_text("one\ntwo\n")
    at.llm.script(
        tool_call("edit_file", {"path": "old.txt", "old_text": "two", "new_text": "2"}),
        tool_call("write_file", {"path": "new.txt", "content": "new"}),
        text("end"),
    )
    turn = at.editor.prompt(at.session, "go")
    assert turn.wait() == "end_turn"
    (edited,), (written,) = diffs(turn.calls[0]), diffs(turn.calls[1])
    assert edited["path"] == str(tmp_path / "old.txt")
    assert "two" in edited["oldText"] and "2" in edited["newText"] and "two" not in edited["newText"]
    assert written["path"] == str(tmp_path / "new.txt")
    assert written.get("oldText", "key missing") is None  # the key is there
    assert written["newText"] == "new"


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ({"line": 3}, "3", "50"),
        ({"limit": 2}, "1", "2"),
        ({"line": 3, "limit": 2}, "3", "4"),
        ({"line": 50, "limit": 9}, "50", "50"),
    ],
    ids=str,
)
def test_row_226_a_part_of_a_file(
    at: Stage, tmp_path: Path, arguments: dict[str, int], first: str, last: str
) -> None:
    """A limit without a first line was misunderstood."""
    (tmp_path / "lines").write_text("".join(f"line{n}\n" for n in range(1, 51)))
    turn = at.prompt(tool_call("read_file", {"path": "lines", **arguments}), text("end"))
    assert turn.wait() == "end_turn"
    result = at.llm.requests[-1].messages[-1]["content"]
    numbers = [word.removeprefix("line") for word in result.split() if word.startswith("line")]
    numbers = [number for number in numbers if number.isdigit()]
    assert (numbers[0], numbers[-1]) == (first, last)


def test_row_228_a_time_limit_is_in_seconds(at: Stage) -> None:
    """A limit of seconds was taken for milliseconds, or the command went on after it."""
    turn = at.prompt(tool_call("bash", {"command": "echo begun; sleep 600", "timeout": 1}), text("end"))
    assert turn.wait(3.0) == "end_turn"
    assert turn.reply is not None and turn.reply.seconds >= 1.0
    assert turn.calls[0]["status"] == "failed"
    assert "begun" in at.llm.requests[-1].messages[-1]["content"]


def test_row_229_the_end_of_long_output_and_the_status_are_shown(at: Stage) -> None:
    """Only the beginning of the output was shown, and how it ended was not."""
    turn = at.prompt(bash("seq 100000; exit 7"), text("end"))
    assert turn.wait() == "end_turn"
    shown = str(turn.calls[0]["content"])
    assert "100000" in shown and "exit code 7" in shown
    assert turn.calls[0]["rawOutput"]["exitCode"] == 7


def test_row_230_every_call_shows_what_it_did(at: Stage, tmp_path: Path) -> None:
    """Some tools ended in an empty card."""
    (tmp_path / "a.txt").write_text("word\n")
    calls = (
        tool_call("read_file", {"path": "a.txt"}),
        tool_call("list_files", {"path": "."}),
        tool_call("glob", {"pattern": "*.txt"}),
        tool_call("grep", {"pattern": "word"}),
        tool_call("write_file", {"path": "b.txt", "content": "x"}),
        tool_call("edit_file", {"path": "a.txt", "old_text": "word", "new_text": "words"}),
        bash("echo hello"),
    )
    turn = at.prompt(*calls, text("end"))
    assert turn.wait(10.0) == "end_turn"
    kinds = ["read", "read", "search", "search", "edit", "edit", "execute"]
    assert [call["kind"] for call in turn.calls] == kinds
    for call in turn.calls:
        assert call["status"] == "completed", call
        assert call["title"] and call["rawInput"] and call["content"]
        assert all(os.path.isabs(place["path"]) for place in call.get("locations", []))

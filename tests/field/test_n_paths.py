"""Environment and paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.moments import Stage, bash
from tests.fakes.editor import CHECKOUT, Editor
from tests.fakes.llm_answers import text, tool_call


def test_row_202_an_empty_environment_is_enough(tmp_path: Path) -> None:
    """Without HOME and PATH the agent did not start, or could run nothing."""
    with Editor("--model", "offline", clean_env={}, cwd=CHECKOUT) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "write a.txt: b\nrun echo c >>a.txt\nfind *.txt")
        assert turn.wait() == "end_turn"
        assert [call["status"] for call in turn.calls] == ["completed"] * 3
        assert (tmp_path / "a.txt").read_text() == "bc\n"


def test_row_204_the_script_starts_without_a_path() -> None:
    """An editor with a graphical start has a PATH without the user's folders, or none."""
    script = CHECKOUT / "bin" / "acpserver"
    env = {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    hello = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'
    done = subprocess.run([script], input=hello, env=env, cwd="/", capture_output=True, timeout=10)
    assert b'"protocolVersion":1' in done.stdout
    assert (done.returncode, done.stderr) == (0, b"")


BAD_FOLDERS = [
    "C:\\x",
    "\\\\?\\C:\\x",
    "\\\\server\\share",
    "file:///tmp",
    "~",
    "~/x",
    "relative",
    ".",
    "",
    "/no/such/folder",
    "/etc/hostname",
    "/tmp\0x",
    "/" + "x" * 5_000,
    "/\ud800",
]


@pytest.mark.parametrize("cwd", BAD_FOLDERS, ids=lambda cwd: ascii(cwd[:20]))
def test_row_205_206_148_an_unusable_folder_is_refused_with_a_reason(at: Stage, cwd: str) -> None:
    """Paths of another system, or none at all, led to strange failures later."""
    reply = at.editor.request("session/new", {"cwd": cwd, "mcpServers": []})
    assert reply.code == -32602
    assert "cwd" in reply.details


def test_row_208_each_session_has_its_own_folder(at: Stage, tmp_path: Path) -> None:
    """All sessions worked where the process had been started, or in the last session's folder."""
    folders = [tmp_path / name for name in ("one", "two")]
    sessions = []
    for folder in folders:
        folder.mkdir()
        (folder / "name").write_text(f"content of {folder.name}")
        sessions.append(at.editor.new_session(folder))
    for session in sessions:
        at.editor.request("session/set_model", {"sessionId": session, "modelId": "offline"})
    turns = [at.editor.prompt(session, "run pwd; sleep 0.1; cat name\nread name") for session in sessions * 2]
    assert [turn.wait() for turn in turns] == ["end_turn"] * 4
    for turn, folder in zip(turns, folders * 2, strict=True):
        assert str(folder) in str(turn.calls[0]["content"])
        for call in turn.calls:
            assert f"content of {folder.name}" in str(call["content"])


def test_row_209_odd_files_end_in_an_error(at: Stage, tmp_path: Path) -> None:
    """A read of something that is no plain file never came back."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing here")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10 << 30)
    names = ("pipe", "folder", "loop", "dangling", "zero")
    turn = at.prompt(*[tool_call("read_file", {"path": name}) for name in names], text("end"))
    assert turn.wait() == "end_turn"
    assert [call["status"] for call in turn.calls] == ["failed"] * len(names)
    sparse = at.prompt(tool_call("read_file", {"path": "sparse"}), bash("true"), text("end"))
    assert sparse.wait() == "end_turn"


OUTSIDE = ["/etc/passwd", "../secret", "link/secret", "a/../../secret"]
OUTSIDE += ["file:///etc/passwd", "file:///%65tc/passwd"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_row_210_nothing_outside_of_the_folder_is_read(at: Stage, tmp_path: Path, path: str) -> None:
    """A link, or dots in a path, led out of the folder."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("treasure")
    (inside / "link").symlink_to(tmp_path)
    session = at.editor.new_session(inside)
    at.llm.script(tool_call("read_file", {"path": path}), text("end"))
    turn = at.editor.prompt(session, "read it")
    assert turn.wait() == "end_turn"
    assert turn.calls[0]["status"] == "failed"
    result = at.llm.requests[-1].messages[-1]["content"]
    assert "treasure" not in result and "root:" not in result


@pytest.mark.parametrize("form", ["{0}/a b.txt", "file://{0}/a%20b.txt", "a b.txt", "./a b.txt"])
def test_row_210_a_file_inside_is_read_in_every_form(at: Stage, tmp_path: Path, form: str) -> None:
    """A path that was a URI, or had a space in it, was not found."""
    (tmp_path / "a b.txt").write_text("found")
    turn = at.prompt(tool_call("read_file", {"path": form.format(tmp_path)}), text("end"))
    assert turn.wait() == "end_turn"
    assert "found" in at.llm.requests[-1].messages[-1]["content"]

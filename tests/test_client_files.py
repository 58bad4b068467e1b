"""Files through the editor: what it has is what tools work on, and every way in which it may refuse.

Rules F1 and F2.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acpserver.llm.types import Finish, TextDelta, ToolCall, ToolResult
from acpserver.tools.textfile import MAX_BYTES
from tests.fakes.editor import Editor, Json, Turn
from tests.fakes.editor_side import FILES, READS, WRITES, Buffers, failure
from tests.fakes.inside import Inside, Script

LAST: list[Any] = [TextDelta("done"), Finish("stop")]
EDIT = {"old_text": "two", "new_text": "2"}


def script(*calls: tuple[str, Json]) -> Script:
    """A model that calls these tools in one step and then ends."""
    made = [ToolCall(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls, 1)]
    return Script([*made, Finish("tool_calls")], LAST)


def results(played: Script) -> list[ToolResult]:
    """What the model was told."""
    messages = played.requests[1].messages
    return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


def play(
    folder: Path, capabilities: Json, buffers: Buffers, *calls: tuple[str, Json]
) -> tuple[list[ToolResult], list[Json]]:
    """One turn with these calls, to its end: what the model was told, and what the client was shown."""
    played = script(*calls)
    with Editor(run=Inside(folder / "home", played).run, answers=buffers.answers) as editor:
        editor.initialize(capabilities)
        turn = editor.prompt(editor.new_session(folder), "go")
        assert turn.wait() == "end_turn"
        return results(played), turn.calls


def diff(call: Json) -> Json:
    """The diff that a call shows."""
    (found,) = [item for item in call["content"] if item["type"] == "diff"]
    return found  # type: ignore[no-any-return]


def test_unsaved_text_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "naïve é.txt"
    path.write_text("on disk\n")
    buffers = Buffers({str(path): "one\ntwo\nthree\n"})
    (told,), _ = play(tmp_path, READS, buffers, ("read_file", {"path": path.name, "line": 2, "limit": 1}))
    assert told.text == "two\n(Lines 2 to 2 of 3. Continue with line=3.)"
    (asked,) = buffers.asked
    assert (asked["path"], set(asked)) == (str(path), {"sessionId", "path"})  # cut by us


def test_a_buffer_that_was_never_saved_can_be_read_and_edited(tmp_path: Path) -> None:
    path = str(tmp_path / "draft")
    buffers = Buffers({path: "one\ntwo\n"})
    told, calls = play(
        tmp_path, FILES, buffers, ("read_file", {"path": "draft"}), ("edit_file", {"path": "draft", **EDIT})
    )
    assert [one.is_error for one in told] == [False, False]
    assert buffers.written == [(path, "one\n2\n")]
    assert diff(calls[1]) == {"type": "diff", "path": path, "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    assert os.listdir(tmp_path) == ["home"]


def test_an_edit_works_on_the_editors_text_and_goes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old\ntwo\n")
    buffers = Buffers({str(path): "new\ntwo\n"})
    (told,), (call,) = play(tmp_path, FILES, buffers, ("edit_file", {"path": "a", **EDIT}))
    assert not told.is_error
    assert buffers.written == [(str(path), "new\n2\n")]
    assert (diff(call)["oldText"], diff(call)["newText"]) == ("new\ntwo\n", "new\n2\n")
    assert path.read_text() == "old\ntwo\n"  # saving is the editor's business


def test_with_reading_alone_the_editors_text_is_written_to_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old\ntwo\n")
    (told,), _ = play(
        tmp_path, READS, Buffers({str(path): "new\ntwo\n"}), ("edit_file", {"path": "a", **EDIT})
    )
    assert not told.is_error and path.read_text() == "new\n2\n"


def test_with_writing_alone_the_disks_text_goes_to_the_editor(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\ntwo\n")
    buffers = Buffers()
    (told,), _ = play(tmp_path, WRITES, buffers, ("edit_file", {"path": "a", **EDIT}))
    assert not told.is_error and buffers.written == [(str(tmp_path / "a"), "old\n2\n")]
    assert buffers.asked == [] and (tmp_path / "a").read_text() == "old\ntwo\n"


@pytest.mark.parametrize("capabilities", [{}, {"fs": {}}, {"fs": {"readTextFile": False}}], ids=str)
def test_without_the_capability_the_editor_is_left_alone(tmp_path: Path, capabilities: Json) -> None:
    (tmp_path / "a").write_text("two\n")
    buffers = Buffers()
    (told,), _ = play(tmp_path, capabilities, buffers, ("edit_file", {"path": "a", **EDIT}))
    assert not told.is_error and (tmp_path / "a").read_text() == "2\n"
    assert (buffers.asked, buffers.written) == ([], [])


@pytest.mark.parametrize("capabilities", [FILES, WRITES], ids=["both", "write"])
@pytest.mark.parametrize("before", ["absent", ""])
def test_a_new_file_needs_no_read_and_its_folders_are_there(
    tmp_path: Path, capabilities: Json, before: str
) -> None:
    path = tmp_path / "sub" / "deep" / "new.txt"
    buffers = Buffers({} if before else {str(path): ""})  # some editors read what is not there as empty
    folders: list[bool] = []

    def write(params: Json) -> Json:
        folders.append(path.parent.is_dir())
        return buffers.write(params)

    played = script(("write_file", {"path": str(path), "content": "hello"}))
    answers = {**buffers.answers, "fs/write_text_file": write}
    with Editor(run=Inside(tmp_path / "home", played).run, answers=answers) as editor:
        editor.initialize(capabilities)
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        (call,) = turn.calls
    assert (call["status"], folders) == ("completed", [True])
    assert diff(call)["oldText"] is None and call["rawOutput"]["created"] is True
    assert buffers.written == [(str(path), "hello")]


def test_a_whole_file_is_replaced_in_the_editor_with_its_unsaved_text_shown(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("saved")
    buffers = Buffers({str(path): "typed"})
    _, (call,) = play(tmp_path, FILES, buffers, ("write_file", {"path": "a", "content": "mine"}))
    assert (diff(call)["oldText"], buffers.written) == ("typed", [(str(path), "mine")])


# Refusals


@pytest.mark.parametrize(
    "answer",
    [failure("no buffer"), failure("gone", -32002), failure("what?", -32601), {"content": 7}, {}],
    ids=str,
)
def test_a_read_that_fails_fails_the_call_and_not_the_turn(tmp_path: Path, answer: Json) -> None:
    (tmp_path / "a").write_text("two\n")
    told, calls = play(
        tmp_path,
        FILES,
        Buffers(refuses=answer),
        ("read_file", {"path": "a"}),
        ("edit_file", {"path": "a", **EDIT}),
        ("write_file", {"path": "a", "content": "x"}),
    )
    assert [call["status"] for call in calls] == ["failed"] * 3
    assert all(one.is_error and "fs/read_text_file" in one.text for one in told)
    assert (tmp_path / "a").read_text() == "two\n"


def test_what_the_editor_says_reaches_the_model(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("two\n")
    refused = {"error": {"code": -32603, "message": "Internal error", "data": {"details": "locked by Ann"}}}
    (told,), _ = play(
        tmp_path, WRITES, Buffers(refuses=refused), ("write_file", {"path": "a", "content": "x"})
    )
    assert told.is_error and "locked by Ann" in told.text
    assert (tmp_path / "a").read_text() == "two\n"


def test_a_buffer_that_changes_while_the_user_decides_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("two\n")
    buffers = Buffers({str(path): "two\n"})
    played = script(("edit_file", {"path": "a", **EDIT}))

    def typed_meanwhile(_: Json) -> str:
        buffers.texts[str(path)] = "two and more\n"
        return "allow_once"

    inside = Inside(tmp_path / "home", played)
    with Editor(run=inside.run, answers=buffers.answers, permission=typed_meanwhile) as editor:
        editor.initialize(FILES)
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        assert turn.calls[0]["status"] == "failed"
    assert "changed meanwhile" in results(played)[0].text and buffers.written == []


# What the protocol cannot carry


@pytest.mark.parametrize(
    "data", [b"caf\xe9 two\n", "\ufefftwo\n".encode("utf-16-le")], ids=["latin", "utf-16"]
)
def test_text_that_is_not_utf8_stays_on_the_disk(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    buffers = Buffers({str(path): "caf\ufffd two\n"})
    (told,), _ = play(tmp_path, FILES, buffers, ("edit_file", {"path": "a", **EDIT}))
    assert not told.is_error and (buffers.asked, buffers.written) == ([], [])
    assert path.read_bytes() == data.replace("two".encode(encoding(data)), "2".encode(encoding(data)))


def encoding(data: bytes) -> str:
    return "utf-16-le" if data.startswith(b"\xff\xfe") else "latin-1"


def make_binary(path: Path) -> None:
    path.write_bytes(b"\0two")


def make_huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(MAX_BYTES + 1)


@pytest.mark.parametrize("make", [make_binary, make_huge, Path.mkdir, os.mkfifo])
def test_what_is_no_text_on_the_disk_is_refused_without_asking(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "a")
    buffers = Buffers({str(tmp_path / "a"): "two"})
    told, _ = play(
        tmp_path,
        FILES,
        buffers,
        ("read_file", {"path": "a"}),
        ("edit_file", {"path": "a", **EDIT}),
        ("write_file", {"path": "a", "content": "x"}),
    )
    assert all(one.is_error for one in told) and buffers.asked == []


def test_a_buffer_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    buffers = Buffers({str(tmp_path / "a"): "x" * (MAX_BYTES + 1)})
    (told,), _ = play(tmp_path, READS, buffers, ("read_file", {"path": "a"}))
    assert told.is_error and "too large" in told.text


def test_a_name_that_is_not_utf8_is_never_given_to_the_editor(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    with open(path, "wb") as file:
        file.write(b"two\n")
    buffers = Buffers()
    name = os.fsdecode(b"caf\xe9")
    (told,), _ = play(tmp_path, FILES, buffers, ("edit_file", {"path": name, **EDIT}))
    with open(path, "rb") as file:
        assert (told.is_error, file.read(), buffers.asked) == (False, b"2\n", [])


# Line endings and marks

MARK = "\ufeff"


@pytest.mark.parametrize(
    ("capabilities", "disk", "buffer", "after"),
    [
        # Both: what the editor gave goes back as it came, but for the edited span.
        (FILES, "a\r\ntwo\r\n", "a\ntwo\n", "a\n2\n"),
        (FILES, "a\r\ntwo\r\n", "a\r\ntwo\r\n", "a\r\n2\r\n"),
        (FILES, MARK + "two\n", "two\n", "2\n"),
        (FILES, MARK + "two\n", MARK + "two\n", MARK + "2\n"),
        # Reading alone: the disk keeps its form though the editor shows another.
        (READS, "a\r\ntwo\r\n", "a\ntwo\n", "a\r\n2\r\n"),
        (READS, "a\r\ntwo\r\n", "b\ntwo\n", "b\r\n2\r\n"),
        (READS, "a\nb\r\ntwo\n", "a\nb\ntwo\n", "a\nb\r\n2\n"),
        (READS, "a\ntwo\n", "b\ntwo\n", "b\n2\n"),
        (READS, MARK + "a\ntwo\n", "b\ntwo\n", MARK + "b\n2\n"),
        (READS, MARK + "a\ntwo\n", MARK + "b\ntwo\n", MARK + "b\n2\n"),
        # Writing alone: every byte of the disk's text goes to the editor.
        (WRITES, MARK + "a\r\ntwo\r\n", None, MARK + "a\r\n2\r\n"),
    ],
)
def test_only_what_is_edited_changes(
    tmp_path: Path, capabilities: Json, disk: str, buffer: str | None, after: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(disk.encode())
    buffers = Buffers({} if buffer is None else {str(path): buffer})
    (told,), _ = play(tmp_path, capabilities, buffers, ("edit_file", {"path": "a", **EDIT}))
    assert not told.is_error
    text = path.read_bytes().decode() if capabilities is READS else buffers.written[0][1]
    assert text == after


def test_paths_are_spelled_as_the_session_spells_its_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("disk")
    root = tmp_path / "link"
    root.symlink_to(tmp_path / "real")
    buffers = Buffers({str(root / "a"): "typed"})
    played = script(("read_file", {"path": "a"}), ("read_file", {"path": str(root / "sub" / ".." / "a")}))
    with Editor(run=Inside(tmp_path / "home", played).run, answers=buffers.answers) as editor:
        editor.initialize(READS)
        assert editor.prompt(editor.new_session(root), "go").wait() == "end_turn"
    assert [one.text for one in results(played)] == ["typed", "typed"]


def test_nothing_outside_of_the_roots_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("two")
    (tmp_path / "root" / "way-out").symlink_to(tmp_path / "secret")
    buffers = Buffers({str(tmp_path / "secret"): "two"})
    for path in ("../secret", "way-out"):
        played = script(("read_file", {"path": path}), ("edit_file", {"path": path, **EDIT}))
        with Editor(run=Inside(tmp_path / "home", played).run, answers=buffers.answers) as editor:
            editor.initialize(FILES)
            assert editor.prompt(editor.new_session(tmp_path / "root"), "go").wait() == "end_turn"
        assert all(one.is_error for one in results(played))
    assert (buffers.asked, buffers.written) == ([], [])


# Cancelling


@pytest.mark.parametrize(
    ("tool", "method"),
    [
        ("read_file", "fs/read_text_file"),
        ("edit_file", "fs/read_text_file"),
        ("write_file", "fs/read_text_file"),
        ("edit_file", "fs/write_text_file"),
        ("write_file", "fs/write_text_file"),
    ],
)
def test_a_cancel_while_the_editor_says_nothing(tmp_path: Path, tool: str, method: str) -> None:
    """Rules C1, C4 and C7: answered at once, the request withdrawn, a late answer ignored."""
    (tmp_path / "a").write_text("two\n")
    buffers = Buffers({str(tmp_path / "a"): "two\n"})
    arguments: dict[str, Json] = {"read_file": {}, "edit_file": EDIT, "write_file": {"content": "x"}}
    played = script((tool, {"path": "a", **arguments[tool]}))
    played.answers.append([TextDelta("again"), Finish("stop")])
    answers = {**buffers.answers, method: None}
    with Editor(run=Inside(tmp_path / "home", played).run, answers=answers) as editor:
        editor.initialize(FILES)
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        request = editor.wait_request(method)
        assert cancelled_seconds(editor, turn) < 1.0
        assert [call["status"] for call in turn.calls] == ["failed"]
        withdrawn = [m["params"] for m in editor.received if m.get("method") == "$/cancel_request"]
        assert withdrawn == [{"requestId": request["id"]}]
        editor.answer(request, {"content": "late"} if "read" in method else {})
        assert editor.prompt(turn.session, "go on").wait() == "end_turn"
    calls = [part for message in played.requests[1].messages for part in message.parts]
    assert sum(isinstance(part, ToolCall) for part in calls) == sum(
        isinstance(part, ToolResult) for part in calls
    )


def cancelled_seconds(editor: Editor, turn: Turn) -> float:
    """Cancel a turn; how long its answer takes."""
    began = time.monotonic()
    editor.cancel(turn.session)
    assert turn.wait() == "cancelled" and turn.reply is not None
    return turn.reply.time - began


def test_the_end_of_input_while_the_editor_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("two\n")
    played = script(("read_file", {"path": "a"}))
    with Editor(run=Inside(tmp_path / "home", played).run, answers={"fs/read_text_file": None}) as editor:
        editor.initialize(FILES)
        editor.prompt(editor.new_session(tmp_path), "go")
        editor.wait_request("fs/read_text_file")
        editor.close(unanswered_ok=True)


def test_an_editor_that_never_hands_a_file_over_fails_the_call_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpserver.client.READ_SECONDS", 0.05)
    (tmp_path / "a").write_text("two\n")
    played = script(("read_file", {"path": "a"}))
    with Editor(run=Inside(tmp_path / "home", played).run, answers={"fs/read_text_file": None}) as editor:
        editor.initialize(FILES)
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        assert turn.calls[0]["status"] == "failed"
    assert "did not answer" in results(played)[0].text

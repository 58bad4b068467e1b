"""Loading, resuming, listing and deleting sessions, also those that a crash has left."""

from __future__ import annotations

import json
import os
import signal
import unicodedata
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.moments import Stage, bash, stage, stalled_stream
from tests.fakes.editor import Editor, Json
from tests.fakes.llm_answers import Stall, text, thought, tool_call
from tests.fakes.llm_server import FakeLlm
from tests.field.helpers import eventually
from tests.story import story


def params(session: str, cwd: object, **more: object) -> Json:
    """The parameters of load, resume and fork."""
    return {"sessionId": session, "cwd": os.fspath(cwd), "mcpServers": [], **more}


def load(editor: Editor, session: str, cwd: object) -> tuple[Json, list[Json]]:
    """Load a session; the answer and the updates that came between request and answer."""
    before = len(editor.updates(session))
    result = editor.request("session/load", params(session, cwd)).result
    return result, editor.updates(session)[before:]


def reload(at: Stage, cwd: object) -> list[Json]:
    """Close the session and load it, which reads the file as a new process would; what was told."""
    assert at.editor.request("session/close", {"sessionId": at.session}).result == {}
    return load(at.editor, at.session, cwd)[1]


def session_file(session: str, tmp_path: Path) -> Path:
    """The file of a session, in whichever home folder of this run it is."""
    paths = tmp_path.parent.glob(f"home*/acpserver/state/sessions/*/{session}.jsonl")
    (found,) = {path.resolve() for path in paths}
    return found


@contextmanager
def again(llm: FakeLlm, **options: object) -> Iterator[Editor]:
    """Another server process over the same state folder."""
    with Editor("--model", "fake", "--base-url", llm.base_url, **options) as editor:
        editor.initialize({"session": {"notices": {}}})
        yield editor


def a_rich_turn(at: Stage) -> list[Json]:
    """A turn with everything in it; its updates."""
    wish = bash("echo out; echo err >&2; exit 3") + tool_call("list_files", {"path": "."})
    turn = at.prompt(
        thought("Hm. ", "So.") + text("I ", "look. ") + wish,
        tool_call("write_file", {"path": "new.txt", "content": "one\ntwo\n"}),
        text("And ") + tool_call("edit_file", {"path": "new.txt", "old_text": "two", "new_text": "2"}),
        tool_call("plan", {"entries": [{"content": "a", "priority": "low", "status": "completed"}]}),
        tool_call("read_file", {"path": "missing"}) + tool_call("no_such_tool", {}),
        tool_call("read_file", "{not json"),
        text("done", " \N{GRINNING FACE}"),
    )
    assert turn.wait(15) == "end_turn"
    return turn.updates


def test_row_133_a_load_tells_what_the_turn_told(tmp_path: Path) -> None:
    """Loads that told nothing, or told it after the answer; chunk borders may differ, nothing else."""
    with stage(tmp_path) as at:
        told = story(a_rich_turn(at))
        assert len(told) > 10
        _, replayed = load(at.editor, at.session, tmp_path)
        assert [item for item in story(replayed) if item[0] != "user_message_chunk"] == told
        assert story(replayed)[0][0] == "user_message_chunk" and story(replayed)[0][2] == "go on"
        with again(at.llm) as editor:
            _, replayed_there = load(editor, at.session, tmp_path)
            assert story(replayed_there) == story(replayed)
            count = len(editor.received)
            editor.ping()
            assert len(editor.received) == count + 1, "something came after the answer"


def test_row_133_and_156_a_resume_tells_nothing(tmp_path: Path) -> None:
    """Resume replayed the conversation; a huge one took long."""
    with stage(tmp_path) as at:
        a_rich_turn(at)
        with again(at.llm) as editor:
            reply = editor.request("session/resume", params(at.session, tmp_path))
            assert set(reply.result) >= {"modes", "configOptions"} and reply.seconds < 5.0
            editor.ping()
            assert editor.updates(at.session) == []


@pytest.mark.parametrize("kept", ["call", "result"])
def test_row_128_a_replayed_call_has_a_beginning(at: Stage, tmp_path: Path, kept: str) -> None:
    """A history that held only the ends of calls showed 134 placeholder cards; the editor fails for an
    update of a call that has not begun."""
    assert at.prompt(bash("echo x"), text("end")).wait() == "end_turn"
    path = session_file(at.session, tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    other = {"call": "result", "result": "call"}[kept]
    path.write_bytes(b"".join(line for line in lines if f'"type":"{other}"'.encode() not in line))
    calls = [item[1] for item in story(reload(at, tmp_path)) if item[0] == "call"]
    assert [call["status"] for call in calls] == (["failed"] if kept == "call" else ["completed"])
    assert at.prompt(text("fine")).wait() == "end_turn"


def test_row_129_a_call_that_a_crash_cut_off_ends_as_failed(tmp_path: Path) -> None:
    """After a crash in a command the card turned for ever, and the model's server refused the history."""
    with stage(tmp_path, stderr_ok=True) as at:
        turn = at.prompt(text("I run ") + bash("echo ready; sleep 60"))
        turn.until(lambda u: u.get("status") == "in_progress" and "ready" in str(u.get("content")))
        at.editor.kill(signal.SIGKILL)
        at.editor.close(status=None, unanswered_ok=True)
        with again(at.llm) as editor:
            _, replayed = load(editor, at.session, tmp_path)
            (call,) = [item[1] for item in story(replayed) if item[0] == "call"]
            assert call["status"] == "failed"
            at.llm.script(text("fine"))
            assert editor.prompt(at.session, "next").wait() == "end_turn"
            assert at.llm.violations == []
            assert [message["role"] for message in at.llm.requests[-1].messages] == [
                *("system", "user", "assistant", "tool", "user"),
            ]


def test_row_130_load_of_a_running_session(at: Stage, tmp_path: Path) -> None:
    """A load of the live session replaced it: its turn could not be cancelled, two copies wrote the file."""
    assert at.prompt(bash("echo one"), text("first")).wait() == "end_turn"
    running = stalled_stream(at).turn
    with at.editor.together():
        loads = [at.editor.send_request("session/load", params(at.session, tmp_path)) for _ in range(2)]
    assert all("modes" in pending.wait_reply().result for pending in loads)
    both = [message for message in at.editor.received if "half a" in json.dumps(message)]
    assert len(both) == 3, "the text that is not finished is told live and in each load"
    at.editor.cancel(at.session)
    assert running.wait() == "cancelled"
    _, replayed = load(at.editor, at.session, tmp_path)
    texts = [item[2] for item in story(replayed) if item[0] == "agent_message_chunk"]
    assert texts == ["first", "half a word" if "word" in running.text else "half a"]
    data = session_file(at.session, tmp_path).read_bytes()
    assert data.count(b'"type":"user"') == 2 and data.count(b'"cut":true') == 1


def test_row_130_load_while_a_command_runs(at: Stage, tmp_path: Path) -> None:
    """A load in the middle of a command: the call is told once as running, and ends once."""
    turn = at.prompt(bash("echo ready; cat fifo"), text("end"))
    os.mkfifo(tmp_path / "fifo")
    turn.until(lambda u: u.get("status") == "in_progress")
    _, replayed = load(at.editor, at.session, tmp_path)
    statuses = [u["status"] for u in replayed if "tool_call" in str(u["sessionUpdate"])]
    assert statuses == ["pending", "in_progress"]
    eventually(lambda: _let_go(tmp_path / "fifo"), "reader of the pipe")
    assert turn.wait() == "end_turn"
    after = at.editor.updates(at.session)
    ended = [u for u in after if u.get("status") in ("completed", "failed")]
    assert [u["status"] for u in ended] == ["completed"]


def _let_go(fifo: Path) -> bool:
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # nobody reads yet
        return False
    return True


def test_row_130_a_load_in_a_stream_loses_no_text(at: Stage, tmp_path: Path) -> None:
    """What a client that starts over sees is the whole text: the replayed part and what comes after it."""
    stall = Stall()
    turn = at.prompt(text("one ", "two ", "three").answer().insert(3, stall))
    turn.until(lambda u: "two" in str(u.get("content")))
    before = len(at.editor.updates(at.session))
    at.editor.request("session/load", params(at.session, tmp_path))
    stall.release()
    assert turn.wait() == "end_turn"
    after = at.editor.updates(at.session)[before:]
    seen = [update for update in after if update["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(u["content"]["text"] for u in seen) == "one two three"
    assert len({u["messageId"] for u in seen}) == 1


DAMAGE = {
    "torn": lambda lines: [*lines, b'{"type":"assis'],
    "garbage": lambda lines: [*lines[:2], b"\x00\xff not json\n", *lines[2:]],
    "unknown": lambda lines: [*lines[:2], b'{"type":"from the future","x":1}\n', *lines[2:]],
    "list": lambda lines: [*lines[:2], b"[1]\n", b"\n", b"7\n", *lines[2:]],
    "shape": lambda lines: [*lines[:2], b'{"type":"user","prompt":5}\n', *lines[2:]],
    "deep": lambda lines: [*lines[:2], b'{"type":"plan","entries":' + b"[" * 9_000 + b"\n", *lines[2:]],
    "twice": lambda lines: [*lines, *(line for line in lines if b'"type":"result"' in line)],
    "no header": lambda lines: lines[1:],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_row_132_damage_hides_nothing_else(at: Stage, tmp_path: Path, kind: str) -> None:
    """One bad entry made the whole load fail."""
    assert at.prompt(bash("echo one"), text("first")).wait() == "end_turn"
    whole = story(load(at.editor, at.session, tmp_path)[1])
    path = session_file(at.session, tmp_path)
    damaged = b"".join(DAMAGE[kind](path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(damaged)
    assert story(reload(at, tmp_path)) == whole
    turn = at.prompt(text("second"))
    assert turn.wait() == "end_turn"
    if kind in ("torn", "no header"):  # what was torn had not been told to anybody
        assert turn.thoughts == ""
    else:
        assert turn.thoughts.count("damaged line") == 1
    after = at.prompt(text("third"))
    assert after.wait() == "end_turn" and after.thoughts == ""
    told = story(reload(at, tmp_path))
    assert told[: len(whole)] == whole
    assert [item[2] for item in told[len(whole) :]] == ["go on", "second", "go on", "third"]
    assert at.prompt(text("fourth")).wait() == "end_turn" and after.thoughts == ""
    assert path.read_bytes().startswith(damaged), "a line was changed or removed"


def test_row_132_an_empty_file(at: Stage, tmp_path: Path) -> None:
    """A file of no bytes is an empty session."""
    session_file(at.session, tmp_path).write_bytes(b"")
    assert reload(at, tmp_path) == []
    assert at.prompt(text("yes")).wait() == "end_turn"


def test_row_134_a_slow_reader_gets_everything_in_order(tmp_path: Path) -> None:
    """The last part of a long replay came after the answer, and was lost."""
    with stage(tmp_path) as at:
        with session_file(at.session, tmp_path).open("a") as file:
            for number in range(3_000):
                record = {"type": "user", "messageId": str(uuid.uuid4()), "prompt": [], "time": 1}
                record["prompt"] = [{"type": "text", "text": f"{number} " + "x" * 2_000}]
                file.write(json.dumps(record) + "\n")
        with again(at.llm) as editor:
            editor.pause_reading()
            pending = editor.send_request("session/load", params(at.session, tmp_path))
            editor.resume_reading()
            assert "modes" in pending.wait_reply(20).result
            told = [item[2].split()[0] for item in story(editor.updates(at.session))]
            assert told == [str(number) for number in range(3_000)]


def test_row_136_ids_stay_unique_over_turns(at: Stage, tmp_path: Path) -> None:
    """Models count their calls from 1 in each turn; the replay showed each id twice."""
    for number in range(3):
        wish = tool_call("list_files", {"path": "."}, call_id="call_1")
        assert at.prompt(wish, text(str(number))).wait() == "end_turn"
    _, replayed = load(at.editor, at.session, tmp_path)
    ids = [item[1]["toolCallId"] for item in story(replayed) if item[0] == "call"]
    assert len(ids) == len(set(ids)) == 3


STRANGE_IDS = ["../x", "", "x" * 10_000, "sess_\0", "sess_" + "0" * 31, "sess_" + "0" * 33, "/etc/passwd",
               "sess_" + "G" * 32, "sess_" + "0" * 32 + "\n", "..%2fx", "sess_*"]  # fmt: skip


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork", "session/close"])
def test_rows_137_and_138_unknown_sessions(at: Stage, tmp_path: Path, method: str) -> None:
    """A missing session was reported as success; clients look for these words to fall back to a new one."""
    for name in [*STRANGE_IDS, "sess_" + "0" * 32]:
        asked = params(name, tmp_path) if method != "session/close" else {"sessionId": name}
        error = at.editor.request(method, asked)
        assert error.code == -32002
        assert "Session not found" in str(error.error["message"])
        assert error.details.startswith(f"Session not found: {name[:200]}")


def test_row_137_strange_ids_can_be_deleted_and_touch_nothing(at: Stage, tmp_path: Path) -> None:
    """Deleting what never was succeeds, and no path is made of an id."""
    victim = tmp_path / "x.jsonl"
    victim.write_text("mine")
    for name in [*STRANGE_IDS, str(victim), str(victim)[:-6]]:
        assert at.editor.request("session/delete", {"sessionId": name}).result == {}
    assert victim.read_text() == "mine"


def test_row_140_load_does_not_grow_the_history(at: Stage, tmp_path: Path) -> None:
    """Each load wrote the conversation to the file once more."""
    for number in range(3):
        size = session_file(at.session, tmp_path).stat().st_size
        load(at.editor, at.session, tmp_path)
        assert session_file(at.session, tmp_path).stat().st_size == size
        assert at.prompt(text(str(number))).wait() == "end_turn"
    assert len(at.llm.requests[-1].messages) == 1 + 5


def test_row_141_and_142_lists_by_page_and_folder(tmp_path: Path) -> None:
    """Cursor and folder were ignored; entries had other names and types (the editor checks the shape)."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    with stage(tmp_path) as at:
        made: dict[str, str] = {}
        for number in range(120):
            folder = folders[number % 3]
            folder.mkdir(exist_ok=True)
            session = at.editor.new_session(folder)
            at.llm.script(text("ok"))
            assert at.editor.prompt(session, f"title {number}").wait() == "end_turn"
            made[session] = f"title {number}"
        unused = at.editor.new_session(folders[0])
        listed = pages(at.editor)
        assert [len(page) for page in listed] == [50, 50, 20]
        flat = [entry for page in listed for entry in page]
        assert [entry["sessionId"] for entry in flat] == list(reversed(made))
        assert {entry["sessionId"]: entry["title"] for entry in flat} == made
        times = [str(entry["updatedAt"]) for entry in flat]
        assert times == sorted(times, reverse=True) and all(stamp.endswith("Z") for stamp in times)
        assert unused not in {entry["sessionId"] for entry in flat}
        one = [entry for page in pages(at.editor, cwd=str(folders[1])) for entry in page]
        wanted = [session for number, session in enumerate(made) if number % 3 == 1]
        assert [entry["sessionId"] for entry in reversed(one)] == wanted
        assert {entry["cwd"] for entry in one} == {str(folders[1])}
        assert at.editor.request("session/list", {"cwd": None, "cursor": None}).result["sessions"]
        assert at.editor.request("sessions/list", {}).result["sessions"]
        empty = at.editor.request("session/list", {"cwd": str(tmp_path / "nobody was here")}).result
        assert empty == {"sessions": []}


def pages(editor: Editor, **more: object) -> list[list[Json]]:
    """All pages of a list."""
    found: list[list[Json]] = []
    asked: Json = dict(more)
    while True:
        result = editor.request("session/list", asked).result
        found.append(result["sessions"])
        if "nextCursor" not in result:
            return found
        assert isinstance(result["nextCursor"], str) and result["nextCursor"]
        asked["cursor"] = result["nextCursor"]


@pytest.mark.parametrize("cursor", ["", "x", "50", "AAAA", "MTpz", "é", "MTpzZXNzXzAw\n", "\ud800"])
def test_row_141_a_foreign_cursor(at: Stage, cursor: str) -> None:
    """A cursor that is none of ours is an error; an empty one is the first page."""
    reply = at.editor.request("session/list", {"cursor": cursor})
    if cursor:
        assert reply.code == -32602 and "cursor" in reply.details
    else:
        assert "sessions" in reply.result


@pytest.mark.parametrize("cwd", ["relative", ".", "", "a\0b"])
def test_row_141_a_folder_that_is_no_absolute_path(at: Stage, cwd: str) -> None:
    """The filter is a path like any other."""
    assert at.editor.request("session/list", {"cwd": cwd}).code == -32602


NAMES = ["plain", "with space", "100%", "#1", "UPPER Case", "grün", "日本", "a'b\"c", "new\nline", "-rf"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_145_and_146_the_folder_as_it_was_given_finds_the_session(
    at: Stage, tmp_path: Path, name: str
) -> None:
    """A list with the very same string found nothing; a link as folder failed."""
    folder = tmp_path / name
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder)
    session = at.editor.new_session(link)
    at.llm.script(text("ok"))
    assert at.editor.prompt(session, "hello").wait() == "end_turn"
    spellings = [str(folder), str(link), f"{folder}/", f"{tmp_path}/./{name}", f"{link}/../{name}/."]
    for spelling in [*spellings, unicodedata.normalize("NFC", str(folder))]:
        found = at.editor.request("session/list", {"cwd": spelling}).result["sessions"]
        assert [entry["sessionId"] for entry in found] == [session]
        assert found[0]["cwd"] == str(link)
    for spelling in spellings:
        assert "modes" in at.editor.request("session/load", params(session, spelling)).result


def test_row_144_both_unicode_forms_of_a_folder(at: Stage, tmp_path: Path) -> None:
    """Mac clients send decomposed names for what other clients send composed."""
    composed = tmp_path / unicodedata.normalize("NFC", "grün")
    decomposed = tmp_path / unicodedata.normalize("NFD", "grün")
    composed.mkdir()
    decomposed.mkdir(exist_ok=True)  # on a Mac they are the same
    session = at.editor.new_session(composed)
    at.llm.script(text("ok"))
    assert at.editor.prompt(session, "hello").wait() == "end_turn"
    found = at.editor.request("session/list", {"cwd": str(decomposed)}).result["sessions"]
    assert [entry["sessionId"] for entry in found] == [session]
    assert "modes" in at.editor.request("session/load", params(session, decomposed)).result


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
def test_row_144_another_folder_is_named(at: Stage, tmp_path: Path, method: str) -> None:
    """A session belongs to its folder; the error names both."""
    other = tmp_path / "other"
    other.mkdir()
    error = at.editor.request(method, params(at.session, other))
    assert error.code == -32602
    assert str(tmp_path) in error.details and str(other) in error.details


def test_row_148_paths_of_another_system(at: Stage) -> None:
    """A path of Windows is refused in plain words."""
    for cwd in ("\\\\wsl$\\x", "C:\\x", "file:///tmp"):
        error = at.editor.request("session/new", {"cwd": cwd, "mcpServers": []})
        assert error.code == -32602 and "cwd" in error.details


def test_row_149_a_load_gives_the_session_s_own_options(tmp_path: Path) -> None:
    """After a restart the mode was the default again."""
    with stage(tmp_path) as at:
        for option, value in (("mode", "bypass"), ("model", "offline"), ("mode", "accept_edits")):
            asked = {"sessionId": at.session, "configId": option, "value": value}
            assert "configOptions" in at.editor.request("session/set_config_option", asked).result
        with again(at.llm) as editor:
            for method in ("session/load", "session/resume"):
                result = editor.request(method, params(at.session, tmp_path)).result
                assert result["modes"]["currentModeId"] == "accept_edits"
                assert result["models"]["currentModelId"] == "offline"
                options = {o["id"]: o["currentValue"] for o in result["configOptions"]}
                assert options["mode"] == "accept_edits" and options["model"] == "offline"
            turn = editor.prompt(at.session, "say yes")
            assert turn.wait() == "end_turn" and turn.text == "yes\n"


def test_row_150_resume_goes_on_where_it_was(tmp_path: Path) -> None:
    """After a restart the model knew nothing. "Always" answers hold: the user gave them for the session."""
    with stage(tmp_path, permission="allow_always") as at:
        assert at.prompt(bash("echo one"), text("first")).wait() == "end_turn"
        at.editor.permission = "reject_always"
        wish = tool_call("write_file", {"path": "a", "content": "b"})
        assert at.prompt(wish, text("second")).wait() == "end_turn"
        with again(at.llm, permission=None) as editor:
            assert "modes" in editor.request("session/resume", params(at.session, tmp_path)).result
            at.llm.script(bash("echo two") + wish, text("third"))
            turn = editor.prompt(at.session, "next")
            assert turn.wait() == "end_turn"
            assert [call["status"] for call in turn.calls] == ["completed", "failed"]
            history = at.llm.requests[-1].messages
            answers = [message["content"] for message in history if message["role"] == "assistant"]
            assert answers == [None, "first", None, "second", None]


@pytest.mark.parametrize("name", ["bad arguments", "unknown tool", "cut off"])
def test_row_152_a_bad_call_does_not_poison_the_session(tmp_path: Path, name: str) -> None:
    """Every later prompt was refused by the model's server, also after a restart."""
    wishes = {
        "bad arguments": tool_call("read_file", "{'path': 1"),
        "unknown tool": tool_call("rm_rf", {}),
        "cut off": tool_call("read_file", '{"pa').ends("length"),
    }
    with stage(tmp_path) as at:
        assert at.prompt(wishes[name], text("hm")).wait() in ("end_turn", "max_tokens")
        at.llm._script.clear()
        assert at.prompt(text("fine")).wait() == "end_turn"
        with again(at.llm) as editor:
            load(editor, at.session, tmp_path)
            at.llm.script(text("still fine"))
            assert editor.prompt(at.session, "next").wait() == "end_turn"
        assert at.llm.violations == []

"""Sessions over the real server: two processes, forks, deletions, disks that are full or broken."""

from __future__ import annotations

import itertools
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from acpserver import records
from acpserver.cancel import CancelFlag
from acpserver.client import Client
from acpserver.errors import RpcError
from acpserver.llm.types import Finish, Opaque, TextDelta, ThoughtDelta, ToolCall
from acpserver.mcp import McpServers
from acpserver.session import Session
from acpserver.session_file import SessionFile
from acpserver.session_methods import _abandon
from acpserver.sessions import Sessions
from acpserver.store import Store
from acpserver.tools.base import ToolOutcome
from acpserver.transports.stdio import HIGH_WATER
from acpserver.turn_queue import Turn
from tests.e2e.moments import Stage, bash, stage, stalled_stream
from tests.fakes.editor import Editor, Json
from tests.fakes.inside import FakeTool, Inside, Script, stall
from tests.fakes.llm_answers import Stall, text, tool_call
from tests.fakes.llm_server import FakeLlm
from tests.field.helpers import eventually, patched
from tests.story import story
from tests.test_client import a_prompt

NOTICES = {"session": {"notices": {}}}


def params(session: str, cwd: object, **more: object) -> Json:
    """The parameters of load, resume and fork."""
    return {"sessionId": session, "cwd": str(cwd), "mcpServers": [], **more}


def state_folder() -> Path:
    """The state folder of this test."""
    return Path(os.environ["ACPSERVER_HOME"]) / "state"


def session_file(session: str) -> Path:
    """The file of a session."""
    (found,) = (state_folder() / "sessions").glob(f"*/{session}.jsonl")
    return found


@contextmanager
def another(llm: FakeLlm, **options: object) -> Iterator[Editor]:
    """One more server process over the same state folder."""
    with Editor("--model", "fake", "--base-url", llm.base_url, **options) as editor:  # type: ignore[arg-type]
        editor.initialize(NOTICES)
        yield editor


def told(editor: Editor, session: str, cwd: object) -> list[tuple[object, ...]]:
    """The story that a load tells."""
    before = len(editor.updates(session))
    assert "modes" in editor.request("session/load", params(session, cwd)).result
    return story(editor.updates(session)[before:])


def texts(editor: Editor, session: str, cwd: object) -> list[object]:
    """The texts of a session's messages."""
    return [item[2] for item in told(editor, session, cwd) if len(item) == 3]


# On disk


def test_files_are_private_and_hold_the_folder(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with stage(tmp_path) as at:
            assert at.prompt(text("x")).wait() == "end_turn"
            path = session_file(at.session)
            header = json.loads(path.read_text().splitlines()[0])
            assert (header["type"], header["format"], header["cwd"]) == ("session", 1, str(tmp_path))
            assert header["id"] == at.session and header["time"] > 1e9
            for folder in (path.parent, path.parent.parent, state_folder(), state_folder().parent):
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            for file in path.parent.iterdir():
                assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_a_new_session_is_on_disk_before_it_is_answered_for(tmp_path: Path) -> None:
    with FakeLlm() as llm:
        with Editor("--model", "fake", "--base-url", llm.base_url) as editor:
            editor.initialize()
            session = editor.new_session(tmp_path)
            editor.kill()
            editor.close(status=None)
        with another(llm) as editor:
            assert editor.request("session/list", {}).result == {"sessions": []}
            assert told(editor, session, tmp_path) == []
            llm.script(text("hello"))
            assert editor.prompt(session, "hi").wait() == "end_turn"
            (entry,) = editor.request("session/list", {}).result["sessions"]
            assert entry["sessionId"] == session and entry["title"] == "hi"


def test_the_title_is_announced_once_and_survives(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        turn = at.prompt(text("x"))
        assert turn.wait() == "end_turn"
        (info,) = turn.of_kind("session_info_update")
        assert info["title"] == "go on" and info["updatedAt"].endswith("Z")
        again = at.prompt(text("x"))
        assert again.wait() == "end_turn" and again.of_kind("session_info_update") == []


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        victim = tmp_path / "victim"
        victim.write_bytes(b"mine\n")
        path = session_file(at.session)
        path.unlink()
        path.symlink_to(victim)
        at.editor.capabilities = NOTICES
        turn = at.prompt(text("x"))
        assert turn.wait() == "end_turn"
        assert "cannot be saved" in turn.thoughts
        assert victim.read_bytes() == b"mine\n"
        path.unlink()


# Two processes on one session


def test_two_processes_take_turns_and_know_each_other_s(tmp_path: Path) -> None:
    with stage(tmp_path) as at, another(at.llm) as second:
        assert at.prompt(text("one")).wait() == "end_turn"
        assert texts(second, at.session, tmp_path) == ["go on", "one"]
        for number in range(3):
            at.llm.script(text(f"second {number}"))
            assert second.prompt(at.session, f"ask {number}").wait() == "end_turn"
            assert at.prompt(text(f"first {number}")).wait() == "end_turn"
        said = [message["content"] for message in at.llm.requests[-1].messages[1:]]
        rounds = [[f"ask {n}", f"second {n}", "go on", f"first {n}"] for n in range(3)]
        assert [*said, "first 2"] == ["go on", "one", *itertools.chain(*rounds)]
        assert at.llm.violations == []


def test_a_prompt_waits_for_the_other_process_and_says_so(tmp_path: Path) -> None:
    stall = Stall()
    with stage(tmp_path) as at, another(at.llm) as second:
        assert "modes" in second.request("session/resume", params(at.session, tmp_path)).result
        running = at.prompt(text("slow ", "answer").answer().insert(2, stall))
        running.until("agent_message_chunk")
        waiting = second.prompt(at.session, "second")
        assert "Another turn" in waiting.until("notice")["title"]
        at.llm.script(text("quick"))
        assert waiting.reply is None
        stall.release()
        assert running.wait() == "end_turn" and waiting.wait() == "end_turn"
        said = [message["content"] for message in at.llm.requests[-1].messages[1:]]
        assert said == ["go on", "slow answer", "second"]


def test_a_prompt_that_waits_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    with stage(tmp_path) as at, another(at.llm) as second:
        assert "modes" in second.request("session/resume", params(at.session, tmp_path)).result
        running = stalled_stream(at).turn
        waiting = second.prompt(at.session, "second")
        waiting.until("notice")
        second.cancel(at.session)
        assert waiting.wait() == "cancelled"
        at.editor.cancel(at.session)
        assert running.wait() == "cancelled"
        assert session_file(at.session).read_bytes().count(b'"type":"user"') == 1


def test_a_crash_leaves_no_lock_that_needs_a_person(tmp_path: Path) -> None:
    with stage(tmp_path) as at, another(at.llm) as second:
        assert "modes" in second.request("session/resume", params(at.session, tmp_path)).result
        stalled_stream(at)
        waiting = second.prompt(at.session, "second")
        waiting.until("notice")
        at.llm.script(text("free"))
        at.editor.kill()
        assert waiting.wait(3.0) == "end_turn" and waiting.text == "free"
        at.editor.close(status=None, unanswered_ok=True)


def test_options_of_one_process_hold_in_the_other_from_its_next_turn(tmp_path: Path) -> None:
    with stage(tmp_path) as at, another(at.llm, permission=None) as second:
        assert "modes" in second.request("session/resume", params(at.session, tmp_path)).result
        running = stalled_stream(at).turn
        asked = {"sessionId": at.session, "modeId": "bypass"}
        assert second.request("session/set_mode", asked).result == {}
        at.editor.cancel(at.session)
        assert running.wait() == "cancelled"
        at.editor.permission = None
        assert at.prompt(bash("echo hi"), text("end")).wait() == "end_turn"
        assert at.asked() == []


def test_a_session_deleted_elsewhere_does_not_come_back(tmp_path: Path) -> None:
    with stage(tmp_path) as at, another(at.llm) as second:
        assert at.prompt(text("one")).wait() == "end_turn"
        assert second.request("session/delete", {"sessionId": at.session}).result == {}
        turn = at.prompt(text("two"))
        assert turn.wait() == "end_turn" and "deleted elsewhere" in turn.thoughts
        assert second.request("session/list", {}).result == {"sessions": []}
        assert at.editor.request("session/load", params(at.session, tmp_path)).code == -32002


def test_a_session_that_was_swept_before_its_first_prompt_is_stored_again(tmp_path: Path) -> None:
    with stage(tmp_path) as at, another(at.llm) as second:
        asked = {"sessionId": at.session, "modeId": "bypass"}
        assert at.editor.request("session/set_mode", asked).result == {}
        path = session_file(at.session)
        os.utime(path, (1e9, 1e9))
        assert second.request("session/list", {}).result == {"sessions": []}
        at.editor.ping()
        second.ping()
        second.request("session/list", {})  # the sweep comes after the answer, on the same worker
        path.unlink(missing_ok=True)
        assert at.prompt(bash("echo x"), text("one")).wait() == "end_turn"
        assert texts(second, at.session, tmp_path) == ["go on", "one"]
        modes = second.request("session/resume", params(at.session, tmp_path)).result["modes"]
        assert modes["currentModeId"] == "bypass"


# Fork, resume, roots


def test_a_fork_goes_its_own_way(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        assert at.prompt(bash("echo x"), text("one")).wait() == "end_turn"
        result = at.editor.request("session/fork", params(at.session, tmp_path)).result
        fork = Stage(at.editor, at.llm, result["sessionId"])
        assert fork.session != at.session and "modes" in result
        assert fork.prompt(text("left")).wait() == "end_turn"
        assert at.prompt(text("right")).wait() == "end_turn"
        assert texts(at.editor, fork.session, tmp_path) == ["go on", "one", "go on", "left"]
        assert texts(at.editor, at.session, tmp_path) == ["go on", "one", "go on", "right"]
        listed = at.editor.request("session/list", {}).result["sessions"]
        assert [entry["sessionId"] for entry in listed] == [at.session, fork.session]
        header = json.loads(session_file(fork.session).read_text().splitlines()[0])
        assert header["origin"] == {"sessionId": at.session}


def test_a_fork_in_mid_turn_and_at_a_message(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        first = at.prompt(bash("echo x"), text("one"))
        assert first.wait() == "end_turn"
        assert at.prompt(text("two")).wait() == "end_turn"
        running = stalled_stream(at).turn
        whole = at.editor.request("session/fork", params(at.session, tmp_path)).result["sessionId"]
        assert texts(at.editor, whole, tmp_path) == ["go on", "one", "go on", "two", "go on"]
        point = first.of_kind("agent_message_chunk")[-1]["messageId"]
        asked = params(at.session, tmp_path, _meta={"messageId": point})
        part = at.editor.request("session/fork", asked).result["sessionId"]
        assert texts(at.editor, part, tmp_path) == ["go on", "one"]
        unknown = params(at.session, tmp_path, _meta={"messageId": "nobody"})
        assert at.editor.request("session/fork", unknown).code == -32002
        for session in (whole, part):
            at.llm.script(text("fine"))
            assert at.editor.prompt(session, "next").wait() == "end_turn"
        at.editor.cancel(at.session)
        assert running.wait() == "cancelled"
        assert at.llm.violations == []


def test_what_was_shown_to_its_end_is_recorded_before_what_follows(tmp_path: Path) -> None:
    """A kill in mid-answer loses the text that grows, no more; a load in mid-turn tells each thing once."""
    played = Script([ThoughtDelta("hm"), Opaque("m", {"signed": 1}), TextDelta("I see"), stall])
    with Editor(run=Inside(tmp_path, played).run) as editor:
        editor.initialize(NOTICES)
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "go on")
        turn.until("agent_message_chunk")
        last = json.loads(
            list((tmp_path / "state").glob("sessions/*/*.jsonl"))[0].read_text().splitlines()[-1]
        )
        assert last["parts"] == [{"thought": "hm"}, {"opaque": {"signed": 1}, "origin": "m"}]
        assert last["messageIds"] == [turn.of_kind("agent_thought_chunk")[0]["messageId"]]
        live = story(turn.updates)
        assert told(editor, session, tmp_path)[1:] == live
        asked = params(session, tmp_path, _meta={"messageId": last["messageIds"][0]})
        fork = editor.request("session/fork", asked).result["sessionId"]
        assert told(editor, fork, tmp_path)[1:] == live[:1]
        editor.cancel(session)
        assert turn.wait() == "cancelled"
        fork = editor.request("session/fork", asked).result["sessionId"]  # with all of the answer
        assert told(editor, fork, tmp_path)[1:] == told(editor, session, tmp_path)[1:] == live


def test_a_fork_while_a_command_runs_has_a_result_for_it(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        turn = at.prompt(bash("echo ready; sleep 60"))
        turn.until(lambda u: u.get("status") == "in_progress" and "ready" in str(u.get("content")))
        fork = at.editor.request("session/fork", params(at.session, tmp_path)).result["sessionId"]
        (call,) = [item[1] for item in told(at.editor, fork, tmp_path) if item[0] == "call"]
        assert call["status"] == "failed"  # type: ignore[index]
        at.llm.script(text("fine"))
        assert at.editor.prompt(fork, "next").wait() == "end_turn"
        at.editor.cancel(at.session)
        assert turn.wait() == "cancelled"
        assert at.llm.violations == []


def test_a_session_resumed_by_a_prefix_keeps_that_name(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        assert at.prompt(text("one")).wait() == "end_turn"
        prefix = at.session[:12]
        with another(at.llm) as second:
            assert "modes" in second.request("session/resume", params(prefix, tmp_path)).result
            at.llm.script(text("two"))
            turn = second.prompt(prefix, "next")
            assert turn.wait() == "end_turn" and turn.text == "two"
            assert second.updates(at.session) == []
            assert second.request("session/resume", params("sess_", tmp_path)).code == -32002
            assert texts(second, at.session, tmp_path) == ["go on", "one", "next", "two"]
            stalled = second.prompt(prefix, "more")
            assert second.request("session/delete", {"sessionId": at.session}).result == {}
            assert stalled.wait_reply().message
            assert second.request("session/resume", params(prefix, tmp_path)).code == -32002


def test_additional_folders_come_from_the_request_alone(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (there / "file").write_text("inside")
    wish = tool_call("read_file", {"path": str(there / "file")})

    def statuses(at: Stage) -> list[object]:
        turn = at.prompt(wish, text("end"))
        assert turn.wait() == "end_turn"
        return [call["status"] for call in turn.calls]

    with stage(here) as at:
        more = {"additionalDirectories": [str(there)]}
        session = at.editor.request("session/new", {"cwd": str(here), "mcpServers": [], **more}).result
        wide = Stage(at.editor, at.llm, session["sessionId"])
        assert statuses(wide) == ["completed"]
        for method in ("session/load", "session/resume"):
            at.editor.request(method, params(wide.session, here))
            assert statuses(wide) == ["failed"]
            at.editor.request(method, params(wide.session, here, **more))
            assert statuses(wide) == ["completed"]
        fork = at.editor.request("session/fork", params(wide.session, here)).result["sessionId"]
        assert statuses(Stage(at.editor, at.llm, fork)) == ["failed"]
        wrong = params(wide.session, here, additionalDirectories=["relative"])
        assert at.editor.request("session/load", wrong).code == -32602


def test_a_load_while_the_user_is_asked(tmp_path: Path) -> None:
    """The call that ended is told as it ended, the one that waits for the user as pending."""
    answers: Iterator[str | None] = iter(["allow_once", None])
    with stage(tmp_path, permission=lambda _: next(answers)) as at:
        turn = at.prompt(bash("echo 1"), bash("echo 2"), text("end"))
        request = at.editor.wait_request(number=2)
        before = len(at.editor.updates(at.session))
        assert "modes" in at.editor.request("session/load", params(at.session, tmp_path)).result
        replayed = at.editor.updates(at.session)[before:]
        assert [u["status"] for u in replayed if "status" in u] == ["pending", "completed", "pending"]
        at.editor.answer(request, "allow_once")
        assert turn.wait() == "end_turn"


# Close, delete, cancel


@pytest.mark.parametrize("order", list(itertools.permutations(["cancel", "close", "delete"])))
def test_cancel_close_and_delete_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    with stage(tmp_path) as at:
        running = stalled_stream(at).turn
        queued = at.editor.prompt(at.session, "queued")
        with at.editor.together():
            pending = []
            for what in order:
                if what == "cancel":
                    at.editor.cancel(at.session)
                else:
                    pending.append(at.editor.send_request(f"session/{what}", {"sessionId": at.session}))
        assert running.wait() == "cancelled" and queued.wait() == "cancelled"
        for each in pending:
            reply = each.wait_reply()
            if each.message["method"] == "session/delete":
                assert reply.result == {}
            else:
                assert "result" in reply.message or reply.code == -32002
        assert at.editor.request("session/delete", {"sessionId": at.session}).result == {}
        assert list((state_folder() / "sessions").glob("*/*")) == []
        assert at.editor.request("session/load", params(at.session, tmp_path)).code == -32002
        other = Stage(at.editor, at.llm, at.editor.new_session(tmp_path))
        assert other.prompt(text("fine")).wait() == "end_turn"


def test_delete_is_gone_from_disk_and_lists_and_twice_is_fine(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        assert at.prompt(text("x")).wait() == "end_turn"
        for _ in range(2):
            assert at.editor.request("session/delete", {"sessionId": at.session}).result == {}
        assert list((state_folder() / "sessions").glob("*/*")) == []
        assert at.editor.request("session/list", {}).result == {"sessions": []}
        assert at.editor.request("session/prompt", {"sessionId": at.session, "prompt": []}).code == -32002


# Disks


@pytest.mark.parametrize("place", ["", "state", "state/sessions"])
def test_a_file_in_the_place_of_the_state_folder(tmp_path: Path, place: str) -> None:
    """Nothing can be stored: the user is told once, and the conversation goes on in memory."""
    blocked = Path(os.environ["ACPSERVER_HOME"]) / place
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("in the way")
    with stage(tmp_path) as at:
        turn = at.prompt(bash("echo x"), text("one"))
        assert turn.wait() == "end_turn"
        assert turn.thoughts.count("cannot be saved") == 1 and "in memory" in turn.thoughts
        again = at.prompt(text("two"))
        assert again.wait() == "end_turn" and again.thoughts == ""
        assert len(at.llm.requests[-1].messages) == 6
        assert texts(at.editor, at.session, tmp_path) == ["go on", "one", "go on", "two"]
        fork = at.editor.request("session/fork", params(at.session, tmp_path)).result["sessionId"]
        assert texts(at.editor, fork, tmp_path) == ["go on", "one", "go on", "two"]
        assert at.editor.request("session/list", {}).result == {"sessions": []}
        if place == "state/sessions":  # the obstacle goes away: everything is stored with the next record
            blocked.unlink()
            assert at.prompt(text("three")).wait() == "end_turn"
            with another(at.llm) as second:
                assert texts(second, at.session, tmp_path)[-2:] == ["go on", "three"]
    assert place == "state/sessions" or blocked.read_text() == "in the way"


FULL = """\
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["MOST_BYTES"]), resource.RLIM_INFINITY))
"""


def test_a_full_disk_damages_nothing_that_is_stored(tmp_path: Path) -> None:
    """Writes end in the middle of a line: what came before stays, the conversation goes on in memory."""
    code = tmp_path / "code"
    code.mkdir()
    with stage(tmp_path) as at:
        assert at.prompt(bash("echo x"), text("one")).wait() == "end_turn"
        path = session_file(at.session)
        before = path.read_bytes()
        most = str(len(before) + 150)
        with another(at.llm, env={**patched(code, FULL), "MOST_BYTES": most}) as second:
            whole = texts(second, at.session, tmp_path)
            at.llm.script(bash("echo y"), text("two"))
            turn = second.prompt(at.session, "next")
            assert turn.wait() == "end_turn" and turn.text == "two"
            (notice,) = turn.of_kind("notice")
            assert "cannot be saved" in notice["title"] and "in memory" in notice["title"]
            assert texts(second, at.session, tmp_path) == [*whole, "next", "two"]
            at.llm.script(text("three"))
            assert second.prompt(at.session, "more").wait() == "end_turn"
            assert len(at.llm.requests[-1].messages) == 1 + 4 + 4 + 1
        after = path.read_bytes()
        assert after.startswith(before) and len(after) <= int(most)
        assert not after.endswith(b"\n"), "the test did not fill the disk in mid-line"
        assert texts(at.editor, at.session, tmp_path)[: len(whole)] == whole
        turn = at.prompt(text("four"))
        assert turn.wait() == "end_turn" and turn.thoughts == ""
        assert at.llm.violations == []


def test_a_file_that_cannot_be_read_is_an_error_and_no_empty_session(tmp_path: Path) -> None:
    with stage(tmp_path) as at:
        assert at.prompt(text("one")).wait() == "end_turn"
        path = session_file(at.session)
        kept = path.read_bytes()
        path.unlink()
        path.mkdir()
        for method in ("session/load", "session/fork"):
            error = at.editor.request(method, params(at.session, tmp_path))
            assert error.code == -32603 and "cannot be read" in error.details
        path.rmdir()
        path.write_bytes(kept)
        assert texts(at.editor, at.session, tmp_path) == ["go on", "one"]


# In memory


def stored_session(tmp_path: Path) -> tuple[Sessions, Session]:
    """A session of one prompt, without a server."""
    sessions = Sessions(Store(str(tmp_path / "state")), ["big"])
    session = sessions.create(str(tmp_path), (str(tmp_path),))
    session.note(records.user("m", [{"type": "text", "text": "hello"}]))
    return sessions, session


def test_an_idle_session_leaves_the_memory_and_comes_back(tmp_path: Path) -> None:
    sessions, session = stored_session(tmp_path)
    before = session.conversation
    sessions.tidy()
    assert session.conversation is before
    session.last_used -= 3_601
    sessions.create(str(tmp_path), (str(tmp_path),))
    again = session.conversation
    assert again is not before and again.messages == before.messages
    session.unload()
    session.note(records.option("mode", "bypass"))
    assert session.mode == "bypass" and len(session.conversation.messages) == 1
    assert sessions.peek(session.id) is session


def test_the_options_of_an_idle_session_are_known_without_its_file(tmp_path: Path) -> None:
    """The reader asks for them, which must not wait for the disk."""
    _, session = stored_session(tmp_path)
    session.note(records.option("mode", "bypass"))
    session.unload()
    path = Path(session.file.path)
    path.rename(path.with_suffix(".away"))
    assert (session.mode, session.model) == ("bypass", "big")
    path.with_suffix(".away").rename(path)
    session.record_choice("mode", "default")
    assert session.mode == "default"


def test_what_the_disk_did_not_take_keeps_a_session_in_memory(tmp_path: Path) -> None:
    sessions, session = stored_session(tmp_path)
    sessions.delete(session.id)
    session.note(records.user("n", [{"type": "text", "text": "gone"}]))
    session.unload()
    assert [message.text for message in session.conversation.messages] == ["hello", "gone"]
    assert session.untold_problem() == "The session was deleted elsewhere"
    assert session.untold_problem() == ""


def test_a_fork_of_what_was_deleted_meanwhile_finds_no_session(tmp_path: Path) -> None:
    sessions, session = stored_session(tmp_path)
    Path(session.file.path).unlink()
    with pytest.raises(RpcError) as caught:
        sessions.fork(session.id, session.cwd, session.roots, None)
    assert (caught.value.code, caught.value.details) == (-32002, "The session was deleted elsewhere")


def test_damage_is_told_once_in_the_session_and_in_a_fork_not_at_all(tmp_path: Path) -> None:
    sessions, session = stored_session(tmp_path)
    with open(session.file.path, "ab") as end:
        end.write(b"garbage\n[]\n")
    session.refresh()
    assert session.unreported_damage() == 2 and session.unreported_damage() == 0
    fork = sessions.fork(session.id, str(tmp_path), (str(tmp_path),), None)
    assert fork.unreported_damage() == 0 and len(fork.conversation.messages) == 1
    with open(fork.file.path, "ab") as end:
        end.write(b"garbage\n")
    fork.refresh()
    assert fork.unreported_damage() == 1


def test_a_session_that_was_deleted_elsewhere_leaves_no_servers(tmp_path: Path) -> None:
    sessions, session = stored_session(tmp_path)
    session.servers = servers = mock.Mock(spec=McpServers)
    Path(session.file.path).unlink()
    with pytest.raises(RpcError) as caught:
        sessions.open(session.id, str(tmp_path), (str(tmp_path),))
    assert caught.value.code == -32002 and sessions.peek(session.id) is None
    servers.close.assert_called_once_with()


def test_a_turn_that_outlasts_its_close_is_answered_and_heard_of_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next turn of the session waits until it has ended, and knows what came of it."""
    monkeypatch.setattr("acpserver.session_methods.CLOSE_SECONDS", 0.1)
    release = threading.Event()

    def run(arguments: object, context: object) -> ToolOutcome:
        assert release.wait(30)  # heeds no cancel
        return ToolOutcome("ran")

    played = Script([ToolCall("c1", "tool", {}), Finish("tool_calls")], [TextDelta("done"), Finish("stop")])
    with Editor(run=Inside(tmp_path, played, FakeTool("tool", run)).run) as editor:
        editor.initialize(NOTICES)
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "go on")
        turn.until(lambda update: update.get("status") == "in_progress")
        assert editor.request("session/close", {"sessionId": session}).result == {}
        assert turn.wait() == "cancelled"
        assert editor.prompt(session, "too soon").wait_reply().code == -32002
        assert [item[1]["status"] for item in told(editor, session, tmp_path) if item[0] == "call"] == [
            "failed"
        ]
        following = editor.prompt(session, "next")
        following.until("notice")
        assert len(played.requests) == 1
        release.set()
        assert following.wait() == "end_turn"
        assert [update for update in editor.updates(session) if update.get("status") == "completed"] == []
        results = [message for message in played.requests[1].messages if message.role == "tool"]
        assert [part.text for part in results[0].parts] == ["ran"]


def test_a_call_that_ends_as_its_close_gives_up_is_told_once(tmp_path: Path) -> None:
    """Close waits for what the turn is just telling, and then finds no call to end."""
    _, session = stored_session(tmp_path)
    client, entered = mock.Mock(spec=Client), threading.Event()
    turn = Turn(a_prompt(), [])
    turn.running_call = ToolCall("c1", "tool", {})
    session.turns.add(turn)

    def abandon() -> None:
        entered.set()
        _abandon(session, client)

    closing = threading.Thread(target=abandon)
    with session.story:
        closing.start()
        assert entered.wait(5)
        closing.join(0.05)
        assert closing.is_alive() and not turn.call.answered
        turn.running_call = None
    closing.join(5)
    assert not closing.is_alive() and client.update.mock_calls == []


def test_a_load_that_waits_for_a_client_holds_up_no_cancel(tmp_path: Path) -> None:
    """Turn and replay both wait until the client reads on; the reader waits for neither."""
    flood = [TextDelta("word " * 2_000)] * 600  # 6 MB
    inside = Inside(tmp_path, Script([*flood, stall]))
    with Editor(run=inside.run) as editor:
        editor.initialize(NOTICES)
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "go on")
        turn.until("agent_message_chunk")
        editor.pause_reading()
        writer = inside.server._connection._writer
        eventually(lambda: writer._queued_bytes > HIGH_WATER - 20_000, "full queue")
        load = editor.send_request("session/load", params(session, tmp_path))
        choice = editor.send_request("session/set_mode", {"sessionId": session, "modeId": "bypass"})
        (running,) = inside.server._sessions.get(session).turns.all()
        editor.cancel(session)
        assert running.cancel.event.wait(10)
        editor.resume_reading()
        assert turn.wait() == "cancelled"
        assert choice.wait_reply().result == {} and "modes" in load.wait_reply().result


def test_idle_conversations_leave_the_memory_when_a_turn_ends(tmp_path: Path) -> None:
    inside = Inside(tmp_path, Script(*[[TextDelta("done"), Finish("stop")]] * 3))
    with Editor(run=inside.run) as editor:
        editor.initialize(NOTICES)
        idle, used = editor.new_session(tmp_path), editor.new_session(tmp_path)
        assert editor.prompt(idle, "one").wait() == "end_turn"
        session = inside.server._sessions.get(idle)
        session.last_used -= 3_601
        assert session._conversation is not None
        assert editor.prompt(used, "two").wait() == "end_turn"
        eventually(lambda: session._conversation is None, "end of the conversation")
        assert editor.prompt(idle, "three").wait() == "end_turn"
        assert len(session.conversation.messages) == 4


def test_two_opens_at_once_give_one_session(tmp_path: Path) -> None:
    sessions, session = stored_session(tmp_path)
    with sessions.leaving(session):
        assert sessions.peek(session.id) is None and sessions.using(session.id) == [session]
    barrier = threading.Barrier(4)
    found: list[Session] = []

    def open_it() -> None:
        barrier.wait(5)
        found.append(sessions.open(session.id, str(tmp_path), (str(tmp_path),)))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(found) == 4 and len(set(map(id, found))) == 1 and found[0] is not session


def test_an_option_that_is_set_while_a_turn_begins_is_not_lost(tmp_path: Path) -> None:
    """Reading the file anew and recording a choice meet; neither may undo the other."""
    _, session = stored_session(tmp_path)
    other = SessionFile(session.file.path, session.id)
    done = threading.Event()

    def refresh() -> None:
        while not done.is_set():
            session.refresh()

    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        for number in range(200):
            other.append(records.plan([]))
            session.choose("mode", str(number))
            session.record_choice("mode", str(number))
            assert session.mode == str(number)
    finally:
        done.set()
        thread.join(5)
    assert session.mode == "199"


class Queue:
    """A connection whose writer has not begun: every line still waits, and may grow."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def wait_for_room(self, cancel: CancelFlag) -> None:
        return

    def put_growing(self, line: object, method: str, update: object) -> None:
        self.lines.append(line)

    def extend(self, line: object, text: str) -> bool:
        line.append(text)  # type: ignore[attr-defined]
        return True


def test_text_behind_a_replay_does_not_grow_a_line_before_it() -> None:
    queue = Queue()
    updates = Client(queue, {}).updates("s", threading.RLock(), a_prompt())  # type: ignore[arg-type]
    updates.text("agent_message_chunk", "m", "one ")
    updates.text("agent_message_chunk", "m", "two ")
    updates.break_text()
    updates.text("agent_message_chunk", "m", "three")
    lines = [json.loads(line.render()) for line in queue.lines]  # type: ignore[attr-defined]
    assert [line["params"]["update"]["content"]["text"] for line in lines] == ["one two ", "three"]

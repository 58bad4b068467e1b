"""Cancelling, and prompts that were never answered."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.moments import (
    Moment,
    Stage,
    bash,
    before_the_first_byte,
    open_permission,
    stage,
    stalled_stream,
    stubborn_command,
    tool_arguments,
)
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import Answer, Reply, Stall, chunks, error, one_json, text
from tests.fakes.llm_server import FakeLlm
from tests.field.helpers import alive, pids_in


def test_row_001_a_cancel_in_the_same_write_as_its_prompt(at: Stage) -> None:
    """The cancel came before there was a turn to cancel, and the prompt stayed open for ever."""
    with at.editor.together():
        turn = at.editor.prompt(at.session, "hello")
        at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    assert at.prompt(text("fine")).wait() == "end_turn"


def test_row_002_a_cancel_ends_a_running_command(at: Stage, tmp_path: Path) -> None:
    """A command went on, and the prompt with it, although the user had stopped it."""
    turn = at.prompt(bash("echo $$ >pid; sleep 600"))
    pids = pids_in(tmp_path / "pid", 1)
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    assert turn.calls[0]["status"] == "failed"
    assert alive(pids) == []


FOUR_POINTS = [before_the_first_byte, stalled_stream, tool_arguments, stubborn_command]


@pytest.mark.parametrize("moment", FOUR_POINTS, ids=lambda moment: moment.__name__)
def test_row_004_a_cancel_is_a_stop_reason_and_no_error(moment: Callable[[Stage], Moment], at: Stage) -> None:
    """Depending on where the cancel struck, the prompt was answered with an error."""
    turn = moment(at).turn
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"


def test_row_005_other_requests_are_answered_while_a_turn_runs(at: Stage) -> None:
    """Nothing was read during a turn, so that neither a cancel nor anything else got through."""
    turn = stalled_stream(at).turn
    asked = at.editor.send_request("session/set_mode", {"sessionId": at.session, "modeId": "read_only"})
    listed = at.editor.send_request("session/list", {})
    assert asked.wait_reply().result == {}
    assert listed.wait_reply().result["sessions"]
    assert turn.reply is None
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"


def test_row_006_nothing_comes_after_the_cancelled_answer(at: Stage) -> None:
    """The model went on sending after the cancel, and its text was still passed on."""
    turn = at.prompt(text(*["word "] * 400).answer().pauses(0.005))  # two seconds
    turn.until("agent_message_chunk")
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    # The editor fails for updates without a prompt; the next turn runs only after the old one is over.
    assert at.llm.requests[-1].closed.wait(1.0)
    after = at.prompt(text("new"))
    assert after.wait() == "end_turn"
    assert after.text == "new"


@pytest.mark.parametrize("cancels", [1, 2])
def test_row_008_a_cancel_does_not_reach_the_next_prompt(at: Stage, cancels: int) -> None:
    """A flag stayed set, and the next prompt was cancelled, too."""
    turn = stalled_stream(at).turn
    for _ in range(cancels):
        at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    at.editor.cancel(at.session)
    after = at.prompt(text("here"))
    assert after.wait() == "end_turn"
    assert after.text == "here"


def test_row_009_a_prompt_right_after_the_cancelled_answer_is_taken(at: Stage) -> None:
    """The answer came before the turn had been cleared away, and the next prompt was refused as busy."""
    turn = at.prompt(bash("echo ready; sleep 600"))
    turn.until(lambda update: "ready" in str(update.get("content")))
    at.editor.cancel(at.session)
    turn.wait_reply()
    assert at.prompt(text("at once")).wait() == "end_turn"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (text("cut o").ends("length"), "max_tokens"),
        (text("no").ends("content_filter"), "refusal"),
        (text("done").ends("pause"), "end_turn"),
        (Reply().ends("length"), "max_tokens"),
    ],
    ids=["length", "content_filter", "unknown", "empty at the limit"],
)
def test_row_010_every_finish_reason_ends_the_turn(at: Stage, answer: Reply, reason: str) -> None:
    """For reasons that were not foreseen the turn had no end."""
    assert at.prompt(answer).wait() == reason


def test_row_010_an_empty_answer_ends_the_turn(at: Stage) -> None:
    """A model that says nothing at all left the prompt open."""
    assert "result" in at.prompt(Reply()).wait_reply().message


def _closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"


FAILURES: dict[str, Callable[[FakeLlm], str]] = {
    "refused": lambda llm: _closed_port(),
    "TLS": lambda llm: llm.base_url.replace("http:", "https:"),
    "unknown host": lambda llm: "http://model.invalid/v1",
    "silent": lambda llm: llm.base_url,
}


@pytest.mark.parametrize("url", FAILURES.values(), ids=FAILURES.keys())
def test_row_012_a_model_out_of_reach_is_an_error(url: Callable[[FakeLlm], str], tmp_path: Path) -> None:
    """When the call failed nobody answered the prompt."""
    env = {"ACPSERVER_RETRY_SECONDS": "0.2", "ACPSERVER_IDLE_TIMEOUT": "0.3"}
    with FakeLlm(default=text("never").answer().before_headers(Stall())) as llm:
        with Editor("--model", "fake", "--base-url", url(llm), env=env) as editor:
            editor.initialize()
            reply = editor.prompt(editor.new_session(tmp_path), "hello").wait_reply()
            assert reply.code == -32603
            assert len(reply.details) > 20


def test_row_012_a_server_error_is_an_error(at: Stage) -> None:
    """The same for a status of 500."""
    assert at.prompt(error(500)).wait_reply().code == -32603


def test_row_013_a_cancel_ends_the_wait_for_a_permission(at: Stage) -> None:
    """The cancel had to wait until someone answered the permission request."""
    turn = open_permission(at).turn
    (request,) = at.asked()
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"
    at.editor.answer(request, "allow_once")
    at.editor.ping()
    assert turn.calls[0]["status"] == "failed"
    assert at.prompt(text("fine")).wait() == "end_turn"


def test_row_014_a_cancel_and_the_next_prompt_in_one_write(at: Stage) -> None:
    """Of two messages that came together one was lost."""
    first = stalled_stream(at).turn
    at.llm.script(text("second"))
    with at.editor.together():
        at.editor.cancel(at.session)
        second = at.editor.prompt(at.session, "again")
    assert first.wait() == "cancelled"
    assert second.wait() == "end_turn"
    assert second.text == "second"
    assert first.reply is not None and second.reply is not None
    assert first.reply.time <= second.reply.time


def test_row_016_queued_prompts_are_each_answered_in_order(at: Stage) -> None:
    """With a turn queued behind another, one of the prompts got no answer."""
    stall = Stall()
    first = at.prompt(text("a").answer().insert(1, stall))
    second = at.prompt(text("b"))
    assert stall.reached.wait(5)
    stall.release()
    assert (first.wait(), second.wait()) == ("end_turn", "end_turn")
    third = at.prompt(text("c"))
    assert third.wait() == "end_turn"
    assert [first.text, second.text, third.text] == ["a", "b", "c"]


SAID = {"role": "assistant", "content": "all of it"}
WHOLE = {"choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}]}
ONE_CHUNK = {"choices": [{"index": 0, "delta": SAID, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "answer",
    [one_json(text("all of it")), chunks([ONE_CHUNK]), chunks([WHOLE]), chunks([ONE_CHUNK], done=False)],
    ids=["JSON body", "one chunk", "message instead of delta", "no end mark"],
)
def test_row_017_text_that_was_not_streamed_arrives_once(at: Stage, answer: Answer) -> None:
    """A server that does not stream sends everything at the end, and it was dropped."""
    turn = at.prompt(answer)
    assert turn.wait() == "end_turn"
    assert turn.text == "all of it"


def test_row_018_half_a_chunk_and_silence_can_be_cancelled(at: Stage) -> None:
    """The stream stood still in the middle of a word, and only killing the process helped."""
    whole = b"".join(step for step in text("half a word").answer().steps if isinstance(step, bytes))
    stall = Stall()
    turn = at.prompt(Answer((whole[: whole.index(b"word")], stall)))
    assert stall.reached.wait(5)
    at.editor.cancel(at.session)
    assert turn.wait() == "cancelled"


def test_row_018_half_a_chunk_and_silence_is_an_error_in_the_end(tmp_path: Path) -> None:
    """Without a cancel the turn waited for ever."""
    env = {"ACPSERVER_IDLE_TIMEOUT": "0.3", "ACPSERVER_RETRY_SECONDS": "0.1"}
    with stage(tmp_path, env=env) as at:
        start = time.monotonic()
        reply = at.prompt(text("half a", " word").answer().insert(2, Stall())).wait_reply()
        assert reply.code == -32603
        assert time.monotonic() - start >= 0.3

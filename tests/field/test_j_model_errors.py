"""What goes wrong at the model's server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.moments import Stage, bash, stage
from tests.fakes.editor import Editor, Json
from tests.fakes.llm_answers import Answer, Cut, error, text
from tests.field.helpers import SECRET

STATUSES = [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529]
BODIES: dict[str, Json | bytes] = {
    "JSON": {"error": {"message": "the server's own words", "type": "x", "code": "y"}},
    "HTML": b"<html><body><h1>Bad Gateway</h1>\n<p>nginx</p></body></html>",
    "empty": b"",
    "huge": b"word " * 400_000,
    "not UTF-8": b"\xff\xfe\x00caf\xe9\n" * 20,
    "control characters": b"one\r\ntwo\x00\x1b[31mthree",
}


def test_row_168_a_rate_limit_is_named(at: Stage) -> None:
    """All that the user saw was "internal error"."""
    words = {"error": {"message": f"slow down, {SECRET} is over its limit"}}
    reply = at.prompt(error(429, words, {"Retry-After": "20", "X-Request-Id": "abc"})).wait_reply()
    assert "429" in reply.details and "limit" in reply.details
    assert "slow down" in reply.details
    assert SECRET not in json.dumps(reply.message)
    assert "abc" not in reply.details


@pytest.mark.parametrize("status", STATUSES)
def test_row_169_and_170_every_status_becomes_a_readable_line(at: Stage, status: int) -> None:
    """The status and the reason were lost, or a whole web page was shown, or nothing."""
    for body in BODIES.values():
        reply = at.prompt(error(status, body)).wait_reply()  # type: ignore[arg-type]
        assert reply.code == (-32000 if status in (401, 403) else -32603)
        assert str(status) in reply.details
        assert 20 < len(reply.details) < 500
        assert "\n" not in reply.details and "\x1b" not in reply.details and "<h1>" not in reply.details
        assert set(reply.error["data"]) == {"details"}  # type: ignore[call-overload]


def test_row_172_after_a_failure_the_next_prompt_works(at: Stage) -> None:
    """One failed call, and the agent answered nothing any more."""
    for failing in (error(500), text("half").answer().first_pieces(1).then(Cut())):
        assert at.prompt(failing).wait_reply().code == -32603
        turn = at.prompt(text("here again"))
        assert turn.wait() == "end_turn"
        assert turn.text == "here again"


TOO_LONG = error(400, {"error": {"message": "maximum context length", "code": "context_length_exceeded"}})


def test_row_173_a_prompt_that_is_too_long_does_not_stay(at: Stage) -> None:
    """Each later prompt carried the long one along and failed, too."""
    at.llm.script(TOO_LONG)
    reply = at.editor.prompt(at.session, "too long " * 10_000).wait_reply()
    assert "too long" in reply.details
    assert at.prompt(text("short")).wait() == "end_turn"
    assert len(at.llm.requests[-1].raw_body) < 50_000


def test_row_173_and_174_long_tool_results_give_way(at: Stage) -> None:
    """A single large result made the conversation too long for good."""
    turn = at.prompt(bash("seq 20000"), TOO_LONG, text("I saw numbers."))
    assert turn.wait() == "end_turn"
    assert turn.text == "I saw numbers."
    assert len(at.llm.requests[-1].raw_body) < len(at.llm.requests[-2].raw_body) - 10_000


def test_row_174_a_giant_result_is_cut_before_the_model_reads_it(at: Stage) -> None:
    """A megabyte of output went to the model as it was."""
    turn = at.prompt(bash("seq 200000"), text("end"))
    assert turn.wait() == "end_turn"
    result = at.llm.requests[-1].messages[-1]["content"]
    assert len(result) < 40_000
    assert "left out" in result
    assert result.startswith("1\n2\n") and "200000" in result


def test_row_176_text_that_came_before_a_failure_is_kept(at: Stage) -> None:
    """Half an answer was thrown away, or the history could not be used any more."""
    turn = at.prompt(text("half an", " answer").answer().first_pieces(3).then(Cut()))
    assert turn.wait_reply().code == -32603
    assert turn.text == "half an answer"
    assert at.prompt(text("more")).wait() == "end_turn"
    said = [m["content"] for m in at.llm.requests[-1].messages if m["role"] == "assistant"]
    assert said == ["half an answer"]


def test_row_177_after_a_failure_the_model_knows_what_was_done(at: Stage, tmp_path: Path) -> None:
    """The prompt was sent again, and everything was done a second time."""
    turn = at.prompt(bash("echo once >>done.txt"), error(500))
    assert turn.wait_reply().code == -32603
    assert at.prompt(text("It was done before.")).wait() == "end_turn"
    roles = [message["role"] for message in at.llm.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert (tmp_path / "done.txt").read_text() == "once\n"


def test_row_178_a_prompt_without_any_effect_is_not_repeated(at: Stage) -> None:
    """The prompt that had failed stood before the next one."""
    assert at.prompt(error(500)).wait_reply().code == -32603
    assert at.prompt(text("fine")).wait() == "end_turn"
    roles = [message["role"] for message in at.llm.requests[-1].messages]
    assert roles == ["system", "user"]


def test_row_180_a_large_folder_does_not_delay_a_session(at: Stage, tmp_path: Path) -> None:
    """The whole folder was looked through before the session was there."""
    for number in range(2_000):
        (tmp_path / f"{number}.txt").touch()
    start = time.monotonic()
    at.editor.new_session(tmp_path)
    assert time.monotonic() - start < 4.0


def test_row_181_without_credentials_it_says_so(tmp_path: Path) -> None:
    """Without a key the agent hung at its start."""
    for flags in ((), ("--model", "some-model")):
        start = time.monotonic()
        with Editor(*flags) as editor:
            methods = editor.initialize()["authMethods"]
            assert time.monotonic() - start < 4.0
            reply = editor.request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
            assert reply.code == -32000
            assert len(reply.details) > 20
            assert methods


def test_row_182_nothing_outside_delays_the_start(tmp_path: Path) -> None:
    """A name server that did not answer, or a file left behind, held up the start."""
    env = {"HTTP_PROXY": "http://proxy.invalid:1", "ACPSERVER_HOME": "/proc/nowhere"}
    start = time.monotonic()
    with Editor("--model", "m", "--base-url", "http://model.invalid/v1", env=env) as editor:
        editor.initialize()
        editor.new_session(tmp_path)
        assert time.monotonic() - start < 4.0


RETRIED = {"first try": (), "busy": (error(503),), "reset": (Answer((), framing="raw").then(Cut()),)}


@pytest.mark.parametrize("before", RETRIED.values(), ids=RETRIED.keys())
def test_row_121_and_172_what_passes_is_tried_again(tmp_path: Path, before: tuple[Answer, ...]) -> None:
    """A server that was busy for a moment ended the turn."""
    with stage(tmp_path) as at:
        turn = at.prompt(*before, text("in the end"))
        assert turn.wait() == "end_turn"
        assert turn.text == "in the end"

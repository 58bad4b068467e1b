"""Many things at once."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.moments import Stage, stalled_stream
from tests.fakes.llm_answers import text


def test_row_232_a_prompt_at_the_moment_of_the_answer_is_taken(offline: Stage) -> None:
    """Sent at the very moment at which the turn before ended, a prompt was refused or lost."""
    editor = offline.editor
    turns = [editor.prompt(offline.session, "say 0")]
    for number in range(1, 200):
        if number % 2:  # else it is sent while the one before is about to end
            turns[-1].wait_reply()
        turns.append(editor.prompt(offline.session, f"say {number}"))
    assert [turn.wait() for turn in turns] == ["end_turn"] * 200
    assert [turn.text for turn in turns] == [f"{number}\n" for number in range(200)]


def test_row_233_and_234_queued_prompts_run_one_after_another(at: Stage) -> None:
    """Two waiting prompts began together; or a prompt was answered with a refusal because one ran."""
    at.llm.script(*[text(f"answer {number} ", "goes on").answer().pauses(0.01) for number in range(3)])
    with at.editor.together():
        turns = [at.editor.prompt(at.session, f"prompt {number}") for number in range(3)]
    assert [turn.wait() for turn in turns] == ["end_turn"] * 3
    assert [turn.text for turn in turns] == [f"answer {number} goes on" for number in range(3)]
    times = [turn.reply.time for turn in turns if turn.reply]
    assert times == sorted(times)
    # Each model call knew the turns before it.
    assert [len(request.messages) for request in at.llm.requests[-3:]] == [2, 4, 6]


def test_row_234_a_busy_session_is_no_refusal(at: Stage) -> None:
    """Clients take a refusal for the model's and drop the conversation."""
    running = stalled_stream(at).turn
    waiting = at.prompt(text("later"))
    at.editor.ping()
    assert waiting.reply is None
    at.editor.cancel(at.session)
    assert (running.wait(), waiting.wait()) == ("cancelled", "cancelled")


def test_row_236_one_session_does_not_wait_for_another(at: Stage, tmp_path: Path) -> None:
    """One lock for all: sessions ran in turn."""
    running = stalled_stream(at).turn
    others = [at.editor.new_session(tmp_path) for _ in range(8)]
    at.llm.script(*[text("quick")] * 8)
    turns = [at.editor.prompt(session, "go") for session in others]
    assert [turn.wait() for turn in turns] == ["end_turn"] * 8
    assert running.reply is None
    at.editor.cancel(at.session)
    assert running.wait() == "cancelled"


def test_row_237_sessions_opened_at_once_are_different_ones(at: Stage, tmp_path: Path) -> None:
    """Two sessions opened at the same time became one."""
    params = {"cwd": str(tmp_path), "mcpServers": []}
    with at.editor.together():
        asked = [at.editor.send_request("session/new", params) for _ in range(10)]
    ids = {str(pending.wait_reply().result["sessionId"]) for pending in asked}
    assert len(ids) == 10


def test_row_238_a_cancel_before_there_is_anything_to_cancel(at: Stage, tmp_path: Path) -> None:
    """A cancel that came too early made noise, or struck the first prompt."""
    before = len(at.editor.received)
    with at.editor.together():
        new = at.editor.send_request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        at.editor.cancel("not yet there")
        at.editor.cancel(at.session)
    session = str(new.wait_reply().result["sessionId"])
    at.editor.cancel(session)
    at.editor.ping()
    assert len([m for m in at.editor.received[before:] if "method" not in m]) == 2
    at.llm.script(text("first"))
    assert at.editor.prompt(session, "go").wait() == "end_turn"

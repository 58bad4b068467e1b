"""The conversation as the model sees it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.moments import Stage, bash
from tests.fakes.llm_answers import text, tool_call


def test_row_153_parallel_calls_are_answered_in_order(at: Stage) -> None:
    """After two quick calls the model's server refused the conversation."""
    wish = bash("echo slow; sleep 0.1") + tool_call("list_files", {"path": "."}) + bash("echo last")
    assert at.prompt(wish, text("end")).wait() == "end_turn"
    asked, *results = at.llm.requests[-1].messages[-4:]
    assert [call["id"] for call in asked["tool_calls"]] == [result["tool_call_id"] for result in results]
    assert [result["role"] for result in results] == ["tool"] * 3
    assert "slow" in results[0]["content"] and "last" in results[2]["content"]


def test_row_154_the_model_remembers_its_own_session_only(at: Stage, tmp_path: Path) -> None:
    """The second prompt knew nothing of the first, or of another session's."""
    assert at.prompt(text("first answer")).wait() == "end_turn"
    at.llm.script(text("second answer"))
    assert at.editor.prompt(at.session, "second question").wait() == "end_turn"
    said = [message["content"] for message in at.llm.requests[-1].messages[1:]]
    assert said == ["go on", "first answer", "second question"]
    other = at.editor.new_session(tmp_path)
    at.llm.script(text("other answer"))
    assert at.editor.prompt(other, "other question").wait() == "end_turn"
    assert [message["content"] for message in at.llm.requests[-1].messages[1:]] == ["other question"]

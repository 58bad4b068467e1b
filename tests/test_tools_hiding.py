"""Keys that a tool came by: they are in nothing that it shows or returns."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests.fakes.editor import Editor
from tests.fakes.llm_answers import text, tool_call
from tests.fakes.llm_server import FakeLlm

KEY = "sk-leak-0123456789abcdef"


def test_a_command_that_reads_the_servers_environment_gets_no_key(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/environ"):
        pytest.skip("there is no /proc here")
    command = "tr '\\0' '\\n' </proc/$PPID/environ | grep OPENAI; sleep 0.6; echo end"
    with FakeLlm() as llm:
        flags = ("--model", "fake", "--base-url", llm.base_url)
        with Editor(*flags, env={"OPENAI_API_KEY": KEY}, permission="allow_once") as editor:
            llm.script(tool_call("bash", {"command": command}), text("done"))
            editor.initialize()
            turn = editor.prompt(editor.new_session(tmp_path), "go")
            assert turn.wait() == "end_turn"
            assert "OPENAI_API_KEY=***" in llm.requests[1].body["messages"][-1]["content"]
            said = repr(editor.received) + repr(llm.requests[1].body)
    home = Path(os.environ["ACPSERVER_HOME"])
    stored = b"".join(path.read_bytes() for path in home.rglob("*.jsonl"))
    assert b"***" in stored
    for form in (KEY, base64.b64encode(KEY.encode()).decode()):
        assert form not in said and form.encode() not in stored


def test_a_short_key_is_a_word_like_others(tmp_path: Path) -> None:
    with FakeLlm() as llm:
        flags = ("--model", "fake", "--base-url", llm.base_url)
        with Editor(*flags, env={"OPENAI_API_KEY": "ollama"}, permission="allow_once") as editor:
            llm.script(tool_call("bash", {"command": "echo ollama"}), text("done"))
            editor.initialize()
            turn = editor.prompt(editor.new_session(tmp_path), "go")
            assert turn.wait() == "end_turn"
            assert "ollama" in llm.requests[1].body["messages"][-1]["content"]

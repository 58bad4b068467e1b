"""One server process for the tests of a module, and what they share.

A test that cuts the process off, or needs other settings, starts its own with `stage` or `Editor`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.moments import Stage
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import text, tool_call
from tests.fakes.llm_server import FakeLlm
from tests.field.helpers import SECRET


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Editor, FakeLlm]]:
    """A server that talks to a fake model server. It does not repeat failed calls."""
    home = tmp_path_factory.mktemp("home")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ACPSERVER_HOME": str(home / "acpserver"),
        "ACPSERVER_RETRY_SECONDS": "0.1",
        "OPENAI_API_KEY": SECRET,
    }
    with FakeLlm(api_key=SECRET) as llm:
        with Editor("--model", "fake", "--base-url", llm.base_url, clean_env=env) as editor:
            editor.initialize()
            session = editor.new_session(home)
            # The first command brings the guard process, which stays: before the first test, not in it.
            llm.script(tool_call("bash", {"command": "true"}), text("ready"))
            assert editor.prompt(session, "warm up").wait() == "end_turn"
            yield editor, llm


@pytest.fixture
def at(shared: tuple[Editor, FakeLlm], tmp_path: Path) -> Iterator[Stage]:
    """A session in an empty folder; permissions are granted once unless the test says otherwise."""
    editor, llm = shared
    editor.permission = "allow_once"
    first = len(llm.violations)
    llm._script.clear()
    yield Stage(editor, llm, editor.new_session(tmp_path))
    editor.ping()  # what came after the last wait of the test has been checked, too
    editor.check()
    assert llm.violations[first:] == []


@pytest.fixture
def offline(at: Stage) -> Stage:
    """The same with the offline model, which follows the lines of the prompt."""
    at.editor.request("session/set_model", {"sessionId": at.session, "modelId": "offline"})
    return at

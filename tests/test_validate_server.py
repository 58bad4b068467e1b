"""This server under its own judge: traces of whole conversations show no fault of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acpserver.validate import check_trace
from acpserver.validate.findings import AGENT, REMARK
from tests.fakes.editor import Editor

EVERYTHING: dict[str, Any] = {
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
    "elicitation": {"form": {}, "url": {}},
    "auth": {"terminal": True},
}
WORK = "think first\nplan look; change\nwrite a.txt: one\nread a.txt\nrun echo hello\nsay done"


def trouble(trace: Path) -> list[Any]:
    """What the judge has against the agent."""
    report = check_trace(trace, unstable=True)
    assert report.messages > 0
    return [one for one in report.findings if one.side == AGENT and one.level != REMARK]


@pytest.mark.parametrize("permission", ["allow_once", "allow_always", "reject_once", "reject_always"])
@pytest.mark.parametrize("capabilities", [{}, EVERYTHING], ids=["plain", "everything"])
def test_turns_with_every_permission(permission: Any, capabilities: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with Editor("--model", "offline", "--trace", str(trace), permission=permission) as editor:
        editor.initialize(capabilities)
        session = editor.new_session(tmp_path)
        for words in (WORK, "say again", "/nonsense"):
            editor.prompt(session, words).wait()
    assert trouble(trace) == []


def test_the_life_of_sessions(tmp_path: Path) -> None:
    trace, place = tmp_path / "trace.jsonl", {"cwd": str(tmp_path), "mcpServers": []}
    with Editor("--model", "offline", "--trace", str(trace)) as editor:
        editor.initialize(EVERYTHING)
        session = editor.new_session(tmp_path)
        editor.prompt(session, WORK).wait()
        editor.request("session/list", {})
        editor.request("session/set_mode", {"sessionId": session, "modeId": "accept_edits"})
        editor.request("session/set_mode", {"sessionId": session, "modeId": "nonsense"})
        editor.request("session/close", {"sessionId": session})
        editor.request("session/load", {"sessionId": session, **place})
        editor.request("session/close", {"sessionId": session})
        editor.request("session/resume", {"sessionId": session, **place})
        editor.request("session/fork", {"sessionId": session, **place})
        editor.request("session/prompt", {"sessionId": "sess_none", "prompt": []})
        editor.request("session/delete", {"sessionId": session})
        editor.request("session/list", {})
    assert trouble(trace) == []


def test_cancelling_and_nonsense(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with Editor("--model", "offline", "--trace", str(trace)) as editor:
        editor.send_raw(b'{"jsonrpc":"2.0","id":90,"method":"session/list"}\n')
        editor.initialize()
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "sleep 600")
        editor.cancel(session)
        assert turn.wait() == "cancelled"
        editor.cancel(session)
        editor.prompt(session, "say on").wait()
        editor.send_raw(b"{nonsense\n")
        editor.send_raw(b"[]\n")
        editor.request("session/new", {"cwd": 7})
        editor.request("_mine", {})
        editor.request("no/such", {})
    assert trouble(trace) == []

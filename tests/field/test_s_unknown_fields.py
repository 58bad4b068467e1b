"""What is not known is let pass."""

from __future__ import annotations

from typing import Any

from tests.e2e.moments import Stage, bash
from tests.fakes.llm_answers import text


def test_row_244_246_unknown_fields_are_ignored_everywhere(at: Stage, tmp_path: Any) -> None:
    """A field that the agent did not know, on any level, failed the request."""
    more: dict[str, Any] = {"_meta": {"example.com/x": [1]}, "someday": {"deep": None}}
    params = {"cwd": str(tmp_path), "mcpServers": [], **more}
    message = {"jsonrpc": "2.0", "id": "new", "type": "request", "method": "session/new", "params": params}
    at.editor.send({**message, **more})
    at.editor.wait_for(lambda: any(m.get("id") == "new" for m in at.editor.received), "the new session")
    at.llm.script(bash("true"), text("fine"))
    at.editor.permission = {"outcome": {"outcome": "selected", "optionId": "allow_once", **more}, **more}
    turn = at.editor.prompt(at.session, [{"type": "text", "text": "go", "annotations": {}, **more}], **more)
    assert turn.wait() == "end_turn"
    assert turn.calls[0]["status"] == "completed"


def test_row_244_extensions_are_refused_or_ignored(at: Stage) -> None:
    """An extension that the agent did not know was answered in the wrong way."""
    assert at.editor.request("_example.com/do", {"x": 1}).code == -32601
    before = len(at.editor.received)
    at.editor.notify("_example.com/told", {"x": 1})
    at.editor.ping()
    assert len(at.editor.received) == before + 1


def test_row_245_our_own_extras_are_named_after_us(at: Stage) -> None:
    """Extra fields of the agent ran into those of others."""
    turn = at.prompt(bash("true"), text("end"))
    assert turn.wait() == "end_turn"
    found = [holder["_meta"] for holder in walk(at.editor.received) if "_meta" in holder]
    assert found
    assert {key for meta in found for key in meta} == {"acpserver"}


def walk(value: Any) -> list[dict[str, Any]]:
    """Every object in a value."""
    if isinstance(value, list):
        return [found for item in value for found in walk(item)]
    if isinstance(value, dict):
        return [value, *walk(list(value.values()))]
    return []

"""One tool call with a scripted tool: modes, progress, plan and question, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import StoreError
from acpserver.llm.types import Finish, TextDelta, ToolCall, ToolResult
from acpserver.mcp import McpTool
from acpserver.session import Session
from acpserver.tools.base import ToolOutcome
from tests.fakes.editor import Editor
from tests.fakes.inside import FakeTool, Inside, Script

LAST: list[Any] = [TextDelta("done"), Finish("stop")]


def script() -> Script:
    return Script([ToolCall("c1", "tool", {"n": 1}), Finish("tool_calls")], LAST)


def result(script: Script) -> ToolResult:
    (found,) = script.requests[1].messages[-1].parts
    assert isinstance(found, ToolResult)
    return found


MODES = [
    # mode, access, is the user asked, status
    ("default", "read", False, "completed"),
    ("default", "write", True, "completed"),
    ("default", "execute", True, "completed"),
    ("accept_edits", "write", False, "completed"),
    ("accept_edits", "execute", True, "completed"),
    ("read_only", "read", False, "completed"),
    ("read_only", "write", False, "failed"),
    ("read_only", "execute", False, "failed"),
    ("bypass", "execute", False, "completed"),
]


@pytest.mark.parametrize(("mode", "access", "asked", "status"), MODES)
def test_modes(tmp_path: Path, mode: str, access: str, asked: bool, status: str) -> None:
    played = script()
    with Editor(run=Inside(tmp_path, played, FakeTool("tool", access=access)).run) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        editor.request("session/set_mode", {"sessionId": session, "modeId": mode})
        turn = editor.prompt(session, "go")
        assert turn.wait() == "end_turn"
        assert turn.statuses("c1")[-1] == status
        requests = [m for m in editor.received if m.get("method") == "session/request_permission"]
        assert bool(requests) is asked
    if status == "failed":
        assert "read-only mode" in result(played).text


def test_a_mode_that_changes_in_mid_turn_holds_for_the_next_call(tmp_path: Path) -> None:
    """Rule N3."""
    calls = [ToolCall("c1", "tool", {}), ToolCall("c2", "tool", {}), Finish("tool_calls")]
    played = Script(calls, LAST)
    with Editor(run=Inside(tmp_path, played, FakeTool("tool")).run, permission=None) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "go")
        request = editor.wait_request()
        assert editor.request("session/set_mode", {"sessionId": session, "modeId": "read_only"}).result == {}
        editor.answer(request, "allow_once")
        assert turn.wait() == "end_turn"
        assert [call["status"] for call in turn.calls] == ["completed", "failed"]


def test_the_permission_request_repeats_the_first_report(tmp_path: Path) -> None:
    with Editor(run=Inside(tmp_path, script(), FakeTool("tool")).run) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        (first,) = turn.of_kind("tool_call")
        told = editor.wait_request()["params"]["toolCall"]  # type: ignore[index,call-overload]
        assert told == {key: value for key, value in first.items() if key != "sessionUpdate"}
        assert told["title"] == "Do tool" and told["rawInput"] == {"n": 1}


def test_progress_plan_and_context(tmp_path: Path) -> None:
    seen: list[object] = []
    entry: dict[str, object] = {"content": "a", "priority": "low", "status": "pending"}
    shown: dict[str, object] = {"type": "content", "content": {"type": "text", "text": "half"}}

    def run(arguments: dict[str, object], context: Any) -> ToolOutcome:
        seen.extend([context.session_id, context.cwd, context.roots, context.ask("really?")])
        context.progress([shown])
        context.plan([entry])
        return ToolOutcome("whole", raw_output={"n": 1})

    with Editor(run=Inside(tmp_path, script(), FakeTool("tool", run)).run) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "go")
        assert turn.wait() == "end_turn"
        assert seen == [session, str(tmp_path), (str(tmp_path),), None]
        kinds = [
            u["sessionUpdate"] for u in turn.updates if u.get("toolCallId") or u["sessionUpdate"] == "plan"
        ]
        assert kinds == ["tool_call", *["tool_call_update"] * 2, "plan", "tool_call_update"]
        assert turn.of_kind("plan")[0]["entries"] == [entry]
        progress, last = turn.of_kind("tool_call_update")[1:]
        assert progress["content"] == [shown] and progress["status"] == "in_progress"
        assert last["rawOutput"] == {"n": 1}


def test_a_question_reaches_a_client_that_can_show_it(tmp_path: Path) -> None:
    def run(arguments: object, context: Any) -> ToolOutcome:
        return ToolOutcome(f"the user said {context.ask('which?')}")

    played = script()
    answers: Any = {"elicitation/create": {"action": "accept", "content": {"answer": "blue"}}}
    with Editor(run=Inside(tmp_path, played, FakeTool("tool", run)).run, answers=answers) as editor:
        editor.initialize({"elicitation": {"form": {}}})
        assert editor.prompt(editor.new_session(tmp_path), "go").wait() == "end_turn"
        asked = editor.wait_request("elicitation/create")["params"]
        assert asked["message"] == "which?" and asked["mode"] == "form"  # type: ignore[index,call-overload]
    assert result(played).text == "the user said blue"


FOREIGN_SCHEMAS: list[Any] = [
    {"type": "nonsense"},
    {"pattern": "("},
    {"pattern": "(a+)+$"},  # takes years
    {"$ref": "#/$defs/none"},
    {"$ref": "http://127.0.0.1:9/schema.json"},
    {"$ref": "#"},
    {"allOf": 7},
]


class Answering:
    """An MCP server that answers every call."""

    name = "s"

    def call(self, tool: str, arguments: dict[str, object], cancel: CancelFlag) -> dict[str, object]:
        return {"content": [{"type": "text", "text": f"{tool} got {arguments}"}]}


@pytest.mark.parametrize("schema", FOREIGN_SCHEMAS, ids=str)
def test_the_schema_of_an_mcp_tool_is_not_run_here(tmp_path: Path, schema: dict[str, object]) -> None:
    """Its server checks the arguments."""
    given = {"n": "a" * 60 + "b"}
    listed = {"name": "t", "inputSchema": {"type": "object", "properties": {"n": schema}, "required": 5}}
    played = Script([ToolCall("c1", "mcp__s__t", given), Finish("tool_calls")], LAST)
    tool: Any = McpTool(Answering(), listed)  # type: ignore[arg-type]
    with Editor(run=Inside(tmp_path, played, tool).run) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        assert turn.statuses("c1")[-1] == "completed"
    assert result(played).text == f"t got {given}"


def test_a_huge_result_stays_within_the_line_limit(tmp_path: Path) -> None:
    tool = FakeTool("tool", lambda a, c: ToolOutcome("\U0001f600" * 200_000, raw_output={"x": "y" * 500_000}))
    with Editor(run=Inside(tmp_path, script(), tool).run) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "go")
        assert turn.wait() == "end_turn"
        assert turn.statuses("c1")[-1] == "completed"


def boom(*args: object) -> Any:
    raise ZeroDivisionError("by zero")


def failing(kind: str, error: Exception) -> Any:
    """`Session.note` that raises for one type of record."""
    note = Session.note

    def failing_note(session: Session, record: dict[str, object]) -> None:
        if record["type"] == kind:
            raise error
        note(session, record)

    return failing_note


BAD_CONTENT: Any = [{"type": "content", "content": 7}]
FAULTS: dict[str, tuple[str, Any, ToolOutcome]] = {
    # what fails: the function that fails, how, the outcome of the tool
    "display of the result": ("", None, ToolOutcome("ok", content=BAD_CONTENT)),
    "record of the result": ("Session.note", failing("result", StoreError("gone")), ToolOutcome("ok")),
    "record of the always": ("Session.note", failing("permission", StoreError("gone")), ToolOutcome("ok")),
    "question": ("Client.request_permission", boom, ToolOutcome("ok")),
    "start": ("translate.tool_started", lambda call: {"sessionUpdate": 7}, ToolOutcome("ok")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_ours_leaves_no_call_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The turn ends with an error, and the next one can be had."""
    function, failing, outcome = FAULTS[fault]
    played = Script([ToolCall("c1", "tool", {}), Finish("tool_calls")], LAST)
    tool = FakeTool("tool", lambda arguments, context: outcome)
    with Editor(run=Inside(tmp_path, played, tool).run, permission="allow_always") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        with monkeypatch.context() as patched:
            if function:
                patched.setattr(f"acpserver.agent.toolcalls.{function}", failing)
            turn = editor.prompt(session, "go")
            assert turn.wait_reply().code == -32603
        assert turn.statuses("c1")[-1] == "failed" and turn.statuses("c1").count("failed") == 1
        assert editor.prompt(session, "again").wait() == "end_turn"


def test_a_tool_that_prints_reaches_nobody_on_the_wire(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: object, context: object) -> ToolOutcome:
        print("noise")
        return ToolOutcome("ok")

    with Editor(run=Inside(tmp_path, script(), FakeTool("tool", run)).run) as editor:
        editor.initialize()
        assert editor.prompt(editor.new_session(tmp_path), "go").wait() == "end_turn"
    assert capsys.readouterr().out == "noise\n"

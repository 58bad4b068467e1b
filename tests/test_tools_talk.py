"""plan, ask_user, the checking of arguments, and the table of all tools."""

from __future__ import annotations

import threading
from pathlib import Path

import jsonschema
import pytest

from acpserver.errors import ToolError
from acpserver.processes import Children
from acpserver.tools.arguments import check_arguments
from acpserver.tools.ask import AskUser
from acpserver.tools.base import READ
from acpserver.tools.builtin import builtin_tools
from acpserver.tools.files import ReadFile
from acpserver.tools.plan import Plan
from tests.fakes.tool_context import Surroundings


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A session in an empty folder."""
    return Surroundings(tmp_path)


def test_a_plan_is_sent_whole_with_every_field(here: Surroundings) -> None:
    steps = [{"content": "a", "status": "completed"}, {"content": "b", "priority": "high"}]
    action = here.prepare(Plan(), entries=steps)
    assert here.plans == [] and action.access == READ
    assert "1 of 2" in action.run().text
    assert here.plans == [
        [
            {"content": "a", "priority": "medium", "status": "completed"},
            {"content": "b", "priority": "high", "status": "pending"},
        ]
    ]


@pytest.mark.parametrize(
    "entries", ["text", [{}], [{"content": ""}], [{"content": "a", "status": "done"}], ["a"], None]
)
def test_a_plan_of_another_shape_is_told(here: Surroundings, entries: object) -> None:
    with pytest.raises(ToolError, match="entries"):
        here.prepare(Plan(), entries=entries)
    assert here.plans == []


def test_a_question_brings_the_answer(here: Surroundings) -> None:
    here.answer = "blue"
    action = here.prepare(AskUser(), question="Which colour?")
    assert here.questions == [] and action.title == "Ask: Which colour?"
    assert "blue" in action.run().text
    assert here.questions == ["Which colour?"]


def test_a_question_without_answer_is_no_error(here: Surroundings) -> None:
    done = here.call(AskUser(), question="Which colour?")
    assert not done.is_error and "could not be asked" in done.text


def test_every_fault_of_the_arguments_is_named_without_quoting_all_of_them() -> None:
    with pytest.raises(ToolError) as caught:
        check_arguments(ReadFile(), {"file": "x" * 100_000, "line": "y" * 100_000})
    text = str(caught.value)
    assert "'path' is a required property" in text and "line: " in text and "'file' was unexpected" in text
    assert "Arguments: path, line (optional), limit (optional)." in text
    assert len(text) < 1500


def test_null_stands_for_an_optional_argument_but_not_for_a_needed_one() -> None:
    check_arguments(ReadFile(), {"path": "a", "line": None, "limit": None})
    with pytest.raises(ToolError, match="path: "):
        check_arguments(ReadFile(), {"path": None})


def test_arguments_are_checked_on_many_threads_at_once() -> None:
    tool = ReadFile()
    faults: list[str] = []

    def check() -> None:
        try:
            check_arguments(tool, {"path": "a", "line": 1})
        except ToolError as error:
            faults.append(str(error))

    threads = [threading.Thread(target=check) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert faults == []


KINDS = {
    "read_file": "read", "list_files": "read", "glob": "search", "grep": "search", "write_file": "edit",
    "edit_file": "edit", "bash": "execute", "web_fetch": "fetch", "plan": "other", "ask_user": "other",
}  # fmt: skip


def test_the_table_holds_every_tool_with_its_kind_and_a_valid_schema() -> None:
    children = Children()
    tools = builtin_tools(children)
    children.close()
    assert {name: tool.kind for name, tool in tools.items()} == KINDS
    for name, tool in tools.items():
        assert tool.name == name and tool.description
        jsonschema.Draft202012Validator.check_schema(tool.parameters)
        assert tool.parameters["additionalProperties"] is False

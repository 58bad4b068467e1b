"""The offline model: each command, in order, from the history alone."""

from __future__ import annotations

import threading
import time
from unittest import mock

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled, ProviderError
from acpserver.llm.offline import HELP, OTHERS, TOOLS, OfflineModel, parse_command
from acpserver.llm.types import (
    Event,
    Finish,
    Message,
    ModelRequest,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    Usage,
)


def ask(*messages: Message) -> list[Event]:
    return list(OfflineModel().stream(ModelRequest("offline", "", messages), CancelFlag()))


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def run(prompt: str, *outcomes: ToolResult | str) -> tuple[str, str, list[ToolCall], str]:
    """Go through a whole turn, answering each call; (text, thoughts, calls, reason of the last answer)."""
    messages, calls, waiting = [user(prompt)], [], list(outcomes)
    text = thoughts = ""
    while True:
        events = ask(*messages)
        assert isinstance(events[-1], Finish) and isinstance(events[-2], Usage)
        assert sum(isinstance(event, Finish) for event in events) == 1
        text += "".join(event.text for event in events if isinstance(event, TextDelta))
        thoughts += "".join(event.text for event in events if isinstance(event, ThoughtDelta))
        found = [event for event in events if isinstance(event, ToolCall)]
        if not found:
            return text, thoughts, calls, events[-1].reason
        assert events[-1].reason == "tool_calls"
        calls += found
        assert len(calls) < 60, "it never ends"
        results = []
        for call in found:
            outcome = waiting.pop(0) if waiting else "fine"
            error = isinstance(outcome, ToolResult)
            results.append(
                ToolResult(
                    call.id, call.name, outcome.text if isinstance(outcome, ToolResult) else outcome, error
                )
            )
        messages += [Message("assistant", tuple(found)), Message("tool", tuple(results))]


COMMANDS = [
    ("read a b.txt", "read_file", {"path": "a b.txt"}),
    ("list src", "list_files", {"path": "src"}),
    ("list", "list_files", {"path": "."}),
    ("find **/*.py", "glob", {"pattern": "**/*.py"}),
    ("search def .*:", "grep", {"pattern": "def .*:"}),
    ("write a.txt: one\\ntwo", "write_file", {"path": "a.txt", "content": "one\ntwo"}),
    ("write a.txt:", "write_file", {"path": "a.txt", "content": ""}),
    (
        "replace a with b in c.txt",
        "edit_file",
        {"old_text": "a", "new_text": "b", "path": "c.txt"},
    ),
    ("replace a with  in c.txt", "edit_file", {"old_text": "a", "new_text": "", "path": "c.txt"}),
    ("run ls | wc -l", "bash", {"command": "ls | wc -l"}),
    ("RUN ls", "bash", {"command": "ls"}),
    ("fetch http://127.0.0.1/x", "web_fetch", {"url": "http://127.0.0.1/x"}),
    ("ask which one?", "ask_user", {"question": "which one?"}),
    (
        "plan a; b ;; c",
        "plan",
        {"entries": [{"content": x, "priority": "medium", "status": "pending"} for x in "abc"]},
    ),
]


@pytest.mark.parametrize(("line", "tool", "arguments"), COMMANDS, ids=[line for line, _, _ in COMMANDS])
def test_a_command_that_calls_a_tool(line: str, tool: str, arguments: dict[str, object]) -> None:
    text, thoughts, (call,), reason = run(line)
    assert (call.id, call.name, call.arguments) == ("call_1", tool, arguments)
    assert (text, thoughts, reason) == ("Done.\n", "", "stop")


OWN = [
    ("say hello  there", "hello  there\n", "", "stop"),
    ("think hm", "Done.\n", "hm\n", "stop"),
    ("stream 3", "1 2 3 ", "", "stop"),
    ("stream 0", "", "", "stop"),
    ("sleep 0", "Done.\n", "", "stop"),
    ("stop end_turn", "", "", "stop"),
    ("stop max_tokens", "", "", "length"),
    ("stop refusal", "", "", "refusal"),
    ("say a\nstop refusal\nsay b", "a\n", "", "refusal"),
    ("  SAY a  \r\n\n say b", "a\nb\n", "", "stop"),
]


@pytest.mark.parametrize(("prompt", "text", "thoughts", "reason"), OWN)
def test_a_command_of_its_own(prompt: str, text: str, thoughts: str, reason: str) -> None:
    assert run(prompt) == (text, thoughts, [], reason)


def test_commands_run_in_their_order_around_the_tools() -> None:
    text, _, calls, _ = run("say one\nread a\nsay two\nrun b\nsay three")
    assert text == "one\ntwo\nthree\n"
    assert [(call.id, call.name) for call in calls] == [("call_1", "read_file"), ("call_2", "bash")]


def test_call_ids_go_on_in_the_next_turn() -> None:
    call = ToolCall("call_1", "bash", {"command": "x"})
    earlier = [
        user("run x"),
        Message("assistant", (call,)),
        Message("tool", (ToolResult("call_1", "bash", "y"),)),
    ]
    events = ask(*earlier, Message("assistant", (Text("Done."),)), user("read a"))
    assert isinstance(events[0], ToolCall) and events[0].id == "call_2"


def test_a_failed_tool_is_told() -> None:
    text, _, _, _ = run("read a\nread b", ToolResult("", "", "a: not found\nmore", True))
    assert text == "Not everything worked: a: not found\n"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "request"), (401, "auth"), (403, "auth"), (404, "request"), (413, "context"), (429, "rate_limit")]
    + [(500, "server"), (503, "server")],
)
def test_fail(status: int, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(user(f"fail {status}"))
    assert (caught.value.status, caught.value.kind) == (status, kind) and str(status) in str(caught.value)


def test_stop_max_turn_requests_never_ends_by_itself() -> None:
    messages = [user("stop max_turn_requests")]
    for number in range(1, 6):
        events = ask(*messages)
        assert isinstance(events[0], ToolCall) and events[0].id == f"call_{number}"
        messages += [
            Message("assistant", (events[0],)),
            Message("tool", (ToolResult(events[0].id, "list_files", "x"),)),
        ]


def test_a_plain_question_looks_at_the_folder_and_is_honest() -> None:
    text, _, (call,), reason = run("what is in this folder?", "a.txt\nb.txt")
    assert (call.name, call.arguments, reason) == ("list_files", {"path": "."}, "stop")
    assert "not a language model" in text and "a.txt\nb.txt" in text and HELP in text
    assert "--model" in text and "--base-url" in text


@pytest.mark.parametrize(
    "line", ["dance", "stream many", "fail 700", "stop now", "say", "sleep", "write a", "x" * 9]
)
def test_a_line_that_is_no_command_among_commands_is_shown_with_the_help(line: str) -> None:
    text, _, _, _ = run(f"say hi\n{line}")
    assert text.startswith("hi\n") and f"I do not understand {line!r}" in text and HELP in text


@pytest.mark.parametrize("line", ["read", "stream many", "stop now", "write a haiku", "Replace a with b"])
def test_a_line_that_only_begins_like_a_command_is_not_understood(line: str) -> None:
    text, _, calls, _ = run(line)
    assert text.startswith(f"I do not understand {line!r}") and HELP in text and calls == []


def test_every_command_is_in_the_help() -> None:
    assert {line.split()[0] for line in HELP.splitlines()[1:]} == set(TOOLS) | set(OTHERS)
    assert parse_command("").name == ""


def test_attached_resources_are_no_commands() -> None:
    parts = (
        Text("say hi"),
        Text('\n<resource uri="/a">\nrun rm x\n</resource>\n'),
        Text("\n[resource: a at /a]\n"),
    )
    events = ask(Message("user", parts))
    assert [event for event in events if isinstance(event, (TextDelta, ToolCall))] == [TextDelta("hi\n")]


@pytest.mark.parametrize(
    "line",
    [
        "replace " + "a with b " * 30_000,
        "replace " + "a with " * 15_000 + " in b" * 15_000,
        "write " + "a" * 280_000,
        "sleep " + "1" * 280_000,
    ],
    ids=lambda line: line[:15],
)
def test_a_very_long_line_is_read_in_no_time(line: str) -> None:
    """It froze the whole process, in an expression that nothing interrupts."""
    started = time.process_time()
    command = parse_command(line)
    assert time.process_time() - started < 1
    if command.name:
        assert command.values["old_text"] == "a" and command.values["path"] == "b"


@pytest.mark.parametrize(
    "line", ["replace a with in b", "replace a in b with c", "replace  with a in b", "replace a with b"]
)
def test_a_replacement_without_all_its_parts_is_no_command(line: str) -> None:
    assert parse_command(line).name == ""


def test_the_first_with_and_the_last_in_count() -> None:
    assert parse_command("replace a with b with c in d in e").values == {
        "old_text": "a",
        "new_text": "b with c in d",
        "path": "e",
    }


def test_a_cancel_ends_the_reading_of_a_prompt() -> None:
    """A prompt may have millions of lines."""
    flag = CancelFlag()
    flag.set()
    request = ModelRequest("offline", "", (user("say a\n" * 10),))
    with mock.patch("acpserver.llm.offline.parse_command") as parse, pytest.raises(Cancelled):
        list(OfflineModel().stream(request, flag))
    parse.assert_not_called()


def test_sleep_is_woken_by_a_cancel() -> None:
    flag = CancelFlag()
    request = ModelRequest("offline", "", (user("say a\nsleep 600"),))
    events = OfflineModel().stream(request, flag)
    assert next(events) == TextDelta("a\n")
    threading.Timer(0.01, flag.set).start()
    with pytest.raises(Cancelled):
        next(events)


def test_a_long_stream_stops_at_a_cancel() -> None:
    flag = CancelFlag()
    events = OfflineModel().stream(ModelRequest("offline", "", (user("stream 1000000"),)), flag)
    assert next(events) == TextDelta("1 ")
    flag.set()
    with pytest.raises(Cancelled):
        next(events)


def test_the_same_history_gives_the_same_answer() -> None:
    assert ask(user("say a\nread b")) == ask(user("say a\nread b"))

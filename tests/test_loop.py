"""One turn with a scripted model: what the client sees, what the model sees next, and how it stops."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from acpserver.errors import ProviderError, ToolError
from acpserver.llm.pairing import paired
from acpserver.llm.types import (
    Finish,
    Message,
    Text,
    TextDelta,
    Thought,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    Usage,
    Waiting,
)
from acpserver.tools.base import ToolOutcome
from tests.fakes.editor import Editor
from tests.fakes.inside import FakeTool, Inside, Script, stall
from tests.field.helpers import eventually

STOP = Finish("stop")
LAST = [TextDelta("done"), STOP]
DONE = Message("assistant", (Text("done"),))


def ask(text: str) -> Message:
    return Message("user", (Text(text),))


def call(call_id: str, name: str = "tool", **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def history(script: Script, number: int = -1) -> list[Message]:
    """What a dialect would send for a model call: the messages with every call answered."""
    return paired(script.requests[number].messages)


class Talk:
    """An editor in a session, and the script."""

    def __init__(self, folder: Path, script: Script, *tools: FakeTool, **settings: object):
        self.script = script
        self.editor = Editor(run=Inside(folder, script, *tools, **settings).run)
        self.capabilities: dict[str, Any] = {}
        self.folder = folder

    def __enter__(self) -> Talk:
        self.editor.__enter__()
        self.editor.initialize(self.capabilities)
        self.session = self.editor.new_session(self.folder)
        return self

    def __exit__(self, *error: Any) -> None:
        self.editor.__exit__(*error)

    def say(self, text: str) -> Any:
        return self.editor.prompt(self.session, text)


def test_text_and_thought_are_messages_of_their_own(tmp_path: Path) -> None:
    answer = [ThoughtDelta("h"), ThoughtDelta("m"), TextDelta("a"), ThoughtDelta("x"), TextDelta("b"), STOP]
    script = Script(answer, LAST)
    with Talk(tmp_path, script) as talk:
        turn = talk.say("one")
        assert turn.wait() == "end_turn"
        assert (turn.text, turn.thoughts) == ("ab", "hmx")
        chunks = turn.of_kind("agent_message_chunk", "agent_thought_chunk")
        order = list(dict.fromkeys((c["sessionUpdate"], c["messageId"]) for c in chunks))
        assert [kind for kind, _ in order] == ["agent_thought_chunk", "agent_message_chunk"] * 2
        assert talk.say("two").wait() == "end_turn"
    parts = (Thought("hm"), Text("a"), Thought("x"), Text("b"))
    assert history(script) == [ask("one"), Message("assistant", parts), ask("two")]


def test_what_the_model_is_told(tmp_path: Path) -> None:
    script = Script(LAST)
    with Talk(tmp_path, script, FakeTool("tool"), max_tokens=77) as talk:
        assert talk.say("hello").wait() == "end_turn"
    request = script.requests[0]
    assert (request.model, request.max_tokens) == ("scripted", 77)
    assert [spec.name for spec in request.tools] == ["tool"]
    assert str(tmp_path) in request.system


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("refusal", "refusal"), ("tool_calls", "end_turn")],
)
def test_finish_reasons(tmp_path: Path, finish: str, reason: str) -> None:
    with Talk(tmp_path, Script([TextDelta("x"), Finish(finish)])) as talk:
        assert talk.say("go").wait() == reason


def test_what_was_refused_is_not_shown_to_the_model_again(tmp_path: Path) -> None:
    """The protocol wants it so; and a model that sees a refusal goes on refusing."""
    refused = [TextDelta("I will not"), call("c2"), Finish("refusal")]
    script = Script(LAST, [call("c1"), Finish("tool_calls")], refused, LAST)
    tool = FakeTool("tool")
    with Talk(tmp_path, script, tool) as talk:
        assert talk.say("one").wait() == "end_turn"
        turn = talk.say("bad")
        assert turn.wait() == "refusal" and turn.text == "I will not"
        assert len(turn.of_kind("tool_call")) == 1, "what was called beside a refusal is not run"
        assert talk.say("two").wait() == "end_turn"
    assert [message.role for message in script.requests[-1].messages] == ["user", "assistant", "user"]
    assert "bad" not in str(script.requests[-1].messages)


def test_an_answer_with_nothing_in_it(tmp_path: Path) -> None:
    script = Script([STOP], LAST)
    with Talk(tmp_path, script) as talk:
        turn = talk.say("one")
        assert turn.wait() == "end_turn" and turn.text == ""
        assert talk.say("two").wait() == "end_turn"
    assert [message.role for message in script.requests[1].messages][-1] == "user"


def boom(arguments: object, context: object) -> ToolOutcome:
    raise ZeroDivisionError("by zero")


def complain(arguments: object, context: object) -> ToolOutcome:
    raise ToolError("it is locked")


RESULTS = {
    "ok": (call("c1"), FakeTool("tool"), "completed", ("ok", False)),
    "tool error": (call("c1"), FakeTool("tool", complain), "failed", ("it is locked", True)),
    "crash": (
        call("c1"),
        FakeTool("tool", boom),
        "failed",
        ("The tool failed: ZeroDivisionError: by zero", True),
    ),
    "error outcome": (
        call("c1"),
        FakeTool("tool", lambda a, c: ToolOutcome("exit 1", is_error=True)),
        "failed",
        ("exit 1", True),
    ),
    "refused by prepare": (
        call("c1"),
        FakeTool("tool", refuse=ToolError("no such file")),
        "failed",
        ("no such file", True),
    ),
    "crash in prepare": (
        call("c1"),
        FakeTool("tool", refuse=KeyError("x")),
        "failed",
        ("The tool failed: KeyError: 'x'", True),
    ),
    "unknown tool": (
        call("c1", "nope"),
        FakeTool("tool"),
        "failed",
        ("There is no tool 'nope'. The tools are: tool.", True),
    ),
    "arguments that are no object": (
        ToolCall("c1", "tool", None, '{"n": '),
        FakeTool("tool"),
        "failed",
        ("The arguments are not a JSON object: '{\"n\": '", True),
    ),
}


@pytest.mark.parametrize(("asked", "tool", "status", "result"), RESULTS.values(), ids=RESULTS.keys())
def test_each_call_ends_and_the_model_reads_its_result(
    tmp_path: Path, asked: ToolCall, tool: FakeTool, status: str, result: tuple[str, bool]
) -> None:
    script = Script([TextDelta("look"), asked, Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, tool) as talk:
        turn = talk.say("go")
        assert turn.wait() == "end_turn"
        assert [c["status"] for c in turn.calls] == [status]
        ran = not result[1] or asked.name == "tool" and tool.refuse is None and asked.arguments is not None
        steps = ["pending", "in_progress", status] if ran else ["pending", "failed"]
        assert turn.statuses("c1") == steps
    told = ToolResult("c1", asked.name, *result)
    assert list(script.requests[1].messages) == [
        ask("go"),
        Message("assistant", (Text("look"), asked)),
        Message("tool", (told,)),
    ]


def test_arguments_are_checked_before_anyone_is_asked(tmp_path: Path) -> None:
    script = Script([call("c1", n="many"), Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        turn = talk.say("go")
        assert turn.wait() == "end_turn"
        assert turn.statuses("c1") == ["pending", "failed"]
        assert not [m for m in talk.editor.received if m.get("method") == "session/request_permission"]
    (result,) = script.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult) and result.is_error and "n" in result.text


def test_calls_run_one_after_another_and_results_keep_their_order(tmp_path: Path) -> None:
    ran: list[object] = []

    def run(arguments: dict[str, object], context: object) -> ToolOutcome:
        ran.append(arguments["n"])
        return ToolOutcome(f"result {arguments['n']}")

    calls = [call(f"c{n}", n=n) for n in range(3)]
    script = Script([*calls, Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("tool", run)) as talk:
        assert talk.say("go").wait() == "end_turn"
    assert ran == [0, 1, 2]
    results = tuple(ToolResult(f"c{n}", "tool", f"result {n}") for n in range(3))
    assert history(script) == [ask("go"), Message("assistant", tuple(calls)), Message("tool", results)]


@pytest.mark.parametrize(
    "policy", ["reject_once", "cancelled", {"outcome": {"outcome": "selected", "optionId": "x"}}]
)
def test_a_refused_call_tells_the_model_and_the_turn_goes_on(tmp_path: Path, policy: Any) -> None:
    script = Script([call("c1"), Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("tool", boom)) as talk:
        talk.editor.permission = policy
        turn = talk.say("go")
        assert turn.wait() == "end_turn" and turn.text == "done"
        assert turn.statuses("c1") == ["pending", "failed"]
    (result,) = script.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult) and result.text.startswith("Permission denied") and result.is_error


@pytest.mark.parametrize(("policy", "status"), [("allow_always", "completed"), ("reject_always", "failed")])
def test_always_holds_for_the_tool_and_no_other(tmp_path: Path, policy: str, status: str) -> None:
    first = [call("c1", "a"), call("c2", "a"), call("c3", "b"), Finish("tool_calls")]
    script = Script(first, LAST, [call("c4", "a"), Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("a"), FakeTool("b")) as talk:
        talk.editor.permission = policy
        turn = talk.say("go")
        assert turn.wait() == "end_turn"
        assert [c["status"] for c in turn.calls] == [status] * 3
        assert talk.say("again").wait() == "end_turn"
        asked = [m["params"] for m in talk.editor.received if m.get("method") == "session/request_permission"]
        assert [params["toolCall"]["toolCallId"] for params in asked] == ["c1", "c3"]


def test_the_number_of_steps_is_limited(tmp_path: Path) -> None:
    script = Script(*[[call(f"c{n}"), Finish("tool_calls")] for n in range(3)], LAST)
    with Talk(tmp_path, script, FakeTool("tool"), max_steps=3) as talk:
        assert talk.say("go").wait() == "max_turn_requests"
        assert talk.say("more").wait() == "end_turn"
    roles = [message.role for message in history(script)]
    assert roles == ["user", *["assistant", "tool"] * 3, "user"]


def results(script: Script) -> list[str]:
    """The texts of all tool results that the last model call was given."""
    parts = [part for message in script.requests[-1].messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResult)]


HINT = "[This is call number {} of this kind in a row, with the same arguments and the same result."


def test_a_model_that_repeats_a_call_is_told_and_then_stopped(tmp_path: Path) -> None:
    script = Script(*[[call(f"c{n}", x=1), Finish("tool_calls")] for n in range(20)], LAST)
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        turn = talk.say("go")
        assert turn.wait() == "max_turn_requests" and len(script.requests) == 20
        assert (
            turn.thoughts
            == "Stopped: the model made the same tool calls with the same results again and again."
        )
        assert turn.calls[19]["status"] == "completed"
        assert talk.say("more").wait() == "end_turn", "the count is the turn's"
    found = results(script)
    assert found[:2] == ["ok", "ok"] and len(found) == 20
    for number, text in enumerate(found[2:], 3):
        assert text.startswith("ok\n\n" + HINT.format(number)), text


@pytest.mark.parametrize(
    ("capabilities", "names"), [({}, ["tool"]), ({"elicitation": {"form": {}}}, ["tool", "ask_user"])]
)
def test_a_question_is_offered_where_it_can_be_asked(
    tmp_path: Path, capabilities: dict[str, object], names: list[str]
) -> None:
    script = Script(LAST)
    talk = Talk(tmp_path, script, FakeTool("tool"), FakeTool("ask_user"))
    talk.capabilities = capabilities
    with talk:
        assert talk.say("go").wait() == "end_turn"
    assert [tool.name for tool in script.requests[0].tools] == names


def test_a_model_that_goes_round_the_same_calls_is_told_and_then_stopped(tmp_path: Path) -> None:
    script = Script(*[[call(f"c{n}", x=n % 2), Finish("tool_calls")] for n in range(41)], LAST)
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        assert talk.say("go").wait() == "max_turn_requests" and len(script.requests) == 40
        assert talk.say("more").wait() == "end_turn", "the count is the turn's"
    found = results(script)
    assert found[:5] == ["ok"] * 5 and len(found) == 41
    for number, text in enumerate(found[5:40], 5):
        assert text.startswith(f"ok\n\n[This is round number {(number + 1) // 2} of the same 2 calls,"), text


def test_a_call_that_fails_again_and_again_is_a_repetition_too(tmp_path: Path) -> None:
    answers = [[ToolCall(f"c{n}", "tool", None, "{broken"), Finish("tool_calls")] for n in range(20)]
    with Talk(tmp_path, Script(*answers), FakeTool("tool")) as talk:
        assert talk.say("go").wait() == "max_turn_requests"


def test_another_argument_result_or_tool_is_no_repetition(tmp_path: Path) -> None:
    count = itertools.count()
    changing = FakeTool("b", lambda arguments, context: ToolOutcome(str(next(count) // 2)))
    calls = [call(f"a{n}", "a", x=n // 2) for n in range(12)] + [call(f"b{n}", "b") for n in range(12)]
    script = Script([*calls, Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("a"), changing) as talk:
        assert talk.say("go").wait() == "end_turn"
    assert results(script) == ["ok"] * 12 + [str(n // 2) for n in range(12)]


def test_an_answer_cut_off_by_length_runs_its_whole_calls_and_stops(tmp_path: Path) -> None:
    script = Script([call("c1"), Finish("length")])
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        turn = talk.say("go")
        assert turn.wait() == "max_tokens"
        assert turn.statuses("c1")[-1] == "completed"


# Cancelling


def test_cancel_before_the_first_event(tmp_path: Path) -> None:
    script = Script([stall], LAST)
    with Talk(tmp_path, script) as talk:
        turn = talk.say("one")
        eventually(lambda: script.requests, "model call")
        talk.editor.cancel(talk.session)
        assert turn.wait() == "cancelled" and turn.text == ""
        assert talk.say("two").wait() == "end_turn"
    assert history(script)[0] == ask("one") and history(script)[-1] == ask("two")


def test_cancel_in_the_middle_keeps_the_text_and_drops_calls_that_were_not_shown(tmp_path: Path) -> None:
    script = Script([TextDelta("half"), call("c1"), stall], LAST)
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        turn = talk.say("one")
        turn.until("agent_message_chunk")
        talk.editor.cancel(talk.session)
        assert turn.wait() == "cancelled" and turn.text == "half" and turn.calls == []
        assert talk.say("two").wait() == "end_turn"
    assert history(script) == [ask("one"), Message("assistant", (Text("half"),)), ask("two")]


def test_cancel_in_a_tool_ends_that_call_and_answers_the_others_for_the_model(tmp_path: Path) -> None:
    def wait(arguments: dict[str, object], context: Any) -> ToolOutcome:
        if arguments["n"] == 0:
            return ToolOutcome("fine")
        context.cancel.sleep(30)
        raise AssertionError("not cancelled")

    calls = [call(f"c{n}", n=n) for n in range(3)]
    script = Script([*calls, Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("tool", wait)) as talk:
        turn = talk.say("one")
        turn.until(lambda update: update.get("toolCallId") == "c1" and update["status"] == "in_progress")
        talk.editor.cancel(talk.session)
        assert turn.wait() == "cancelled"
        assert [(c["toolCallId"], c["status"]) for c in turn.calls] == [("c0", "completed"), ("c1", "failed")]
        assert talk.say("two").wait() == "end_turn"
    first, answer, tools, second = history(script)
    assert (first, second) == (ask("one"), ask("two"))
    assert answer == Message("assistant", tuple(calls))
    results = [(r.call_id, r.is_error) for r in tools.parts if isinstance(r, ToolResult)]
    assert results == [("c0", False), ("c1", True), ("c2", True)]


def test_cancel_while_the_user_is_asked(tmp_path: Path) -> None:
    script = Script([call("c1"), Finish("tool_calls")], LAST)
    with Talk(tmp_path, script, FakeTool("tool", boom)) as talk:
        talk.editor.permission = None
        turn = talk.say("one")
        request = talk.editor.wait_request()
        talk.editor.cancel(talk.session)
        assert turn.wait() == "cancelled"
        assert turn.statuses("c1") == ["pending", "failed"]
        talk.editor.answer(request, "allow_once")  # late: ignored
        assert talk.say("two").wait() == "end_turn"


# Errors of the model


def test_an_error_before_anything_came_leaves_no_trace_in_the_history(tmp_path: Path) -> None:
    error = ProviderError("The server is down.", kind="server", status=503)
    script = Script([error], LAST)
    with Talk(tmp_path, script) as talk:
        reply = talk.say("one").wait_reply()
        assert (reply.code, reply.error["data"]) == (-32603, {"details": "The server is down."})
        assert talk.say("one").wait() == "end_turn"
    assert history(script) == [ask("one")]


def test_an_error_after_text_keeps_the_text(tmp_path: Path) -> None:
    error = ProviderError("The stream broke off.", kind="stream")
    script = Script([TextDelta("half"), call("c1"), error], LAST)
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        turn = talk.say("one")
        assert turn.wait_reply().code == -32603
        assert turn.text == "half" and turn.calls == []
        assert talk.say("two").wait() == "end_turn"
    assert history(script) == [ask("one"), Message("assistant", (Text("half"),)), ask("two")]


def test_an_error_after_a_tool_keeps_what_was_done(tmp_path: Path) -> None:
    error = ProviderError("The server is down.", kind="server", status=500)
    script = Script([call("c1"), Finish("tool_calls")], [error], LAST)
    with Talk(tmp_path, script, FakeTool("tool")) as talk:
        assert talk.say("one").wait_reply().code == -32603
        assert talk.say("two").wait() == "end_turn"
    assert [message.role for message in history(script)] == ["user", "assistant", "tool", "user"]


def test_refused_credentials_ask_for_authentication(tmp_path: Path) -> None:
    script = Script([ProviderError("The key was refused.", kind="auth", status=401)])
    with Talk(tmp_path, script) as talk:
        assert talk.say("one").wait_reply().code == -32000


def test_a_context_that_is_too_full_is_shortened_once(tmp_path: Path) -> None:
    full = ProviderError("Too long.", kind="context", status=400)
    script = Script([call("c1"), Finish("tool_calls")], [full], LAST, LAST)
    tool = FakeTool("tool", lambda arguments, context: ToolOutcome("x" * 50_000))
    with Talk(tmp_path, script, tool) as talk:
        turn = talk.say("go")
        assert turn.wait() == "end_turn"
        assert "older tool output was shortened" in turn.thoughts
        assert talk.say("more").wait() == "end_turn"
    for number in (2, 3):
        (result,) = script.requests[number].messages[2].parts
        assert isinstance(result, ToolResult) and len(result.text) < 2_200 and "shortened" in result.text
    (whole,) = script.requests[1].messages[2].parts
    assert isinstance(whole, ToolResult) and len(whole.text) == 50_000


def test_a_context_that_cannot_be_shortened_is_an_error(tmp_path: Path) -> None:
    full = ProviderError("Too long.", kind="context", status=400)
    script = Script([full], LAST)
    with Talk(tmp_path, script) as talk:
        assert talk.say("x" * 1_000).wait_reply().details == "Too long."
        assert talk.say("short").wait() == "end_turn"
    assert history(script) == [ask("short")]


# Usage, remarks


def test_usage_is_added_up_and_shown(tmp_path: Path) -> None:
    script = Script(
        [call("c1"), Usage(10, 5, 4, 2), Finish("tool_calls")], [TextDelta("x"), Usage(20, 3), STOP]
    )
    with Talk(tmp_path, script, FakeTool("tool"), context_window=1_000) as talk:
        turn = talk.say("go")
        assert turn.wait() == "end_turn"
        used = [(u["used"], u["size"]) for u in turn.of_kind("usage_update")]
        assert used == [(15, 1_000), (23, 1_000)]
        result = turn.wait_reply().result
        expected = {
            "inputTokens": 30,
            "outputTokens": 8,
            "totalTokens": 38,
            "cachedReadTokens": 4,
            "thoughtTokens": 2,
        }
        assert result["usage"] == expected
        meta = result["_meta"]["acpserver"]  # type: ignore[index]
        assert meta == {"elapsedMs": meta["elapsedMs"], "turnCount": 1, **expected}
        assert isinstance(meta["elapsedMs"], int) and meta["elapsedMs"] >= 0


def test_no_usage_where_the_model_tells_none(tmp_path: Path) -> None:
    with Talk(tmp_path, Script(LAST), context_window=1_000) as talk:
        turn = talk.say("go")
        assert turn.wait() == "end_turn"
        assert "usage" not in turn.wait_reply().result and turn.of_kind("usage_update") == []


@pytest.mark.parametrize("notices", [True, False])
def test_waiting_is_told_as_the_client_can_show_it(tmp_path: Path, notices: bool) -> None:
    talk = Talk(tmp_path, Script([Waiting(1.25, "rate limit"), *LAST], LAST))
    talk.capabilities = {"session": {"notices": {}}} if notices else {}
    with talk:
        turn = talk.say("go")
        assert turn.wait() == "end_turn" and turn.text == "done"
        told = [u["title"] for u in turn.of_kind("notice")] if notices else [turn.thoughts]
        assert told == ["Waiting 1.2 s: rate limit"]
        assert talk.say("more").wait() == "end_turn"
    assert history(talk.script) == [ask("go"), DONE, ask("more")], "a remark is not the model's"


def test_the_first_prompt_gives_the_title(tmp_path: Path) -> None:
    with Talk(tmp_path, Script(LAST, LAST)) as talk:
        turn = talk.say("\n  Fix the bug  \nplease")
        assert turn.wait() == "end_turn"
        assert [u["title"] for u in turn.of_kind("session_info_update")] == ["Fix the bug"]
        turn = talk.say("and another")
        assert turn.wait() == "end_turn" and turn.of_kind("session_info_update") == []


def test_a_time_limit_ends_the_turn_as_a_cancel_does(tmp_path: Path) -> None:
    script = Script([TextDelta("x"), stall], [stall], LAST)
    with Talk(tmp_path, script) as talk:
        for limit in ({"_meta": {"timeoutMs": 300}}, {"metadata": {"timeout_ms": 300}}):
            assert talk.editor.prompt(talk.session, "go", **limit).wait() == "cancelled"
        assert talk.editor.prompt(talk.session, "go", _meta={"timeoutMs": "soon"}).wait() == "end_turn"


def test_a_time_limit_ends_a_turn_that_waits(tmp_path: Path) -> None:
    """L5: the prompt is answered although the turn before it still runs."""
    with Talk(tmp_path, Script([TextDelta("x"), stall], LAST)) as talk:
        first = talk.say("go")
        first.until("agent_message_chunk")
        assert talk.editor.prompt(talk.session, "late", _meta={"timeoutMs": 20}).wait(5.0) == "cancelled"
        assert first.reply is None
        talk.editor.cancel(talk.session)
        assert first.wait() == "cancelled"
        assert talk.say("more").wait() == "end_turn"


def test_a_fault_in_the_provider_is_an_error_and_the_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script([TextDelta("x"), KeyError("bug")], LAST)
    with Talk(tmp_path, script) as talk:
        reply = talk.say("go").wait_reply()
        assert (reply.code, set(reply.error["data"])) == (-32603, {"details"})  # type: ignore[call-overload]
        assert talk.say("more").wait() == "end_turn"
    assert "KeyError: 'bug'" in caplog.text

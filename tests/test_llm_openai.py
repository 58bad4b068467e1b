"""The OpenAI-compatible dialect: what is sent passes the strictest rules, what comes back becomes events."""

from __future__ import annotations

import itertools
import json

import pytest

from acpserver.errors import ProviderError
from acpserver.llm.assembly import new_call_id
from acpserver.llm.faults import Faults
from acpserver.llm.openai import OpenAi
from acpserver.llm.openai_answer import OpenAiParser
from acpserver.llm.pairing import NO_RESULT, paired
from acpserver.llm.sse import Item
from acpserver.llm.types import (
    Endpoint,
    Event,
    Finish,
    Message,
    ModelRequest,
    Text,
    TextDelta,
    Thought,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from tests.fakes.openai_rules import violations

ENDPOINT = Endpoint("http://host/v1", api_key="sk-secret-key", api_key_source="environment variable KEY")
FAULTS = Faults(ENDPOINT)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def request(*messages: Message, **more: object) -> ModelRequest:
    return ModelRequest("m", "be brief", messages, **more)  # type: ignore[arg-type]


def body_of(asked: ModelRequest) -> dict:
    return json.loads(OpenAi().chat(ENDPOINT, asked).body)


def parser(used: tuple[str, ...] = ()) -> OpenAiParser:
    numbers = itertools.count(1)
    return OpenAiParser(FAULTS, used, lambda: f"new_{next(numbers)}")


def parse(*values: object, used: tuple[str, ...] = (), done: bool = True) -> list[Event]:
    """The events of a stream whose chunks arrive one by one."""
    one = parser(used)
    items = [Item(value if isinstance(value, bytes) else json.dumps(value).encode()) for value in values]
    events = [event for item in items for event in one.feed([item])]
    if done:
        events += one.feed([Item(b"[DONE]")])
    return events + one.end()


def delta(finish: str | None = None, **members: object) -> dict:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def call(index: object = None, call_id: object = None, name: object = None, arguments: object = None) -> dict:
    """A chunk with one fragment of a tool call; what is None is absent."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return delta(tool_calls=[{**fragment, "function": function}])


def calls(*values: object, used: tuple[str, ...] = (), finish: str = "tool_calls") -> list[ToolCall]:
    events = parse(*values, delta(finish), used=used)
    return [event for event in events if isinstance(event, ToolCall)]


# What is sent


def test_the_request_goes_to_the_base_url_with_the_key_in_a_header() -> None:
    sent = OpenAi().chat(ENDPOINT, request(user("hi"), max_tokens=7))
    assert (sent.method, sent.url) == ("POST", "http://host/v1/chat/completions")
    assert sent.headers["Authorization"] == "Bearer sk-secret-key"
    assert sent.headers["Content-Type"] == "application/json"
    assert "sk-secret-key" not in repr(sent)
    assert json.loads(sent.body) == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
    }


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://host", "https://host/chat/completions"),
        ("https://host/v1/", "https://host/v1/chat/completions"),
        (" http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions"),
        ("https://host/v1/chat/completions", "https://host/v1/chat/completions"),
        ("https://host/openai/v1?api-version=1", "https://host/openai/v1/chat/completions?api-version=1"),
    ],
)
def test_the_path_is_joined_to_any_base_url(base_url: str, url: str) -> None:
    assert OpenAi().chat(Endpoint(base_url), request(user("hi"))).url == url


def test_the_models_are_asked_beside_the_chat() -> None:
    asked = OpenAi().models(Endpoint("https://host/v1/chat/completions/", api_key="k"))
    assert (asked.method, asked.url) == ("GET", "https://host/v1/models")
    for base_url in ("http://host:1234/v1/", "http://host:1234"):
        lm_studio = OpenAi().models(Endpoint(base_url, server="lm-studio"))
        assert lm_studio.url == "http://host:1234/api/v0/models"


@pytest.mark.parametrize(
    "base_url", ["", "host/v1", "ftp://host", "http://", "http://host:port", "http://[::"]
)
def test_a_base_url_that_is_no_http_address_is_an_error_of_the_request(base_url: str) -> None:
    with pytest.raises(ProviderError, match="base URL") as caught:
        OpenAi().chat(Endpoint(base_url), request(user("hi")))
    assert caught.value.kind == "request"


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-a\r\nX: y", " sk-a", "sk-a\n", "sk-ä", "sk-\x00"])
def test_a_key_that_cannot_stand_in_a_header_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ProviderError, match="environment variable KEY") as caught:
        OpenAi().chat(Endpoint("http://h", api_key=key, api_key_source="environment variable KEY"), request())
    assert caught.value.kind == "auth"
    assert "sk-" not in str(caught.value)


def test_headers_of_the_configuration_come_last_so_that_they_win() -> None:
    endpoint = Endpoint("http://h", api_key="k", headers=(("Authorization", "Other x"), ("X-Title", "t")))
    headers = OpenAi().chat(endpoint, request(user("hi"))).headers
    assert (headers["Authorization"], headers["X-Title"]) == ("Other x", "t")


def test_tools_and_their_results_stand_in_order_and_thoughts_stay_here() -> None:
    spec = ToolSpec("read", "reads", {"type": "object", "properties": {}})
    first = ToolCall("a", "read", {"path": "x"}, '{"path": "x"}')
    second = ToolCall("b", "read", None, "{oops")
    body = body_of(
        request(
            user("hi"),
            Message("assistant", (Thought("hm"), Text("I look"), first, second)),
            Message("tool", (ToolResult("b", "read", "bad"), ToolResult("a", "read", ""))),
            Message("assistant", (Text("done"),)),
            user("more"),
            tools=(spec,),
        )
    )
    assert violations(body) == []
    assert "hm" not in json.dumps(body)
    assistant, *results = body["messages"][2:5]
    assert [item["function"]["arguments"] for item in assistant["tool_calls"]] == ['{"path":"x"}', "{}"]
    assert [(item["tool_call_id"], item["content"]) for item in results] == [("a", ""), ("b", "bad")]
    assert body["tools"][0]["function"] == {
        "name": "read",
        "description": "reads",
        "parameters": spec.parameters,
    }


@pytest.mark.parametrize("name", ["", "foo.bar", "naïve tool", "x" * 100, "a/b"])
def test_a_tool_name_that_the_model_invented_does_not_spoil_later_requests(name: str) -> None:
    history = (user("hi"), Message("assistant", (ToolCall("a", name, {}),)))
    assert violations(body_of(request(*history))) == []


def test_half_surrogate_pairs_do_not_go_out() -> None:
    assert violations(body_of(request(user("a\ud83d")))) == []


def test_a_history_with_gaps_is_sent_whole() -> None:
    one, two = ToolCall("a", "f", {}), ToolCall("b", "f", {})
    stray = Message("tool", (ToolResult("zzz", "f", "?"),))
    history = (
        stray,
        user("hi"),
        Message("assistant", (one, two)),
        Message("tool", (ToolResult("b", "f", "two"), ToolResult("b", "f", "again"))),
        stray,
        user(""),
        Message("assistant", (Thought("only a thought"),)),
        Message("assistant", ()),
        user("next"),
        stray,
    )
    body = body_of(request(*history))
    assert violations(body) == []
    results = [(item["tool_call_id"], item["content"]) for item in body["messages"] if item["role"] == "tool"]
    assert results == [("a", NO_RESULT), ("b", "two")]


def test_pairing_leaves_a_whole_history_alone() -> None:
    history = [
        user("hi"),
        Message("assistant", (ToolCall("a", "f", {}),)),
        Message("tool", (ToolResult("a", "f", "r"),)),
        Message("assistant", (Text("ok"),)),
    ]
    assert paired(history) == history


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"data": [{"id": "a"}, {"id": "b"}, {"x": 1}, 5]}, ["a", "b"]),
        ([{"id": "a"}], ["a"]),
        ({"models": [{"name": "c"}, {"model": "d"}]}, ["c", "d"]),
        ({"data": []}, []),
    ],
)
def test_lists_of_models(value: object, names: list[str]) -> None:
    assert list(OpenAi().listed(value)) == names


def test_what_is_no_list_of_models_is_an_error() -> None:
    with pytest.raises(ValueError):
        OpenAi().listed({"error": "x"})


# What comes back: text


def test_text_and_reasoning_become_deltas_and_the_end_comes_once_and_last() -> None:
    events = parse(
        delta(role="assistant", content=None),
        delta(reasoning_content="let "),
        delta(reasoning="me", reasoning_content=""),
        delta(content=""),
        delta(content="Hi"),
        delta("stop"),
    )
    assert events == [ThoughtDelta("let "), ThoughtDelta("me"), TextDelta("Hi"), Finish("stop")]


def test_deltas_that_arrive_together_become_one_event_for_each_kind() -> None:
    one = parser()
    values = [
        delta(content="a"),
        delta(content="b"),
        delta(reasoning="c"),
        delta(reasoning="d"),
        delta(content="e"),
    ]
    events = one.feed([Item(json.dumps(value).encode()) for value in values])
    assert events == [TextDelta("ab"), ThoughtDelta("cd"), TextDelta("e")]


def test_a_surrogate_pair_in_two_deltas_is_joined_and_half_ones_are_replaced() -> None:
    assert parse(delta(content="a\ud83d"), delta(content="\ude00b"), delta("stop"))[:2] == [
        TextDelta("a"),
        TextDelta("😀b"),
    ]
    assert parse(delta(content="\ud83d"), delta("stop"))[0] == TextDelta("\ufffd")
    assert parse(delta(content="\ude00x"), delta("stop"))[0] == TextDelta("\ufffdx")
    events = parse(delta(content="\ud83d"), delta(reasoning="\ude00"), delta("stop"))
    assert events[:2] == [TextDelta("\ufffd"), ThoughtDelta("\ufffd")]


def test_content_may_be_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    events = parse(delta(content=parts), delta("stop"))
    assert events == [ThoughtDelta("hm"), TextDelta("yes"), Finish("stop")]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_a_refusal_is_shown_and_ends_as_one(reason: str) -> None:
    events = parse(delta(content=None, refusal="I "), delta(refusal="will not"), delta(reason, refusal=None))
    assert events == [TextDelta("I "), TextDelta("will not"), Finish("refusal")]


def test_a_whole_answer_may_be_a_refusal() -> None:
    message = {"role": "assistant", "content": None, "refusal": "no"}
    one = parser()
    events = one.whole({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert [*events, *one.end()] == [TextDelta("no"), Finish("refusal")]


def test_only_the_first_choice_counts() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]}
    assert parse(delta(content="one"), other, delta("stop")) == [TextDelta("one"), Finish("stop")]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "refusal"), ("eos", "stop"),
     ("tool_calls", "tool_calls"), ("function_call", "tool_calls")],
)  # fmt: skip
def test_finish_reasons(reason: str, expected: str) -> None:
    assert parse(delta(content="a"), delta(reason))[-1] == Finish(expected)


def test_stop_with_calls_means_calls() -> None:
    assert parse(call(0, "a", "f", "{}"), delta("stop"))[-1] == Finish("tool_calls")


@pytest.mark.parametrize(
    "odd",
    [{}, [], None, 5, "x", {"choices": None}, {"choices": [None, 5]}, {"choices": [{"delta": 5}]},
     delta(content=5), delta(content={"a": 1}), delta(tool_calls={"a": 1}), delta(tool_calls=[None]),
     delta(reasoning=["x"]), {"usage": "much"}, {"usage": {"prompt_tokens": "x"}}, {"error": None}],
)  # fmt: skip
def test_members_of_a_wrong_type_count_as_absent(odd: object) -> None:
    assert parse(delta(content="a"), odd, delta("stop")) == [TextDelta("a"), Finish("stop")]


# What comes back: tool calls


def test_a_call_in_many_pieces() -> None:
    pieces = ['{"pa', 'th": "', "a b", '"}']
    found = calls(call(0, "id1", "read", ""), *[call(0, arguments=piece) for piece in pieces])
    assert found == [ToolCall("id1", "read", {"path": "a b"}, '{"path": "a b"}')]


def test_parallel_calls_whose_pieces_alternate() -> None:
    found = calls(
        call(0, "x", "f", ""),
        call(1, "y", "g", ""),
        call(1, arguments='{"b"'),
        call(0, arguments='{"a"'),
        call(1, arguments=":2}"),
        call(0, arguments=":1}"),
    )
    assert [(one.id, one.name, one.arguments) for one in found] == [
        ("x", "f", {"a": 1}),
        ("y", "g", {"b": 2}),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        [call(None, "x", "f", '{"a":'), call(None, None, None, "1}"), call(None, "y", "f", '{"a":2}')],
        [call(None, "x", "f", '{"a":'), call(None, "x", None, "1}"), call(None, "y", "f", '{"a":2}')],
        [call(0, "x", "f", '{"a":1}'), call(0, "y", "f", '{"a":2}')],
        [call(0, "x", "f", '{"a":'), call(0, "x", "f", "1}"), call(1, "y", "f", '{"a":2}')],
        [delta(tool_calls=[{"id": "x", "function": {"name": "f", "arguments": '{"a":1}'}},
                           {"id": "y", "function": {"name": "f", "arguments": '{"a":2}'}}])],
    ],
    ids=["no index", "no index, id repeated", "index always 0", "all repeated", "whole calls in one chunk"],
)  # fmt: skip
def test_badly_numbered_calls_are_told_apart(stream: list[dict]) -> None:
    found = calls(*stream)
    assert [(one.id, one.arguments) for one in found] == [("x", {"a": 1}), ("y", {"a": 2})]


@pytest.mark.parametrize("index", [0, None])
def test_calls_without_ids_are_told_apart_and_get_ids(index: int | None) -> None:
    found = calls(
        call(index, None, "f", '{"a":1}'), call(index, "", "f", '{"a":2}'), call(index, None, "g", "{}")
    )
    assert [(one.id, one.name, one.arguments) for one in found] == [
        ("new_1", "f", {"a": 1}),
        ("new_2", "f", {"a": 2}),
        ("new_3", "g", {}),
    ]


def test_an_id_that_was_used_before_is_replaced() -> None:
    found = calls(
        call(0, "old", "f", "{}"),
        call(1, "twice", "f", "{}"),
        call(2, "twice", "f", "{}"),
        used=("old", "new_1"),
    )
    assert [one.id for one in found] == ["new_2", "twice", "new_3"]


def test_ids_that_other_servers_would_refuse_are_replaced_and_numbers_are_text() -> None:
    found = calls(call(0, "x" * 65, "f", "{}"), call(1, 17, "f", "{}"), call(2, "\ud800", "f", "{}"))
    assert [one.id for one in found] == ["new_1", "17", "\ufffd"]


def test_made_ids_differ() -> None:
    made = {new_call_id() for _ in range(50)}
    assert len(made) == 50
    assert all(len(one) == 17 and one.startswith("call_") for one in made)


def test_the_ids_of_the_history_are_used_ids() -> None:
    history = request(user("hi"), Message("assistant", (ToolCall("call_0", "f", {}),)))
    one = OpenAi().parser(ENDPOINT, history, FAULTS)
    one.feed([Item(json.dumps(call(0, "call_0", "f", "{}")).encode()), Item(b"[DONE]")])
    assert [event.id for event in one.end() if isinstance(event, ToolCall)] != ["call_0"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("  \n", {}),
        ('{"a": 1}', {"a": 1}),
        ("{bad", None),
        ('{"a": 1} x', None),
        ("[1]", None),
        ("null", None),
        ('"text"', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a":' * 3000 + "1" + "}" * 3000, None),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
    ],
)
def test_arguments_are_a_json_object_or_none(text: str, arguments: object) -> None:
    (found,) = calls(call(0, "a", "f", text))
    assert found.arguments == arguments
    assert found.raw == text


def test_arguments_may_come_as_an_object() -> None:
    (found,) = calls(call(0, "a", "f", {"path": "x"}))
    assert (found.arguments, found.raw) == ({"path": "x"}, '{"path":"x"}')


def test_the_old_form_with_a_single_function_call() -> None:
    stream = [
        delta(function_call={"name": "f", "arguments": ""}),
        delta(function_call={"arguments": '{"a":1}'}),
    ]
    events = parse(*stream, delta("function_call"))
    assert events == [ToolCall("new_1", "f", {"a": 1}, '{"a":1}'), Finish("tool_calls")]


@pytest.mark.parametrize("cut_off", ['{"path": "a', ""])
def test_a_call_cut_off_at_the_length_limit_has_no_arguments(cut_off: str) -> None:
    events = parse(call(0, "a", "f", "{}"), call(1, "b", "f", cut_off), delta("length"))
    assert events == [ToolCall("a", "f", {}, "{}"), ToolCall("b", "f", None, cut_off), Finish("length")]


def test_calls_come_after_the_text_and_before_the_usage() -> None:
    used = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    events = parse(call(0, "a", "f", "{}"), used, delta(content="text"), delta("tool_calls"))
    assert events == [TextDelta("text"), ToolCall("a", "f", {}, "{}"), Usage(3, 2), Finish("tool_calls")]


# What comes back: usage


def test_usage_is_the_last_one_given_with_its_parts() -> None:
    early = delta(content="a") | {"usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    last = {
        "choices": [],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    }
    events = parse(early, delta("stop"), last, {"choices": [], "usage": None})
    assert events == [TextDelta("a"), Usage(9, 7, cached_tokens=4, thought_tokens=5), Finish("stop")]


@pytest.mark.parametrize("absurd", [-1, 2**53 + 1, 10**4000, 1e300])
def test_a_count_that_cannot_be_one_is_left_out(absurd: float) -> None:
    """Clients would not be able to read the number."""
    used = {"choices": [], "usage": {"prompt_tokens": absurd, "completion_tokens": 2**53}}
    assert parse(delta("stop"), used)[-2:] == [Usage(0, 2**53), Finish("stop")]


def test_without_usage_there_is_no_usage_event() -> None:
    zero = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    odd = {
        "choices": [],
        "usage": {"prompt_tokens": -3, "completion_tokens": True, "prompt_tokens_details": 5},
    }
    assert parse(delta(content="a"), delta("stop"), zero, odd) == [TextDelta("a"), Finish("stop")]


# What comes back: ends and errors


def test_a_stream_without_finish_reason_or_end_mark_is_an_error() -> None:
    with pytest.raises(ProviderError, match="broke off") as caught:
        parse(delta(content="half a"), done=False)
    assert caught.value.kind == "stream"
    assert caught.value.retryable


def test_a_finish_reason_is_an_end_also_without_the_end_mark() -> None:
    assert parse(delta(content="a"), delta("stop"), done=False) == [TextDelta("a"), Finish("stop")]


def test_the_end_mark_is_an_end_only_when_something_came() -> None:
    assert parse(delta(content="a")) == [TextDelta("a"), Finish("stop")]
    assert parse(call(0, "a", "f", "{}"))[-1] == Finish("tool_calls")
    with pytest.raises(ProviderError, match="empty") as caught:
        parse(delta(role="assistant"))
    assert caught.value.kind == "stream"


def test_nothing_after_the_end_mark_counts() -> None:
    one = parser()
    one.feed([Item(json.dumps(delta("stop", content="a")).encode()), Item(b"[DONE]"), Item(b"{garbage")])
    assert one.done
    assert one.end() == [Finish("stop")]


def test_a_chunk_that_is_not_json_is_an_error() -> None:
    with pytest.raises(ProviderError, match="not JSON") as caught:
        parse(delta(content="a"), b"{broken")
    assert caught.value.kind == "stream"


@pytest.mark.parametrize(
    ("value", "kind", "status", "retryable"),
    [
        ({"error": {"code": 500, "message": "It broke", "type": "server_error"}}, "server", 500, True),
        ({"error": {"code": 429, "message": "It broke"}}, "rate_limit", 429, True),
        ({"error": {"message": "It broke", "type": "overloaded_error"}}, "server", 0, True),
        ({"error": {"message": "It broke", "type": "invalid_request_error"}}, "server", 0, False),
        ({"error": {"message": "It broke. insufficient_quota", "code": 429}}, "rate_limit", 429, False),
        ({"error": {"message": "It broke", "code": "context_length_exceeded"}}, "context", 0, False),
        ({"error": "It broke"}, "server", 0, False),
    ],
)  # fmt: skip
def test_an_error_in_a_stream_that_began_well(value: dict, kind: str, status: int, retryable: bool) -> None:
    with pytest.raises(ProviderError, match="It broke") as caught:
        parse(delta(role="assistant"), value)
    assert (caught.value.kind, caught.value.status, caught.value.retryable) == (kind, status, retryable)


@pytest.mark.parametrize("data", [b'{"message": "It broke"}', b"It broke"])
def test_an_event_named_error_is_an_error(data: bytes) -> None:
    with pytest.raises(ProviderError, match="It broke"):
        parser().feed([Item(data, "error")])


# Answers that were not streamed


def whole(value: object) -> list[Event]:
    one = parser()
    return one.whole(value) + one.end()


def test_one_json_body_gives_the_same_events() -> None:
    entries = [
        {"function": {"name": "f", "arguments": "{bad"}},
        {"function": {"name": "f", "arguments": {"a": 1}}},
    ]
    message = {"role": "assistant", "reasoning": "hm", "content": "hi", "tool_calls": entries}
    value = {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    assert whole(value) == [
        ThoughtDelta("hm"),
        TextDelta("hi"),
        ToolCall("new_1", "f", None, "{bad"),
        ToolCall("new_2", "f", {"a": 1}, '{"a":1}'),
        Usage(1, 2),
        Finish("tool_calls"),
    ]


def test_one_json_body_without_finish_reason_is_complete() -> None:
    assert whole({"choices": [{"message": {"content": "hi"}}]}) == [TextDelta("hi"), Finish("stop")]


@pytest.mark.parametrize("value", [{}, [], "x", None, {"hello": "world"}])
def test_json_that_is_no_completion_is_an_error(value: object) -> None:
    with pytest.raises(ProviderError) as caught:
        whole(value)
    assert caught.value.kind == "stream"


def test_a_whole_message_after_deltas_is_not_shown_twice() -> None:
    last = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    assert parse(delta(content="hi"), last) == [TextDelta("hi"), Finish("stop")]
    assert parse(last) == [TextDelta("hi"), Finish("stop")]

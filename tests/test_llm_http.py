"""Model calls over a real socket: bytes, retries, errors and cancelling, against the fake server."""

from __future__ import annotations

import base64
import errno
import gc
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
import responses

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled, ProviderError
from acpserver.llm import calls, causes, http, sse
from acpserver.llm.faults import Faults
from acpserver.llm.http import HttpProvider
from acpserver.llm.pool import Line
from acpserver.llm.retry import Policy
from acpserver.llm.types import (
    Endpoint,
    Event,
    Finish,
    Message,
    ModelRequest,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolCall,
    Usage,
    Waiting,
)
from tests.fakes.llm_answers import (
    Answer,
    Cut,
    Pause,
    Reply,
    Reset,
    Stall,
    chunks,
    error,
    events,
    one_json,
    raw,
    text,
    thought,
    tool_call,
)
from tests.fakes.llm_server import FakeLlm

KEY = "sk-test-0123456789"
CERTIFICATE = Path(__file__).parent / "fakes" / "tls" / "localhost.pem"
ASKED = ModelRequest("fake", "be brief", (Message("user", (Text("hi"),)),))
QUICK = Policy(attempts=3, total=5.0, first_wait=0.01, longest_wait=0.02)
ONCE = Policy(attempts=1)
REPLY = thought("hm") + text("Hel", "lo \ud83d", "\ude00") + tool_call("read", {"path": "a"}, "id1")
DONE = [Usage(10, 5), Finish("stop")]


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server
    assert server.violations == []


def provider(base_url: str, policy: Policy = ONCE, **settings: object) -> HttpProvider:
    return HttpProvider(Endpoint(base_url, api_key=KEY, **settings), policy)  # type: ignore[arg-type]


def ask(asked: HttpProvider, cancel: CancelFlag | None = None) -> list[Event]:
    return list(asked.stream(ASKED, cancel or CancelFlag()))


def said(found: list[Event], kind: type = TextDelta) -> str:
    return "".join(event.text for event in found if isinstance(event, kind))


def failure(asked: HttpProvider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(asked)
    message = str(caught.value)
    assert len(message) < 500 and message.isprintable()
    assert KEY not in message
    return caught.value


# Bytes


@pytest.mark.parametrize(
    "answer",
    [
        REPLY.answer(),
        REPLY.answer().split(1),
        REPLY.answer().split(7),
        REPLY.answer().crlf().split(5),
        REPLY.answer().comments(),
        REPLY.answer().framed("length"),
        REPLY.answer().framed("close").split(100),
        REPLY.answer().gzipped(),
        REPLY.answer().gzipped().split(9),
        REPLY.answer().gzipped().framed("length"),
        REPLY.answer().fast(),
        REPLY.answer().framed("length").fast(),
        one_json(REPLY),
        one_json(REPLY).framed("chunked").split(3),
        one_json(REPLY).framed("close"),
        one_json(REPLY).gzipped(),
    ],
)
def test_an_answer_is_the_same_however_it_travels(llm: FakeLlm, answer: Answer) -> None:
    llm.script(answer)
    found = ask(provider(llm.base_url))
    assert said(found, ThoughtDelta) == "hm"
    assert said(found) == "Hello 😀"
    assert found[-3:] == [
        ToolCall("id1", "read", {"path": "a"}, '{"path": "a"}'),
        Usage(10, 5),
        Finish("tool_calls"),
    ]


def test_a_json_body_with_a_wrong_label_is_still_read(llm: FakeLlm) -> None:
    body = one_json(text("hi")).steps
    llm.script(
        Answer(body, headers={"Content-Type": "text/event-stream"}), Answer((b"\r\n ", *body), headers={})
    )
    for _ in range(2):
        assert ask(provider(llm.base_url)) == [TextDelta("hi"), *DONE]


def test_what_has_come_is_shown_at_once(llm: FakeLlm) -> None:
    """Each piece is held back until the one before it was seen: a reader that waits for more would hang."""
    for framing in ("chunked", "length", "close"):
        stalls = [Stall(), Stall()]
        answer = text("one", "two", "three").answer().framed(framing)
        llm.script(answer.insert(2, stalls[0]).insert(4, stalls[1]))
        seen = []
        for event in provider(llm.base_url).stream(ASKED, CancelFlag()):
            seen.append(event)
            if len(seen) <= 2:
                stalls[len(seen) - 1].release()
        assert seen == [TextDelta("one"), TextDelta("two"), TextDelta("three"), *DONE]


def test_a_long_answer_is_complete_and_in_order(llm: FakeLlm) -> None:
    words = [f"{number} " for number in range(3000)]
    llm.script(text(*words).answer().fast())
    found = ask(provider(llm.base_url))
    assert said(found) == "".join(words)
    assert len(found) < 1000  # what arrives together is one event


def test_a_connection_is_used_again(llm: FakeLlm) -> None:
    asked = provider(llm.base_url, QUICK)
    llm.script(
        text("a"), one_json(text("b")), text("c").answer().gzipped(), error(429, {"error": "x"}), text("d")
    )
    for expected in "abcd":
        assert said(ask(asked)) == expected
    assert [request.connection for request in llm.requests] == [1] * 5


def test_a_kept_connection_that_the_server_closed_is_replaced_unnoticed(llm: FakeLlm) -> None:
    asked = provider(llm.base_url, Policy(attempts=2, first_wait=60.0, total=100.0))
    llm.script(text("a"), raw(Cut()), text("b"))
    assert said(ask(asked)) == "a"
    assert ask(asked) == [TextDelta("b"), *DONE]  # at once, and no Waiting
    assert [request.connection for request in llm.requests] == [1, 1, 2]


def test_many_turns_at_once_over_one_provider(llm: FakeLlm) -> None:
    count = 24
    together = threading.Barrier(count, timeout=20)

    def answer(request: object) -> Reply:
        together.wait()  # answers only when all have asked
        return text("ok")

    llm.script(*[answer] * count)
    asked = provider(llm.base_url)
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(said(ask(asked)))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == ["ok"] * count


@pytest.mark.parametrize(
    "answer",
    [
        REPLY.answer().first_pieces(3).then(Cut()),
        REPLY.answer().first_pieces(3).then(Reset()),
        REPLY.answer().first_pieces(3),
        REPLY.answer().first_pieces(3).framed("close"),
        REPLY.answer().framed("length").insert(3, Cut()),
        REPLY.answer().gzipped().split(20).insert(8, Cut()),
        one_json(REPLY).split(40).insert(3, Cut()),
        one_json(REPLY).framed("chunked").split(40).insert(3, Cut()),
        one_json(REPLY).framed("close").split(40).insert(3, Cut()),
    ],
)
def test_an_answer_that_is_cut_is_an_error_and_not_an_end(llm: FakeLlm, answer: Answer) -> None:
    llm.script(answer)
    assert failure(provider(llm.base_url)).kind == "stream"


def test_an_answer_that_loses_only_its_end_mark_is_complete(llm: FakeLlm) -> None:
    answer = text("hi").no_usage().answer()
    llm.script(answer.first_pieces(3).then(Cut()))
    assert ask(provider(llm.base_url)) == [TextDelta("hi"), Finish("stop")]


def test_a_server_that_forgets_the_end_mark_does_not_hold_up_the_turn(
    llm: FakeLlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_LAST", 0.05)
    llm.script(text("hi").no_usage().answer().insert(3, Stall()))
    assert ask(provider(llm.base_url)) == [TextDelta("hi"), Finish("stop")]
    assert llm.requests[0].closed.wait(5)


# Retries


@pytest.mark.parametrize(
    "first",
    [
        *[
            error(status, {"error": {"message": "later"}})
            for status in (408, 409, 429, 500, 502, 503, 504, 529)
        ],
        raw(Reset()),
        raw(Cut()),
        raw(b"HTTP/1.1 200 OK\r\n", Cut()),
        raw(b"garbage\r\n\r\n"),
        events(),
        REPLY.answer().first_pieces(1).then(Reset()),
        tool_call("f", {}).answer().first_pieces(3),
        chunks([{"error": {"code": 503, "message": "overloaded"}}]),
        events(b"data: {broken\n\n"),
    ],
)
def test_a_failure_before_the_first_visible_item_is_tried_again(llm: FakeLlm, first: Answer) -> None:
    llm.script(first, text("ok"))
    found = ask(provider(llm.base_url, QUICK))
    waiting, *rest = found
    assert isinstance(waiting, Waiting) and 0 < waiting.seconds <= 0.02
    assert llm.base_url in waiting.reason and "\n" not in waiting.reason
    assert rest == [TextDelta("ok"), *DONE]
    assert len(llm.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422, 301])
def test_other_refusals_are_not_repeated(llm: FakeLlm, status: int) -> None:
    llm.script(error(status, {"error": {"message": "no"}}))
    assert failure(provider(llm.base_url, QUICK)).status == status
    assert len(llm.requests) == 1


@pytest.mark.parametrize("shown", [text("seen", "x"), thought("seen", "x")])
def test_nothing_is_repeated_once_something_was_shown(llm: FakeLlm, shown: Reply) -> None:
    llm.script(shown.answer().first_pieces(2).then(Reset()))
    seen = []
    with pytest.raises(ProviderError):
        for event in provider(llm.base_url, QUICK).stream(ASKED, CancelFlag()):
            seen.append(event)
    assert [getattr(event, "text", "") for event in seen] == ["seen"]
    assert len(llm.requests) == 1


def test_attempts_are_bounded_in_number(llm: FakeLlm) -> None:
    llm.script(*[error(500)] * 5)
    assert failure(provider(llm.base_url, QUICK)).status == 500
    assert len(llm.requests) == 3


def slow_clock(step: float) -> tuple[Callable[[], float], Callable[[CancelFlag, float], None], list[float]]:
    """A clock that only sleeping moves, the sleep, and the list of what was slept."""
    slept: list[float] = []
    return lambda: sum(slept) + step * len(slept), lambda cancel, seconds: slept.append(seconds), slept


def test_attempts_are_bounded_in_time_and_waits_grow(llm: FakeLlm) -> None:
    clock, sleep, slept = slow_clock(0.0)
    policy = Policy(attempts=99, total=20.0, chance=lambda: 0.0, clock=clock, sleep=sleep)
    llm.script(*[error(500)] * 20)
    failure(provider(llm.base_url, policy))
    assert slept == [0.5, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(("asked", "waited"), [("2", 2.0), ("0.25", 0.25), ("45", 30.0)])
def test_the_wait_that_the_server_asks_for_is_honoured_and_capped(
    llm: FakeLlm, asked: str, waited: float
) -> None:
    clock, sleep, slept = slow_clock(0.0)
    llm.script(error(429, b"", {"Retry-After": asked}), text("ok"))
    found = ask(provider(llm.base_url, Policy(clock=clock, sleep=sleep)))
    assert slept == [waited]
    assert isinstance(found[0], Waiting) and found[0].seconds == waited


def test_a_wait_longer_than_the_time_left_ends_the_attempts_and_is_named(llm: FakeLlm) -> None:
    clock, sleep, slept = slow_clock(0.0)
    llm.script(error(429, {"error": {"message": "slow down"}}, {"Retry-After": "3600"}))
    failed = failure(provider(llm.base_url, Policy(clock=clock, sleep=sleep)))
    assert (failed.kind, failed.status, failed.retry_after, slept) == ("rate_limit", 429, 3600.0, [])
    assert "3600 s" in str(failed) and "slow down" in str(failed)


STOPPED = Policy(total=1.0, first_wait=0.01, clock=lambda: 0.0)
"""Its clock stands still: a further try has the whole time left, 1 s."""


@pytest.mark.parametrize("position", [None, 0])
def test_a_further_try_is_silent_for_no_longer_than_tries_are_made(
    llm: FakeLlm, position: int | None
) -> None:
    silent = text("ok").answer()
    silent = silent.before_headers(Stall()) if position is None else silent.insert(position, Stall())
    llm.script(error(500), silent, error(400, {"error": "stop"}))
    asked = provider(llm.base_url, STOPPED, idle_timeout=20.0)
    reasons = []
    with pytest.raises(ProviderError, match="stop"):
        for event in asked.stream(ASKED, CancelFlag()):
            assert isinstance(event, Waiting)
            reasons.append(event.reason)
    assert "HTTP 500" in reasons[0] and "nothing" in reasons[1] and " 1 s" in reasons[1] and len(reasons) == 2


def test_a_first_try_may_be_silent_for_longer_than_tries_are_made(llm: FakeLlm) -> None:
    llm.script(text("ok").answer().insert(0, Pause(1.5)))
    assert said(ask(provider(llm.base_url, STOPPED, idle_timeout=20.0))) == "ok"


def test_a_further_try_that_has_begun_to_speak_is_borne_like_any_other(llm: FakeLlm) -> None:
    llm.script(error(500), text("o", "k").answer().insert(2, Pause(1.5)))
    found = ask(provider(llm.base_url, STOPPED, idle_timeout=20.0))
    assert said(found) == "ok" and isinstance(found[0], Waiting)


def test_the_silence_of_a_further_try_that_has_spoken_is_told_as_long_as_it_was(llm: FakeLlm) -> None:
    llm.script(error(500), text("o", "k").answer().insert(2, Stall()))
    failed = failure(provider(llm.base_url, STOPPED, idle_timeout=1.5))
    assert "nothing came for 1.5 s" in str(failed)


def test_after_a_failed_call_the_next_one_works(llm: FakeLlm) -> None:
    asked = provider(llm.base_url)
    llm.script(raw(Reset()), text("ok"))
    failure(asked)
    assert said(ask(asked)) == "ok"


# Errors


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    failed = failure(provider(f"http://127.0.0.1:{port}/v1"))
    assert (failed.kind, failed.status, failed.retryable) == ("network", 0, True)
    assert f"http://127.0.0.1:{port}/v1" in str(failed) and "connection refused" in str(failed)


@pytest.mark.parametrize(
    ("host", "most"),
    [
        ("127.0.0.1:1", 3),
        ("127.8.9.1", 3),
        ("LOCALHOST:8080", 3),
        ("user:password@localhost:8080", 3),
        ("[::1]:8080", 3),
        ("192.0.2.1", None),
        ("localhost.example.com", None),
        ("[2001:db8::1]", None),
    ],
)
def test_nobody_listening_on_this_machine_is_certain_and_soon_given_up(host: str, most: int | None) -> None:
    endpoint = Endpoint(f"http://{host}/v1")
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    fault = causes.explain(refused, Faults(endpoint), endpoint, connected=False, reused=False)
    assert "connection refused" in str(fault) and fault.retryable
    assert (fault.most_attempts, fault.retry_after) == (most, 0.25 if most else None)
    late = TimeoutError(errno.ETIMEDOUT, "timed out")
    fault = causes.explain(late, Faults(endpoint), endpoint, connected=False, reused=False)
    assert fault.most_attempts is None


def test_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    failed = failure(provider("http://no.such.host/v1"))
    assert failed.kind == "network" and "host name is unknown" in str(failed)


def test_a_connection_that_is_not_made_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: end.wait(20) and [])
    start = time.monotonic()
    failed = failure(provider("http://slow.host/v1", connect_timeout=0.1))
    assert time.monotonic() - start < 10
    end.set()
    assert failed.kind == "network" and "within 0.1 s" in str(failed)


@pytest.mark.parametrize("position", [None, 1, 2])
def test_a_silent_server_is_an_error_after_the_idle_time(llm: FakeLlm, position: int | None) -> None:
    answer = text("a", "b").answer()
    llm.script(answer.before_headers(Stall()) if position is None else answer.insert(position, Stall()))
    failed = failure(provider(llm.base_url, idle_timeout=0.1))
    assert "0.1 s" in str(failed)
    assert llm.requests[0].closed.wait(5)


def test_a_slow_server_is_not_silent(llm: FakeLlm) -> None:
    """The whole takes several times the idle time, and no byte more than a part of it."""
    answer = text("ok").answer().insert(1, *[step for _ in range(20) for step in (Pause(0.1), b": wait\n")])
    llm.script(answer)
    assert said(ask(provider(llm.base_url, idle_timeout=1.0))) == "ok"


def test_a_certificate_that_is_not_trusted_and_one_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with FakeLlm(tls=context) as llm:
        failed = failure(provider(llm.base_url, QUICK))
        assert failed.kind == "network" and "REQUESTS_CA_BUNDLE" in str(failed)
        assert not failed.retryable

        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
        llm.script(REPLY, text("again"))
        asked = provider(llm.base_url)
        assert said(ask(asked)) == "Hello 😀"
        assert said(ask(asked)) == "again"
        assert llm.requests[0].connection == llm.requests[1].connection

        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file.pem")
        failed = failure(provider(llm.base_url, QUICK))
        assert "REQUESTS_CA_BUNDLE" in str(failed) and "missing" in str(failed)


def test_no_tls_where_it_was_expected(llm: FakeLlm) -> None:
    failed = failure(provider(llm.base_url.replace("http:", "https:"), QUICK))
    assert failed.kind == "network" and "TLS" in str(failed)


BODIES = {
    "json": {"error": {"message": f"The words of the server about {KEY}", "type": "t", "code": None}},
    "flat": {"message": "The words of the server"},
    "text": {"error": "The words of the server"},
    "detail": {"detail": [{"loc": ["body"], "msg": "The words of the server"}]},
    "html": b"<!DOCTYPE html><html><title>The words\n of the server</title><body>x</body></html>",
    "plain": b"The words of the server",
    "latin-1": "The words of the server: \u00e4\u00f6".encode("latin-1"),
    "huge": b"The words of the server " * 20000,
    "controls": b"The words\x00 of\x1b[31m the\r\n server",
    "broken": b'{"error": {"message": "The words of the server',
    "empty": b"",
    "deep": b'{"error":' * 50000,
}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529])
def test_a_refusal_is_told_in_one_readable_line(llm: FakeLlm, status: int) -> None:
    asked = provider(llm.base_url)
    for name, body in BODIES.items():
        llm.script(error(status, body))  # type: ignore[arg-type]
        failed = failure(asked)
        assert failed.status == status
        assert f"HTTP {status}" in str(failed) and llm.base_url in str(failed)
        words = "".join(char for char in str(failed) if char.isalnum() or char == " ")
        assert name in ("empty", "deep", "controls") or "The words of the server" in words


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "request"), (401, "auth"), (403, "auth"), (404, "request"), (413, "context"), (422, "request"),
     (429, "rate_limit"), (500, "server"), (503, "server"), (307, "request")],
)  # fmt: skip
def test_kinds(llm: FakeLlm, status: int, kind: str) -> None:
    llm.script(error(status, {"error": {"message": "x"}}))
    assert failure(provider(llm.base_url)).kind == kind


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
        (400, {"error": {"message": "request exceeds", "type": "exceed_context_size_error"}}),
        (400, {"error": {"message": "This model's maximum context length is 8192 tokens."}}),
        (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
        (500, {"error": {"message": "the request exceeds the available context size"}}),
    ],
)
def test_a_conversation_that_is_too_long_is_told_apart(llm: FakeLlm, status: int, body: dict) -> None:
    llm.script(error(status, body))
    failed = failure(provider(llm.base_url, QUICK))
    assert failed.kind == "context" and not failed.retryable
    assert "new session" in str(failed)
    assert len(llm.requests) == 1


def test_a_used_up_quota_is_not_asked_again(llm: FakeLlm) -> None:
    llm.script(error(429, {"error": {"message": "no credit", "code": "insufficient_quota"}}))
    assert not failure(provider(llm.base_url, QUICK)).retryable


def test_refused_credentials_name_where_the_key_comes_from() -> None:
    with FakeLlm(api_key="another") as llm:
        failed = failure(provider(llm.base_url, api_key_source="environment variable SOME_KEY"))
        assert failed.kind == "auth" and "environment variable SOME_KEY" in str(failed)
        with pytest.raises(ProviderError, match="No API key is set"):
            ask(HttpProvider(Endpoint(llm.base_url), ONCE))


@pytest.mark.parametrize("key", ["sk-test/0123+456=789", "sk-\u00fc", 'sk-"quoted"\\key', "0123456789abcdef"])
def test_a_server_that_shows_the_key_does_not_show_it_to_the_user(llm: FakeLlm, key: str) -> None:
    if not key.isascii():
        with pytest.raises(ProviderError) as caught:
            ask(HttpProvider(Endpoint(llm.base_url, api_key=key), ONCE))
        assert key not in str(caught.value)
        return
    encoded = base64.b64encode(key.encode()).decode()
    quoted = urllib.parse.quote(key, safe="")
    escaped = json.dumps(key)[1:-1]
    for form in (key, encoded, quoted, escaped):
        llm.script(error(401, f"bad key {form}!"), error(400, {"error": {"message": f"{'x ' * 110}{form}"}}))
        for _ in range(2):
            with pytest.raises(ProviderError) as caught:
                ask(HttpProvider(Endpoint(llm.base_url, api_key=key), ONCE))
            assert form[:12] not in str(caught.value)


def test_credentials_in_the_base_url_are_used_and_not_shown(llm: FakeLlm) -> None:
    base_url = llm.base_url.replace("//", "//user:pass-word-1@")
    llm.script(error(400, "Basic dXNlcjpwYXNzLXdvcmQtMQ== pass-word-1"))
    with pytest.raises(ProviderError) as caught:
        ask(HttpProvider(Endpoint(base_url), ONCE))
    assert llm.requests[0].headers["authorization"] == "Basic dXNlcjpwYXNzLXdvcmQtMQ=="
    assert "pass-word-1" not in str(caught.value) and "dXNlcjp" not in str(caught.value)
    assert llm.base_url in str(caught.value)


def test_a_web_page_instead_of_an_answer(llm: FakeLlm) -> None:
    llm.script(Answer((b"<html>Sign in</html>",), headers={"Content-Type": "text/html"}, framing="length"))
    failed = failure(provider(llm.base_url, QUICK))
    assert failed.kind == "request" and "web page" in str(failed)


def test_answers_without_end_are_refused(llm: FakeLlm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MAX_STREAM", 100_000)
    monkeypatch.setattr("acpserver.llm.body._MAX_WHOLE", 100_000)
    monkeypatch.setattr(sse, "MAX_EVENT", 50_000)
    for body in (b": comment\n" * 5000, b"data: " + b"x" * 60_000, b"{" + b" " * 200_000):
        llm.script(Answer((body,) * 3))
        assert failure(provider(llm.base_url)).kind == "output"


def test_an_unknown_dialect() -> None:
    with pytest.raises(ProviderError, match="Known are: openai"):
        ask(HttpProvider(Endpoint("http://127.0.0.1:1", dialect="klingon")))


# Settings from the environment


def test_a_proxy_is_used_and_can_be_excluded(monkeypatch: pytest.MonkeyPatch, llm: FakeLlm) -> None:
    with FakeLlm() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        proxy.script(text("through the proxy"))
        assert said(ask(provider("http://model.invalid/v1"))) == "through the proxy"
        assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"

        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        llm.script(text("direct"))
        assert said(ask(provider(llm.base_url))) == "direct"
        assert len(proxy.requests) == 1


def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    failed = failure(provider("http://model.invalid/v1"))
    assert failed.kind == "network" and "HTTP_PROXY" in str(failed)


def test_a_key_never_comes_from_netrc(llm: FakeLlm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("default login someone password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    llm.script(text("ok"))
    ask(provider(llm.base_url))
    assert llm.requests[0].headers["authorization"] == f"Bearer {KEY}"


# The list of models


def test_the_models_are_listed() -> None:
    with FakeLlm(models=("small", "large"), api_key=KEY) as llm:
        assert list(provider(llm.base_url).list_models(CancelFlag())) == ["small", "large"]
        assert llm.lists[0].path == "/v1/models"
        with pytest.raises(ProviderError) as caught:
            HttpProvider(Endpoint(llm.base_url)).list_models(CancelFlag())
        assert caught.value.kind == "auth"


@responses.activate
@pytest.mark.parametrize("body", ["[]x", "hello", '{"a": 1}', "<html>"])
def test_something_else_than_a_list_of_models(body: str) -> None:
    responses.get("http://host/v1/models", body=body)
    with pytest.raises(ProviderError, match="not with a list of models"):
        provider("http://host/v1").list_models(CancelFlag())


@responses.activate
@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (requests.exceptions.InvalidHeader("x"), "invalid"),
        (requests.exceptions.ConnectionError("x"), "the connection failed"),
        (requests.exceptions.ConnectTimeout("x"), "no connection within 10 s"),
        (requests.exceptions.ConnectionError(OSError(113, "No route to host")), "No route to host"),
        (OSError(24, "Too many open files"), "Too many open files"),
    ],
)
def test_failures_to_connect_are_explained(raised: Exception, words: str) -> None:
    responses.post("http://host/v1/chat/completions", body=raised)
    failed = failure(provider("http://host/v1"))
    assert failed.kind in ("network", "request")
    assert words in str(failed)


# Cancelling


def cancelled(
    asked: HttpProvider,
    ready: threading.Event,
    before: list[Event] | None = None,
    request: ModelRequest = ASKED,
) -> float:
    """Seconds from the cancel, made once `ready` is set, to the end of the call."""
    cancel = CancelFlag()
    at: list[float] = []

    def set_flag() -> None:
        assert ready.wait(10)
        at.append(time.monotonic())
        cancel.set("test")

    thread = threading.Thread(target=set_flag)
    thread.start()
    try:
        with pytest.raises(Cancelled):
            for event in asked.stream(request, cancel):
                if before is not None:
                    before.append(event)
        end = time.monotonic()
    finally:
        thread.join(10)
    return end - at[0]


def stalled(position: int | None, answer: Answer, stall: Stall) -> Answer:
    return answer.before_headers(stall) if position is None else answer.insert(position, stall)


@pytest.mark.parametrize("position", [None, 0, 1, 3], ids=["headers", "body", "first text", "text"])
@pytest.mark.parametrize("kind", ["stream", "length", "close", "json", "gzip"])
def test_cancel_wakes_a_stalled_answer_and_ends_its_connection(
    llm: FakeLlm, kind: str, position: int | None
) -> None:
    answer = {
        "stream": text("a", "b").answer(),
        "length": text("a", "b").answer().framed("length"),
        "close": text("a", "b").answer().framed("close"),
        "json": one_json(text("a")).split(50),
        "gzip": text("a", "b").answer().gzipped().split(40),
    }[kind]
    stall = Stall()
    llm.script(stalled(position, answer, stall), text("next"))
    asked = provider(llm.base_url, QUICK)
    took = cancelled(asked, stall.reached)
    assert took < 1.0
    assert llm.requests[0].closed.wait(5)
    assert said(ask(asked)) == "next"
    assert [request.connection for request in llm.requests] == [1, 2]


def test_cancel_on_a_kept_connection(llm: FakeLlm) -> None:
    stall = Stall()
    llm.script(text("a"), text("b").answer().before_headers(stall))
    asked = provider(llm.base_url)
    ask(asked)
    assert cancelled(asked, stall.reached) < 1.0
    assert llm.requests[1].connection == 1
    assert llm.requests[1].closed.wait(5)


def test_cancel_reaches_a_server_that_waits_with_full_buffers() -> None:
    """Also when the buffers are read empty before the close: then nothing but a reset gets through."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
    with theirs:
        line = Line(CancelFlag(), 1.0)
        line.attach(ours)
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                theirs.send(b"x" * 65536)
        line.cut()
        while ours.recv(65536):
            continue
        ours.close()
        line.release()
        closed = time.monotonic()
        theirs.settimeout(5)
        with pytest.raises(ConnectionError):
            while True:
                theirs.send(b"x" * 65536)
        assert time.monotonic() - closed < 5


@pytest.mark.parametrize("position", [None, 2])
def test_cancel_in_a_tls_stream(monkeypatch: pytest.MonkeyPatch, position: int | None) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    stall = Stall()
    with FakeLlm(tls=context) as llm:
        llm.script(stalled(position, text("a", "b").answer(), stall))
        assert cancelled(provider(llm.base_url), stall.reached) < 1.0
        assert llm.requests[0].closed.wait(5)


def test_cancel_in_a_tls_handshake(llm: FakeLlm) -> None:
    """The other side accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted = threading.Event()
        peers: list[socket.socket] = []

        def accept() -> None:
            peers.append(listener.accept()[0])
            peers[0].recv(1)  # the handshake has begun
            accepted.set()

        thread = threading.Thread(target=accept)
        thread.start()
        took = cancelled(provider(f"https://127.0.0.1:{listener.getsockname()[1]}/v1"), accepted)
        thread.join(5)
        peers[0].settimeout(1)
        while peers[0].recv(65536):  # up to the end of the connection
            continue
        peers[0].close()
    assert took < 1.0


def test_cancel_while_a_long_request_is_sent() -> None:
    """The other side accepts and reads nothing, so the request fills all buffers on the way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted = threading.Event()
        peers: list[socket.socket] = []

        def accept() -> None:
            peers.append(listener.accept()[0])
            peers[0].recv(1)
            accepted.set()

        thread = threading.Thread(target=accept)
        thread.start()
        asked = provider(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        long = Message("user", (Text("x" * 30_000_000),))
        took = cancelled(asked, accepted, request=ModelRequest("fake", "", (long,)))
        thread.join(5)
        peers[0].close()
    assert took < 1.0


def test_cancel_while_a_name_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving, end = threading.Event(), threading.Event()

    def resolve(*args: object, **more: object) -> list:
        resolving.set()
        end.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    took = cancelled(provider("http://slow.host/v1"), resolving)
    end.set()
    assert took < 1.0


def test_a_connection_that_comes_after_the_cancel_is_closed(
    monkeypatch: pytest.MonkeyPatch, llm: FakeLlm
) -> None:
    connecting, go_on, made, closed = (threading.Event() for _ in range(4))
    real_getaddrinfo = socket.getaddrinfo

    class Watched(socket.socket):
        def connect(self, address: object) -> None:
            super().connect(address)  # type: ignore[arg-type]
            made.set()

        def close(self) -> None:
            super().close()
            closed.set()

    def resolve(*args: object, **more: object) -> object:
        connecting.set()
        go_on.wait(20)
        return real_getaddrinfo(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "socket", Watched)
    assert cancelled(provider(llm.base_url), connecting) < 1.0
    go_on.set()
    assert made.wait(5) and closed.wait(5)
    assert llm.requests == []


def test_cancel_in_the_wait_before_the_next_attempt(llm: FakeLlm) -> None:
    sleeping = threading.Event()

    def sleep(cancel: CancelFlag, seconds: float) -> None:
        sleeping.set()
        cancel.sleep(seconds)

    llm.script(error(500))
    before: list[Event] = []
    assert cancelled(provider(llm.base_url, Policy(first_wait=8.0, sleep=sleep)), sleeping, before) < 1.0
    assert [type(event) for event in before] == [Waiting]
    assert len(llm.requests) == 1


def test_a_call_that_is_cancelled_before_it_begins_sends_nothing(llm: FakeLlm) -> None:
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(Cancelled):
        ask(provider(llm.base_url), cancel)
    with pytest.raises(Cancelled):
        provider(llm.base_url).list_models(cancel)
    assert llm.requests == []


def test_cancel_from_the_thread_that_reads(llm: FakeLlm) -> None:
    llm.script(text("a", "b").answer().insert(2, Stall()))
    cancel = CancelFlag()
    with pytest.raises(Cancelled):
        for _ in provider(llm.base_url).stream(ASKED, cancel):
            cancel.set()
    assert llm.requests[0].closed.wait(5)


def test_cancel_is_not_mistaken_for_the_end_of_a_stream(llm: FakeLlm) -> None:
    """A stream that ends with its connection, and a finish reason that has come already."""
    stall = Stall()
    answer = text("a").no_usage().answer().framed("close")
    llm.script(answer.insert(3, stall))
    assert cancelled(provider(llm.base_url), stall.reached) < 1.0


def test_median_of_cancelling_a_stalled_stream(llm: FakeLlm) -> None:
    times = []
    asked = provider(llm.base_url)
    for _ in range(9):
        stall = Stall()
        llm.script(text("a", "b").answer().insert(2, stall))
        times.append(cancelled(asked, stall.reached))
    assert sorted(times)[4] < 0.01


def test_closing_the_iterator_ends_the_connection(llm: FakeLlm) -> None:
    llm.script(text("a", "b").answer().insert(2, Stall()), text("c", "d").answer().insert(2, Stall()))
    asked = provider(llm.base_url)
    stream = asked.stream(ASKED, CancelFlag())
    assert next(stream) == TextDelta("a")
    stream.close()  # type: ignore[attr-defined]
    assert llm.requests[0].closed.wait(5)
    stream = asked.stream(ASKED, CancelFlag())
    assert next(stream) == TextDelta("c")
    del stream
    gc.collect()
    assert llm.requests[1].closed.wait(5)


def test_no_descriptor_is_left(llm: FakeLlm) -> None:
    asked = provider(llm.base_url, QUICK)
    folder = Path("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd")

    def round_of_calls() -> None:
        stall = Stall()
        llm.script(text("a").answer().insert(1, stall))
        cancelled(asked, stall.reached)
        llm.script(text("a").answer().first_pieces(2).then(Reset()))
        failure(asked)
        llm.script(raw(Reset()), text("ok"))
        ask(asked)
        asked.close()
        for request in llm.requests:
            assert request.closed.wait(5)

    round_of_calls()
    before = len(list(folder.iterdir()))
    for _ in range(5):
        round_of_calls()
    assert len(list(folder.iterdir())) <= before


# Start-up


def test_cancel_while_the_first_call_is_still_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that another thread holds, as the warm-up does."""
    loading, end = threading.Event(), threading.Event()

    def load() -> None:
        loading.set()
        assert end.wait(10)

    monkeypatch.setattr(http, "_loaded", threading.Event())
    monkeypatch.setattr(http, "warm_up", load)
    try:
        assert cancelled(provider("http://127.0.0.1:1/v1"), loading) < 1.0
    finally:
        end.set()


def test_a_start_loads_nothing_slow() -> None:
    code = (
        "import sys, acpserver.cli, acpserver.llm.http as door\n"
        "slow = ('requests', 'urllib3', 'tenacity', 'ssl', 'http.client', 'filelock', '_hashlib',\n"
        "        'acpserver.llm.dialects')\n"
        "assert not [name for name in slow if name in sys.modules], sys.modules.keys()\n"
        "door.warm_up()\n"
        "assert 'requests' in sys.modules and 'tenacity' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")

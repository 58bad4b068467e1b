"""The fake model server, tested with a bare socket: tests that stand on it must be able to trust it."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.llm_answers import (
    Answer,
    Cut,
    Pause,
    Reset,
    Stall,
    error,
    events,
    one_json,
    raw,
    text,
    tool_call,
)
from tests.fakes.llm_server import FakeLlm
from tests.fakes.openai_rules import violations

ROOT = Path(__file__).parent.parent
GOOD = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server


def connect(llm: FakeLlm) -> socket.socket:
    return socket.create_connection(("127.0.0.1", llm.port), timeout=5)


def post(sock: socket.socket, body: object = GOOD, path: str = "/v1/chat/completions") -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    sock.sendall("\r\n".join([*lines, "", ""]).encode() + data)


def read_to(sock: socket.socket, end: bytes) -> bytes:
    """What comes up to `end`, or to the end of the connection."""
    received = b""
    while not received.endswith(end) and (data := sock.recv(65536)):
        received += data
    return received


def answer_to(llm: FakeLlm, body: object = GOOD) -> tuple[bytes, bytes]:
    """Head and body of the answer, up to the end of the connection."""
    with connect(llm) as sock:
        post(sock, body)
        sock.shutdown(socket.SHUT_WR)
        head, _, rest = read_to(sock, b"never").partition(b"\r\n\r\n")
        return head, rest


def test_a_stream_is_chunked_one_chunk_for_each_event(llm: FakeLlm) -> None:
    llm.script(events(b"data: a\n\n", b"data: [DONE]\n\n"))
    head, body = answer_to(llm)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"Content-Type: text/event-stream" in head
    assert body == b"9\r\ndata: a\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def test_framings(llm: FakeLlm) -> None:
    one = events(b"ab", b"c")
    llm.script(one.framed("length"), one.framed("close"), one.framed("raw"), one.framed("raw").split(1))
    head, body = answer_to(llm)
    assert b"Content-Length: 3" in head and body == b"abc"
    head, body = answer_to(llm)
    assert b"Connection: close" in head and b"Content-Length" not in head and body == b"abc"
    assert answer_to(llm) == (b"abc", b"")
    assert answer_to(llm) == (b"abc", b"")


def test_ways_to_send(llm: FakeLlm) -> None:
    one = events(b"data: a\n\n", b"data: b\n\n")
    assert [len(step) for step in one.split(4).steps if isinstance(step, bytes)] == [4, 4, 1, 4, 4, 1]
    assert one.split_at(2, 3).steps[:3] == (b"da", b"t", b"a: a\n\n")
    assert one.crlf().steps[0] == b"data: a\r\n\r\n"
    assert one.comments().steps[0] == b": ping\n\ndata: a\n\n"
    assert gzip.decompress(one.gzipped().steps[0]) == b"data: a\n\ndata: b\n\n"  # type: ignore[arg-type]
    assert one.first_pieces(1).steps == (b"data: a\n\n",)
    assert [type(step) for step in one.pauses(0.001).steps] == [Pause, bytes, Pause, bytes]
    llm.script(one.fast(), one.fast().framed("length"))
    assert answer_to(llm)[1] == b"9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n"
    assert answer_to(llm)[1] == b"data: a\n\ndata: b\n\n"


def test_a_reply_as_a_stream_and_as_one_body(llm: FakeLlm) -> None:
    reply = text("a", "b") + tool_call("f", {"x": 1}, "id1") + tool_call("g", "{bad", "id2")
    chunks = reply.chunks()
    pieces = [
        piece
        for chunk in chunks
        for choice in chunk["choices"]
        for piece in choice["delta"].get("tool_calls", ())
    ]
    joined = {0: "", 1: ""}
    for piece in pieces:
        joined[piece["index"]] += piece["function"]["arguments"]
    assert joined == {0: '{"x": 1}', 1: "{bad"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == 15
    body = json.loads(one_json(reply).steps[0])  # type: ignore[arg-type]
    message = body["choices"][0]["message"]
    assert message["content"] == "ab"
    assert [call["id"] for call in message["tool_calls"]] == ["id1", "id2"]
    assert text("x").no_usage().ends("length").chunks()[-1]["choices"][0]["finish_reason"] == "length"


def test_requests_are_recorded_and_connections_kept(llm: FakeLlm) -> None:
    llm.script(text("a"), text("b"))
    with connect(llm) as sock:
        for _ in range(2):
            post(sock)
            read_to(sock, b"0\r\n\r\n")
        first, second = llm.wait_for_requests(2)
        assert not first.closed.is_set()
    assert (first.connection, second.connection) == (1, 1)
    assert (first.method, first.path, first.body) == ("POST", "/v1/chat/completions", GOOD)
    assert first.headers["host"] == "x"
    assert first.answered.is_set() and first.time < second.time
    assert first.closed.wait(5) and second.closed.wait(5)
    assert second.closed_at > second.time


def test_a_script_may_be_a_function_and_a_default_never_ends() -> None:
    with FakeLlm(default=lambda request: text(request.messages[-1]["content"])) as llm:
        for _ in range(3):
            assert b'"hi"' in answer_to(llm)[1]


def test_a_stall_ends_when_released_or_when_the_client_closes(llm: FakeLlm) -> None:
    stalls = [Stall(), Stall()]
    llm.script(events(b"a", b"b").insert(1, stalls[0]), events(b"a", b"b").insert(1, stalls[1]))
    with connect(llm) as sock:
        post(sock)
        assert read_to(sock, b"1\r\na\r\n").endswith(b"1\r\na\r\n")
        assert stalls[0].reached.wait(5)
        stalls[0].release()
        assert read_to(sock, b"0\r\n\r\n") == b"1\r\nb\r\n0\r\n\r\n"
        post(sock)
        assert stalls[1].reached.wait(5)
        assert not llm.requests[1].closed.is_set()
        before = time.monotonic()
    assert llm.requests[1].closed.wait(5)
    assert 0 <= llm.requests[1].closed_at - before < 0.5
    assert not llm.requests[1].answered.is_set()


def test_a_stall_before_the_headers(llm: FakeLlm) -> None:
    stall = Stall()
    llm.script(events(b"a").before_headers(stall))
    with connect(llm) as sock:
        post(sock)
        assert stall.reached.wait(5)
        sock.settimeout(0.02)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        stall.release()
        sock.settimeout(5)
        assert sock.recv(4) == b"HTTP"


def test_a_reset_is_a_reset_and_a_cut_is_an_end(llm: FakeLlm) -> None:
    llm.script(raw(Reset()), events(b"a").then(Cut()))
    with connect(llm) as sock:
        post(sock)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    head, body = answer_to(llm)
    assert body == b"1\r\na\r\n"


def test_a_pause_takes_its_time(llm: FakeLlm) -> None:
    llm.script(events(b"a").insert(0, Pause(0.05)))
    before = time.monotonic()
    with connect(llm) as sock:
        post(sock)
        read_to(sock, b"0\r\n\r\n")
    assert time.monotonic() - before >= 0.05


def test_a_pause_notices_that_the_client_is_gone(llm: FakeLlm) -> None:
    llm.script(events(b"a").before_headers(Pause(20)))
    with connect(llm) as sock:
        post(sock)
        llm.wait_for_requests(1)
    assert llm.requests[0].closed.wait(5)


def test_refusals(llm: FakeLlm) -> None:
    llm.script(
        error(429, {"error": {"message": "slow"}}, {"Retry-After": "7"}), error(500, b"\xff"), error(503)
    )
    head, body = answer_to(llm)
    assert head.startswith(b"HTTP/1.1 429 ") and b"Retry-After: 7" in head
    assert json.loads(body) == {"error": {"message": "slow"}}
    assert answer_to(llm)[1] == b"\xff"
    assert answer_to(llm)[1] == b""


def test_what_is_not_scripted_is_a_violation(llm: FakeLlm) -> None:
    assert answer_to(llm)[0].startswith(b"HTTP/1.1 400 ")
    assert llm.violations == ["no answer is scripted for this request"]


def test_a_bad_request_is_refused_and_noted_and_uses_up_no_answer(llm: FakeLlm) -> None:
    llm.script(text("a"))
    for bad in (b"{", [], {"model": "m"}):
        assert answer_to(llm, bad)[0].startswith(b"HTTP/1.1 400 ")
    assert len(llm.violations) == 3
    assert answer_to(llm)[0].startswith(b"HTTP/1.1 200 ")


def test_keys_paths_and_other_protocols() -> None:
    with FakeLlm(api_key="k", default=text("a")) as llm:
        assert answer_to(llm)[0].startswith(b"HTTP/1.1 401 ")
        with connect(llm) as sock:
            sock.sendall(b"GET /v1/nothing HTTP/1.1\r\nAuthorization: Bearer k\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 404 ")
            sock.sendall(b"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer k\r\n\r\n")
            assert b'"fake"' in read_to(sock, b"}]}")
        with connect(llm) as sock:
            sock.sendall(b"\x16\x03\x01")
            assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_closing_ends_what_is_open() -> None:
    threads = set(threading.enumerate())
    with FakeLlm(default=Answer().before_headers(Stall())) as llm:
        sock = connect(llm)
        post(sock)
        llm.wait_for_requests(1)
    assert set(threading.enumerate()) <= threads
    assert sock.recv(1) == b""
    sock.close()


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "r"}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def with_call(**changes: object) -> dict:
    return CALLED | {"tool_calls": [CALL | changes]}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "s"}, USER],
        [USER, CALLED, RESULT],
        [USER, CALLED | {"content": "text"}, RESULT, {"role": "assistant", "content": "x"}, USER],
        [USER, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
    ],
)
def test_valid_histories(messages: list) -> None:
    assert violations({"model": "m", "messages": messages, "tools": [TOOL], "max_tokens": 5}) == []


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        ["x"],
        [{"role": "wizard", "content": "x"}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": []}],
        [USER, {"role": "system", "content": "s"}, USER],
        [USER, {"role": "assistant", "content": "last"}],
        [USER, {"role": "assistant", "content": ""}, USER],
        [USER, CALLED],
        [USER, CALLED, USER],
        [USER, CALLED, RESULT, RESULT],
        [USER, RESULT],
        [RESULT, USER],
        [USER, CALLED, RESULT | {"tool_call_id": "b"}],
        [USER, CALLED, {"role": "tool", "tool_call_id": "a"}],
        [USER, CALLED, RESULT, CALLED, RESULT],
        [USER, CALLED | {"tool_calls": []}, USER],
        [USER, CALLED | {"content": ""}, RESULT],
        [USER, with_call(id=""), RESULT | {"tool_call_id": ""}],
        [USER, with_call(type="x"), RESULT],
        [USER, with_call(function={"name": "a b", "arguments": "{}"}), RESULT],
        [USER, with_call(function={"name": "f", "arguments": {}}), RESULT],
        [USER, with_call(function={"name": "f", "arguments": "{"}), RESULT],
        [USER, with_call(function={"name": "f", "arguments": "[]"}), RESULT],
        [USER, with_call(function={"name": "f"}), RESULT],
        [{"role": "user", "content": "\ud800"}],
    ],
)
def test_invalid_histories(messages: object) -> None:
    assert violations({"model": "m", "messages": messages}) != []


@pytest.mark.parametrize(
    "members",
    [
        {"model": ""},
        {"model": None},
        {"surprise": 1},
        {"max_tokens": 0},
        {"max_tokens": None},
        {"max_tokens": True},
        {"stream_options": {"include_usage": True}},
        {"tools": []},
        {"tools": [TOOL, TOOL]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
        {"tools": [{"name": "f"}]},
    ],
)
def test_invalid_members(members: dict) -> None:
    assert violations({"model": "m", "messages": [USER]} | members) != []


def test_as_a_process_it_sends_many_chunks_to_many_clients() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.fakes.llm_server",
        "--chunks",
        "500",
        "--port",
        "0",
        "--text",
        "w",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                for _ in range(2):
                    post(sock)
                    received = read_to(sock, b"\r\n0\r\n\r\n")
                    assert received.startswith(b"HTTP/1.1 200 ")
                    assert received.count(b'"content": "w"') == 500
                    assert received.count(b"[DONE]") == 1
    finally:
        process.terminate()
        process.communicate(timeout=5)

"""The trace: every message of both directions, no secret, and never a reason to stop."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from acpserver.transports.trace import Trace, without_secrets


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def entries(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_messages_of_both_directions(file: Path) -> None:
    before = time.time()
    trace = Trace(str(file))
    trace.incoming(b'{"id": 1, "method": "initialize", "params": {"a": 1.5}}')
    trace.outgoing(b'{"id":1,"result":{}}\n{"method":"session/update"}\n')
    trace.close()
    found = entries(file)
    assert [(e["direction"], e["message"]) for e in found] == [
        ("in", {"id": 1, "method": "initialize", "params": {"a": 1.5}}),
        ("out", {"id": 1, "result": {}}),
        ("out", {"method": "session/update"}),
    ]
    assert all(before - 0.01 <= e["time"] <= time.time() + 0.01 for e in found)  # type: ignore[operator]


@pytest.mark.parametrize("line", [b"hello", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":1e999}', b"\x00" * 10])
def test_a_line_that_is_no_json_stands_as_text(file: Path, line: bytes) -> None:
    trace = Trace(str(file))
    trace.incoming(line)
    trace.close()
    (entry,) = entries(file)
    assert set(entry) == {"time", "direction", "text"}
    assert entry["text"] == line[:65_536].decode("utf-8", "replace")


def test_lone_surrogates_and_line_separators_keep_the_trace_one_line_each(file: Path) -> None:
    trace = Trace(str(file))
    trace.incoming(b'{"a":"\\ud800 \\u2028 \xe2\x80\xa8"}')
    trace.close()
    data = file.read_bytes()
    assert data.isascii() and data.count(b"\n") == 1
    assert entries(file)[0]["message"] == {"a": "\ufffd \u2028 \u2028"}


def test_secrets_are_hidden_wherever_they_stand(file: Path) -> None:
    trace = Trace(str(file), ["my-k3y-1", 'a"b\u00e4cdefg', ""])
    trace.incoming(b'{"params":{"x":"my my-k3y-1","y":"a\\"b\xc3\xa4cdefg"}}')
    trace.incoming(b"no json with my-k3y-1")
    trace.outgoing(b'{"result":"my-k3y-1my-k3y-1"}\n')
    trace.close()
    assert [e.get("message") or e.get("text") for e in entries(file)] == [
        {"params": {"x": "my ***", "y": "***"}},
        "no json with ***",
        {"result": "******"},
    ]


def test_a_short_key_does_not_garble_the_trace(file: Path) -> None:
    """Keys of local servers are often a word such as "none" or "x"."""
    trace = Trace(str(file), ["x", "text"])
    trace.incoming(b'{"params":{"type":"text","text":"x"}}')
    trace.close()
    assert entries(file)[0]["message"] == {"params": {"type": "text", "text": "x"}}


def test_environment_and_headers_of_mcp_servers_are_hidden(file: Path) -> None:
    servers = [
        {"name": "a", "command": "c", "args": ["x"], "env": [{"name": "TOKEN", "value": "hide"}, "hide"]},
        {"type": "http", "name": "b", "url": "u", "headers": [{"name": "Authorization", "value": "hide"}]},
        {"name": "c", "env": {}},
        "hide nothing",
    ]
    message = {"method": "session/new", "params": {"cwd": "/", "mcpServers": servers}}
    trace = Trace(str(file))
    trace.incoming(json.dumps(message).encode())
    trace.close()
    found = entries(file)[0]["message"]["params"]["mcpServers"]  # type: ignore[index]
    assert found == [
        {"name": "a", "command": "c", "args": ["x"], "env": [{"name": "TOKEN", "value": "***"}, "***"]},
        {"type": "http", "name": "b", "url": "u", "headers": [{"name": "Authorization", "value": "***"}]},
        {"name": "c", "env": {}},
        "hide nothing",
    ]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"mcpServers": [{"env": {"TOKEN": "hide"}}]}, {"mcpServers": [{"env": {"TOKEN": "***"}}]}),
        ({"mcpServers": {"a": {"env": "T=hide"}}}, {"mcpServers": {"a": {"env": "***"}}}),
        ({"id": "p", "headers": {"x-key": "hide"}}, {"id": "p", "headers": {"x-key": "***"}}),
        ({"env": [{"name": "T", "value": "hide"}]}, {"env": [{"name": "T", "value": "***"}]}),
        ({"env": None, "mcpServers": ["x", {}]}, {"env": None, "mcpServers": ["x", {}]}),
    ],
)
def test_secrets_of_providers_terminals_and_wrong_shapes_are_hidden(
    params: dict[str, object], expected: dict[str, object]
) -> None:
    assert without_secrets({"method": "m", "params": params}) == {"method": "m", "params": expected}


@pytest.mark.parametrize("message", [None, 1, [], {}, {"params": None}, {"params": {"mcpServers": None}}])
def test_messages_without_servers_stay_as_they_are(message: object) -> None:
    assert without_secrets(message) is message


def test_the_file_is_for_its_owner_only_and_is_continued(file: Path) -> None:
    for number in range(2):
        trace = Trace(str(file))
        trace.outgoing(b"%d\n" % number)
        trace.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [e["message"] for e in entries(file)] == [0, 1]


def test_a_trace_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Trace(str(tmp_path / "missing" / "trace"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full (Linux)")
def test_a_full_disk_disturbs_nobody() -> None:
    trace = Trace("/dev/full")
    trace.incoming(b"{}")
    trace.outgoing(b"{}\n" * 10_000)
    trace.close()


def test_a_closed_trace_disturbs_nobody(file: Path) -> None:
    trace = Trace(str(file))
    trace.close()
    trace.outgoing(b"{}\n")
    assert file.read_bytes() == b""


def test_a_pipe_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError):  # there is no reader at all
        Trace(str(pipe))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        trace = Trace(str(pipe))
        for _ in range(100):
            trace.outgoing(b'{"a":"' + b"x" * 10_000 + b'"}\n')
        trace.close()
    finally:
        os.close(reader)


@pytest.mark.parametrize("depth", [100, 500, 5_000])
def test_deep_lines_with_escapes_are_written_too(file: Path, depth: int) -> None:
    trace = Trace(str(file))
    trace.incoming(b"[" * depth + b'"\\ud83d\\ude00"' + b"]" * depth)
    trace.close()
    assert len(entries(file)) == 1

"""What people hand to `acp-validate`: no recordings, cut ones, pretty ones, bad ones among good."""

from __future__ import annotations

import io
import json
import tracemalloc
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acpserver.validate import check_trace, recording
from acpserver.validate.command import main
from acpserver.validate.documents import pieces
from acpserver.validate.formats import read
from tests.validate.talk import Talk, turn

NO_RECORDINGS = {
    "nothing": b"",
    "words": b"127.0.0.1 localhost\n127.0.1.1 machine\n",
    "bytes": bytes(range(256)) * 40,
    "JSON": b'{"name": "x", "version": "1.0"}\n',
    "a pretty object": b'{\n  "name": "x",\n  "scripts": {\n    "a": "b"\n  }\n}\n',
    "a log": b'{"level":"info","source":"agent","msg":"listening"}\n',
    "a list of numbers": b"[\n  1,\n  2\n]\n",
}


def bare(talk: Talk) -> list[bytes]:
    """Messages without a direction."""
    return [json.dumps(step.message).encode() + b"\n" for step in talk.steps]


def pretty(talk: Talk) -> list[bytes]:
    """As `jq .` prints them."""
    text = "".join(json.dumps(step.message, indent=2) + "\n" for step in talk.steps)
    return text.encode().splitlines(keepends=True)


def array(talk: Talk) -> list[bytes]:
    """As one array."""
    return (json.dumps([step.message for step in talk.steps], indent=2) + "\n").encode().splitlines(True)


def prefixed(talk: Talk) -> list[bytes]:
    """A log with a direction before each message."""
    arrows = {"client": "->", "agent": "<-"}
    text = "".join(f"{arrows[step.side]} {json.dumps(step.message, indent=4)}\n" for step in talk.steps)
    return text.encode().splitlines(keepends=True)


def wrapped(talk: Talk) -> list[bytes]:
    """This server's trace, made readable."""
    text = "".join(json.dumps(json.loads(line), indent=2) + "\n" for line in talk.lines())
    return text.encode().splitlines(keepends=True)


def one_line_array(talk: Talk) -> list[bytes]:
    """As one array on one line."""
    return [json.dumps([step.message for step in talk.steps]).encode()]


def without_direction(talk: Talk) -> list[bytes]:
    """A log that names what it logs, and no direction."""
    return [b"started\n", *(b"[acp] " + line for line in bare(talk))]


def named_ends(talk: Talk) -> list[bytes]:
    """A log that names both ends."""
    ends = {"client": "Client -> Agent", "agent": "Agent to Client"}
    text = "".join(f"10:00:01 [trace] [{ends[one.side]}] {json.dumps(one.message)}\n" for one in talk.steps)
    return text.encode().splitlines(keepends=True)


def of_an_ide(talk: Talk) -> list[bytes]:
    """The log of an IDE that writes levels and classes before its messages."""
    ends = {"client": "OUT", "agent": "IN"}
    head = "2026-05-18 15:20:38,252 [19121734]   FINE - #c.i.m.l.a.Transport - "
    text = "".join(f"{head}{ends[step.side]}: {json.dumps(step.message)}\n" for step in talk.steps)
    return [
        b"2026-05-18 15:20:38,250 [1]   INFO - #c.i.m.Start - {} in use\n",
        *text.encode().splitlines(True),
    ]


def traced(talk: Talk) -> list[bytes]:
    """A log with spans before the messages, and something behind them."""
    ends = {"client": "send", "agent": "recv"}
    head = "2026-05-18T15:20:38.252Z TRACE session{id=7}: acp::rpc: "
    text = "".join(f"{head}{ends[one.side]} {json.dumps(one.message)} (in 3 ms)\n" for one in talk.steps)
    return text.encode().splitlines(keepends=True)


def quoted(talk: Talk) -> list[bytes]:
    """A log that quotes what it logs."""
    ends = {"client": "recv", "agent": "send"}
    head = "DEBUG rpc{peer=1}: "
    return [
        f"{head}{ends[one.side]} line={json.dumps(json.dumps(one.message))} n=1\n".encode()
        for one in talk.steps
    ]


def conducted(talk: Talk) -> list[bytes]:
    """The trace of a conductor with one proxy between the editor and the agent."""
    lines = [{"ts": 0.0, "type": "trace", "component": "agent", "level": "info", "message": "from client"}]
    for number, step in enumerate(talk.steps):
        message, to = step.message, {"client": "agent", "agent": "client"}[step.side]
        kind = "response" if "method" not in message else "request" if "id" in message else "notification"
        event = {"ts": number / 10, "type": kind, "from": step.side, "to": to}
        event |= {name: message[name] for name in ("id", "method", "params") if name in message}
        if kind == "response":
            event |= {"is_error": "error" in message, "payload": message.get("result", message.get("error"))}
        else:
            event |= {"protocol": "acp", "session": None}
        chain = (("client", "proxy:0"), ("proxy:0", "agent"))
        hops = chain if step.side == "client" else tuple((to, one) for one, to in reversed(chain))
        lines += [{**event, "from": one, "to": other} for one, other in hops]
        lines.append({**event, "from": "agent", "to": "proxy:0", "protocol": "mcp"})
    return [json.dumps(line).encode() + b"\n" for line in lines]


def wide(talk: Talk) -> list[bytes]:
    """UTF-16 without a mark at its beginning."""
    return b"".join(bare(talk)).decode().encode("utf-16-le").splitlines(keepends=True)


LOGS = [one_line_array, without_direction, named_ends, of_an_ide, traced, quoted, conducted, wide]


@pytest.mark.parametrize("writer", LOGS)
def test_logs_of_all_kinds_are_read(writer: Callable[[Talk], list[bytes]]) -> None:
    steps = turn().steps
    assert [(one.sender, one.message) for one in read(writer(turn()))] == [
        (one.side, one.message) for one in steps
    ]


@pytest.mark.parametrize("content", NO_RECORDINGS.values(), ids=NO_RECORDINGS.keys())
def test_a_file_without_a_message_is_no_recording(content: bytes, tmp_path: Path, capsys: Any) -> None:
    file, page = tmp_path / "file", tmp_path / "page.html"
    file.write_bytes(content)
    assert main([str(file), "--html", str(page)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"acp-validate: {file}: not a recording: there is no JSON-RPC message in it")
    assert not page.exists()


def test_what_cannot_be_judged_does_not_hide_the_others(tmp_path: Path, capsys: Any) -> None:
    bad, good = tmp_path / "bad.txt", tmp_path / "good.jsonl"
    bad.write_text("words\n")
    good.write_bytes(b"".join(turn().lines()))
    files = [str(bad), "/no/such/file", str(good)]
    assert main(files) == 2
    out, err = capsys.readouterr()
    assert out == f"{good}: 33 messages, 0 errors, 0 warnings\n"
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        str(bad), "/no/such/file",
    ]  # fmt: skip

    assert main(["--output", "json", *files]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in told["files"]] == [str(good)]
    assert [one["file"] for one in told["failed"]] == [str(bad), "/no/such/file"]

    assert main(["--output", "junit", *files]) == 2
    suites = xml.fromstring(capsys.readouterr().out)
    assert [(one.get("name"), one.get("errors")) for one in suites] == [
        (str(good), None), (str(bad), "1"), ("/no/such/file", "1"),
    ]  # fmt: skip

    assert main(["--output", "sarif", *files]) == 2
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert not run["invocations"][0]["executionSuccessful"]
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 2


@pytest.mark.parametrize(
    ("writer", "remarks"), [(pretty, ["T1"]), (prefixed, ["T1"]), (array, []), (wrapped, [])]
)
def test_messages_on_several_lines_are_read_and_that_is_said_once(
    writer: Callable[[Talk], list[bytes]], remarks: list[str]
) -> None:
    lines, steps = writer(turn()), turn().steps
    assert [(one.sender, one.message) for one in read(lines)] == [(one.side, one.message) for one in steps]
    assert [one.rule for one in check_trace(lines).findings] == remarks
    spoilt = writer(turn().set("prompt!", "result.stopReason", "stop"))
    (error,) = check_trace(spoilt).errors
    assert (error.rule, error.path) == ("P3", "result.stopReason")
    assert lines[error.line - 1].strip(b"<- \n") == b"{"
    assert error.excerpt.startswith('{"jsonrpc":')


def test_a_message_that_breaks_off_is_one_finding_and_hides_no_other() -> None:
    first, *others = bare(turn())
    assert [one.rule for one in check_trace([first, b'{"jsonrpc": "2.0", "me\n', *others]).findings] == ["T1"]
    lines = pretty(turn())
    second = lines.index(b"{\n", 1)
    del lines[second - 3 : second]
    report = check_trace(lines)
    assert not report.errors
    assert [(one.rule, one.line) for one in report.findings if one.level == "warning"] == [("T1", 1)]
    assert report.messages == 33


def test_an_agent_that_prints_its_messages_over_several_lines_is_told_so_once_for_each() -> None:
    talk = Talk().ask("initialize", 0, "initialize", {"protocolVersion": 1}, {"protocolVersion": 1})
    answer = talk.steps.pop()
    for number, line in enumerate(json.dumps(answer.message, indent=2).splitlines()):
        talk.raw(f"line {number}", line, "agent", talk.steps[-1].name)
    report = check_trace(talk.lines())
    (error,) = report.errors
    assert (error.rule, error.side, error.line) == ("T1", "agent", 2)
    assert error.text.endswith("this one does not end on its line")


def test_a_recording_without_directions_blames_nobody_for_a_line_that_is_no_message() -> None:
    lines = [*bare(turn())[:2], b"Loading model\n", b"[1, 2]\n", b"7\n"]
    report = check_trace(lines)
    assert not report.errors
    warned = [one for one in report.findings if one.level == "warning"]
    assert [one.rule for one in warned] == ["T2", "J10", "J5"]
    assert all(one.text.endswith("(if the agent sent this, and not the log)") for one in warned)


def test_a_refused_line_of_the_client_in_a_recording_without_directions() -> None:
    answer = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
    lines = bare(turn())
    lines[2:2] = [b"{nonsense}\n", json.dumps(answer).encode() + b"\n"]
    report = check_trace(lines)
    assert not report.errors
    assert [one.rule for one in report.findings if one.level == "warning"] == ["T1"]


@pytest.mark.parametrize("name", ["initialize", "new", "prompt", "read", "ask", "create"])
def test_what_a_log_has_cut_is_no_error_of_anybody(name: str) -> None:
    talk = turn()
    cut = talk.line(name) - 1
    lines = bare(talk)
    lines[cut] = lines[cut][: len(lines[cut]) // 2] + b"...\n"
    assert check_trace(lines).errors == []


def test_a_line_without_an_end_is_read_in_pieces(monkeypatch: Any) -> None:
    monkeypatch.setattr(recording, "LONGEST_LINE", 1000)
    assert [len(piece) for piece in recording.lines_of(io.BytesIO(b"x" * 2500))] == [1000, 1000, 500]


def test_a_text_without_an_end_takes_no_more_memory_than_itself() -> None:
    lines = [b"{\n", b'"' + b"x" * 4_000_000 + b"\n"]
    tracemalloc.start()
    try:
        found = list(pieces(enumerate(lines, 1)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(one.line, one.lines, one.is_whole) for one in found] == [(1, 2, False)]
    assert peak < 20_000_000


def test_the_page_is_confirmed_and_quiet_says_nothing_of_it(tmp_path: Path, capsys: Any) -> None:
    file, page = tmp_path / "talk.jsonl", tmp_path / "page.html"
    file.write_bytes(b"".join(turn().lines()))
    assert main([str(file), "--html", str(page)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{file}: the page is {page}"
    assert main([str(file), "--quiet", "--html", str(page)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1

"""Recordings in every format are read as the same conversation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from acpserver.errors import ConfigError
from acpserver.validate import Entry, check_trace
from acpserver.validate.formats import read, recognise
from tests.validate.talk import Step, Talk, turn

Writer = Callable[[list[Step]], list[bytes]]
BEGIN = 1_764_500_000.0


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def bare(steps: list[Step]) -> list[bytes]:
    return [_line(step.message) for step in steps]


def wrapped(
    words: dict[str, str], direction: str, holder: str, time: str = "", as_text: bool = False
) -> Writer:
    """Objects around the messages, with these names of fields."""

    def write(steps: list[Step]) -> list[bytes]:
        lines = []
        for number, step in enumerate(steps):
            message = json.dumps(step.message) if as_text else step.message
            entry = {direction: words[step.side], holder: message}
            lines.append(_line({time: (BEGIN + number) * 1000, **entry} if time else entry))
        return lines

    return write


def prefixed(client: str, agent: str) -> Writer:
    """Text lines with something before each message, and other lines between them."""

    def write(steps: list[Step]) -> list[bytes]:
        lines = [b"starting up { not a message\n"]
        for number, step in enumerate(steps):
            at = datetime.fromtimestamp(BEGIN + number, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.250Z")
            before = client if step.side == "client" else agent
            lines.append(f"{before.replace('TIME', at)} {json.dumps(step.message)}\n".encode())
        return lines

    return write


def zed(steps: list[Step]) -> list[bytes]:
    """As the editor copies its log: the result, or the error, of an answer under `params`."""
    methods: dict[str, str] = {}
    found = []
    for step in steps:
        message = step.message
        key = json.dumps(message.get("id"))
        kind = "request" if "id" in message else "notification"
        if "method" in message:
            methods[key] = message["method"]
        else:
            kind = "response"
        found.append(
            {
                "_direction": "outgoing" if step.side == "client" else "incoming",
                "_type": kind,
                "id": message.get("id"),
                "method": message.get("method", methods.get(key)),
                "params": message.get("params", message.get("result", message.get("error"))),
            }
        )
    found.insert(
        2, {"_direction": "stderr", "_type": "stderr", "id": None, "method": "stderr", "params": "hello"}
    )
    return [line + b"\n" for line in json.dumps(found, indent=2).encode().split(b"\n")]


OWN = {"client": "in", "agent": "out"}
INSPECTOR = {"client": "fromClient", "agent": "fromAgent"}
SENDER = {"client": "client", "agent": "agent"}
WRITERS: dict[str, tuple[str, Writer]] = {
    "bare": ("lines", bare),
    "this server's trace": ("wrapped", wrapped(OWN, "direction", "message", "time")),
    "an agent with an SDK's observer": (
        "wrapped", wrapped({"client": "incoming", "agent": "outgoing"}, "direction", "message", "timestamp"),
    ),
    "an editor with an SDK's observer": (
        "wrapped", wrapped({"client": "outgoing", "agent": "incoming"}, "direction", "message", "timestamp"),
    ),
    "an inspector": (
        "wrapped", wrapped(INSPECTOR, "direction", "json", "ts", as_text=True),
    ),
    "raw lines by sender": ("wrapped", wrapped(SENDER, "from", "raw", as_text=True)),
    "streams": ("wrapped", wrapped({"client": "stdin", "agent": "stdout"}, "stream", "line", as_text=True)),
    "arrows of an editor": ("prefixed", prefixed("[TIME] ->", "[TIME] <-")),
    "arrows of an agent": ("prefixed", prefixed("TIME <--", "TIME -->")),
    "words of an editor": ("prefixed", prefixed("[TIME] DEBUG acp: send:", "[TIME] DEBUG acp: recv:")),
    "words of an agent": ("prefixed", prefixed("TIME INFO received", "TIME INFO sent")),
    "sides": ("prefixed", prefixed("TIME client->agent", "TIME agent->client")),
    "unicode arrows": ("prefixed", prefixed("\u2192", "\u2190")),
    "zed": ("zed", zed),
}  # fmt: skip


@pytest.mark.parametrize(("format", "writer"), WRITERS.values(), ids=WRITERS.keys())
def test_every_format_gives_the_same_conversation(format: str, writer: Writer) -> None:
    steps = turn().steps
    lines = writer(steps)
    assert recognise(lines[:40]) == format
    entries = list(read(lines))
    assert [(one.sender, one.message) for one in entries] == [(one.side, one.message) for one in steps]
    assert not any(one.problem for one in entries)


@pytest.mark.parametrize("writer", [writer for _, writer in WRITERS.values()], ids=WRITERS.keys())
def test_a_fault_is_found_in_every_format(writer: Writer) -> None:
    talk = turn().set("prompt!", "result.stopReason", "stop")
    report = check_trace(writer(talk.steps))
    assert [(one.rule, one.side, one.path) for one in report.errors] == [("P3", "agent", "result.stopReason")]


def test_lines_are_numbered_as_in_the_file() -> None:
    entries = list(read(WRITERS["arrows of an editor"][1](turn().steps)))
    assert [one.line for one in entries[:3]] == [2, 3, 4]
    copied = zed(turn().steps)
    assert {copied[one.line - 1] for one in read(copied)} == {b"  {\n"}


def test_times_are_seconds_whatever_they_were_written_in() -> None:
    for name, begin in (("an inspector", BEGIN), ("arrows of an editor", BEGIN + 0.25)):
        entries = list(read(WRITERS[name][1](turn().steps)))
        assert [one.time for one in entries[:2]] == [begin, begin + 1], name
    (entry,) = read([b'12:00:01,500 -> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}\n'])
    assert entry.time == 12 * 3600 + 1.5


def both_ids() -> Talk:
    """Both sides use the id 1 at the same time."""
    talk = Talk().ask("initialize", 0, "initialize", {"protocolVersion": 1}, {"protocolVersion": 1})
    talk.client("prompt", id=1, method="session/prompt", params={"sessionId": "s", "prompt": []})
    talk.agent("ask", id=1, method="session/request_permission", params={"sessionId": "s"})
    talk.client("ask!", id=1, result={"outcome": {"outcome": "cancelled"}})
    return talk.agent("prompt!", id=1, result={"stopReason": "end_turn"})


def test_bare_answers_go_to_the_side_that_did_not_ask() -> None:
    steps = both_ids().steps
    assert [one.sender for one in read(bare(steps))] == [one.side for one in steps]


def test_what_is_no_json_is_kept_with_its_reason() -> None:
    lines = [*bare(turn().steps[:2]), b"Loading...\n", b"\n", b'{"jsonrpc":"2.0"\n', b'"\xff"\n']
    problems = [(one.line, one.sender, one.problem[:8]) for one in read(lines) if one.problem]
    assert problems == [(3, "agent", "not JSON"), (5, "agent", "not JSON"), (6, "agent", "byte 2 i")]


def test_a_trace_holds_unreadable_lines_as_text_and_json_that_is_no_message() -> None:
    entries = [
        {"time": 1, "direction": "in", "text": "{nonsense"},
        {"time": 2, "direction": "in", "message": None},
    ]
    first, second = read([_line(entry) for entry in entries], "wrapped")
    assert first.problem and first.sender == "client"
    assert second == Entry(2, 2.0, "client", None, "null", "", second.size)


def test_a_format_can_be_forced_and_must_exist() -> None:
    with pytest.raises(ConfigError, match="--format xml: not one of lines, wrapped"):
        list(read([], "xml"))
    assert list(read([b"Loading\n"], "prefixed")) == []


def noisy_prefixes(steps: list[Step]) -> list[bytes]:
    """A log with other lines that hold directions and braces."""
    noise = [b'INFO read config {"port": 3}\n', b"INFO server started {port: 3}\n"]
    return [line for step in steps for line in (*noise, *prefixed("->", "<-")([step])[1:])]


def noisy_objects(steps: list[Step]) -> list[bytes]:
    """The log of a logger that writes JSON, with words beside each message and with other lines."""
    noise = {"level": 30, "source": "agent", "msg": "listening", "data": {"port": 3}}
    told = [{"level": 20, "source": step.side, "msg": "passed", "data": step.message} for step in steps]
    return [_line(entry) for one in told for entry in (noise, one)]


def after_much_noise(steps: list[Step]) -> list[bytes]:
    """A long beginning without any message."""
    return [*(f"starting {number}\n".encode() for number in range(100)), *WRITERS["sides"][1](steps)]


def in_utf16(steps: list[Step]) -> list[bytes]:
    """What PowerShell makes of the output of a program."""
    return (
        "".join(line.decode() for line in bare(steps)).replace("\n", "\r\n").encode("utf-16").splitlines(True)
    )


def cut_off(steps: list[Step]) -> list[bytes]:
    """A recording whose last line was not written to its end."""
    return [*bare(steps), b'{"jsonrpc":"2.0","meth']


@pytest.mark.parametrize("writer", [noisy_prefixes, noisy_objects, after_much_noise, in_utf16, cut_off])
def test_what_is_no_part_of_the_conversation_is_passed_over(writer: Writer) -> None:
    steps = turn().steps
    entries = list(read(writer(steps)))
    assert [(one.sender, one.message) for one in entries] == [(one.side, one.message) for one in steps]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_times_since_1970_in_any_unit(unit: int) -> None:
    entry = {"time": int(BEGIN) * unit, "direction": "in", "message": {"jsonrpc": "2.0", "method": "m"}}
    assert [one.time for one in read([_line(entry)])] == [BEGIN]


def test_reading_is_lazy() -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        for _ in itertools.count():
            taken += 1
            yield b'{"time":1,"direction":"in","message":{"jsonrpc":"2.0","id":0,"method":"initialize"}}\n'

    entries = read(endless())
    next(entries)
    assert taken <= 50

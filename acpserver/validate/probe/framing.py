"""Scenarios: ids, malformed input of every kind, line ends, sizes. The connection must go on after each."""

from __future__ import annotations

import json

from acpserver.validate.probe.link import Json, Link
from acpserver.validate.probe.stage import Stage, scenario
from acpserver.validate.probe.verdict import Broken, advise, demand

UNKNOWN = "_acp_validate/none"  # a request that every agent can answer: there is no such method
MOST = 1 << 24  # bytes of the longest line that is tried

IDS: dict[str, object] = {
    "zero": 0,
    "negative": -7,
    "large": 2**53 - 1,
    "string": "abc",
    "number-in-a-string": "1",
    "empty-string": "",
    "uuid": "7b1a2f0e-7d54-4c3b-9a2e-0c6a5d1e8f90",
    "non-ascii": "ид-é-☃",
}


def _goes_on(link: Link, after: str) -> None:
    """The next request is answered as if nothing had been."""
    try:
        link.request(UNKNOWN, {})
    except Broken as broken:
        raise Broken(f"after {after}: {broken}") from None


def _id_scenario(name: str, value: object) -> None:
    @scenario("J2", f"ids/{name}")
    def _run(stage: Stage) -> None:
        link = stage.shared()
        start = link.mark()
        answer = link.post(UNKNOWN, {}, value)

        def anything() -> bool:
            return answer.message is not None or any("method" not in item for item in link.since(start))

        link.wait(anything, f"an answer with id {json.dumps(value)}")
        got = [item.get("id") for item in link.since(start) if "method" not in item]
        demand(answer.message is not None, f"the answer has id {json.dumps(got[0])}, not {json.dumps(value)}")
        _goes_on(link, "that")
        demand(not answer.extra, "answered twice")


for _name, _value in IDS.items():
    _id_scenario(_name, _value)


NOT_JSON = {
    "not-json": b"hello?\n",
    "torn-json": b'{"jsonrpc":"2.0","id":5,"method":"' + UNKNOWN.encode() + b'"\n',
    "invalid-utf-8": b'{"jsonrpc":"2.0","id":5,"method":"\xff\xfe"}\n',
    "trailing-rubbish": b'{"jsonrpc":"2.0","method":"_x"} }\n',
    "nan": b'{"jsonrpc":"2.0","method":"_x","params":{"a":NaN}}\n',
    "deep-nesting": b'{"jsonrpc":"2.0","method":"_x","params":' + b"[" * 100_000 + b"\n",
}
NOT_A_MESSAGE: dict[str, tuple[object, object]] = {
    "empty-object": ({}, None),
    "number": (17, None),
    "string": ("initialize", None),
    "null": (None, None),
    "method-not-a-string": ({"jsonrpc": "2.0", "id": "m", "method": 5}, "m"),
    "id-an-object": ({"jsonrpc": "2.0", "id": {"a": 1}, "method": UNKNOWN}, None),
}


def _rejected(stage: Stage, line: bytes, request_id: object, code: int) -> None:
    """The line is answered with one error of this code and id, and the connection goes on."""
    link = stage.shared()
    start = link.mark()
    link.expect("", request_id)
    link.raw(line)
    link.settle(lambda: any("error" in item for item in link.since(start)), stage.options.timeout / 4)
    _goes_on(link, "the malformed line")
    errors = [
        item for item in link.since(start) if isinstance(item.get("error"), dict) and not _is_ours(item)
    ]
    demand(errors, f"nothing was answered; {code} is due")
    error = errors[0]["error"]
    got = error.get("code") if isinstance(error, dict) else None
    demand(got == code, f"answered with {got}, not {code}")
    demand(errors[0].get("id") == request_id, f"answered with id {json.dumps(errors[0].get('id'))}")
    demand(len(errors) == 1, f"answered {len(errors)} times")


def _is_ours(message: Json) -> bool:
    """Whether this is the answer to the request by which we see that the connection goes on."""
    return isinstance(message.get("id"), int)


def _malformed(rule: str, name: str, line: bytes, request_id: object, code: int) -> None:
    scenario(rule, f"malformed/{name}")(lambda stage: _rejected(stage, line, request_id, code))


for _name, _line in NOT_JSON.items():
    _malformed("J4", _name, _line, None, -32700)
for _name, (_message, _id) in NOT_A_MESSAGE.items():
    _malformed("J5", _name, json.dumps(_message).encode() + b"\n", _id, -32600)


@scenario("J1", "malformed/no-jsonrpc-member")
def _no_version(stage: Stage) -> None:
    link = stage.shared()
    answer = link.expect(UNKNOWN, "no-version")
    link.send({"id": "no-version", "method": UNKNOWN})
    link.settle(lambda: answer.message is not None, stage.options.timeout / 4)
    _goes_on(link, "a request without jsonrpc")
    advise(answer.code == -32600, f'a request without "jsonrpc" got {answer.told()}, not error -32600')


@scenario("J10", "malformed/batch")
def _batch(stage: Stage) -> None:
    call = {"jsonrpc": "2.0", "id": "in-a-batch", "method": UNKNOWN}
    _rejected(stage, json.dumps([call, call]).encode() + b"\n", None, -32600)


@scenario("J6", "methods/unknown-request")
def _unknown_request(stage: Stage) -> None:
    answer = stage.shared().request("session/no_such_method", {})
    demand(answer.code == -32601, f"an unknown method got {answer.told()}, not error -32601")


@scenario("J6", "methods/unknown-extension-request")
def _unknown_extension(stage: Stage) -> None:
    answer = stage.shared().request(UNKNOWN, {})
    advise(answer.result is None, "an unknown _method got a result, not error -32601")
    demand(answer.code == -32601, f"an unknown _method got {answer.told()}, not error -32601")


def _silent(stage: Stage, *messages: Json) -> None:
    """None of these is answered."""
    link = stage.shared()
    start = link.mark()
    for message in messages:
        link.send({"jsonrpc": "2.0", **message})
    probe = link.request(UNKNOWN, {})
    _goes_on(link, "that")
    answers = [item for item in link.since(start) if "method" not in item and item.get("id") is None]
    demand(not answers, f"a notification was answered: {json.dumps(answers[:1])[:160]}")
    demand(not probe.extra, "an answer came twice")


@scenario("J3", "methods/unknown-notification")
def _unknown_notification(stage: Stage) -> None:
    _silent(stage, {"method": "session/no_such_method", "params": {}}, {"method": "_x/y", "params": {}})


@scenario("J3", "methods/malformed-notification")
def _bad_notification(stage: Stage) -> None:
    _silent(stage, {"method": "session/cancel", "params": {"sessionId": 5}}, {"method": "session/cancel"})


@scenario("J9", "methods/answer-to-nothing")
def _stray(stage: Stage) -> None:
    _silent(stage, {"id": 987_654, "result": {}}, {"id": "nobody", "error": {"code": -1, "message": "no"}})


@scenario("T5", "lines/blank-lines", advice=True)
def _blank(stage: Stage) -> None:
    link = stage.shared()
    start = link.mark()
    link.raw(b"\n\n  \n")
    _goes_on(link, "blank lines")
    errors = [item for item in link.since(start) if "error" in item and item.get("id") is None]
    demand(not errors, "a blank line was answered with an error")


@scenario("T5", "lines/carriage-return", advice=True)
def _crlf(stage: Stage) -> None:
    link = stage.shared()
    answer = link.expect(UNKNOWN, "crlf")
    link.raw(json.dumps({"jsonrpc": "2.0", "id": "crlf", "method": UNKNOWN}).encode() + b"\r\n")
    link.finish(answer)


@scenario("T1", "lines/in-pieces")
def _pieces(stage: Stage) -> None:
    link = stage.shared()
    answer = link.expect(UNKNOWN, "pieces")
    line = json.dumps(
        {"jsonrpc": "2.0", "id": "pieces", "method": UNKNOWN, "params": {"a": "é☃"}}, ensure_ascii=False
    ).encode()
    link.trickle(line + b"\n", 7)
    link.finish(answer)


@scenario("J2", "lines/many-at-once")
def _many(stage: Stage) -> None:
    link = stage.shared()
    answers = [link.post(UNKNOWN, {"n": number}) for number in range(500)]
    link.wait(lambda: all(answer.message for answer in answers), "500 answers to 500 requests", 30)
    _goes_on(link, "that")
    demand(not any(answer.extra for answer in answers), "a request was answered twice")


@scenario("J12", "lines/odd-characters")
def _odd(stage: Stage) -> None:
    link = stage.shared()
    text = '"\\u0000 \\u2028 \\uffff \\ud83d\\ude00 \u2028\u202e\x7f"'
    answer = link.expect(UNKNOWN, "odd")
    line = '{"jsonrpc":"2.0","id":"odd","method":"' + UNKNOWN + '","params":{"_meta":{"a":' + text + "}}}\n"
    link.raw(line.encode())
    link.finish(answer)


@scenario("J4", "lines/lone-surrogate")
def _lone_surrogate(stage: Stage) -> None:
    link = stage.shared()  # not every parser takes it; whether the line was read or not, the next one must be
    link.raw(b'{"jsonrpc":"2.0","method":"_x","params":{"a":"\\ud83d"}}\n')
    _goes_on(link, "half a surrogate pair")


def _answers(link: Link, start: int) -> list[Json]:
    return [item for item in link.since(start) if "method" not in item]


def _long_line(name: str, size: int) -> None:
    @scenario("T5", f"lines/{name}", advice=True)
    def _run(stage: Stage) -> None:
        link = stage.shared()
        start = link.mark()
        answer = link.post(UNKNOWN, {"_meta": {"padding": "x" * size}})
        link.settle(
            lambda: answer.message or any(item.get("id") is None for item in _answers(link, start)), 30
        )
        demand(answer.message, f"a line of {size:,} bytes was not read")
        _goes_on(link, f"a line of {size:,} bytes")


_long_line("100-kilobytes", 100_000)
_long_line("2-megabytes", 2_000_000)
_long_line("16-megabytes", MOST)

"""One line <-> one message: what each kind of line is taken for, and how a bad one is answered."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.errors import RpcError
from acpserver.rpc import message
from acpserver.rpc.message import Invalid, Notification, Request, Response, parse


@pytest.mark.parametrize(
    "request_id", [0, 1, -1, 2**31, 2**63, 10**40, 1.5, 1.0, "", "0", "1", "6f1c-uuid", "\u00e4", "null"]
)
def test_an_id_comes_back_as_it_came(request_id: object) -> None:
    """J2: every kind of id, unchanged in type and value."""
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "m"}).encode()
    request = parse(line)
    assert request == Request(request_id, "m", None)  # type: ignore[arg-type]
    assert isinstance(request, Request)
    answer = json.loads(message.encode(message.result(request.id, {})))
    assert answer["id"] == request_id and type(answer["id"]) is type(request_id)


CALLS = [
    ('{"jsonrpc":"2.0","method":"m"}', Notification("m")),
    ('{"jsonrpc":"2.0","method":"m","params":null}', Notification("m")),
    ('{"jsonrpc":"2.0","method":"m","params":[1]}', Notification("m", [1])),
    ('{"method":"m","params":{}}', Notification("m", {})),  # J3: never answered, though it lacks a member
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":null}}', Request(1, "m", {"a": None})),
    ('{"jsonrpc":"2.0","id":1,"method":"","type":"x"}', Request(1, "", None)),
    ('\ufeff{"jsonrpc":"2.0","id":1,"method":"m"}', Request(1, "m")),
    ('  {"jsonrpc":"2.0","id":1,"method":"m"}\r', Request(1, "m")),
    ('{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', Request(2, "m")),
    ('{"jsonrpc":"2.0","id":1,"method":"m","result":{}}', Request(1, "m")),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\u0000"}}', Request(1, "m", {"a": "\0"})),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}', Request(1, "m", {"a": "\ud800"})),
    ('{"jsonrpc":"2.0","id":1,"result":null}', Response(1, None)),
    ('{"id":1,"result":{"a":1}}', Response(1, {"a": 1})),
    ('{"id":1,"result":{"a":1},"error":null}', Response(1, {"a": 1})),
    ('{"id":null,"result":{}}', Response(None, {})),
]


@pytest.mark.parametrize(("line", "expected"), CALLS, ids=[line for line, _ in CALLS])
def test_parse(line: str, expected: object) -> None:
    assert parse(line.encode()) == expected


INVALID = [
    # J4: a line that is not JSON
    (b"hello", -32700, None),
    (b"{", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"} x', -32700, None),
    (b'{"id":1,"method":"\xff"}', -32700, None),
    (b'{"id":1,"method":"\xed\xa0\x80"}', -32700, None),  # a surrogate in UTF-8
    (b'{"id":1,"method":"m","params":{"a":NaN}}', -32700, None),
    (b'{"id":1,"method":"m","params":{"a":1e999}}', -32700, None),
    (b'{"id":1,"method":"m","params":' + b"9" * 10_000 + b"}", -32700, None),
    (b"[" * 100_000, -32700, None),
    (b'{"a":' * 100_000, -32700, None),
    (b"\x00", -32700, None),
    (b"\xfe\xff\x00{", -32700, None),
    # J5: JSON, but no message
    (b"null", -32600, None),
    (b"1", -32600, None),
    (b'"text"', -32600, None),
    (b"{}", -32600, None),
    (b'{"jsonrpc":"2.0"}', -32600, None),
    (b'{"id":5,"method":"m"}', -32600, 5),
    (b'{"jsonrpc":"1.0","id":"x","method":"m"}', -32600, "x"),
    (b'{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1),
    (b'{"jsonrpc":"2.0","method":null}', -32600, None),
    (b'{"jsonrpc":"2.0","id":null,"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":{"a":1},"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', -32600, None),
    # J10: a batch is answered with one error
    (b"[]", -32600, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]', -32600, None),
]


@pytest.mark.parametrize(("line", "code", "request_id"), INVALID, ids=[str(row[0][:50]) for row in INVALID])
def test_a_bad_line_knows_its_answer(line: bytes, code: int, request_id: object) -> None:
    bad = parse(line)
    assert isinstance(bad, Invalid)
    assert (bad.error.code, bad.id) == (code, request_id)
    assert set(bad.error.data or {}) == {"details"} and len(bad.error.details) < 300


ERRORS = [
    ('{"code":-32000,"message":"m","data":{"details":"d"}}', (-32000, "m", {"details": "d"})),
    ('{"code":5}', (5, "Error", None)),
    ('{"code":"5","message":7,"data":"text"}', (-32603, "Internal error", None)),
    ('{"code":true,"message":"m","data":null}', (-32603, "m", None)),
    ("{}", (-32603, "Internal error", None)),
    ("null", (-32603, "Internal error", {"details": "The answer has neither a result nor an error"})),
    ('"text"', (-32603, "Internal error", {"details": "The answer has neither a result nor an error"})),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=[error for error, _ in ERRORS])
def test_an_error_answer_of_any_shape_is_an_error(error: str, expected: tuple[object, ...]) -> None:
    response = parse(f'{{"jsonrpc":"2.0","id":1,"error":{error}}}'.encode())
    assert isinstance(response, Response) and response.error is not None
    assert (response.error.code, response.error.message, response.error.data) == expected


def test_an_answer_with_an_id_alone_is_an_error() -> None:
    response = parse(b'{"jsonrpc":"2.0","id":1}')
    assert isinstance(response, Response) and response.error is not None


def test_ids_of_different_types_are_different_keys() -> None:
    assert len({message.id_key(value) for value in (1, 1.0, "1", "1.0", -1, "")}) == 6


def test_wire_forms_leave_out_what_is_not_there() -> None:
    assert message.encode(message.notification("m", {})) == b'{"jsonrpc":"2.0","method":"m","params":{}}\n'
    assert message.encode(message.error(None, RpcError(-32700))) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'
    )
    assert message.encode(message.error("a", RpcError(-32603, "x", {"details": "d"}))) == (
        b'{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"x","data":{"details":"d"}}}\n'
    )


@given(st.binary())
def test_no_line_makes_parse_raise(line: bytes) -> None:
    assert isinstance(parse(line), (Request, Notification, Response, Invalid))


@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]),
        st.sampled_from(["2.0", "m", 1, None, True, {}, [], {"code": 1}, {"message": 2}]),
    )
)
def test_every_mixture_of_members_has_one_meaning(value: dict[str, object]) -> None:
    parsed = parse(json.dumps(value).encode())
    assert isinstance(parsed, (Request, Notification, Response, Invalid))
    if "id" not in value and isinstance(value.get("method"), str):
        assert isinstance(parsed, Notification)  # J3: nothing about it may cause an answer

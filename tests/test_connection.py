"""One live link: ids, answers, checks both ways and the end, against a peer that may do anything."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled, ConnectionClosed, RpcError
from acpserver.rpc.call import Call, Handler
from acpserver.rpc.connection import Connection, OutgoingFault
from acpserver.transports.stdio import TOO_LONG, LineReader, LineWriter
from acpserver.workers import WorkerPool

Json = dict[str, object]


class Peer:
    """The other side, as bytes: what is sent to the connection, and what it writes."""

    def __init__(self, handlers: Mapping[str, Handler], **settings: object):
        connection_in, self.writing = os.pipe()
        self.reading, connection_out = os.pipe()
        self._fds = [connection_in, self.reading, connection_out]
        self.writer = LineWriter(connection_out)
        self.connection = Connection(LineReader(connection_in), self.writer, handlers, **settings)  # type: ignore[arg-type]
        self.writer.start()
        self.reader = threading.Thread(target=self.connection.serve, name="reader", daemon=True)
        self.reader.start()
        self._lines = iter(LineReader(self.reading))

    def send(self, *messages: object) -> None:
        """Send JSON values (or bytes), all with one write."""
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        os.write(self.writing, b"\n".join(lines) + b"\n")

    def ask(self, request_id: object, method: str, params: object = None) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def next(self) -> Json:
        """The next message of the connection."""
        return json.loads(next(self._lines))  # type: ignore[no-any-return]

    def nothing_came(self) -> None:
        """Fail if the connection has written anything that was not read yet: the answer to a question that
        is put now must be the next line."""
        self.ask("probe", "_no_such_method")
        assert self.next()["id"] == "probe"

    def close(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1
        self.reader.join(5)

    def end(self) -> None:
        self.close()
        assert not self.reader.is_alive()
        self.writer.close(5)
        for fd in self._fds:
            os.close(fd)


Make = Callable[..., Peer]


@pytest.fixture
def make() -> Iterator[Make]:
    peers: list[Peer] = []

    def make(handlers: Mapping[str, Handler] | None = None, **settings: object) -> Peer:
        peers.append(Peer(handlers or {}, **settings))
        return peers[-1]

    yield make
    for peer in peers:
        peer.end()


def in_thread(work: Callable[[], object]) -> Callable[[], object]:
    """Start `work` on a thread; the returned function gives its value, or the error that it raised."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:  # handed to the test
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> object:
        thread.join(5)
        assert not thread.is_alive(), "still waiting"
        return outcome[0]

    return result


# Calls from the peer

IDS = [0, 1, -7, 2**40, 1.5, "", "1", "a-uuid"]


def test_ids_come_back_as_they_came(make: Make) -> None:
    peer = make({"_echo": lambda call: call.answer(call.params)})
    for request_id in IDS:
        peer.ask(request_id, "_echo", {"x": 1})
        answer = peer.next()
        assert answer == {"jsonrpc": "2.0", "id": request_id, "result": {"x": 1}}
        assert type(answer["id"]) is type(request_id)


def test_bad_lines_are_answered_and_the_connection_goes_on(make: Make) -> None:
    peer = make()
    bad = [b"x", b"\xff", b"[" * 50_000, b"{}", b"[]", b'{"jsonrpc":"2.0","id":4,"method":1}', b'{"a":1e999}']
    peer.send(*bad)
    found = [peer.next() for _ in bad]
    assert [(m["id"], m["error"]["code"]) for m in found] == [  # type: ignore[index]
        (None, -32700),
        (None, -32700),
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (4, -32600),
        (None, -32700),
    ]
    peer.nothing_came()


def test_the_marker_of_a_line_that_was_too_long_is_answered(make: Make) -> None:
    peer = make()
    Connection(iter([TOO_LONG]), peer.writer, {}).serve()
    assert peer.next()["error"]["code"] == -32700  # type: ignore[index]


def test_unknown_request_and_notification(make: Make) -> None:
    peer = make()
    for method in ("nope", "_nope", "session/nope", "", "$/nope"):
        peer.ask(1, method)
        error = peer.next()["error"]
        assert error == {
            "code": -32601,
            "message": "Method not found",
            "data": {"details": f"No method {method}"},
        }
        peer.send({"jsonrpc": "2.0", "method": method})
    peer.nothing_came()


def test_params_that_do_not_fit_name_the_path_and_are_not_run(make: Make) -> None:
    ran: list[Call] = []
    peer = make({"session/prompt": ran.append, "session/cancel": ran.append})
    peer.ask(1, "session/prompt", {"sessionId": 5, "prompt": [{"type": "text"}]})
    error = peer.next()["error"]
    assert error["code"] == -32602  # type: ignore[index]
    details = error["data"]["details"]  # type: ignore[index]
    assert "params.sessionId: " in details and "params.prompt[0].text: " in details
    for params in (None, {}, [], {"sessionId": None}):
        peer.send({"jsonrpc": "2.0", "method": "session/cancel", "params": params})
    peer.nothing_came()
    assert ran == []


@pytest.mark.parametrize("params", [[], [1], "x", 1, True])
def test_params_that_are_no_object_never_reach_a_handler(make: Make, params: object) -> None:
    peer = make({"_echo": lambda call: call.answer({})})
    peer.ask(1, "_echo", params)
    assert peer.next()["error"]["code"] == -32602  # type: ignore[index]


def test_absent_params_are_an_empty_object(make: Make) -> None:
    peer = make({"_echo": lambda call: call.answer(call.params)})
    peer.send({"jsonrpc": "2.0", "id": 1, "method": "_echo"})
    assert peer.next()["result"] == {}


def test_what_clients_get_wrong_is_mended_before_the_check(make: Make) -> None:
    peer = make({"session/new": lambda call: call.answer({"sessionId": json.dumps(call.params)})})
    peer.ask(1, "session/new", {"cwd": "/w", "mcpServers": {}, "unknown": 1, "_meta": {"a": 1}})
    params = json.loads(peer.next()["result"]["sessionId"])  # type: ignore[index]
    assert params == {"cwd": "/w", "mcpServers": [], "unknown": 1, "_meta": {"a": 1}}


def test_admit_comes_before_the_params_are_looked_at(make: Make) -> None:
    def admit(method: str) -> None:
        raise RpcError.with_details(-32600, f"not now: {method}")

    peer = make({"session/prompt": lambda call: None}, admit=admit)
    for method in ("session/prompt", "nope", "config/set"):
        peer.ask(1, method, {})
        assert peer.next()["error"]["code"] == -32600  # type: ignore[index]
        peer.send({"jsonrpc": "2.0", "method": method})
    peer.ask(2, "config/set")
    assert peer.next()["error"]["data"]["details"] == "not now: session/set_config_option"  # type: ignore[index]


def test_a_handler_that_fails_answers_with_details_only(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call) -> None:
        raise KeyError("secret value")

    def refuse(call: Call) -> None:
        raise RpcError(-32002, "Session not found", {"details": "Session not found: x"})

    peer = make({"_fail": fail, "_refuse": refuse})
    peer.ask(1, "_fail")
    assert peer.next()["error"] == {
        "code": -32603,
        "message": "Internal error",
        "data": {"details": "KeyError in _fail"},
    }
    peer.ask(2, "_refuse")
    assert peer.next()["error"]["code"] == -32002  # type: ignore[index]
    peer.send({"jsonrpc": "2.0", "method": "_fail"}, {"jsonrpc": "2.0", "method": "_refuse"})
    peer.nothing_came()
    assert caplog.text.count("KeyError: 'secret value'") == 2


def test_a_request_is_answered_once_and_a_notification_never(make: Make) -> None:
    def eager(call: Call) -> None:
        call.answer({"first": True})
        call.answer({"second": True})
        call.fail(RpcError(-32603))
        raise ValueError("after the answer")

    peer = make({"_eager": eager})
    peer.send({"jsonrpc": "2.0", "method": "_eager"})
    peer.ask(1, "_eager")
    assert peer.next()["result"] == {"first": True}
    peer.nothing_came()


def test_two_requests_with_one_id_are_both_answered(make: Make) -> None:
    calls: list[Call] = []
    peer = make({"_wait": calls.append, "_go": lambda call: [c.answer({"n": c.params["n"]}) for c in calls]})
    peer.ask(5, "_wait", {"n": 1})
    peer.ask(5, "_wait", {"n": 2})
    peer.send({"jsonrpc": "2.0", "method": "_go"})
    assert [peer.next()["result"] for _ in range(2)] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("request_id", "cancelled", "hit"),
    [
        (1, 1, True),
        ("1", "1", True),
        (1, "1", False),
        ("1", 1, False),
        (1, 1.0, False),
        (1, 2, False),
        (0, False, False),
        ("a", None, False),
    ],
)
def test_cancel_request_is_strict_about_types(
    make: Make, request_id: object, cancelled: object, hit: bool
) -> None:
    calls: list[Call] = []
    peer = make({"_wait": calls.append})
    peer.ask(request_id, "_wait")
    peer.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": cancelled}})
    peer.nothing_came()
    assert calls[0].cancel.is_set() is hit
    calls[0].answer({})
    assert peer.next()["id"] == request_id


@pytest.mark.parametrize("params", [None, [], {}, {"requestId": None}, {"requestId": [1]}, "x"])
def test_a_cancel_request_that_says_nothing_is_ignored(make: Make, params: object) -> None:
    peer = make()
    peer.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})
    peer.nothing_came()


def test_an_answered_request_is_no_longer_cancelled(make: Make) -> None:
    calls: list[Call] = []
    peer = make({"_do": lambda call: (calls.append(call), call.answer({}))})  # type: ignore[func-returns-value]
    peer.ask(1, "_do")
    peer.next()
    peer.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}})
    peer.nothing_came()
    assert not calls[0].cancel.is_set()


def test_observe_sees_every_line_and_may_see_bad_ones(make: Make) -> None:
    seen: list[bytes] = []
    peer = make(observe=seen.append)
    peer.send(b"bad", b'{"jsonrpc":"2.0","method":"_x"}')
    assert peer.next()["error"]["code"] == -32700  # type: ignore[index]
    peer.nothing_came()
    assert seen[:2] == [b"bad", b'{"jsonrpc":"2.0","method":"_x"}']


# Requests of ours


def test_ids_count_from_a_million_and_are_never_used_again(make: Make) -> None:
    peer = make()
    for number in range(3):
        result = in_thread(lambda: peer.connection.request("_ask", {"a": 1}))
        assert peer.next() == {
            "jsonrpc": "2.0",
            "id": 1_000_000 + number,
            "method": "_ask",
            "params": {"a": 1},
        }
        peer.send({"jsonrpc": "2.0", "id": 1_000_000 + number, "result": {"n": number}})
        assert result() == {"n": number}


def test_error_answers_raise(make: Make) -> None:
    peer = make()
    result = in_thread(lambda: peer.connection.request("_ask", {}))
    peer.next()
    peer.send({"jsonrpc": "2.0", "id": 1_000_000, "error": {"code": -32601, "message": "no"}})
    error = result()
    assert isinstance(error, RpcError) and (error.code, error.message) == (-32601, "no")


@pytest.mark.parametrize("answer", [{"result": []}, {"result": "x"}, {"result": 7}, {}, {"error": "x"}])
def test_answers_of_another_shape_raise(make: Make, answer: Json) -> None:
    peer = make()
    result = in_thread(lambda: peer.connection.request("_ask", {}))
    peer.next()
    peer.send({"jsonrpc": "2.0", "id": 1_000_000, **answer})
    error = result()
    assert isinstance(error, RpcError) and error.code == -32603


def test_results_are_checked_by_the_method_of_their_request(make: Make) -> None:
    peer = make()
    params: Json = {"sessionId": "s", "path": "/a"}
    result = in_thread(lambda: peer.connection.request("fs/read_text_file", params))
    peer.next()
    peer.send({"jsonrpc": "2.0", "id": 1_000_000, "result": {"content": 5}})
    error = result()
    assert isinstance(error, RpcError) and "result.content" in error.details


def test_an_empty_result_may_be_null(make: Make) -> None:
    peer = make()
    params: Json = {"sessionId": "s", "path": "/a", "content": "x"}
    result = in_thread(lambda: peer.connection.request("fs/write_text_file", params))
    peer.next()
    peer.send({"jsonrpc": "2.0", "id": 1_000_000, "result": None})
    assert result() == {}


@pytest.mark.parametrize("request_id", ["1000000", 1_000_000.0, 1_000_001, 0, None, "", [1_000_000]])
def test_answers_to_other_ids_are_ignored(make: Make, request_id: object) -> None:
    peer = make()
    result = in_thread(lambda: peer.connection.request("_ask", {}))
    peer.next()
    peer.send({"jsonrpc": "2.0", "id": request_id, "result": {"wrong": True}})
    peer.nothing_came()
    peer.send({"jsonrpc": "2.0", "id": 1_000_000, "result": {"right": True}})
    assert result() == {"right": True}


def test_answers_may_come_in_any_order(make: Make) -> None:
    peer = make()
    results = []
    for number in range(5):
        results.append(in_thread(lambda number=number: peer.connection.request("_ask", {"n": number})))  # type: ignore[misc]
        assert peer.next()["params"] == {"n": number}
    for number in (3, 0, 4, 1, 2):
        peer.send({"jsonrpc": "2.0", "id": 1_000_000 + number, "result": {"n": number}})
    assert [result() for result in results] == [{"n": number} for number in range(5)]


def test_a_cancelled_request_tells_the_peer_and_drops_the_late_answer(make: Make) -> None:
    peer, flag = make(), CancelFlag()
    result = in_thread(lambda: peer.connection.request("_ask", {}, flag))
    peer.next()
    flag.set("session/cancel")
    assert isinstance(result(), Cancelled)
    assert peer.next() == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1_000_000}}
    peer.send({"jsonrpc": "2.0", "id": 1_000_000, "result": {}})
    peer.nothing_came()


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        ({"result": {"terminalId": "t"}}, [{"terminalId": "t"}]),
        ({"error": {"code": -32800, "message": "cancelled"}}, []),
    ],
)
def test_a_late_result_goes_to_who_wants_it(make: Make, answer: Json, got: list[object]) -> None:
    peer, cancel, late = make(), CancelFlag(), []  # type: ignore[var-annotated]
    params: Json = {"sessionId": "s", "command": "ls"}
    result = in_thread(lambda: peer.connection.request("terminal/create", params, cancel, late=late.append))
    request = peer.next()
    cancel.set()
    assert isinstance(result(), Cancelled)
    assert peer.next()["method"] == "$/cancel_request"
    peer.send({"jsonrpc": "2.0", "id": request["id"], **answer})
    peer.nothing_came()
    assert late == got


def test_a_result_in_time_is_not_late(make: Make) -> None:
    peer, late = make(), []  # type: ignore[var-annotated]
    params: Json = {"sessionId": "s", "command": "ls"}
    result = in_thread(lambda: peer.connection.request("terminal/create", params, late=late.append))
    peer.send({"jsonrpc": "2.0", "id": peer.next()["id"], "result": {"terminalId": "t"}})
    assert result() == {"terminalId": "t"}
    peer.nothing_came()
    assert late == []


def test_a_request_whose_answer_does_not_matter(make: Make) -> None:
    peer = make()
    params: Json = {"sessionId": "s", "terminalId": "t"}
    peer.connection.post("terminal/release", params)
    request = peer.next()
    assert (request["method"], request["params"], request["id"]) == ("terminal/release", params, 1_000_000)
    peer.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "no"}})
    peer.nothing_came()
    peer.close()
    with pytest.raises(ConnectionClosed):
        peer.connection.post("terminal/release", params)


def test_a_request_with_a_flag_that_is_set_is_not_sent(make: Make) -> None:
    peer, flag = make(), CancelFlag()
    flag.set()
    with pytest.raises(Cancelled):
        peer.connection.request("_ask", {}, flag)
    peer.nothing_came()


def test_a_request_that_is_not_answered_in_time(make: Make) -> None:
    peer = make()
    with pytest.raises(TimeoutError, match="_ask: no answer within 0.01 s"):
        peer.connection.request("_ask", {}, timeout=0.01)
    assert peer.next()["method"] == "_ask"
    assert peer.next()["method"] == "$/cancel_request"


def test_the_end_of_input_fails_what_is_pending_and_what_comes_later(make: Make) -> None:
    peer = make()
    results = [in_thread(lambda: peer.connection.request("_ask", {})) for _ in range(3)]
    for _ in results:
        peer.next()
    peer.close()
    assert all(isinstance(result(), ConnectionClosed) for result in results)
    with pytest.raises(ConnectionClosed):
        peer.connection.request("_ask", {})
    peer.connection.close()


# Strict and lenient about our own faults


def test_strict_refuses_what_does_not_fit(make: Make) -> None:
    peer = make({"session/new": lambda call: call.answer({"sessionId": 7})}, strict=True)
    with pytest.raises(OutgoingFault, match="params.sessionId"):
        peer.connection.notify(
            "session/update", {"sessionId": 1, "update": {"sessionUpdate": "plan", "entries": []}}
        )
    with pytest.raises(OutgoingFault):
        peer.connection.request("session/request_permission", {})
    peer.ask(1, "session/new", {"cwd": "/", "mcpServers": []})
    error = peer.next()["error"]
    assert error["code"] == -32603 and "result.sessionId" in error["data"]["details"]  # type: ignore[index]
    peer.nothing_came()


def test_otherwise_it_is_logged_and_sent(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    peer = make({"session/new": lambda call: call.answer({"sessionId": 7})})
    peer.ask(1, "session/new", {"cwd": "/", "mcpServers": []})
    assert peer.next()["result"] == {"sessionId": 7}
    assert "session/new: result.sessionId" in caplog.text


@pytest.mark.parametrize("result", [{"x": float("nan")}, {"x": object()}, {"x": {1}}])
def test_a_result_that_is_no_json_becomes_an_error(make: Make, result: object) -> None:
    peer = make({"_do": lambda call: call.answer(result)})
    peer.ask(1, "_do")
    error = peer.next()["error"]
    assert error["code"] == -32603 and set(error["data"]) == {"details"}  # type: ignore[index]
    peer.nothing_came()


@pytest.mark.parametrize("send", ["request", "post"])
def test_a_request_that_is_no_json_leaves_nothing_pending(make: Make, send: str) -> None:
    peer = make()
    with pytest.raises(ValueError):
        getattr(peer.connection, send)("_ask", {"x": float("nan")})
    assert peer.connection._pending._pending == {}
    peer.nothing_came()


# Two connections against each other


def test_two_connections_flood_each_other() -> None:
    """Both sides ask at once from many threads, answer out of order, and each answer finds its question."""
    left_in, right_out = os.pipe()
    right_in, left_out = os.pipe()
    pool = WorkerPool("answers", 4)

    def later(call: Call) -> None:
        pool.submit(lambda: call.answer({"n": call.params["n"]}))

    def now(call: Call) -> None:
        call.answer({"n": call.params["n"]})

    def bad(call: Call) -> None:
        raise RpcError.with_details(-32603, str(call.params["n"]))

    handlers: dict[str, Handler] = {"_later": later, "_now": now, "_bad": bad, "_tell": lambda call: None}
    sides = []
    for read_fd, write_fd in ((left_in, left_out), (right_in, right_out)):
        writer = LineWriter(write_fd)
        writer.start()
        connection = Connection(LineReader(read_fd), writer, handlers, strict=True)
        reader = threading.Thread(target=connection.serve, daemon=True)
        reader.start()
        sides.append((connection, writer, reader, write_fd))

    def ask(connection: Connection, name: int) -> int:
        right = 0
        mine = random.Random(name)
        for number in range(100):
            key = f"{name}/{number}" + "x" * mine.randrange(2_000)
            if mine.random() < 0.2:
                connection.notify("_tell", {"n": key})
            if mine.random() < 0.2:
                try:
                    connection.request("_bad", {"n": key})
                except RpcError as error:
                    right += error.details == key
            else:
                right += connection.request(mine.choice(["_later", "_now"]), {"n": key}) == {"n": key}
        return right

    results = [
        in_thread(lambda side=side, name=name: ask(side[0], name))  # type: ignore[misc]
        for name, side in enumerate([*sides, *sides, *sides, *sides])
    ]
    assert [result() for result in results] == [100] * 8
    assert pool.wait_idle(5)
    for connection, writer, _, write_fd in sides:
        assert connection._calls._calls == {} and connection._pending._pending == {}
        assert writer.close(5)
        os.close(write_fd)
    for _, _, reader, _ in sides:
        reader.join(5)
        assert not reader.is_alive()
    os.close(left_in)
    os.close(right_in)


def test_random_bytes_never_end_the_connection(make: Make) -> None:
    peer = make({"_echo": lambda call: call.answer(call.params)})
    chance = random.Random(3)
    valid = b'{"jsonrpc":"2.0","id":1,"method":"_echo","params":{"a":[1,"x",null]}}'
    seen = 0
    for _ in range(300):
        line = bytearray(valid)
        for _ in range(chance.randrange(1, 4)):
            line[chance.randrange(len(line))] = chance.choice(b'{}[]",:0aA\\ \x00\xff\xc3')
        peer.send(bytes(line))
        seen += 1
        if seen % 20 == 0:
            peer.ask("probe", "_echo", {"n": seen})
            while (answer := peer.next()).get("id") != "probe":
                assert set(answer) in ({"jsonrpc", "id", "error"}, {"jsonrpc", "id", "result"})
            assert answer["result"] == {"n": seen}

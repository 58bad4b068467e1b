"""A fake model server on a raw socket, for tests and benchmarks: OpenAI-compatible, or any other dialect.

    with FakeLlm() as llm:
        llm.script(text("hello"), tool_call("read_file", {"path": "a"}), error(429))
        ... HttpProvider(Endpoint(llm.base_url)) ...
        assert llm.requests[0].body["messages"][-1]["content"] == "hi"
        assert llm.violations == []

It answers one scripted answer a request, in order; `FakeLlm(default=...)` answers what has no script. An
answer may also be a function that is given the `Request`. Each request for an answer is checked as strictly
as the rules of its dialect are (`wires`); one that breaks a rule is answered with 400 and noted in
`violations`, and so is a request for which nothing was scripted. What can be answered: `llm_answers`.

As a process: `python -m tests.fakes.llm_server --chunks 5000 --port 0` prints the port, then answers
every request with that many small chunks as fast as it can, until it is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakes import openai_rules
from tests.fakes.llm_answers import Answer, Cut, Pause, Reply, Reset, Stall, Step, error, text
from tests.fakes.wires import WIRES

Scripted = Answer | Reply | Callable[["Request"], Answer | Reply]
LIMIT = 30.0  # seconds after which a stall or a silent connection ends by itself, so that no test hangs


@dataclass
class Request:
    """One request as it came, and what became of its connection."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    raw_body: bytes
    connection: int  # number of the TCP connection, from 1
    time: float = field(default_factory=time.monotonic)
    answered: threading.Event = field(default_factory=threading.Event)
    """The whole answer has been written."""
    closed: threading.Event = field(default_factory=threading.Event)
    """The connection is over: the client closed or broke it, or the script told the server to."""
    closed_at: float = 0.0  # time.monotonic() of that

    @property
    def body(self) -> dict:
        """The JSON body."""
        return json.loads(self.raw_body)

    @property
    def messages(self) -> list[dict]:
        """The messages of the body."""
        return self.body["messages"]


class _Closed(Exception):
    """The client is gone, or the fake has been told to break the connection."""


class FakeLlm:
    """The server. Threads: one accepts, one for each connection."""

    def __init__(
        self,
        default: Scripted | None = None,
        api_key: str = "",
        models: tuple[str, ...] = ("fake",),
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        dialect: str = "openai",
    ):
        self.requests: list[Request] = []
        self.lists: list[Request] = []
        """The requests for the list of models; they come at any time, and are not among `requests`."""
        self.violations: list[str] = []
        self.entries: dict[str, dict] = {}
        """What the list of models says of a model beside its name."""
        self.shows: dict[str, dict | Answer] = {}
        """What Ollama's /api/show says of a model; 404 for any other."""
        self.shown: list[str] = []
        """The models that it was asked for; these requests are not among `requests`."""
        self._default = default
        self._api_key = api_key
        self.use(dialect)
        self.models = models
        self._tls = tls
        self._script: deque[Scripted] = deque()
        self._changed = threading.Condition()  # guards the lists and the script
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._connections = 0
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.base_url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/v1"
        self._start(self._accept)

    def __enter__(self) -> FakeLlm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use(self, dialect: str, server: str = "") -> None:
        """Speak this dialect from now on; of OpenAI's, as the server of this name does."""
        self.wire = WIRES[dialect]
        if server:
            self.wire = self.wire._replace(
                violations=lambda body, model: openai_rules.violations(body, server)
            )

    def script(self, *answers: Scripted) -> None:
        """Append answers for the coming requests."""
        with self._changed:
            self._script.extend(answers)

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> list[Request]:
        """The requests, once there are `count` of them. Raises AssertionError when they do not come."""
        return self._wait_for(self.requests, count, timeout)

    def wait_for_lists(self, count: int, timeout: float = 10.0) -> list[Request]:
        """The requests for the list of models, once there are `count` of them."""
        return self._wait_for(self.lists, count, timeout)

    def _wait_for(self, coming: list[Request], count: int, timeout: float) -> list[Request]:
        with self._changed:
            come = self._changed.wait_for(lambda: len(coming) >= count, timeout)
            assert come, f"{len(coming)} of {count} requests came within {timeout} s"
            return list(coming)

    def close(self) -> None:
        """End every connection and thread."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(10)
            assert not thread.is_alive(), "a thread of the fake server does not end"

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="fake-llm", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._connections += 1
                self._open.add(sock)
            self._start(self._serve, sock, self._connections)

    def _serve(self, plain: socket.socket, number: int) -> None:
        mine: list[Request] = []
        sock = plain
        try:
            plain.settimeout(LIMIT)
            if self._tls:
                sock = self._tls.wrap_socket(plain, server_side=True)
                with self._changed:
                    self._open.add(sock)
            received = b""
            while True:
                request, received = _read_request(sock, received, number)
                mine.append(request)
                answer = self._choose(request)
                _Writer(sock, self._stopping).write(answer)
                request.answered.set()
                if answer.framing in ("close", "raw"):
                    return
        except (_Closed, OSError):  # the usual end: the client does not need us any more
            return
        finally:
            now = time.monotonic()
            with self._changed:
                self._open -= {plain, sock}
            sock.close()
            for request in mine:
                request.closed_at = now
                request.closed.set()

    def _choose(self, request: Request) -> Answer:
        if request.method == "POST" and request.path == "/api/show":
            return self._show(request)
        with self._changed:
            (self.lists if request.method == "GET" else self.requests).append(request)
            self._changed.notify_all()
        refusal = self._check(request)
        if refusal:
            return refusal
        if request.method == "GET":
            return error(200, self._list())
        with self._changed:
            chosen = self._script.popleft() if self._script else self._default
        if chosen is None:
            return self._violation("no answer is scripted for this request")
        if callable(chosen):
            chosen = chosen(request)
        return self.wire.stream(chosen) if isinstance(chosen, Reply) else chosen

    def _list(self) -> dict:
        """The list of models. Each entry of it names its model in some member."""
        value = self.wire.listed(self.models)
        for entries in (found for found in value.values() if isinstance(found, list)):
            for entry, name in zip(entries, self.models, strict=True):
                entry.update(self.entries.get(name, {}))
        return value

    def _show(self, request: Request) -> Answer:
        with self._changed:
            self.shown.append(request.body["model"])
            self._changed.notify_all()
        found = self.shows.get(request.body["model"])
        if isinstance(found, Answer):
            return found
        return error(200, found) if found else error(404, {"error": "model not found"})

    def _check(self, request: Request) -> Answer | None:
        wire = self.wire
        if self._api_key and request.headers.get(wire.key_header) != wire.scheme + self._api_key:
            return error(401, wire.error(401, "Incorrect API key provided."))
        if request.method == "GET" and wire.models.fullmatch(request.path):
            return None
        asked = wire.chat.fullmatch(request.path)
        if request.method != "POST" or asked is None:
            return error(404, wire.error(404, f"no such path: {request.method} {request.path}"))
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return self._violation("the content type is not application/json")
        try:
            body = json.loads(request.raw_body)
        except ValueError:
            return self._violation("the body is not JSON")
        found = wire.violations(body, asked.groupdict().get("model", ""))
        return self._violation("; ".join(found)) if found else None

    def _violation(self, words: str) -> Answer:
        with self._changed:
            self.violations.append(words)
        return error(400, self.wire.error(400, words))


class _Writer:
    """Puts one answer on one connection."""

    def __init__(self, sock: socket.socket, stopping: threading.Event):
        self._sock = sock
        self._stopping = stopping

    def write(self, answer: Answer) -> None:
        for step in answer.first:
            self._step(step, "raw")
        if answer.framing not in ("raw", "ready"):
            self._sock.sendall(_head(answer))
        steps = _joined(answer) if answer.at_once else answer.steps
        for step in steps:
            self._step(step, "raw" if answer.at_once else answer.framing)
        if answer.framing == "chunked":
            self._sock.sendall(b"0\r\n\r\n")

    def _step(self, step: Step, framing: str) -> None:
        if isinstance(step, bytes):
            if step:
                self._sock.sendall(_chunk(step) if framing == "chunked" else step)
        elif isinstance(step, Stall):
            step.reached.set()
            self._wait(step.released, LIMIT)
        elif isinstance(step, Pause):
            self._wait(self._stopping, step.seconds)
        elif isinstance(step, Reset):
            # Linger of zero seconds: close() sends RST instead of FIN.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise _Closed
        elif isinstance(step, Cut):
            raise _Closed

    def _wait(self, event: threading.Event, seconds: float) -> None:
        """Wait for `event` or the time; raises `_Closed` as soon as the client closes."""
        end = time.monotonic() + seconds
        while not event.is_set() and (left := end - time.monotonic()) > 0:
            if self._stopping.is_set():
                raise _Closed
            readable, _, _ = select.select([self._sock], [], [], min(left, 0.002))
            if readable:
                if isinstance(self._sock, ssl.SSLSocket):
                    if not self._sock.recv(1):
                        raise _Closed
                elif not self._sock.recv(1, socket.MSG_PEEK):
                    raise _Closed


def _head(answer: Answer) -> bytes:
    headers = dict(answer.headers)
    if answer.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif answer.framing == "length":
        headers["Content-Length"] = str(sum(len(step) for step in answer.steps if isinstance(step, bytes)))
    else:
        headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} Fake\r\n{lines}\r\n".encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _joined(answer: Answer) -> tuple[Step, ...]:
    """The steps with neighbouring bytes in one piece, already framed."""
    pieces = [step for step in answer.steps if isinstance(step, bytes)]
    assert len(pieces) == len(answer.steps), "only bytes can be sent at once"
    return (b"".join(_chunk(piece) if answer.framing == "chunked" else piece for piece in pieces),)


def _read_request(sock: socket.socket, received: bytes, number: int) -> tuple[Request, bytes]:
    """The next request and the bytes after it. Raises `_Closed` at the end of the connection."""
    while b"\r\n\r\n" not in received:
        received += _receive(sock)
        if not received[:1].isalpha():  # a TLS handshake, for example
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            raise _Closed
    head, _, rest = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    assert version == "HTTP/1.1", version
    pairs = [line.partition(":") for line in lines]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    pieces, size = [rest], len(rest)
    while size < length:
        pieces.append(_receive(sock))
        size += len(pieces[-1])
    rest = b"".join(pieces)
    return Request(method, path, headers, rest[:length], number), rest[length:]


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 20)
    if not data:
        raise _Closed
    return data


def main() -> None:
    """Serve one pre-rendered answer until ended."""
    parser = argparse.ArgumentParser(
        description="answer every request with the same stream, as fast as possible"
    )
    parser.add_argument("--chunks", type=int, default=5000)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--text", default="word ", help="the text of each chunk")
    options = parser.parse_args()
    answer = text(*[options.text] * options.chunks).answer().fast()
    everything = _head(answer) + b"".join(step for step in _joined(answer) if isinstance(step, bytes))
    server = FakeLlm(Answer((everything + b"0\r\n\r\n",), framing="ready"), port=options.port)
    print(server.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()

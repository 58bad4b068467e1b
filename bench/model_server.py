"""A model server that does one thing per address, for the benchmarks: OpenAI-compatible, on loopback.

A process of its own. `http://127.0.0.1:PORT/BEHAVIOUR/chat/completions`, where BEHAVIOUR is one of
    stream-N  N chunks, one write each     burst-N  N chunks in one write     flood  chunks without end
    stall     one chunk, then nothing      silent   no byte at all            busy   429, asks to wait 20 s
    run       one call of the tool bash, then one chunk                       paced-N  N chunks, 0.2 ms apart
It prints its port, and then a line for each call: "asked TIME" and "closed TIME" when the caller went away
before the answer was complete (seconds of the monotonic clock, which all processes share).
"""

from __future__ import annotations

import json
import socket
import threading
import time
from functools import cache
from itertools import count

COMMAND = "trap '' TERM; echo ready-$((1 + 1)); sleep 60"
"""What `run` asks the agent to execute: it and its child ignore SIGTERM. It says "ready-2" first."""


def word(index: int) -> str:
    """The text of chunk `index`."""
    return f"word{index:07d} "


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    """One server-sent event, in one chunk of the HTTP body."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return framed(b"data: " + json.dumps(value).encode() + b"\n\n")


def framed(data: bytes) -> bytes:
    """A chunk of a chunked HTTP body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n"
NO_LIST = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
DONE = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
CALL = {
    "index": 0,
    "id": "call_1",
    "function": {"name": "bash", "arguments": json.dumps({"command": COMMAND})},
}


@cache
def texts(number: int) -> list[bytes]:
    """The chunks of an answer of so many words, rendered once."""
    return [chunk({"content": word(index)}) for index in range(number)]


def respond(sock: socket.socket, behaviour: str, body: bytes) -> None:
    """Send one answer."""
    kind, _, number = behaviour.partition("-")
    if kind == "busy":
        sock.sendall(BUSY)
        return
    if kind in ("silent", "stall"):
        if kind == "stall":
            sock.sendall(HEAD + chunk({"content": word(0)}))
        raise ConnectionAbortedError if not sock.recv(1) else RuntimeError("the caller sent more")
    if kind == "run" and json.loads(body)["messages"][-1]["role"] != "tool":
        sock.sendall(HEAD + chunk({"tool_calls": [CALL]}) + chunk({}, "tool_calls") + DONE)
        return
    if kind == "flood":
        sock.sendall(HEAD)
        for index in count():
            sock.sendall(chunk({"content": word(index)}))
    pieces = texts(int(number or 1))
    if kind == "burst":
        sock.sendall(HEAD + b"".join(pieces) + chunk({}, "stop") + DONE)
        return
    sock.sendall(HEAD)
    for piece in pieces:
        sock.sendall(piece)
        if kind == "paced":
            time.sleep(0.0002)
    sock.sendall(chunk({}, "stop") + DONE)


def say(what: str) -> None:
    """Report an event with its time, as one write."""
    print(f"{what} {time.monotonic()}", flush=True)


def converse(sock: socket.socket) -> None:
    """Answer the requests of one connection until it ends."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sock, sock.makefile("rb") as reader:
        while request := reader.readline():
            length = 0
            while (header := reader.readline()).strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = reader.read(length)
            if request.startswith(b"GET"):  # for its list of models, in the background
                sock.sendall(NO_LIST)
                continue
            say("asked")
            try:
                respond(sock, request.split()[1].decode().split("/")[1], body)
            except OSError:  # the caller went away, which is what some benchmarks wait for
                say("closed")
                return


def main() -> None:
    """Serve until killed."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()

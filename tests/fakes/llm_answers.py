"""What the fake model server can answer, and how badly. Values and small builders; no sockets here.

    text("Hel", "lo")                          two deltas, usage, [DONE]
    thought("hm") + text("yes")                one answer: thinking, then text
    text("I look") + tool_call("read_file", {"path": "a"})
    tool_call("f", {}) + tool_call("g", {})    parallel calls
    text("long").ends("length")                another finish reason
    redacted() + tool_call("f", {})            reasoning that is hidden, where the dialect has it
    text("x").no_usage()                       no usage chunk
    chunks([{...}, {...}])                     any chunks, as dicts, then [DONE]
    one_json(text("hi"))                       the same answer as one JSON body
    error(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"})
    raw(b"anything")                           any bytes, headers included

Each of them can be sent in a different way: `.split(1)`, `.crlf()`, `.comments()`, `.framed("length")`,
`.gzipped()`, `.pauses(0.001)`, `.before_headers(Stall())`, `.insert(1, Stall())`, `.then(Reset())`.
"""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from dataclasses import dataclass, field, replace


class Stall:
    """Send nothing until `release()`, or until the client closes the connection."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        """The server has come here: everything before has been sent."""
        self.released = threading.Event()

    def release(self) -> None:
        """Go on."""
        self.released.set()


@dataclass(frozen=True)
class Pause:
    """Send nothing for some seconds."""

    seconds: float


class Reset:
    """Break the connection with a TCP reset."""


class Cut:
    """Close the connection in the middle, as a crashing server does."""


Step = bytes | Stall | Pause | Reset | Cut


@dataclass(frozen=True)
class Answer:
    """One HTTP response: `steps` make its body; each piece of bytes is one write (and one HTTP chunk)."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    framing: str = "chunked"
    """"chunked", "length", "close" (ends with the connection), "raw" (no head, ends with the connection), or
    "ready" (the steps hold head and framing, the connection is kept)."""
    first: tuple[Step, ...] = ()  # before the headers
    at_once: bool = False  # all bytes that follow one another in one write; chunks stay chunks

    def split(self, size: int) -> Answer:
        """The body in pieces of `size` bytes, wherever that cuts."""
        return self._pieces(lambda body: [body[at : at + size] for at in range(0, len(body), size)])

    def split_at(self, *positions: int) -> Answer:
        """The body cut at these positions of its first piece of bytes."""

        def cut(body: bytes) -> list[bytes]:
            edges = [0, *positions, len(body)]
            return [body[a:b] for a, b in zip(edges, edges[1:], strict=False)]

        return self._pieces(cut)

    def crlf(self) -> Answer:
        """With CR LF line ends."""
        return self._pieces(lambda body: [body.replace(b"\n", b"\r\n")])

    def comments(self) -> Answer:
        """With a comment line before each piece, as servers send to keep a connection alive."""
        return self._pieces(lambda body: [b": ping\n\n" + body])

    def framed(self, framing: str) -> Answer:
        """With another way to say where the body ends."""
        return replace(self, framing=framing)

    def gzipped(self) -> Answer:
        """Compressed as a whole, in one piece."""
        body = gzip.compress(b"".join(step for step in self.steps if isinstance(step, bytes)))
        return replace(self, steps=(body,), headers={**self.headers, "Content-Encoding": "gzip"})

    def pauses(self, seconds: float) -> Answer:
        """With a pause before each piece."""
        return replace(self, steps=tuple(part for step in self.steps for part in (Pause(seconds), step)))

    def before_headers(self, *steps: Step) -> Answer:
        """With these steps before anything else."""
        return replace(self, first=(*self.first, *steps))

    def insert(self, position: int, *steps: Step) -> Answer:
        """With these steps before the piece at `position`."""
        return replace(self, steps=(*self.steps[:position], *steps, *self.steps[position:]))

    def then(self, *steps: Step) -> Answer:
        """With these steps after the last piece."""
        return replace(self, steps=(*self.steps, *steps))

    def first_pieces(self, count: int) -> Answer:
        """Only the first pieces: a body that ends too early, but ends."""
        return replace(self, steps=self.steps[:count])

    def fast(self) -> Answer:
        """As fast as possible: neighbouring chunks in one write."""
        return replace(self, at_once=True)

    def _pieces(self, change) -> Answer:
        steps: list[Step] = []
        for step in self.steps:
            steps += change(step) if isinstance(step, bytes) else [step]
        return replace(self, steps=tuple(steps))


@dataclass(frozen=True)
class Reply:
    """What a model says, before it is put into bytes; `+` joins two."""

    deltas: tuple[dict, ...] = ()
    calls: tuple[dict, ...] = ()
    finish: str = ""
    usage: dict | None = field(default_factory=lambda: usage(10, 5))

    def __add__(self, other: Reply) -> Reply:
        later = tuple(dict(call, index=call["index"] + len(self.calls)) for call in other.calls)
        calls = self.calls + later
        return Reply(self.deltas + other.deltas, calls, other.finish or self.finish, other.usage)

    def ends(self, finish: str) -> Reply:
        """With this finish reason."""
        return replace(self, finish=finish)

    def no_usage(self) -> Reply:
        """Without a usage chunk."""
        return replace(self, usage=None)

    def used(self, prompt: int, completion: int, cached: int = 0, thought: int = 0) -> Reply:
        """With these token counts."""
        return replace(self, usage=usage(prompt, completion, cached, thought))

    @property
    def finish_reason(self) -> str:
        """The finish reason: as set, or the one that fits."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    def chunks(self) -> list[dict]:
        """The chunks of a stream, as dicts."""
        found = [_chunk({"role": "assistant", "content": None})]
        found += [_chunk(delta) for delta in self.deltas]
        for call in self.calls:
            text = call["function"]["arguments"]
            head = dict(call, function={"name": call["function"]["name"], "arguments": ""})
            found.append(_chunk({"tool_calls": [head]}))
            half = len(text) // 2
            for piece in (text[:half], text[half:]):
                fragment = {"index": call["index"], "function": {"arguments": piece}}
                found.append(_chunk({"tool_calls": [fragment]}))
        found.append(_chunk({}, self.finish_reason))
        if self.usage:
            found.append({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": self.usage})
        return found

    def answer(self) -> Answer:
        """As a stream of server-sent events."""
        return chunks(self.chunks())


def text(*deltas: str) -> Reply:
    """Visible text, one chunk for each argument."""
    return Reply(tuple({"content": delta} for delta in deltas))


def thought(*deltas: str, member: str = "reasoning_content") -> Reply:
    """Reasoning text, one chunk for each argument."""
    return Reply(tuple({member: delta} for delta in deltas))


def redacted() -> Reply:
    """A block of hidden reasoning; only Anthropic has it."""
    return Reply(({"redacted": True},))


def tool_call(name: str, arguments: dict | str, call_id: str = "") -> Reply:
    """One tool call; a str is sent as it is, valid or not."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call_id = call_id or f"call_{name}_{zlib.crc32(written.encode()):08x}"
    call = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": written}}
    return Reply(calls=(call,))


def chunks(values: list[dict], done: bool = True) -> Answer:
    """A stream of these chunks, one piece each."""
    steps = [b"data: " + json.dumps(value).encode() + b"\n\n" for value in values]
    return Answer(tuple(steps + [b"data: [DONE]\n\n"] if done else steps))


def events(*pieces: bytes) -> Answer:
    """An event stream of exactly these bytes."""
    return Answer(pieces)


def one_json(reply: Reply) -> Answer:
    """The answer of a server that does not stream."""
    message: dict = {
        "role": "assistant",
        "content": "".join(d.get("content", "") for d in reply.deltas) or None,
    }
    if thoughts := "".join(d.get("reasoning_content", "") for d in reply.deltas):
        message["reasoning_content"] = thoughts
    if reply.calls:
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in reply.calls]
    body = {
        "id": "c1",
        "object": "chat.completion",
        "usage": reply.usage,
        "choices": [{"index": 0, "finish_reason": reply.finish_reason, "message": message}],
    }
    return Answer(
        (json.dumps(body).encode(),), headers={"Content-Type": "application/json"}, framing="length"
    )


def error(status: int, body: dict | bytes | str = b"", headers: dict[str, str] | None = None) -> Answer:
    """A refusal. A dict is sent as JSON, anything else as it is."""
    kind = "application/json" if isinstance(body, dict) else "text/plain"
    data = json.dumps(body) if isinstance(body, dict) else body
    data = data.encode() if isinstance(data, str) else data
    return Answer((data,), status, {"Content-Type": kind, **(headers or {})}, "length")


def raw(*steps: Step) -> Answer:
    """Exactly these steps on the connection, which is closed after them."""
    return Answer(steps, framing="raw")


def usage(prompt: int, completion: int, cached: int = 0, thought: int = 0) -> dict:
    """A usage object."""
    found: dict = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached:
        found["prompt_tokens_details"] = {"cached_tokens": cached}
    if thought:
        found["completion_tokens_details"] = {"reasoning_tokens": thought}
    return found


def _chunk(delta: dict, finish: str | None = None) -> dict:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice]}

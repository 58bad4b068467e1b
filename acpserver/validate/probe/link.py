"""The conversation with one agent: requests with deadlines, answers, updates, and the editor behind it.

Used by the probe's only thread. Every message of both directions also goes through the validator; what it
finds about the agent is kept for the end of the run. What the probe does wrong on purpose is not held
against the agent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from acpserver.validate.findings import AGENT, CLIENT, Finding
from acpserver.validate.live import Lines, entry_of, trace_line
from acpserver.validate.probe.editor import Editor
from acpserver.validate.probe.process import AgentProcess
from acpserver.validate.probe.verdict import Broken
from acpserver.validate.validator import Validator

Json = dict[str, object]

_SLICE = 0.02  # seconds between two looks at the editor's terminals
_LOOK = 0.1  # seconds between two looks at what does not come by the pipe


class Received(NamedTuple):
    """One message of the agent."""

    time: float
    message: Json


@dataclass
class Answer:
    """A request of ours and what came back."""

    method: str
    id: object
    message: Json | None = None
    position: int = -1
    """Number of the answer among all messages of the agent."""
    extra: list[Json] = field(default_factory=list)
    """Further answers with the same id; there must be none."""

    @property
    def result(self) -> Json | None:
        """The result, if it is an object."""
        result = (self.message or {}).get("result")
        return result if isinstance(result, dict) else None

    @property
    def code(self) -> object:
        """The error's code; None when there is no error."""
        error = (self.message or {}).get("error")
        return error.get("code") if isinstance(error, dict) else None

    def told(self) -> str:
        """The answer in a few words, for a verdict."""
        if self.message is None:
            return "no answer"
        if "error" not in self.message:
            return "a result"
        error = self.message["error"]
        text = error.get("message", "") if isinstance(error, dict) else error
        return f"error {self.code}: {str(text)[:120]}"


class Link:
    """One running agent. `timeout` is how long an answer may take, in seconds; the link closes the trace."""

    def __init__(
        self,
        process: AgentProcess,
        validator: Validator,
        editor: Editor,
        timeout: float,
        trace: BinaryIO | None = None,
    ):
        self.process = process
        self.editor = editor
        self.timeout = timeout
        self.capabilities: Json = {}
        """What the agent announced."""
        self.initialized: Json = {}
        """The result of `initialize`."""
        self.received: list[Received] = []
        self.noise: list[str] = []
        """Lines of the agent that are no JSON objects."""
        self.findings: list[Finding] = []
        self._validator = validator
        self._trace = trace
        self._lines = Lines()
        self._number = 0
        self._next_id = 0
        self._asked: dict[str, Answer] = {}

    # Writing

    def raw(self, data: bytes) -> None:
        """Send bytes as they are; whole lines only, since each is shown to the validator."""
        for line in data.split(b"\n"):
            if line.strip():
                self._judge(CLIENT, line)
        self.process.write(data)

    def trickle(self, line: bytes, size: int) -> None:
        """Send one line in pieces of so many bytes, with a pause after each."""
        self._judge(CLIENT, line.strip())
        for start in range(0, len(line), size):
            self.process.write(line[start : start + size])
            self.listen(0.002)

    def send(self, message: object) -> None:
        """Send one message."""
        self.raw(json.dumps(message).encode("ascii") + b"\n")

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def post(self, method: str, params: object, request_id: object = None) -> Answer:
        """Send a request and do not wait for its answer."""
        if request_id is None:
            request_id = self._next_id
            self._next_id += 1
        answer = self.expect(method, request_id)
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return answer

    def expect(self, method: str, request_id: object) -> Answer:
        """Await an answer with this id to something that is sent raw."""
        answer = Answer(method, request_id)
        self._asked[_key(request_id)] = answer
        return answer

    # Waiting

    def request(self, method: str, params: object, timeout: float | None = None) -> Answer:
        """Send a request and wait for its answer. Raises `Broken` when none comes in time."""
        return self.finish(self.post(method, params), timeout)

    def finish(self, answer: Answer, timeout: float | None = None) -> Answer:
        """Wait for the answer of a posted request. Raises `Broken` when none comes in time."""
        self.wait(lambda: answer.message is not None, f"the answer to {answer.method or 'it'}", timeout)
        return answer

    def wait(self, condition: Callable[[], object], what: str, timeout: float | None = None) -> None:
        """Handle what comes until the condition holds. Raises `Broken` naming `what` when it does not."""
        seconds = self.timeout if timeout is None else timeout
        if not self.settle(condition, seconds):
            ended = "the agent has ended" if not self.process.reading else f"not within {seconds:g} s"
            raise Broken(f"no sign of {what}: {ended}{self._dying_words()}")

    def settle(self, condition: Callable[[], object], seconds: float) -> bool:
        """Handle what comes until the condition holds, the agent has ended, or the time is over; whether it
        holds."""
        return self.watch(lambda: condition() or self._over, seconds) and bool(condition())

    def watch(self, condition: Callable[[], object], seconds: float) -> bool:
        """As `settle`, but not ended by the agent's end."""
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._step(min(left, _SLICE) if self.editor.waiting else min(left, _LOOK))
        return True

    @property
    def _over(self) -> bool:
        return not self.process.reading and self.process.status() is not None

    def listen(self, seconds: float) -> None:
        """Handle whatever comes for so long; for what must not come."""
        self.settle(lambda: False, seconds)

    def _dying_words(self) -> str:
        words = self.process.last_words() if not self.process.reading else ""
        return f" ({words.splitlines()[-1][:160]})" if words else ""

    # Reading

    def _step(self, seconds: float) -> None:
        for line in self._lines.add(self.process.step(seconds)):
            self._handle(line or b"")
        for message in self.editor.finished():
            self.send(message)

    def _handle(self, line: bytes) -> None:
        message = self._judge(AGENT, line)
        if not isinstance(message, dict):
            self.noise.append(line[:200].decode("utf-8", "replace"))
            return
        self.received.append(Received(time.monotonic(), message))
        if "method" not in message:
            self._resolve(message)
        elif "id" in message:
            reply = self.editor.answer(message)
            if reply is not None:
                self.send(reply)

    def _resolve(self, message: Json) -> None:
        answer = self._asked.get(_key(message.get("id")))
        if answer is None:
            return
        if answer.message is None:
            answer.message = message
            answer.position = len(self.received) - 1
        else:
            answer.extra.append(message)

    def _judge(self, sender: str, line: bytes) -> object:
        self._number += 1
        entry = entry_of(self._number, time.time(), sender, line)
        if self._trace is not None:
            self._trace.write(trace_line(entry, line))
        self._keep(self._validator.feed(entry))
        return entry.message

    def _keep(self, findings: list[Finding]) -> None:
        self.findings += [finding for finding in findings if finding.side == AGENT]

    def close(self, orderly: bool) -> None:
        """End the agent. When `orderly`, what is only wrong at the end of a conversation counts too."""
        if orderly:
            self._keep(self._validator.finish())
        self.process.end()
        self.editor.close()
        if self._trace is not None:
            self._trace.close()

    # Looking back

    def mark(self) -> int:
        """A place in what was received, for `since`."""
        return len(self.received)

    def since(self, mark: int) -> list[Json]:
        """What the agent sent after the mark."""
        return [item.message for item in self.received[mark:]]

    def updates(self, session: str, start: int = 0, end: int | None = None) -> list[Json]:
        """The updates of a session between two marks."""
        return [
            update
            for message in self.since(start)[: None if end is None else end - start]
            if (update := _update(message, session))
        ]

    def asked_of_us(self, method: str, start: int = 0) -> list[Json]:
        """The params of the agent's requests of one method."""
        found = [message for message in self.since(start) if message.get("method") == method]
        return [message["params"] for message in found if isinstance(message.get("params"), dict)]  # type: ignore[misc]


def kinds(updates: list[Json]) -> list[str]:
    """The kind of each update."""
    return [str(update.get("sessionUpdate")) for update in updates]


def _update(message: Json, session: str) -> Json | None:
    params = message.get("params")
    if message.get("method") != "session/update" or not isinstance(params, dict):
        return None
    update = params.get("update")
    return update if params.get("sessionId") == session and isinstance(update, dict) else None


def _key(request_id: object) -> str:
    """1, "1" and null are different ids."""
    return json.dumps(request_id)

"""A strict editor: an ACP client over pipes that fails the test as soon as the agent breaks a rule.

    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "say hello")
        assert turn.wait() == "end_turn" and turn.text == "hello\\n"

It starts the real server process, or, given `run`, calls that with two descriptors on a thread. The test's
thread writes; one reader thread keeps and checks everything that comes (see `wire_rules`) and answers the
agent's requests. Every wait has a deadline and shows the conversation when it passes.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TypeAlias

import psutil

from acpserver.rpc import legacy
from tests.fakes.wire_rules import LONGEST_LINE, Json, RuleBroken, WireRules

CHECKOUT = Path(__file__).resolve().parents[2]
ABSENT = object()
"""Given as `params`: the member is left out."""
EXIT_SECONDS = 5.0  # from the end of input to the end of all; who tests that names the 2 s it may take
MARK = "FAKE_EDITOR"  # variable by which everything that the server starts can be found

Answer: TypeAlias = str | Json | None
"""How to answer a request of the agent: a permission option's kind ("allow_once") or "cancelled"; the
result as an object; {"error": ...}; None: never."""
Policy: TypeAlias = Answer | Callable[[Json], Answer]
"""An answer, or a function from the params to one; it runs on the reader thread."""


@dataclass(frozen=True)
class Entry:
    """One message of the conversation. `turn` is the prompt that was open in front when it came."""

    time: float
    direction: str  # "out": from us
    message: Json
    turn: Turn | None = None


@dataclass
class Reply:
    """The answer to a request of ours."""

    message: Json
    sent_at: float
    time: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.time - self.sent_at

    @property
    def error(self) -> Json:
        """The error member; fails the test when there is none."""
        assert "error" in self.message, f"not an error: {self.message}"
        return self.message["error"]

    @property
    def code(self) -> int:
        """The error code."""
        return self.error["code"]

    @property
    def details(self) -> str:
        """`error.data.details`."""
        return self.error["data"]["details"]

    @property
    def result(self) -> Json:
        """The result; fails the test for an error."""
        assert "result" in self.message, f"an error: {self.message}"
        return self.message["result"]


class Pending:
    """A request of ours on its way."""

    def __init__(self, editor: Editor, message: Json):
        self.editor = editor
        self.message = message
        self.id = message["id"]
        self.sent_at = time.monotonic()
        self.reply: Reply | None = None

    def wait_reply(self, timeout: float | None = None) -> Reply:
        """The answer, an error too."""
        self.editor.wait_for(
            lambda: self.reply, f"an answer to {self.message['method']} {self.id!r}", timeout
        )
        assert self.reply is not None
        return self.reply


class Turn(Pending):
    """A prompt on its way, and what was told of it."""

    def __init__(self, editor: Editor, message: Json, session: str):
        super().__init__(editor, message)
        self.session = session

    def wait(self, timeout: float | None = None) -> str:
        """Wait for the answer and return the stop reason; an error answer fails the test."""
        return str(self.wait_reply(timeout).result["stopReason"])

    @property
    def updates(self) -> list[Json]:
        """The updates so far of this turn, in order."""
        return [update for entry, update in self.editor.session_updates(self.session) if entry.turn is self]

    def of_kind(self, *kinds: str) -> list[Json]:
        """The updates of these kinds."""
        return [update for update in self.updates if update["sessionUpdate"] in kinds]

    @property
    def text(self) -> str:
        """The agent's visible text so far."""
        return _joined(self.of_kind("agent_message_chunk"))

    @property
    def thoughts(self) -> str:
        """The agent's thoughts so far."""
        return _joined(self.of_kind("agent_thought_chunk"))

    @property
    def calls(self) -> list[Json]:
        """Each tool call as it stands after its updates so far, in order."""
        calls: dict[object, Json] = {}
        for update in self.of_kind("tool_call", "tool_call_update"):
            call = calls.setdefault(update["toolCallId"], {})
            call.update({key: value for key, value in update.items() if key != "sessionUpdate"})
        return list(calls.values())

    def statuses(self, call_id: object) -> list[object]:
        """The statuses of a tool call, in order, repeated ones once."""
        told = [
            update["status"]
            for update in self.of_kind("tool_call", "tool_call_update")
            if update["toolCallId"] == call_id and "status" in update
        ]
        return [status for status, _ in itertools.groupby(told)]

    def until(self, wanted: str | Callable[[Json], object], timeout: float | None = None) -> Json:
        """Wait for an update of a kind, or one for which `wanted` is true, and return it."""

        def find() -> Json | None:
            for update in self.updates:
                if update["sessionUpdate"] == wanted if isinstance(wanted, str) else wanted(update):
                    return update
            return None

        return self.editor.wait_for(find, f"update {wanted}", timeout)  # type: ignore[return-value]


@dataclass
class _Wire:
    """The two ends that the editor holds, and the process at the other ends if there is one."""

    read_fd: int
    write_fd: int
    process: subprocess.Popen[bytes] | None = None
    stderr: IO[bytes] | None = None
    thread: threading.Thread | None = None
    seen: list[psutil.Process] = field(default_factory=list)


class Editor:
    """The client. Parameters: the server's flags, then by name

    env -- variables to set on top of the test's own (None: unset); clean_env -- the whole environment;
    command -- another command line; cwd -- of the process; strict -- pass --strict;
    permission -- policy for permission requests; answers -- policies by method for other requests, which
    are refused with -32601 otherwise; timeout -- seconds for every wait; longest_line -- bytes;
    stderr_ok -- whether the process may say something there; run -- serve in this process instead.
    """

    def __init__(
        self,
        *flags: str,
        env: Mapping[str, str | None] | None = None,
        clean_env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        strict: bool = True,
        permission: Policy = "allow_once",
        answers: Mapping[str, Policy] | None = None,
        timeout: float = 10.0,
        longest_line: int = LONGEST_LINE,
        stderr_ok: bool = False,
        run: Callable[[int, int], None] | None = None,
    ):
        self.permission = permission
        self.answers = dict(answers or {})
        self.timeout = timeout
        self.stderr_ok = stderr_ok
        self.rules = WireRules(longest_line)
        self.entries: list[Entry] = []
        self.faults: list[BaseException] = []
        self.capabilities: Json = {}
        self.ended = False
        """Whether the agent's output has ended."""
        self._mark = uuid.uuid4().hex
        self.ids: Iterator[object] = itertools.count()
        """Where the ids of our requests come from."""
        self._lock = threading.RLock()  # guards the rules and everything that the reader changes
        self._changed = threading.Condition(self._lock)
        self._write_lock = (
            threading.Lock()
        )  # one write at a time, in the order in which the rules heard of it
        self._reading = threading.Event()
        self._reading.set()
        self._read_lock = threading.Lock()  # held while a block is read
        self._pending: dict[str, list[Pending]] = {}
        self._together: list[bytes] | None = None
        self._closed = False
        self._stderr = ""
        self._last_look = 0.0
        command = list(command or [sys.executable, "-m", "acpserver"]) + ["--strict"] * strict + list(flags)
        environment = dict(clean_env) if clean_env is not None else _environment(env or {})
        environment[MARK] = self._mark
        self._wire = _serve_inside(run) if run else _start(command, environment, cwd or CHECKOUT)
        self._reader = threading.Thread(target=self._read, name="fake editor", daemon=True)
        self._reader.start()

    # Talking

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server process."""
        assert self._wire.process is not None, "the server runs in this process"
        return self._wire.process

    def initialize(self, capabilities: Json | None = None, **more: object) -> Json:
        """Shake hands; the result."""
        self.capabilities = capabilities or {}
        params = {"protocolVersion": 1, "clientCapabilities": self.capabilities, **more}
        return self.request("initialize", params).result

    def new_session(self, cwd: str | os.PathLike[str], **more: object) -> str:
        """Open a session; its id."""
        params = {"cwd": os.fspath(cwd), "mcpServers": [], **more}
        return str(self.request("session/new", params).result["sessionId"])

    def prompt(self, session: str, prompt: str | list[Json], **more: object) -> Turn:
        """Send a prompt; does not wait."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else prompt
        params = {"sessionId": session, "prompt": blocks, **more}
        message = self._request_message("session/prompt", params, ABSENT)
        return self._send_pending(Turn(self, message, session))  # type: ignore[return-value]

    def cancel(self, session: str) -> None:
        """Send session/cancel."""
        self.notify("session/cancel", {"sessionId": session})

    def request(
        self, method: str, params: object = ABSENT, id: object = ABSENT, timeout: float | None = None
    ) -> Reply:
        """Send a request and wait for its answer, which may be an error."""
        return self.send_request(method, params, id).wait_reply(timeout)

    def send_request(self, method: str, params: object = ABSENT, id: object = ABSENT) -> Pending:
        """Send a request; does not wait."""
        return self._send_pending(Pending(self, self._request_message(method, params, id)))

    def notify(self, method: str, params: object = ABSENT) -> None:
        """Send a notification."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not ABSENT:
            message["params"] = params
        self.send(message)

    def answer(self, request: Json, answer: Answer) -> None:
        """Answer a request of the agent that a policy of None has left open."""
        self.send(_answer_message(request, answer))

    def send(self, message: object) -> None:
        """Send any JSON value as one line."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        """Write bytes in one `os.write`; they should be whole lines."""
        if self._together is not None:
            self._together.append(data)
            return
        with self._write_lock:
            with self._lock:
                for line in data.split(b"\n"):
                    self.rules.sent(line)
            self._write(data)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent inside goes out with ONE `os.write` at the end of the block."""
        self._together = []
        yield
        data, self._together = b"".join(self._together), None
        self.send_raw(data)

    def ping(self) -> None:
        """A round trip through the reader and the writer: what was sent before has been handled, and what
        was queued before has come."""
        assert self.request("_ping", {}).code == -32601

    def _request_message(self, method: str, params: object, request_id: object) -> Json:
        number = next(self.ids) if request_id is ABSENT else request_id
        message: Json = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not ABSENT:
            message["params"] = params
        return message

    def _send_pending(self, pending: Pending) -> Pending:
        with self._lock:
            self._pending.setdefault(json.dumps(pending.id), []).append(pending)
        self.send(pending.message)
        return pending

    def _write(self, data: bytes) -> None:
        with self._lock:
            self.entries.append(
                Entry(time.monotonic(), "out", {"raw": data[:2_000].decode("utf-8", "replace")})
            )
        try:
            while data:
                data = data[os.write(self._wire.write_fd, data) :]
        except OSError as error:
            raise AssertionError(f"the agent does not read: {error}\n{self.dump()}") from None

    # Waiting and looking

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float | None = None) -> object:
        """Wait until `condition` is true and return its value; fails when the agent has broken a rule, has
        ended, or the time is up."""
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        with self._lock:
            while True:
                self.check()
                value = condition()
                if value:
                    return value
                left = deadline - time.monotonic()
                assert not self.ended, f"the agent ended; waited for {what}\n{self.dump()}"
                assert left > 0, f"waited {limit:g} s for {what}\n{self.dump()}"
                self._changed.wait(left)

    def wait_request(self, method: str = "session/request_permission", number: int = 1) -> Json:
        """Wait for the `number`th request of the agent for this method, and return the message."""

        def find() -> Json | None:
            found = [m for m in self.received if m.get("method") == method and "id" in m]
            return found[number - 1] if len(found) >= number else None

        return self.wait_for(find, f"{method} number {number}")  # type: ignore[return-value]

    @property
    def received(self) -> list[Json]:
        """Every message of the agent, in order."""
        return [entry.message for entry in list(self.entries) if entry.direction == "in"]

    def session_updates(self, session: str) -> list[tuple[Entry, Json]]:
        """Every update of a session, in order."""
        found = []
        for entry in list(self.entries):
            params = entry.message.get("params")
            if entry.message.get("method") == "session/update" and params["sessionId"] == session:  # type: ignore[index]
                found.append((entry, params["update"]))  # type: ignore[index]
        return found

    def updates(self, session: str) -> list[Json]:
        """Every update of a session, in order, without the entry."""
        return [update for _, update in self.session_updates(session)]

    def check(self) -> None:
        """Fail when the agent has broken a rule."""
        if self.faults:
            raise AssertionError(f"{self.faults[0]}\n{self.dump()}") from self.faults[0]

    def stderr(self) -> str:
        """What the process has written to stderr so far."""
        file = self._wire.stderr
        if file is not None and not file.closed:
            self._stderr = os.pread(file.fileno(), 1 << 20, 0).decode("utf-8", "replace")
        return self._stderr

    def dump(self) -> str:
        """The last part of the conversation, for a person."""
        with self._lock:
            entries = self.entries[-60:]
        start = self.entries[0].time if entries else 0.0
        arrows = {"in": "<", "out": ">"}
        lines = [
            f"{entry.time - start:7.3f} {arrows[entry.direction]} {json.dumps(entry.message)[:400]}"
            for entry in entries
        ]
        return "\n".join([*lines, f"stderr: {self.stderr()[-2_000:]}"])

    # Reading

    def pause_reading(self) -> None:
        """Stop taking anything from the pipe; returns when the reader has stopped."""
        self._reading.clear()
        with self._read_lock:
            return

    def resume_reading(self) -> None:
        """Read again."""
        self._reading.set()

    def _read(self) -> None:
        rest = b""
        while True:
            self._reading.wait()
            select.select([self._wire.read_fd], [], [])
            with self._read_lock:
                if not self._reading.is_set():
                    continue
                block = os.read(self._wire.read_fd, 1 << 16)
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._receive(line)
        with self._lock:
            if rest and not self.faults:
                self.faults.append(RuleBroken(f"the last line has no end: {rest[:200]!r}"))
            self.ended = True
            self._changed.notify_all()

    def _receive(self, line: bytes) -> None:
        now = time.monotonic()
        with self._lock:
            try:
                message = self.rules.received(line)
            except Exception as error:  # reported to the test's thread, which waits
                self.entries.append(Entry(now, "in", {"raw": line[:2_000].decode("ascii", "replace")}))
                self.faults.append(error)
                self._changed.notify_all()
                return
            self.entries.append(Entry(now, "in", message, self._front_turn(message)))
            if "method" not in message:
                self._resolve(message, now)
            self._changed.notify_all()
        if b'"tool_call_update"' in line and now - self._last_look > 0.2:
            self.look_at_children()
        if "method" in message and "id" in message:
            self._answer(message)

    def _front_turn(self, message: Json) -> Turn | None:
        """The turn whose prompt is first in the session that a message is about."""
        params = message.get("params")
        session = self.rules.sessions.get(str(params.get("sessionId"))) if isinstance(params, dict) else None
        if session is None or not session.prompts:
            return None
        waiting = self._pending.get(session.prompts[0].key, ())
        return next((pending for pending in waiting if isinstance(pending, Turn)), None)

    def _resolve(self, message: Json, now: float) -> None:
        """Hand an answer to whoever waits; where two requests share an id, by the method it fits."""
        waiting, asked = self._pending.get(json.dumps(message["id"]), []), self.rules.settled
        for pending in waiting:
            method = str(pending.message["method"])
            if asked and legacy.METHODS.get(method, method) == asked.method:
                waiting.remove(pending)
                pending.reply = Reply(message, pending.sent_at, now)
                return

    def _answer(self, request: Json) -> None:
        method = str(request["method"])
        policy = (
            self.permission if method == "session/request_permission" else self.answers.get(method, NO_METHOD)
        )
        try:
            answer = policy(request["params"]) if callable(policy) else policy
            if answer is not None:
                self.answer(request, answer)
        except Exception as error:  # reported to the test's thread
            with self._lock:
                self.faults.append(error)
                self._changed.notify_all()

    # The end

    def close(
        self, status: int | None = 0, unanswered_ok: bool = False, timeout: float = EXIT_SECONDS
    ) -> None:
        """End the input and check that the agent ends well: in time, with this status (None: any), with
        nothing left open, nothing on stderr and no child alive."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + timeout
        self._reading.set()
        self.look_at_children()
        with self._lock:
            self.rules.input_ended = True
        os.close(self._wire.write_fd)
        try:
            self._wait_for_end(deadline, status)
            self._reader.join(max(0.1, deadline - time.monotonic()))
            assert not self._reader.is_alive(), f"the agent's output does not end\n{self.dump()}"
            self.check()
            left = self._left_alive(deadline)
            assert not left, f"still alive after the agent: {left}\n{self.dump()}"
            if not unanswered_ok:
                self.rules.finish()
            text = self.stderr()
            assert "Traceback" not in text and (self.stderr_ok or not text), (
                f"on stderr: {text}\n{self.dump()}"
            )
        except RuleBroken as error:
            raise AssertionError(f"{error}\n{self.dump()}") from error
        finally:
            self._release()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the server process a signal."""
        self.process.send_signal(number)

    def _wait_for_end(self, deadline: float, status: int | None) -> None:
        left = max(0.0, deadline - time.monotonic())
        if self._wire.thread is not None:
            self._wire.thread.join(left)
            assert not self._wire.thread.is_alive(), f"the server does not end\n{self.dump()}"
        if self._wire.process is not None:
            try:
                found = self.process.wait(left)
            except subprocess.TimeoutExpired:
                self._abandon()
                raise AssertionError(f"the agent did not end in time\n{self.dump()}") from None
            assert status is None or found == status, f"exit status {found}, not {status}\n{self.dump()}"

    def look_at_children(self) -> None:
        """Remember what the server has started by now; also done while tool calls run and at the end."""
        if self._wire.process is None:
            return
        self._last_look = time.monotonic()
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:  # it has ended
            return
        self._wire.seen += [child for child in found if child not in self._wire.seen]

    def _left_alive(self, deadline: float) -> list[str]:
        """What the server started and what still runs after the deadline; it is killed."""
        if self._wire.process is None:
            return []
        children = set(self._wire.seen) | set(_marked(self._mark))
        _, alive = psutil.wait_procs(list(children), timeout=max(0.0, deadline - time.monotonic()))
        left = []
        for child in alive:
            try:
                if child.status() != psutil.STATUS_ZOMBIE:  # nobody's fault in a container without an init
                    left.append(f"{child.pid} {' '.join(child.cmdline())}")
                    child.kill()
            except psutil.Error:  # it ended meanwhile
                continue
        return left

    def _abandon(self) -> None:
        """End everything without a look: the test has failed already."""
        if self._wire.process is not None:
            self.process.kill()
            self.process.wait()
            for child in set(self._wire.seen) | set(_marked(self._mark)):
                try:
                    child.kill()
                except psutil.Error:  # it ended meanwhile
                    continue

    def _release(self) -> None:
        self._reading.set()
        self._reader.join(1.0)
        if not self._reader.is_alive():
            os.close(self._wire.read_fd)
        if self._wire.stderr is not None:
            self.stderr()
            self._wire.stderr.close()

    def __enter__(self) -> Editor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._closed = True
            self._abandon()
            os.close(self._wire.write_fd)
            self._release()


NO_METHOD: Json = {"error": {"code": -32601, "message": "Method not found"}}


def _start(command: list[str], environment: dict[str, str], cwd: str | os.PathLike[str]) -> _Wire:
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- open until the end of the process
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        cwd=cwd,
        bufsize=0,
    )
    assert process.stdin is not None and process.stdout is not None
    read_fd, write_fd = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
    process.stdout.close()
    process.stdin.close()
    return _Wire(read_fd, write_fd, process, stderr)


def _serve_inside(run: Callable[[int, int], None]) -> _Wire:
    """Call `run` with the agent's input and output on a thread; both are closed when it returns."""
    agent_in, write_fd = os.pipe()
    read_fd, agent_out = os.pipe()

    def serve() -> None:
        try:
            run(agent_in, agent_out)
        finally:
            os.close(agent_in)
            os.close(agent_out)

    thread = threading.Thread(target=serve, name="agent inside", daemon=True)
    thread.start()
    return _Wire(read_fd, write_fd, thread=thread)


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """The test's environment (conftest has given it a home of its own), with changes."""
    environment = dict(os.environ)
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return environment


def _marked(mark: str) -> list[psutil.Process]:
    """The processes that have inherited the mark, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):  # it ended, or belongs to someone else
            continue
    return found


def _answer_message(request: Json, answer: Answer) -> Json:
    head: Json = {"jsonrpc": "2.0", "id": request["id"]}
    if isinstance(answer, dict):
        return {**head, **(answer if set(answer) == {"error"} else {"result": answer})}
    if answer == "cancelled":
        return {**head, "result": {"outcome": {"outcome": "cancelled"}}}
    options = request["params"]["options"]
    chosen = next(option["optionId"] for option in options if option["kind"] == answer)
    return {**head, "result": {"outcome": {"outcome": "selected", "optionId": chosen}}}


def _joined(updates: list[Json]) -> str:
    return "".join(update["content"]["text"] for update in updates)

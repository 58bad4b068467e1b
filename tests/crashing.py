"""Kill server processes at random moments and look whether anything that they acknowledged is gone.

    with Campaign(folder, seed=1) as campaign:
        for _ in range(10):
            campaign.round()

Each round: one or two processes work on sessions (turns with tools, options, forks, deletions), one or both
are killed with SIGKILL at a moment that the seed decides; a fresh process loads every session that was
touched. What the client was told before the kill must come again, every file must be valid, and the next
prompt must be accepted by a model server that refuses every history with a gap. Used by the tests in a short
form and by `bench/sessions_crash.py` in a long one. Any loss is an AssertionError.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from acpserver import jsontext
from acpserver.conversation import Conversation
from acpserver.session_file import parse_lines
from tests.fakes.llm_answers import Answer, Reply, text, thought, tool_call
from tests.fakes.llm_server import FakeLlm, Request

CHECKOUT = Path(__file__).resolve().parents[1]
LIMIT = 20.0  # seconds for any one answer
ENDED = ("completed", "failed")
Json = dict[str, object]

_clock = threading.Event()  # nobody sets it


def model(request: Request) -> Reply:
    """What the model says: four calls of a turn, which one follows from the history."""
    history = request.messages
    start = max(place for place, message in enumerate(history) if message["role"] == "user")
    step = sum(message["role"] == "assistant" for message in history[start:])
    mark = f"{len(history)} {history[start]['content'][:40]}"
    if step == 0:
        both = tool_call("list_files", {"path": "."}) + tool_call("bash", {"command": f"echo {len(history)}"})
        return thought("Let me ", "think.") + text("I ", "look ", mark) + both
    if step == 1:
        entries = [{"content": mark, "priority": "high", "status": "in_progress"}]
        written = tool_call("write_file", {"path": "note.txt", "content": mark + "\n"})
        return text("I write. ") + written + tool_call("plan", {"entries": entries})
    if step == 2:
        return tool_call("read_file", {"path": "missing.txt"})
    return thought("So ", "then.") + text(*(f"{number} " for number in range(40)), mark)


def slowly(request: Request) -> Answer:
    """The same at the pace of a model, so that many kills come in the middle of an answer."""
    return model(request).answer().pauses(0.001)


@dataclass
class Told:
    """What one client was told about one session, in order; `sure` is what was certainly finished."""

    texts: dict[str, str] = field(default_factory=dict)
    calls: dict[str, Json] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    sure: set[str] = field(default_factory=set)
    prompts: list[str] = field(default_factory=list)  # those of which something was heard
    plan: object = None
    options: dict[str, str] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)

    def update(self, update: Json) -> None:
        """Take in one update of the session."""
        kind = str(update["sessionUpdate"])
        if kind in ("notice", "current_mode_update", "config_option_update"):
            return
        key = str(update.get("messageId") or update.get("toolCallId") or "")
        if key and key not in self.order:
            self.order.append(key)
        self.finish_texts(but=key)
        if kind.endswith("_chunk"):
            piece = update["content"]["text"]  # type: ignore[index]
            self.texts[key] = self.texts.get(key, "") + str(piece)
            if kind == "user_message_chunk":
                self.prompts.append(str(piece))
        elif kind in ("tool_call", "tool_call_update"):
            call = self.calls.setdefault(key, {})
            call.update({name: value for name, value in update.items() if name != "sessionUpdate"})
            if call["status"] in ENDED:
                self.sure.add(key)
        elif kind == "plan":
            self.plan = update["entries"]

    def finish_texts(self, but: str = "") -> None:
        """Something else came: the texts before it are whole."""
        self.sure.update(key for key in self.texts if key != but)


class Peer:
    """A client that keeps what it is told, from a server process that may die at any moment."""

    def __init__(self, home: Path, base_url: str, seed: int):
        self.told: dict[str, Told] = {}
        self._random = random.Random(seed)
        self._changed = threading.Condition()
        self._answers: dict[int, Json] = {}
        self._asked: dict[int, str] = {}  # tools for which the user was asked
        self._lines = 0
        self._last_prompt: dict[str, str] = {}
        self._ids = itertools.count()
        self.ended = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- open until the end of the process
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ACPSERVER_HOME": str(home / "acpserver"),
            "ACPSERVER_RETRY_SECONDS": "0.1",
            "OPENAI_API_KEY": "sk-x",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "acpserver", "--strict", "--model", "fake", "--base-url", base_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environ,
            cwd=CHECKOUT,
        )
        self._thread = threading.Thread(target=self._read, name="peer", daemon=True)
        self._thread.start()
        capabilities = {"session": {"notices": {}}}
        self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    def post(self, method: str, params: Json) -> int:
        """Send a request; its id. A process that is dead already takes nothing."""
        number = next(self._ids)
        if method == "session/prompt":
            self._last_prompt[str(params["sessionId"])] = params["prompt"][0]["text"]  # type: ignore[index]
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def wait(self, number: int) -> Json | None:
        """The answer; None when the process ended first."""
        deadline = time.monotonic() + LIMIT
        with self._changed:
            while number not in self._answers and not self.ended:
                assert self._changed.wait(deadline - time.monotonic()), f"no answer\n{self.stderr()}"
            return self._answers.get(number)

    def ask(self, method: str, params: Json) -> Json | None:
        """The result of a request; None when the process ended first."""
        answer = self.wait(self.post(method, params))
        assert answer is None or "result" in answer, f"{method}: {answer}"
        return answer["result"] if answer else None  # type: ignore[return-value]

    def wait_lines(self, count: int, seconds: float) -> None:
        """Wait until so many messages have come, or for so long."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._lines < count and not self.ended:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return

    def kill(self) -> None:
        """End the process as a crash would, and take what it had written."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """End the input, or collect what was killed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.close()
        except OSError:
            assert self.process.poll() is not None or self.process.wait(LIMIT) is not None
        self.process.wait(LIMIT)
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        self.process.stdout.close()
        complaints = self.stderr()
        self._stderr.close()
        assert "Traceback" not in complaints and "ERROR" not in complaints, complaints

    def stderr(self) -> str:
        """What the process has complained about."""
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def about(self, session: str) -> Told:
        """What was told about a session."""
        return self.told.setdefault(session, Told())

    def _send(self, message: Json) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            return  # killed

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # a kill may cut the last one
                with self._changed:
                    self._take(json.loads(line))
                    self._lines += 1
                    self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _take(self, message: Json) -> None:
        params = message.get("params")
        if message.get("method") == "session/update":
            session = str(params["sessionId"])  # type: ignore[index]
            update: Json = params["update"]  # type: ignore[index,assignment]
            self._heard(session, update)
            self.about(session).update(update)
        elif message.get("method") == "session/request_permission":
            assert isinstance(params, dict)
            kind = self._random.choice(["allow_once", "allow_once", "allow_always"])
            if kind == "allow_always":
                self._asked[message["id"]] = params["toolCall"]["toolCallId"]  # type: ignore[index]
                told = self.about(str(params["sessionId"]))
                told.calls[params["toolCall"]["toolCallId"]]["always"] = True  # type: ignore[index]
            answer = {"outcome": {"outcome": "selected", "optionId": kind}}
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        elif "method" not in message:
            self._answers[message["id"]] = message  # type: ignore[index]

    def _heard(self, session: str, update: Json) -> None:
        """Any update of a turn says that the prompt was taken; a call that runs, that "always" was."""
        prompt = self._last_prompt.get(session)
        told = self.about(session)
        in_turn = update["sessionUpdate"] not in ("notice", "user_message_chunk") and "M" in str(prompt)
        if prompt and in_turn and prompt not in told.prompts:
            if update["sessionUpdate"] not in ("current_mode_update", "config_option_update"):
                told.prompts.append(prompt)
        call = told.calls.get(str(update.get("toolCallId")), {})
        if call.pop("always", None) and update.get("status") in ("in_progress", *ENDED):
            told.allowed.add(str(call["kind"]))


class Campaign:
    """A series of rounds over one state folder."""

    def __init__(self, folder: Path, seed: int):
        self.home = folder
        self.cwd = folder / "project"
        self.cwd.mkdir()
        self.random = random.Random(seed)
        self.llm = FakeLlm(default=slowly)
        self.counts = {"rounds": 0, "kills": 0, "sessions": 0, "facts": 0, "cut": 0, "torn": 0}
        self._numbers = itertools.count()
        self._old: list[str] = []

    def __enter__(self) -> Campaign:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.llm.close()

    def round(self) -> None:
        """Work, kill, load, compare, go on."""
        self.counts["rounds"] += 1
        peers = [self._peer()]
        try:
            shared, deleted = self._open(peers[0])
            if self.random.random() < 0.5:
                peers.append(self._peer())
                peers[1].ask("session/resume", self._params(shared))
            for peer in peers:
                self._work(peer, shared)
            moment = self.random.randrange(0, 120)
            peers[0].wait_lines(moment, 1.5)
            _clock.wait(self.random.random() * 0.02)
        finally:
            for peer in self.random.sample(peers, len(peers)):
                peer.kill()
                self.counts["kills"] += 1
        self._look(peers, deleted)

    def _peer(self) -> Peer:
        return Peer(self.home, self.llm.base_url, self.random.randrange(1 << 30))

    def _params(self, session: str) -> Json:
        return {"sessionId": session, "cwd": str(self.cwd), "mcpServers": []}

    def _open(self, peer: Peer) -> tuple[str, set[str]]:
        """A session to work on, a fork of it, and one that is deleted."""
        if self._old and self.random.random() < 0.4:
            shared = self.random.choice(self._old)
            peer.ask("session/resume", self._params(shared))
        else:
            shared = self._new(peer)
        peer.about(shared)
        if self.random.random() < 0.3:
            forked = peer.ask("session/fork", self._params(shared))
            assert forked is not None
            peer.about(str(forked["sessionId"]))
            self._prompt(peer, str(forked["sessionId"]))
        deleted: set[str] = set()
        if self.random.random() < 0.3:
            gone = self._new(peer)
            self._prompt(peer, gone)
            if peer.ask("session/delete", {"sessionId": gone}) is not None:
                deleted.add(gone)
        return shared, deleted

    def _new(self, peer: Peer) -> str:
        result = peer.ask("session/new", {"cwd": str(self.cwd), "mcpServers": []})
        assert result is not None
        return str(result["sessionId"])

    def _prompt(self, peer: Peer, session: str) -> int:
        words = f"M{next(self._numbers)} go on"
        prompt = [{"type": "text", "text": words}]
        return peer.post("session/prompt", {"sessionId": session, "prompt": prompt})

    def _work(self, peer: Peer, session: str) -> None:
        """Requests, all sent at once; the last choice is acknowledged when its answer has come."""
        self._prompt(peer, session)
        for _ in range(self.random.randrange(3)):
            mode = self.random.choice(["default", "accept_edits", "bypass"])
            params: Json = {"sessionId": session, "configId": "mode", "value": mode}
            result = peer.ask("session/set_config_option", params)
            if result is not None:
                peer.about(session).options["mode"] = mode

    def _look(self, peers: list[Peer], deleted: set[str]) -> None:
        """Compare what a fresh process tells with what was told before."""
        fresh = self._peer()
        try:
            touched = sorted({session for peer in peers for session in peer.told} - deleted)
            for session in touched:
                told = [peer.told[session] for peer in peers if session in peer.told]
                self._compare(fresh, session, told)
                number = self._prompt(fresh, session)
                answer = fresh.wait(number)
                assert answer and answer["result"]["stopReason"] == "end_turn", answer  # type: ignore[index]
                assert self.llm.violations == []
                if session not in self._old:
                    self._old.append(session)
            listed = fresh.ask("session/list", {"cwd": str(self.cwd)})
            assert not deleted & {entry["sessionId"] for entry in listed["sessions"]}  # type: ignore
        finally:
            fresh.close()
        self.counts["sessions"] += len(touched)
        self._old = self._old[-3:]

    def _compare(self, fresh: Peer, session: str, told: list[Told]) -> None:
        fresh.told.pop(session, None)
        result = fresh.ask("session/load", self._params(session))
        assert result is not None
        again = fresh.about(session)
        conversation = self._stored(session)
        for before in told:
            for fault in losses(before, again):
                raise AssertionError(f"{session}: {fault}\n{self._file(session)}")
            for kind in before.allowed:
                tool = {"execute": "bash", "edit": "write_file"}[kind]
                assert conversation.answers.get(tool) == "allow", f"{session}: always for {tool} is lost"
            self.counts["facts"] += len(before.sure) + len(before.prompts) + len(before.allowed)
        chosen = {before.options["mode"] for before in told if "mode" in before.options}
        if chosen:  # two processes may both have chosen, and one more choice may have been on its way
            assert conversation.options.get("mode") == result["modes"]["currentModeId"]  # type: ignore[index]
            assert conversation.options["mode"] in chosen or len(told) > 1
        assert all(call["status"] in ENDED for call in again.calls.values())

    def _stored(self, session: str) -> Conversation:
        """What the file holds; only a line that a kill cut off may be damaged."""
        conversation = Conversation()
        data = self._file(session).read_bytes()
        for record in parse_lines(data.split(b"\n")):
            conversation.add(record)
        self.counts["torn"] += conversation.damaged
        self.counts["cut"] += data.count(b'"cut":true')
        assert conversation.damaged <= self.counts["kills"]
        assert jsontext.loads(data.split(b"\n")[0].decode())["id"] == session  # type: ignore[index,call-overload]
        return conversation

    def _file(self, session: str) -> Path:
        (found,) = (self.home / "acpserver" / "state" / "sessions").glob(f"*/{session}.jsonl")
        return found


def losses(before: Told, again: Told) -> Iterator[str]:
    """What was told before and is not told again as it was."""
    for prompt in before.prompts:
        if prompt not in again.prompts:
            yield f"prompt {prompt!r} is gone"
    for key in before.sure:
        if key in before.texts and before.texts[key] != again.texts.get(key):
            yield f"text {key} was {before.texts[key]!r} and is {again.texts.get(key)!r}"
        if key in before.calls and before.calls[key] != again.calls.get(key):
            yield f"call {key} was {before.calls[key]} and is {again.calls.get(key)}"
    for key in before.calls:
        if key not in again.calls:
            yield f"call {key} is gone"
    if before.plan is not None and again.plan is None:
        yield "the plan is gone"
    known = [key for key in before.order if key in before.sure]
    if [key for key in again.order if key in set(known)] != known:
        yield f"the order was {known} and is {again.order}"

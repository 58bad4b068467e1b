"""One conversation with one server: prompts in, turns shown, questions asked, an exit status out.

The calling (main) thread owns the terminal: it alone reads from and writes to it. The reader thread and one
thread per prompt hand it events through a queue. The reader waits while the terminal is far behind, which
makes the server wait too; it may, because this side has nothing else to serve.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from acpserver.chat import permission, question
from acpserver.chat.process import ServerProcess
from acpserver.chat.render import Renderer
from acpserver.config import OFFLINE, Config
from acpserver.errors import AUTH_REQUIRED, RESOURCE_NOT_FOUND, AcpError, ConnectionClosed, RpcError
from acpserver.rpc.call import Call
from acpserver.version import __version__

log = logging.getLogger(__name__)

OK, ERROR, USAGE, NOT_FINISHED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses: every turn ended with `end_turn`; something failed; the command line or the configuration is
wrong; a turn ended otherwise (cancelled, out of tokens or of steps, refused); Ctrl-C ended the client."""

LOOK_SECONDS = 0.2  # a Ctrl-C that comes just before a wait interrupts nothing, and is found at its end
BACKLOG = 1000  # updates that may wait for the terminal
ANSWER_SECONDS = 30.0  # for the requests that no model is behind

REASONS = {
    "max_tokens": "the answer was cut: the model's token limit is reached",
    "max_turn_requests": "stopped: the limit of model calls in one turn is reached",
    "refusal": "the model refused to go on",
    "cancelled": "cancelled",
}


@dataclass(frozen=True)
class _Done:
    """The prompt was answered: with a stop reason or with an error."""

    stop_reason: str = ""
    error: Exception | None = None


class _Interrupt:
    """Ctrl-C was pressed."""


class Quit(Exception):
    """The person wants out, now."""


_Event = Call | _Done | _Interrupt
_Answer = TypeVar("_Answer")


class Talk:
    """One conversation with one server."""

    def __init__(self, renderer: Renderer, allow: bool | None):
        self._renderer = renderer
        self._allow = allow
        # SimpleQueue, because a signal handler puts into it; the semaphore bounds it for the reader.
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._room = threading.Semaphore(BACKLOG)
        self._breakable = True  # Ctrl-C breaks off what the main thread does, instead of being queued
        self._read_line: permission.ReadLine | None = None
        self._leaving = False
        methods = ("session/update", "session/request_permission", "elicitation/create")
        self.handlers = dict.fromkeys(methods, self._from_server)

    def _from_server(self, call: Call) -> None:
        """On the reader thread: hand a call to the thread that owns the terminal."""
        self._room.acquire()
        if self._leaving:
            self._room.release()  # nobody takes calls out any more: let the reader run to its end
        else:
            self._events.put(call)

    def leave(self) -> None:
        """Stop showing; the reader is let through."""
        self._leaving = True
        self._room.release()

    def interrupt(self) -> None:
        """In the signal handler, on the main thread: Ctrl-C."""
        if self._breakable:
            raise KeyboardInterrupt
        self._events.put(_Interrupt())

    def converse(self, server: ServerProcess, config: Config, prompt: str | None, resume: str = "") -> int:
        """Set a session up, or go on with one, and run the turns in it. Returns the exit status."""
        request = server.connection.request
        can_ask = self._allow is None and self._terminal() is not None
        hello = request(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": {
                    **({"elicitation": {"form": {}}} if can_ask else {}),
                    "session": {"notices": {}},
                },
                "clientInfo": {"name": "acpserver-chat", "title": "acpserver chat", "version": __version__},
            },
            timeout=ANSWER_SECONDS,
        )
        session_id = self._session(server, config, hello, resume)
        status = OK
        for text in [prompt] if prompt is not None else self._prompts():
            status = self._turn(server, session_id, text) or status
        return status

    def _session(
        self, server: ServerProcess, config: Config, hello: Mapping[str, object], resume: str
    ) -> str:
        """Open a session here, a stored one if `resume` is not empty; with the offline model when no model is
        configured."""
        request = server.connection.request
        params: dict[str, object] = {"cwd": os.getcwd(), "mcpServers": []}
        method = "session/new"
        if resume:
            method = "session/resume"
            params["sessionId"] = resume if resume.startswith("sess_") else f"sess_{resume}"
        try:
            answer = request(method, params, timeout=ANSWER_SECONDS)
        except RpcError as error:
            if error.code == RESOURCE_NOT_FOUND:
                raise AcpError(f"There is no session {resume}. See: acpserver sessions list") from None
            if error.code != AUTH_REQUIRED or config.model or not _offers_offline(hello):
                raise
            self._renderer.line("acpserver: no model is configured, so the offline model answers")
            request("authenticate", {"methodId": OFFLINE}, timeout=ANSWER_SECONDS)
            answer = request(method, params, timeout=ANSWER_SECONDS)
        return str(params.get("sessionId") or answer["sessionId"])

    def _prompts(self) -> Iterator[str]:
        """The lines of stdin that are not blank. At a terminal the person is asked for each."""
        at_terminal = sys.stdin.isatty()
        while True:
            if at_terminal:
                self._renderer.ask("> ")
            line = sys.stdin.readline()
            if not line:
                break
            if line.strip():
                yield line.rstrip("\n")
        if at_terminal:
            self._renderer.line("")

    def _turn(self, server: ServerProcess, session_id: str, text: str) -> int:
        """One prompt up to its answer. Returns the exit status that it alone would give."""
        params: dict[str, object] = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
        self._breakable = False
        try:
            threading.Thread(target=self._prompt, args=(server, params), name="prompt", daemon=True).start()
            done = self._follow(server, session_id)
        finally:
            self._breakable = True
        self._renderer.end()
        if isinstance(done.error, ConnectionClosed):
            raise done.error
        if done.error:
            self._renderer.line(f"acpserver: {words(done.error)}")
            return ERROR
        if done.stop_reason != "end_turn":
            self._renderer.line(REASONS.get(done.stop_reason, done.stop_reason))
            return NOT_FINISHED
        return OK

    def _follow(self, server: ServerProcess, session_id: str) -> _Done:
        """Handle what happens until the prompt is answered."""
        cancelled = False
        while not isinstance(event := self._next_event(), _Done):
            if isinstance(event, _Interrupt):
                if cancelled:
                    raise Quit
                cancelled = True
                self._renderer.line("cancelling; Ctrl-C again quits")
                server.connection.notify("session/cancel", {"sessionId": session_id})
            elif event.method == "session/update":
                self._show(event.params)
            elif event.method == "elicitation/create":
                self._answer_question(event, cancelled)
            else:
                self._answer_permission(event, cancelled)
        return event

    def _prompt(self, server: ServerProcess, params: dict[str, object]) -> None:
        """The prompt's thread: wait for the answer, which the reader resolves after all updates."""
        try:
            answer = server.connection.request("session/prompt", params)
            self._events.put(_Done(stop_reason=str(answer.get("stopReason"))))
        except Exception as error:  # the top of a thread: whatever it is, the turn is over
            log.debug("the prompt failed", exc_info=True)
            self._events.put(_Done(error=error))

    def _next_event(self) -> _Event:
        event: _Event | None = None
        while event is None:
            with suppress(queue.Empty):
                event = self._events.get(timeout=LOOK_SECONDS)
        if isinstance(event, Call):
            self._room.release()
        return event

    def _show(self, params: Mapping[str, object]) -> None:
        update = params.get("update")
        if isinstance(update, dict):
            self._renderer.update(update)

    def _answer_permission(self, call: Call, cancelled: bool) -> None:
        """Answer one session/request_permission; every one must be, also after a cancel."""
        tool = call.params.get("toolCall")
        if isinstance(tool, dict):
            self._renderer.tool(tool)
        options = permission.options_of(call.params)
        if cancelled:
            call.answer(permission.REFUSED)
        elif self._allow is not None:
            call.answer(permission.outcome(permission.by_flag(options, self._allow)))
        elif (read_line := self._terminal()) is None:
            self._renderer.line("not allowed: there is no terminal to ask at (--yes allows everything)")
            call.answer(permission.outcome(permission.by_flag(options, allow=False)))
        else:
            chosen = self._breakably(lambda: permission.by_person(options, self._renderer, read_line))
            call.answer(permission.outcome(chosen))

    def _answer_question(self, call: Call, cancelled: bool) -> None:
        """Answer one elicitation/create; `--yes` and `--no` say that nobody is there to be asked."""
        read_line = self._terminal() if self._allow is None and not cancelled else None
        if cancelled:
            call.answer(question.CANCELLED)
        elif read_line is None:
            self._renderer.line("declined: there is nobody to ask")
            call.answer(question.DECLINED)
        else:
            answer = self._breakably(lambda: question.by_person(call.params, self._renderer, read_line))
            call.answer(answer or question.CANCELLED)

    def _terminal(self) -> permission.ReadLine | None:
        """What reads a line from the person, if there is one."""
        self._read_line = self._read_line or permission.terminal_reader()
        return self._read_line

    def _breakably(self, ask: Callable[[], _Answer | None]) -> _Answer | None:
        """What the person answers; None also when Ctrl-C breaks that off."""
        try:
            self._breakable = True
            return ask()
        except KeyboardInterrupt:
            self._events.put(_Interrupt())  # and the turn is cancelled as at any other time
            return None
        finally:
            self._breakable = False


def _offers_offline(hello: Mapping[str, object]) -> bool:
    methods = hello.get("authMethods")
    return isinstance(methods, list) and any(
        isinstance(method, dict) and method.get("id") == OFFLINE for method in methods
    )


def words(error: BaseException) -> str:
    """What a person should read about an error."""
    return error.details if isinstance(error, RpcError) else str(error)

"""The moments at which a turn can be cut off, each reached for certain and without a sleep.

A moment is a function that sends a prompt, waits until the server is exactly there, and returns the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.fakes.editor import Editor, Json, Turn
from tests.fakes.llm_answers import Reply, Stall, error, text, tool_call
from tests.fakes.llm_server import FakeLlm, Request

STUBBORN = "trap '' TERM; echo ready; sleep 600 & sleep 600"
"""A command whose processes, also the one in the background, ignore the polite signal."""


@dataclass
class Stage:
    """An editor with a session, whose server talks to a fake model server."""

    editor: Editor
    llm: FakeLlm
    session: str

    def prompt(self, *answers: object) -> Turn:
        """Send a prompt that the model will answer so."""
        self.llm.script(*answers)  # type: ignore[arg-type]
        return self.editor.prompt(self.session, "go on")

    def asked(self) -> list[Json]:
        """The permission requests of this session so far."""
        found = [m for m in self.editor.received if m.get("method") == "session/request_permission"]
        return [m for m in found if m["params"]["sessionId"] == self.session]  # type: ignore[index]

    def wait_asked(self) -> Json:
        """Wait for this session's only permission request."""
        self.editor.wait_for(self.asked, "a permission request")
        (request,) = self.asked()
        return request


@dataclass
class Moment:
    """A turn in the middle. `request` is the model call that is under way, `later` are queued turns."""

    turn: Turn
    request: Request | None = None
    later: tuple[Turn, ...] = ()


@contextmanager
def stage(cwd: object, capabilities: Json | None = None, **options: object) -> Iterator[Stage]:
    """A fresh server process for one test; `capabilities` are those of the editor."""
    with FakeLlm() as llm:
        flags = ("--model", "fake", "--base-url", llm.base_url)
        with Editor(*flags, **options) as editor:  # type: ignore[arg-type]
            editor.initialize(capabilities)
            yield Stage(editor, llm, editor.new_session(cwd))  # type: ignore[arg-type]


def bash(command: str) -> Reply:
    """A model's wish to run a command."""
    return tool_call("bash", {"command": command})


def before_the_first_byte(at: Stage) -> Moment:
    """The model server has the request and says nothing at all."""
    stall = Stall()
    turn = at.prompt(text("never").answer().before_headers(stall))
    assert stall.reached.wait(5)
    return Moment(turn, at.llm.requests[-1])


def after_the_headers(at: Stage) -> Moment:
    """The headers of the answer have come, and then nothing."""
    stall = Stall()
    turn = at.prompt(text("never").answer().insert(0, stall))
    assert stall.reached.wait(5)
    return Moment(turn, at.llm.requests[-1])


def stalled_stream(at: Stage) -> Moment:
    """Some text has come and is shown, then the stream stands still."""
    turn = at.prompt(text("half a", " word").answer().insert(2, Stall()))
    turn.until("agent_message_chunk")
    return Moment(turn, at.llm.requests[-1])


def tool_arguments(at: Stage) -> Moment:
    """The stream stands still in the middle of the arguments of a tool call."""
    stall = Stall()
    turn = at.prompt((text("I look. ") + bash("sleep 600")).answer().insert(4, stall))
    assert stall.reached.wait(5)
    return Moment(turn, at.llm.requests[-1])


def back_off(at: Stage) -> Moment:
    """The model server is busy, and the server waits before it asks again."""
    turn = at.prompt(error(503, headers={"Retry-After": "20"}))
    turn.until("agent_thought_chunk")
    return Moment(turn)


def stubborn_command(at: Stage) -> Moment:
    """A command runs whose processes ignore SIGTERM."""
    turn = at.prompt(bash(STUBBORN))
    turn.until(lambda update: "ready" in str(update.get("content")) and update.get("status") == "in_progress")
    return Moment(turn)


def open_permission(at: Stage) -> Moment:
    """The user has been asked, and does not answer."""
    at.editor.permission = None
    turn = at.prompt(bash("echo never"))
    at.wait_asked()
    return Moment(turn)


def queued(at: Stage) -> Moment:
    """A second and a third prompt wait behind one that hangs."""
    first = stalled_stream(at)
    later = (at.editor.prompt(at.session, "second"), at.editor.prompt(at.session, "third"))
    at.editor.ping()
    return Moment(first.turn, first.request, later)


MOMENTS: tuple[Callable[[Stage], Moment], ...] = (
    before_the_first_byte,
    after_the_headers,
    stalled_stream,
    tool_arguments,
    back_off,
    stubborn_command,
    open_permission,
    queued,
)
NAMES = tuple(moment.__name__ for moment in MOMENTS)

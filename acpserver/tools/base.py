"""What a tool is, and what it may use. Values and protocols; no input or output here.

A call goes through two steps, so that nothing is asked for that cannot work: `prepare` checks the
arguments and describes the action without any effect (the client shows title, paths and diff, and the
user may be asked), then `Action.run` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from acpserver.cancel import CancelFlag
from acpserver.errors import ToolError

READ = "read"  # looks only: never asked for
WRITE = "write"  # changes files in the session's roots
EXECUTE = "execute"  # runs programs: can do anything

Content = dict[str, object]
"""One ACP ToolCallContent object: {"type": "content" | "diff" | "terminal", ...}."""


class ForeignSchema(dict[str, object]):
    """A JSON Schema that somebody else wrote: told to the model, and never run here. It may be no schema at
    all, name an address to be fetched, or hold an expression that takes for ever."""


Ask = Callable[[str], "str | None"]
"""Put one question to the user; None when the client has no way to show it or the user declined."""


class TextFile(NamedTuple):
    """A file as text, and what it takes to write it back byte for byte."""

    text: str  # line endings as they are in the file
    encoding: str = "utf-8"
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """`text` in this file's form. Raises `ToolError` if the encoding has no such character."""
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = error.object[error.start]
            raise ToolError(f"The file is {self.encoding} text, which cannot hold {bad!r}.") from None


class TextFiles(Protocol):
    """Text files where the user has them: on the disk, or in the editor with changes that are not saved.

    Paths are those that `workspace.resolve` returns. Every method may raise `ToolError` and `Cancelled`.
    """

    def check(self, path: str) -> None:
        """Fail for what is seen to be no text file, or too large, without opening it."""

    def read(self, path: str) -> TextFile:
        """The whole file."""

    def find(self, path: str) -> TextFile | None:
        """The whole file; None when there is no such file yet."""

    def write(self, path: str, file: TextFile) -> None:
        """Create the file, with its folders, or replace all of it."""


class Ended(NamedTuple):
    """How a command ended; both are None when nobody says."""

    code: int | None = None
    signal: str | None = None  # its name


class Terminal(Protocol):
    """A command in a terminal of the editor. Must be released, whatever happens.

    Every method but `release` may raise `ToolError`, and `Cancelled` when there is no editor any more.
    """

    content: Content
    """Shows the terminal in a tool call."""

    def wait(self, seconds: float) -> Ended | None:
        """Wait for the end of the command, None if that takes longer. Raises `Cancelled` on a cancel."""

    def kill(self, seconds: float) -> None:
        """End the command, and wait that long for the editor to say that it did; not at all when 0."""

    def output(self, seconds: float, after_cancel: bool = False) -> tuple[str, bool]:
        """What it wrote so far, and whether a part is missing. Waits that long, or until a cancel."""

    def release(self) -> None:
        """Tell the editor that the terminal is no longer needed. Never waits, never fails."""


class Terminals(Protocol):
    """The editor's terminals."""

    def create(self, command: str, args: list[str], cwd: str, limit: int) -> Terminal:
        """Start a command that keeps its last `limit` bytes of output. Raises `ToolError`, `Cancelled`."""


class ToolContext(NamedTuple):
    """What a tool may use. Made anew for each call; belongs to the turn's thread."""

    session_id: str
    cwd: str  # absolute; relative paths in arguments are taken from here
    roots: tuple[str, ...]  # absolute; file tools stay inside them (cwd is the first)
    cancel: CancelFlag
    progress: Callable[[list[Content]], None]  # show this content while the tool runs (the whole of it)
    plan: Callable[[list[dict[str, object]]], None]  # send a plan update: ACP PlanEntry objects
    ask: Ask
    files: TextFiles
    terminals: Terminals | None = None  # None: commands are the server's own children


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool did. `text` goes to the model; `content` (or else the text) to the client."""

    text: str
    content: list[Content] | None = None  # None: show `text`; []: show nothing more than was shown
    raw_output: dict[str, object] = field(default_factory=dict)
    is_error: bool = False
    keeps_content: bool = False  # the client goes on showing what `progress` gave it: a terminal


@dataclass(frozen=True)
class Action:
    """One prepared call: what the client shows, and `run`, which has the effect.

    `run` may raise `ToolError` and `Cancelled`.
    """

    title: str
    run: Callable[[], ToolOutcome]
    content: list[Content] = field(default_factory=list)  # shown at once, also with the question
    locations: list[dict[str, object]] = field(default_factory=list)  # ACP ToolCallLocation objects
    access: str = READ


class Tool(Protocol):
    """A tool that the model may call. One object serves all sessions and threads."""

    name: str
    description: str
    parameters: dict[str, object]  # JSON Schema (draft 2020-12) of the arguments, type object
    kind: str  # ACP ToolKind

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """Check arguments that already fit `parameters` unless that is a `ForeignSchema`, without effect.

        Raises `ToolError` with a text that tells the model how to call it right."""

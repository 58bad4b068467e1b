"""What a tool is. Values and the two protocols; no input or output here.

A call goes through two steps, so that nothing is asked for that cannot work: `prepare` checks the
arguments and describes the action without any effect (the client shows title, paths and diff, and the
user may be asked), then `Action.run` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from acpserver.cancel import CancelFlag

READ = "read"  # looks only: never asked for
WRITE = "write"  # changes files in the session's roots
EXECUTE = "execute"  # runs programs: can do anything

Content = dict[str, object]
"""One ACP ToolCallContent object: {"type": "content" | "diff" | "terminal", ...}."""

Ask = Callable[[str], "str | None"]
"""Put one question to the user; None when the client has no way to show it or the user declined."""


class ToolContext(NamedTuple):
    """What a tool may use. Made anew for each call; belongs to the turn's thread."""

    session_id: str
    cwd: str  # absolute; relative paths in arguments are taken from here
    roots: tuple[str, ...]  # absolute; file tools stay inside them (cwd is the first)
    cancel: CancelFlag
    progress: Callable[[list[Content]], None]  # show this content while the tool runs (the whole of it)
    plan: Callable[[list[dict[str, object]]], None]  # send a plan update: ACP PlanEntry objects
    ask: Ask


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool did. `text` goes to the model; `content` (or else the text) to the client."""

    text: str
    content: list[Content] | None = None  # None: show `text`; []: show nothing more than was shown
    raw_output: dict[str, object] = field(default_factory=dict)
    is_error: bool = False


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
        """Check arguments that already fit `parameters`, without effect.

        Raises `ToolError` with a text that tells the model how to call it right."""

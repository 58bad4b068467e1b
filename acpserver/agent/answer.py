"""One answer of the model while it comes: shown at once, recorded piece by piece.

Belongs to one turn and its thread; `take`, `end` and `unrecorded` are called with the session's `story` held.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from acpserver import records
from acpserver.client import TurnUpdates
from acpserver.llm.types import (
    Event,
    Finish,
    Opaque,
    Part,
    Text,
    TextDelta,
    Thought,
    ThoughtDelta,
    ToolCall,
    Usage,
    Waiting,
)
from acpserver.records import Record


class Answer:
    """What one model call gives. `finish` is the reason of its end, "" when none was told.

    What has come to its end is recorded before text that follows is shown: a kill then loses nothing that the
    user has seen finished. Calls are shown later, when the whole answer is recorded.
    """

    def __init__(self, updates: TurnUpdates, note: Callable[[Record], None]):
        self.calls: list[ToolCall] = []
        self.finish = ""
        self.usage: Usage | None = None
        self._updates = updates
        self._note = note
        self._parts: list[Part] = []  # that are not recorded yet
        self._ids: list[str] = []  # the message id of each text and thought among them
        self._kind = ""  # of the text that grows now
        self._message_id = ""
        self._pieces: list[str] = []

    def take(self, event: Event) -> None:
        """Handle one event."""
        if isinstance(event, TextDelta):
            self._text("agent_message_chunk", event.text)
        elif isinstance(event, ThoughtDelta):
            self._text("agent_thought_chunk", event.text)
        elif isinstance(event, (Opaque, ToolCall)):
            self._end_text()
            self._parts.append(event)
            if isinstance(event, ToolCall):
                self.calls.append(event)
        elif isinstance(event, Usage):
            self.usage = event
        elif isinstance(event, Finish):
            self.finish = event.reason
        elif isinstance(event, Waiting):
            self._updates.remark(f"Waiting {event.seconds:.1f} s: {event.reason}")

    def end(self, whole: bool, cost: float | None) -> None:
        """Record the rest; not `whole`: the answer broke off. `cost` as in `records.assistant`."""
        self._end_text()
        if self._parts or self.usage:
            self._note(records.assistant(self._parts, self._ids, self.usage, whole, cost))

    def unrecorded(self) -> Record:
        """What no record holds yet of the answer."""
        return records.piece(*self._with_text())

    def _text(self, kind: str, text: str) -> None:
        if kind != self._kind:  # another kind of text is another message (rule P4)
            self._end_text()
            self._record()
            self._kind, self._message_id = kind, str(uuid.uuid4())
        self._pieces.append(text)
        self._updates.text(kind, self._message_id, text)

    def _end_text(self) -> None:
        self._parts, self._ids = self._with_text()
        self._pieces = []
        self._kind = ""

    def _record(self) -> None:
        if self._ids:  # the user has seen something of it
            self._note(records.piece(self._parts, self._ids))
            self._parts, self._ids = [], []

    def _with_text(self) -> tuple[list[Part], list[str]]:
        if not self._pieces:
            return self._parts, self._ids
        text = "".join(self._pieces)
        part = Text(text) if self._kind == "agent_message_chunk" else Thought(text)
        return [*self._parts, part], [*self._ids, self._message_id]

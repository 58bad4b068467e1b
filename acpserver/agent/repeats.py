"""A weak model may make the same call with the same result until no step is left: it is told, then stopped.

Belongs to one turn and its thread. It only counts: who asks decides what to do.
"""

from __future__ import annotations

from dataclasses import replace

from acpserver.llm.types import ToolCall
from acpserver.tools.base import ToolOutcome

HINT_AFTER = 3
STOP_AFTER = 20  # in a row: a user may have asked for ten times, or for a look whether something has changed

HINT = "[This is call number {count} of this kind in a row, with the same arguments and the same result. \
Unless the user wants that, do something else, or end your turn and say what is missing.]"


class Repeats:
    """Counts how often the last tool call of a turn came in a row."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()
        self._count = 0

    @property
    def is_endless(self) -> bool:
        """Whether the turn should be stopped."""
        return self._count >= STOP_AFTER

    def noticed(self, call: ToolCall, outcome: ToolOutcome) -> ToolOutcome:
        """Count a call; its outcome, which tells the model when it was often enough."""
        arguments = call.raw if call.arguments is None else call.arguments
        this = (call.name, arguments, outcome.text, outcome.is_error)
        self._count = self._count + 1 if this == self._last else 1
        self._last = this
        if self._count < HINT_AFTER:
            return outcome
        return replace(outcome, text=f"{outcome.text}\n\n{HINT.format(count=self._count)}")

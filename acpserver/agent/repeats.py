"""A weak model may make the same call with the same result, or go round the same few, until no step is left:
it is told, then stopped.

Belongs to one turn and its thread. It only counts: who asks decides what to do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from acpserver.llm.types import ToolCall
from acpserver.tools.base import ToolOutcome

HINT_AFTER = 3
STOP_AFTER = 20  # in a row: a user may have asked for ten times, or for a look whether something has changed
LONGEST_ROUND = 4

HINT = "[This is call number {count} of this kind in a row, with the same arguments and the same result. \
Unless the user wants that, do something else, or end your turn and say what is missing.]"
ROUND_HINT = "[This is round number {count} of the same {size} calls, with the same arguments and the same \
results. Unless the user wants that, do something else, or end your turn and say what is missing.]"


class Repeats:
    """Counts how often the last tool call of a turn, or the last few as a round, came in a row."""

    def __init__(self) -> None:
        self._latest: deque[object] = deque(maxlen=LONGEST_ROUND)  # the last call comes first
        self._repeated = [0] * LONGEST_ROUND  # by length: calls that equal the one a round before
        self._count = 0

    @property
    def is_endless(self) -> bool:
        """Whether the turn should be stopped."""
        return self._count >= STOP_AFTER

    def noticed(self, call: ToolCall, outcome: ToolOutcome) -> ToolOutcome:
        """Count a call; its outcome, which tells the model when it was often enough."""
        arguments = call.raw if call.arguments is None else call.arguments
        this = (call.name, arguments, outcome.text, outcome.is_error)
        for index, before in enumerate(self._latest):
            self._repeated[index] = self._repeated[index] + 1 if this == before else 0
        self._latest.appendleft(this)
        rounds = [(repeated // size + 1, size) for size, repeated in enumerate(self._repeated, 1)]
        self._count, size = max(rounds, key=lambda found: found[0])  # of equals the shortest
        if self._count < HINT_AFTER:
            return outcome
        hint = (HINT if size == 1 else ROUND_HINT).format(count=self._count, size=size)
        return replace(outcome, text=f"{outcome.text}\n\n{hint}")

"""The rooms that watch a conversation, and what they have in common.

A watcher is told of every call and answer in the order of the wire. The order of the list matters: the ones
that write down what is known come before the ones that judge by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from acpserver.validate.state import Answer, Breach, Call, Mark
from acpserver.validate.state_answers import Errors
from acpserver.validate.state_calls import ToolCalls
from acpserver.validate.state_cancel import Cancelling
from acpserver.validate.state_client import ClientCalls
from acpserver.validate.state_handshake import Handshake
from acpserver.validate.state_options import Options
from acpserver.validate.state_sessions import Sessions
from acpserver.validate.state_turns import Turns
from acpserver.validate.world import World


class Watcher(Protocol):
    """One part of the rules."""

    def called(self, call: Call) -> Iterable[Breach]:
        """A request or a notification was sent."""

    def answered(self, answer: Answer) -> Iterable[Breach]:
        """A request was answered."""

    def disturbed(self, side: str) -> None:
        """A message of `side` could not be read; what it said is not known."""

    def finish(self, end: Mark | None) -> Iterable[Breach]:
        """Nothing more comes."""


def watchers(world: World) -> list[Watcher]:
    """All of them, for one conversation."""
    return [
        Handshake(world), Sessions(world), Options(world), ToolCalls(world), ClientCalls(world),
        Cancelling(world), Errors(world), Turns(world),
    ]  # fmt: skip

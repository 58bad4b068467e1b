"""The pieces of a streamed answer put together: text deltas and tool calls. Shared by the dialects.

Pure; every object belongs to one answer and one thread. Here the promises of `TextDelta` and `ToolCall`
are kept: no empty text, no half surrogate pair, no two calls with one id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from acpserver import jsontext
from acpserver.llm.types import Event, Message, TextDelta, ThoughtDelta, ToolCall

_LONGEST_ID = 64  # characters; some servers refuse longer ones when they read them back


def new_call_id() -> str:
    """A tool call id that no other call has."""
    return "call_" + os.urandom(6).hex()


def used_call_ids(messages: Iterable[Message]) -> set[str]:
    """The ids of all tool calls in a history."""
    return {call.id for message in messages for call in message.tool_calls}


class Deltas:
    """Collects text and thoughts; neighbours of one kind that arrived together become one event."""

    def __init__(self) -> None:
        self._kind: type[TextDelta] | type[ThoughtDelta] = TextDelta
        self._pieces: list[str] = []
        self._ready: list[Event] = []

    def add(self, kind: type[TextDelta] | type[ThoughtDelta], text: str) -> None:
        """Append a piece, which may be empty and may end inside a surrogate pair."""
        if kind is not self._kind:
            self._flush(last=True)
            self._kind = kind
        self._pieces.append(text)

    def put(self, event: Event) -> None:
        """Append an event that is neither text nor thought, behind what has come so far."""
        self._flush(last=True)
        self._ready.append(event)

    def take(self, last: bool = False) -> list[Event]:
        """The events so far. Half a surrogate pair at the end is kept for the next piece unless `last`."""
        self._flush(last)
        ready, self._ready = self._ready, []
        return ready

    def _flush(self, last: bool) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        if not text:
            return
        if not last and "\ud800" <= text[-1] <= "\udbff":
            self._pieces.append(text[-1])
            text = text[:-1]
        if text:
            self._ready.append(self._kind(jsontext.mend_text(text)))


@dataclass
class _Draft:
    """A tool call that is still arriving."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON object already."""
        text = "".join(self.pieces).strip()
        return text.endswith("}") and _parse(text) is not None


class ToolCalls:
    """Assembles tool calls from fragments, also from servers that number or name them badly."""

    def __init__(self, used_ids: Iterable[str], make_id: Callable[[], str] = new_call_id):
        self._used = set(used_ids)
        self._make_id = make_id
        self._drafts: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}

    def __bool__(self) -> bool:
        return bool(self._drafts)

    def add(self, index: object, call_id: str, name: str, arguments: str) -> None:
        """Take one fragment. An absent index is None; absent texts are empty."""
        draft = self._find(index, call_id, name, arguments)
        if draft is None:
            draft = _Draft()
            self._drafts.append(draft)
        if isinstance(index, int):
            self._by_index[index] = draft
        draft.id = draft.id or call_id
        draft.name = draft.name or name
        draft.pieces.append(arguments)

    def _find(self, index: object, call_id: str, name: str, arguments: str) -> _Draft | None:
        """The call that a fragment continues; None when it begins a new one.

        Normally the index tells. Servers are known that give every call index 0, or no index, or no id, or
        the same id, or repeat the name in each fragment: then a name begins a call if its id is new, or if
        the call before it is already whole.
        """
        if isinstance(index, int):
            draft = self._by_index.get(index)
        else:
            same_id = [draft for draft in self._drafts if call_id and draft.id == call_id]
            draft = (same_id or self._drafts or [None])[-1]  # type: ignore[list-item]
        if draft is None or not name or not draft.name:
            return draft
        if call_id and draft.id and call_id != draft.id:
            return None
        if name != draft.name or (arguments and draft.is_whole()):
            return None
        return draft

    def finish(self, cut: bool = False) -> list[ToolCall]:
        """The calls since the last time, with unique ids, and begin anew.

        `cut`: the answer hit its length limit, so the last may be partial.
        """
        drafts, self._drafts, self._by_index = self._drafts, [], {}
        calls: list[ToolCall] = []
        for position, draft in enumerate(drafts):
            raw = jsontext.mend_text("".join(draft.pieces))
            may_be_empty = not (cut and position == len(drafts) - 1)
            arguments: dict[str, object] | None = {} if may_be_empty else None
            if raw.strip():
                arguments = _parse(raw)
            calls.append(ToolCall(self._unique(draft.id), jsontext.mend_text(draft.name), arguments, raw))
        return calls

    def _unique(self, call_id: str) -> str:
        call_id = jsontext.mend_text(call_id)
        while not call_id or len(call_id) > _LONGEST_ID or call_id in self._used:
            call_id = self._make_id()
        self._used.add(call_id)
        return call_id


def _parse(text: str) -> dict[str, object] | None:
    try:
        value = jsontext.mend(jsontext.loads(text))
    except (ValueError, RecursionError):  # not JSON, or nested deeper than we can follow
        return None
    return value if isinstance(value, dict) else None

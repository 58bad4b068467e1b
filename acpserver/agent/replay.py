"""The records of a session as the updates that first told them. Pure.

Used by session/load. Whatever a crash left open is closed here: a call without a result ends as failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from acpserver import jsontext
from acpserver.agent import translate
from acpserver.client import Update, split_text
from acpserver.llm.pairing import NO_RESULT
from acpserver.llm.types import Text, Thought, ToolCall, ToolResult
from acpserver.prompts import user_message
from acpserver.records import Record, part_of, result_of
from acpserver.rpc.schema import check_params
from acpserver.tools.content import SHOWN, shorten


def replay(records: Iterable[Record | None], running: bool) -> Iterator[Update]:
    """Each update in its first order. `running`: a turn goes on, so its open call is not closed here."""
    story = _Story()
    for record in records:
        if record is not None:
            try:
                yield from story.tell(record)
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # damaged: the rest is told all the same
    if not running:
        yield from story.close()


class _Story:
    """What must be remembered between records: all calls, and which were told or are open."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._told: set[str] = set()
        self._open: set[str] = set()

    def tell(self, record: Record) -> Iterator[Update]:
        """The updates of one record."""
        kind = record["type"]
        if kind in ("user", "assistant"):
            message = _prompt(record) if kind == "user" else self._answer(record)  # raises before a call ends
            yield from self.close()
            yield from message
        elif kind == "call" and record["id"] not in self._told:
            call_id = str(record["id"])
            call = self._calls.get(call_id) or ToolCall(call_id, "", {})
            yield _checked(translate.tool_call(call, record["shown"]))  # type: ignore[arg-type]
            self._told.add(call_id)
            self._open.add(call_id)
        elif kind == "result":
            yield from self._result(record)
        elif kind == "plan":
            yield _checked(translate.plan(record["entries"]))  # type: ignore[arg-type]

    def close(self) -> Iterator[Update]:
        """End the calls that have no result."""
        for call_id in sorted(self._open):
            yield translate.tool_ended(ToolResult(call_id, "", NO_RESULT, is_error=True), {})
        self._open.clear()

    def _answer(self, record: Record) -> list[Update]:
        ids = iter(record["messageIds"])  # type: ignore[call-overload]
        parts = list(map(part_of, record["parts"]))  # type: ignore[call-overload]
        updates = []
        for part in parts:
            if isinstance(part, (Text, Thought)):
                tag = "agent_message_chunk" if isinstance(part, Text) else "agent_thought_chunk"
                message_id = str(next(ids, None) or uuid.uuid4())
                updates += [translate.text_chunk(tag, message_id, piece) for piece in split_text(part.text)]
        self._calls.update({part.id: part for part in parts if isinstance(part, ToolCall)})
        return updates

    def _result(self, record: Record) -> Iterator[Update]:
        answer = result_of(record)
        if answer.call_id in self._open:
            ended = translate.tool_ended(answer, record["shown"])  # type: ignore[arg-type]
            yield ended if _fits(ended) else translate.tool_ended(answer, {})
            self._open.remove(answer.call_id)


def _checked(update: Update) -> Update:
    """The same update. Raises `ValueError` when it does not fit the schema: what a file holds may be damaged
    in a way that leaves it readable."""
    if not _fits(update):
        raise ValueError("damaged")
    return update


def _fits(update: Update) -> bool:
    return not check_params("session/update", {"sessionId": "", "update": update})


def _prompt(record: Record) -> list[Update]:
    message_id = str(record["messageId"])
    updates = [
        translate.content_chunk("user_message_chunk", message_id, piece)
        for block in record["prompt"]  # type: ignore[attr-defined]
        for piece in _pieces(block)
    ]
    return list(map(_checked, updates))


def _pieces(block: Update) -> Iterator[Update]:
    """A block of a prompt as one or more that keep a line short enough for every client. A large one that
    is no text becomes the text that the model was given."""
    if block.get("type") == "text":
        for piece in split_text(str(block["text"])):
            yield {**block, "text": piece}
    elif len(jsontext.dumps(block)) <= SHOWN:
        yield block
    else:
        for piece in split_text(shorten(user_message([block]).text, SHOWN)):
            yield {"type": "text", "text": piece}

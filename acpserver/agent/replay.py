"""The records of a session as the updates that first told them. Pure.

Used by session/load. The records are those that a `Conversation` took, and each of them is told: where its
display is damaged, by what the model reads. A call that a crash left without a result ends here, as failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial

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
    """Each update in its first order; all fit the schema. `running`: a turn goes on, so its open call is not
    closed here."""
    story = _Story()
    for record in records:
        if record is not None:
            yield from story.tell(record)
    if not running:
        yield from story.close()


class _Story:
    """What must be remembered between records: all calls, and which were told or are open."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._open: set[str] = set()

    def tell(self, record: Record) -> Iterator[Update]:
        """The updates of one record."""
        kind = record["type"]
        if kind == "user":
            yield from self.close()
            yield from _prompt(record)
        elif kind == "assistant":
            yield from self.close()
            yield from self._answer(record)
        elif kind == "call":
            yield self._call(str(record["id"]), record.get("shown"))
        elif kind == "result":
            yield from self._result(record)
        elif kind == "plan":
            yield translate.plan(record["entries"])  # type: ignore[arg-type]

    def close(self) -> Iterator[Update]:
        """End the calls that have no result."""
        for call_id in sorted(self._open):
            yield translate.tool_ended(ToolResult(call_id, "", NO_RESULT, is_error=True), {})
        self._open.clear()

    def _answer(self, record: Record) -> Iterator[Update]:
        found = record.get("messageIds")
        ids = iter(found if isinstance(found, list) else [])
        for part in map(part_of, record["parts"]):  # type: ignore[call-overload]
            if isinstance(part, (Text, Thought)):
                tag = "agent_message_chunk" if isinstance(part, Text) else "agent_thought_chunk"
                message_id = str(next(ids, None) or uuid.uuid4())
                for piece in split_text(part.text):
                    yield translate.text_chunk(tag, message_id, piece)
            elif isinstance(part, ToolCall):
                self._calls[part.id] = part

    def _call(self, call_id: str, shown: object) -> Update:
        call = self._calls.get(call_id) or ToolCall(call_id, "", {})
        self._open.add(call_id)
        plain = translate.tool_call(call, translate.call_shown(call, None, None))
        return _fitting(partial(translate.tool_call, call), shown, plain)

    def _result(self, record: Record) -> Iterator[Update]:
        answer = result_of(record)
        if answer.call_id not in self._open:  # the record of the call is lost
            yield self._call(answer.call_id, None)
        yield _fitting(
            partial(translate.tool_ended, answer), record.get("shown"), translate.tool_ended(answer, {})
        )
        self._open.remove(answer.call_id)


def _fitting(make: Callable[[Update], Update], shown: object, plain: Update) -> Update:
    """The update as the file says that it was shown; the plain one where that is damaged, yet readable."""
    update = make(shown) if isinstance(shown, dict) else plain
    return update if _fits(update) else plain


def _fits(update: Update) -> bool:
    return not check_params("session/update", {"sessionId": "", "update": update})


def _prompt(record: Record) -> Iterator[Update]:
    message_id = str(record.get("messageId") or uuid.uuid4())
    for block in record["prompt"]:  # type: ignore[attr-defined]
        for piece in _pieces(block):
            update = translate.content_chunk("user_message_chunk", message_id, piece)
            if _fits(update):
                yield update
            else:
                for text in split_text(user_message([block]).text):
                    yield translate.text_chunk("user_message_chunk", message_id, text)


def _pieces(block: Update) -> Iterator[Update]:
    """A block of a prompt as one or more that keep a line short enough for every client. A large one that
    is no text becomes the text that the model was given."""
    if block.get("type") == "text":
        for piece in split_text(str(block.get("text", ""))):
            yield {**block, "text": piece}
    elif len(jsontext.dumps(block)) <= SHOWN:
        yield block
    else:
        for piece in split_text(shorten(user_message([block]).text, SHOWN)):
            yield {"type": "text", "text": piece}

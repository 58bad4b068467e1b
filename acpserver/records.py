"""The records of a session: what a session file holds, one JSON object a line, and what they add up to.

A record stands for one finished thing. `Conversation` adds records up, one by one, to what a session
knows: the running server and a later load use the same code. Values and pure functions; a `Conversation`
belongs to one thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from acpserver.llm.types import Message, Opaque, Part, Text, Thought, ToolCall, ToolResult, Usage
from acpserver.prompts import user_message

Record = dict[str, object]

FORMAT = 1
TITLE_LENGTH = 80  # characters
TRIMMED = 2_000  # characters of a tool result that stay when the context was too full


def header(session_id: str, cwd: str, origin: Record | None = None) -> Record:
    """The first record of a file. `origin` names the session that a fork came from."""
    record: Record = {"type": "session", "format": FORMAT, "id": session_id, "cwd": cwd}
    if origin:
        record["origin"] = origin
    return _timed(record)


def user(message_id: str, prompt: list[dict[str, object]]) -> Record:
    """A prompt as it came: ACP ContentBlock objects."""
    return _timed({"type": "user", "messageId": message_id, "prompt": prompt})


def assistant(
    parts: list[Part], ids: list[str], usage: Usage | None, whole: bool, cost: float | None = None
) -> Record:
    """What one model call gave, behind the pieces that were recorded before; `ids` are the message ids of its
    text parts, in order. Not `whole`: the answer was cut off, and what is here is what had come. `cost` is in
    USD, None when no price is known."""
    record = _answer(parts, ids)
    if usage:
        record["usage"] = [usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.thought_tokens]
    if usage and cost is not None:
        record["cost"] = cost
    if not whole:
        record["cut"] = True
    return _timed(record)


def piece(parts: list[Part], ids: list[str]) -> Record:
    """A piece of an answer that has come while the answer goes on, in the next `assistant` record. Where none
    follows the answer was cut off."""
    return _timed({**_answer(parts, ids), "more": True})


def call(call_id: str, shown: Record) -> Record:
    """A tool call was shown to the client; `shown` is its first report without what the call itself says."""
    return _timed({"type": "call", "id": call_id, "shown": shown})


def result(answer: ToolResult, shown: Record) -> Record:
    """A tool call ended; `shown` is its last report without what the result itself says."""
    record: Record = {"type": "result", "id": answer.call_id, "name": answer.name, "text": answer.text}
    if answer.is_error:
        record["error"] = True
    return _timed({**record, "shown": shown})


def plan(entries: list[dict[str, object]]) -> Record:
    """The whole plan, as it was last shown."""
    return _timed({"type": "plan", "entries": entries})


def option(name: str, value: str) -> Record:
    """An option of the session was set."""
    return _timed({"type": "option", "option": name, "value": value})


def permission(tool: str, answer: str) -> Record:
    """The user answered "always" for a tool: "allow" or "deny"."""
    return _timed({"type": "permission", "tool": tool, "answer": answer})


def failed(details: str) -> Record:
    """The turn ended in an error before anything came of its prompt: the model does not see that prompt."""
    return _timed({"type": "failed", "details": details})


def trimmed() -> Record:
    """The context was too full: from here on the model sees the tool results before shortened."""
    return _timed({"type": "trimmed"})


def reported(count: int) -> Record:
    """So many damaged lines of the file need no report: the user was told, or nothing is lost with them."""
    return _timed({"type": "reported", "count": count})


def _answer(parts: list[Part], ids: list[str]) -> Record:
    return {"type": "assistant", "parts": [_part(part) for part in parts], "messageIds": ids}


def _timed(record: Record) -> Record:
    return {**record, "time": round(time.time(), 3)}


class Conversation:
    """What the records of a session add up to, for the model and for the server."""

    def __init__(self) -> None:
        self.cwd = ""
        self.created = 0.0  # seconds since 1970
        self.title = ""
        self.messages: list[Message] = []
        """The history for the model. Calls that were cut off have no result here; `llm.pairing` adds one."""
        self.options: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        """What the user said "always" to: tool name -> "allow" or "deny"."""
        self.usage = Usage()
        self.cost: float | None = 0.0
        """USD for all model calls; None as soon as there was one whose price is not known."""
        self.turns = 0
        self.damaged = 0
        """How many lines were no record, or one that is damaged or of an unknown type."""
        self.reported = 0
        """How many of these need no report (any more)."""
        self._call_ids: set[str] = set()
        self._pieces: tuple[Part, ...] = ()
        """Parts of an answer that goes on; the last message holds those that count if it does not."""

    def add(self, record: Record | None) -> None:
        """Take one record in; None stands for a line that is none. What is damaged changes nothing."""
        taker = _TAKERS.get(str(record.get("type"))) if record else None
        if taker is None or record is None:
            self.damaged += 1
            return
        try:
            taker(self, record)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.damaged += 1

    def _session(self, record: Record) -> None:
        self.cwd = _text(record, "cwd")
        self.created = float(record["time"])  # type: ignore[arg-type]

    def _user(self, record: Record) -> None:
        message = user_message(record["prompt"], images=True)  # type: ignore[arg-type]
        self._pieces = ()
        self.turns += 1
        self.title = self.title or title_of(message)
        self.messages.append(message)

    def _assistant(self, record: Record) -> None:
        parts = (*self._pieces, *map(part_of, record["parts"]))  # type: ignore[call-overload]
        more = bool(record.get("more"))
        # Calls of an answer without its end were never shown and must not stand here unanswered, nor what led
        # to them: servers refuse reasoning that nothing follows.
        said = tuple(part for part in parts if isinstance(part, (Text, Thought)))
        kept = said if more or record.get("cut") else parts
        counts = record.get("usage")
        usage = self.usage.plus(Usage(*counts)) if counts else self.usage  # type: ignore[misc]
        self._new_calls([part.id for part in kept if isinstance(part, ToolCall)])
        self.usage = usage
        if counts:
            cost = record.get("cost")
            known = self.cost is not None and isinstance(cost, (int, float))
            self.cost = self.cost + cost if known else None  # type: ignore[operator]
        if any(isinstance(part, Text) for part in self._pieces):
            self.messages.pop()  # what was said so far
        if any(not isinstance(part, (Thought, Opaque)) for part in kept):
            self.messages.append(Message("assistant", kept))
        self._pieces = parts if more else ()

    def _new_calls(self, ids: list[str]) -> None:
        """Raise `ValueError` unless each id is one, and new in the session: no model takes a history else."""
        if "" in ids or len(set(ids)) < len(ids) or not self._call_ids.isdisjoint(ids):
            raise ValueError("call ids")
        self._call_ids.update(ids)

    def _result(self, record: Record) -> None:
        answer = result_of(record)
        self._pieces = ()
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "tool":
            self.messages[-1] = Message("tool", (*last.parts, answer))
        else:
            self.messages.append(Message("tool", (answer,)))

    def _option(self, record: Record) -> None:
        self.options[_text(record, "option")] = _text(record, "value")

    def _permission(self, record: Record) -> None:
        self.answers[_text(record, "tool")] = _text(record, "answer")

    def _failed(self, record: Record) -> None:
        if self.messages and self.messages[-1].role == "user":
            self.messages.pop()

    def _trimmed(self, record: Record) -> None:
        self.messages[:] = [
            message._replace(parts=tuple(map(_trim, message.parts))) for message in self.messages
        ]

    def _reported(self, record: Record) -> None:
        self.reported += int(record["count"])  # type: ignore[call-overload]

    def _nothing(self, record: Record) -> None:
        """Records that only a replay uses."""


_TAKERS: Mapping[str, Callable[[Conversation, Record], None]] = {
    "session": Conversation._session,
    "user": Conversation._user,
    "assistant": Conversation._assistant,
    "call": Conversation._nothing,
    "result": Conversation._result,
    "plan": Conversation._nothing,
    "option": Conversation._option,
    "permission": Conversation._permission,
    "failed": Conversation._failed,
    "trimmed": Conversation._trimmed,
    "reported": Conversation._reported,
}


def title_of(message: Message) -> str:
    """The first line of a prompt, shortened."""
    line = next((line.strip() for line in message.text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def _part(part: Part) -> Record:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, Thought):
        return {"thought": part.text}
    if isinstance(part, Opaque):
        return {"opaque": part.data, "origin": part.origin}
    assert isinstance(part, ToolCall)
    return {"call": part.id, "name": part.name, "arguments": part.arguments, "raw": part.raw}


def part_of(value: Record) -> Part:
    """A part of an assistant record. Raises `KeyError` or `TypeError` when it is none."""
    if "text" in value:
        return Text(_text(value, "text"))
    if "thought" in value:
        return Thought(_text(value, "thought"))
    if "opaque" in value:
        data = value["opaque"]
        if not isinstance(data, dict):
            raise TypeError("opaque")
        return Opaque(_text(value, "origin"), data)
    arguments = value["arguments"]
    if arguments is not None and not isinstance(arguments, dict):
        raise TypeError("arguments")
    return ToolCall(_text(value, "call"), _text(value, "name"), arguments, str(value.get("raw", "")))


def result_of(record: Record) -> ToolResult:
    """The tool result of a result record."""
    return ToolResult(
        _text(record, "id"), _text(record, "name"), _text(record, "text"), bool(record.get("error"))
    )


def _text(record: Record, key: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def has_long_results(messages: list[Message]) -> bool:
    """Whether a `trimmed` record would make the history shorter."""
    return any(_trim(part) is not part for message in messages for part in message.parts)


def _trim(part: Part) -> Part:
    if not isinstance(part, ToolResult) or len(part.text) <= TRIMMED + 100:
        return part
    head, tail = part.text[: TRIMMED // 2], part.text[-TRIMMED // 2 :]
    return part._replace(text=f"{head}\n[... shortened to fit the context ...]\n{tail}")

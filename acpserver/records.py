"""The records of a session: what a session file holds, one JSON object a line.

A record stands for one finished thing. What they add up to is in `conversation`. Pure functions; any thread.
"""

from __future__ import annotations

import time

from acpserver.llm.types import Opaque, Part, Text, Thought, ToolCall, ToolResult, Usage

Record = dict[str, object]

FORMAT = 1


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
        record["usage"] = list(usage[:4])  # a version that knows no fifth count drops the record for it
        if usage.written_tokens:
            record["cacheWritten"] = usage.written_tokens
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


def refused() -> Record:
    """The model refused to go on: it sees neither the prompt nor what followed it again (ACP, StopReason)."""
    return _timed({"type": "refused"})


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
        return Text(text_of(value, "text"))
    if "thought" in value:
        return Thought(text_of(value, "thought"))
    if "opaque" in value:
        data = value["opaque"]
        if not isinstance(data, dict):
            raise TypeError("opaque")
        return Opaque(text_of(value, "origin"), data)
    arguments = value["arguments"]
    if arguments is not None and not isinstance(arguments, dict):
        raise TypeError("arguments")
    return ToolCall(text_of(value, "call"), text_of(value, "name"), arguments, str(value.get("raw", "")))


def usage_of(record: Record) -> Usage | None:
    """The usage of an assistant record, None where it tells none. Raises `TypeError` when it is damaged."""
    counts = record.get("usage")
    if not counts:
        return None
    usage = Usage(*counts)  # type: ignore[misc]
    return usage._replace(written_tokens=record.get("cacheWritten", usage.written_tokens))  # type: ignore[arg-type]


def result_of(record: Record) -> ToolResult:
    """The tool result of a result record."""
    return ToolResult(
        text_of(record, "id"), text_of(record, "name"), text_of(record, "text"), bool(record.get("error"))
    )


def text_of(record: Record, key: str) -> str:
    """A member that must be text. Raises `KeyError` or `TypeError` when it is none."""
    value = record[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value

"""A history made fit to be sent: every tool call with exactly one result. Pure; shared by the dialects.

The agent loop keeps its history whole. This holds for what was cut short all the same (a crash, a session
file from elsewhere), because servers refuse a history with a gap in it, and would do so for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from acpserver.llm.types import Message, Text, ToolResult

NO_RESULT = "No result: the call was interrupted before it ended."


def paired(messages: Sequence[Message]) -> list[Message]:
    """`messages` without empty ones, each assistant message with calls followed by one tool message.

    That message holds one result for each call, in the order of the calls; results that belong to no call
    of the assistant message before them are left out.
    """
    out: list[Message] = []
    for position, message in enumerate(messages):
        if message.role == "tool":
            continue
        if message.role == "assistant" and message.tool_calls:
            results = _results(messages, position + 1)
            out.append(message)
            out.append(
                Message("tool", tuple(_result(results, call.id, call.name) for call in message.tool_calls))
            )
        elif any(isinstance(part, Text) and part.text for part in message.parts):
            out.append(message)
    return out


def _results(messages: Sequence[Message], start: int) -> dict[str, ToolResult]:
    """The results in the tool messages that follow one another from `start` on, by call id."""
    results: dict[str, ToolResult] = {}
    for message in messages[start:]:
        if message.role != "tool":
            break
        for part in message.parts:
            if isinstance(part, ToolResult):
                results.setdefault(part.call_id, part)
    return results


def _result(results: dict[str, ToolResult], call_id: str, name: str) -> ToolResult:
    return results.get(call_id) or ToolResult(call_id, name, NO_RESULT, is_error=True)

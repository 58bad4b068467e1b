"""A history made fit to be sent to one model. Pure; shared by the dialects.

Every tool call gets exactly one result. The agent loop keeps its history whole; this holds for what was cut
short all the same (a crash, a session file from elsewhere), because servers refuse a history with a gap in
it, and would do so for ever. What only another model understands is left out.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from acpserver.llm.types import Audio, Image, Message, ModelRequest, Opaque, Part, Text, ToolResult
from acpserver.llm.verdicts import NO_REASONING
from acpserver.prompts import AUDIO_FORMATS, marker

NO_RESULT = "No result: the call was interrupted before it ended."
NO_TEXT = "(no text)"
"""What a model reads of a prompt that says nothing: servers refuse a blank one, and it keeps its place."""


def history_for(request: ModelRequest, origin: str, audio_formats: Container[str] = ()) -> list[Message]:
    """The messages of `request`, paired, as the model that `origin` names may read them. `audio_formats` are
    those that its dialect can send."""
    heard = audio_formats if request.audio else ()
    own = "" if NO_REASONING in request.learned else origin
    messages = []
    for message in request.messages:
        parts = tuple(
            _taken(part, request.images, heard)
            for part in message.parts
            if not isinstance(part, Opaque) or part.origin == own
        )
        messages.append(message._replace(parts=parts))
    return paired(messages)


def _taken(part: Part, images: bool, audio_formats: Container[str]) -> Part:
    """The part, or the marker that stands for what the model does not take."""
    if isinstance(part, Image) and not images:
        return Text(marker("image", part.mime))
    if isinstance(part, Audio) and AUDIO_FORMATS[part.mime] not in audio_formats:
        return Text(marker("audio", part.mime))
    return part


def paired(messages: Sequence[Message]) -> list[Message]:
    """`messages` without empty answers, each one with calls followed by one tool message.

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
        elif message.role == "user":
            is_empty = not (has_attachments(message) or message.text.strip())
            out.append(message if not is_empty else Message("user", (Text(NO_TEXT),)))
        elif message.text:
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


def has_attachments(message: Message) -> bool:
    """Whether a user's message holds more than text."""
    return any(isinstance(part, (Image, Audio)) for part in message.parts)


def turn_start(messages: Sequence[Message]) -> int:
    """The position of the last user message: what follows it belongs to the turn that goes on."""
    return max((at for at, message in enumerate(messages) if message.role == "user"), default=0)

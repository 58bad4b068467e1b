"""One message in a few words, for a line of the timeline. Pure functions, any thread.

Every value may be of any shape: recordings hold faulty messages too. Nothing is raised.
"""

from __future__ import annotations

from acpserver import jsontext
from acpserver.validate.state import Json, object_of, objects, text

LONGEST = 160  # characters

TELLING = (
    "toolCall",
    "prompt",
    "update",
    "command",
    "path",
    "modeId",
    "modelId",
    "configId",
    "terminalId",
    "methodId",
    "cwd",
    "message",
    "protocolVersion",
    "requestId",
    "sessionId",
)
"""Fields of params that say most about a call, the most telling first."""

TELLING_RESULT = (
    "stopReason",
    "outcome",
    "protocolVersion",
    "sessionId",
    "terminalId",
    "content",
    "exitStatus",
    "exitCode",
    "output",
    "sessions",
)


def of_call(params: object) -> str:
    """What a request or a notification is about."""
    return _short(_most_telling(params, TELLING))


def of_answer(result: object) -> str:
    """What a result says."""
    return _short(_most_telling(result, TELLING_RESULT))


def of_error(error: object) -> str:
    """Code and message of an error answer."""
    code = error.get("code") if isinstance(error, dict) else None
    return _short(f"{code} {text(error, 'message')}")


def update_kind(params: object) -> str:
    """The kind of a `session/update`, or ""."""
    return text(object_of(params, "update"), "sessionUpdate")


def _most_telling(value: object, names: tuple[str, ...]) -> str:
    if not isinstance(value, dict):
        return "" if value is None else _plain(value)
    for name in names:
        if name in value:
            return _field(name, value[name])
    return ""


def _field(name: str, value: object) -> str:
    if name == "prompt":
        return " ".join(_block(block) for block in objects({"prompt": value}, "prompt"))
    if name == "update" and isinstance(value, dict):
        return _update(value)
    if name == "toolCall" and isinstance(value, dict):
        return _tool_call(value)
    if name == "outcome" and isinstance(value, dict):
        return " ".join(part for part in (text(value, "outcome"), text(value, "optionId")) if part)
    if name == "sessions" and isinstance(value, list):
        return f"{len(value)} sessions"
    if name in ("exitStatus", "protocolVersion"):
        return f"{name} {_plain(value)}"
    return _plain(value)


def _update(update: Json) -> str:
    if "toolCallId" in update:
        return _tool_call(update)
    if "content" in update:
        return _block(object_of(update, "content"))
    if "entries" in update:
        entries = objects(update, "entries")
        done = sum(text(entry, "status") == "completed" for entry in entries)
        return f"{done} of {len(entries)} done"
    if "availableCommands" in update:
        return " ".join("/" + text(command, "name") for command in objects(update, "availableCommands"))
    if "used" in update:
        return f"{_plain(update['used'])} of {_plain(update.get('size'))} tokens"
    return _most_telling(update, ("title", "currentModeId", "message"))


def _tool_call(call: Json) -> str:
    parts = [text(call, "toolCallId"), text(call, "status"), text(call, "title")]
    return " ".join(part for part in parts if part)


def _block(block: Json) -> str:
    """A content block: its text, else its type and address."""
    if "text" in block:
        return text(block, "text")
    where = text(block, "uri") or text(object_of(block, "resource"), "uri") or text(block, "mimeType")
    return f"[{text(block, 'type')}] {where}".rstrip()


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return jsontext.dumps(value)
    except ValueError:  # a value that came from elsewhere than JSON
        return repr(value)


def _short(words: str) -> str:
    """On one line, and not too long."""
    line = " ".join(words[: 4 * LONGEST].split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"

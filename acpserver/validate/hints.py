"""What was probably meant by a name or a value that does not fit. Pure functions.

Four sources: the same name in another spelling (snake_case for camelCase), names of older documents, names
of the v2 draft, and the nearest allowed name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Protocol

from acpserver.rpc import legacy

_OLD_NAMES = {
    "session_id": "sessionId", "content": "prompt", "serverInfo": "agentInfo", "tool_id": "toolCallId",
    "callId": "toolCallId", "id": "toolCallId", "modelId": "currentModelId", "mode": "modeId",
    "servers": "mcpServers", "stop_reason": "stopReason", "reason": "stopReason", "label": "name",
    "workingDirectory": "cwd",
}  # fmt: skip
_OLD_VALUES = {
    "running": "in_progress", "started": "in_progress", "inProgress": "in_progress", "error": "failed",
    "failure": "failed", "success": "completed", "done": "completed", "complete": "completed",
    "shell": "execute", "bash": "execute", "command": "execute", "write": "edit", "allow": "allow_once",
    "reject": "reject_once", "deny": "reject_once", "stop": "end_turn", "length": "max_tokens",
    "canceled": "cancelled", "message": "agent_message_chunk", "thought": "agent_thought_chunk",
    "agentMessageChunk": "agent_message_chunk", "toolCall": "tool_call", "markdown": "text",
}  # fmt: skip
_V2_FIELDS = {
    "capabilities": "clientCapabilities or agentCapabilities", "info": "clientInfo or agentInfo",
    "methodId": "id", "configId": "id", "groupId": "group", "changes": "path, oldText and newText",
    "patch": "path, oldText and newText", "subject": "toolCall",
}  # fmt: skip
_V2_VALUES = {
    "user_message": "user_message_chunk", "agent_message": "agent_message_chunk",
    "agent_thought": "agent_thought_chunk", "tool_call_content_chunk": "tool_call_update",
    "plan_update": "plan", "state_update": "", "terminal_update": "", "terminal_output_chunk": "",
    "paused": "in_progress", "plan_removed": "", "cancelled": "failed",
}  # fmt: skip
_V2_METHODS = {
    "auth/login": "authenticate", "auth/logout": "logout", "tool_call/cancel": "session/cancel",
    "terminal/cancel": "terminal/kill",
}  # fmt: skip
_OLD_METHODS = {
    **legacy.METHODS, "session/create": "session/new", "session/request_input": "elicitation/create",
    "sendUserMessage": "session/prompt", "cancelSendMessage": "session/cancel",
    "streamAssistantMessageChunk": "session/update", "pushToolCall": "session/update",
    "updateToolCall": "session/update", "requestToolCallConfirmation": "session/request_permission",
}  # fmt: skip
_NEAR = 0.75  # of difflib's ratio


class Names(Protocol):
    """Where allowed names come from."""

    def names(self, definition: str, value: object, steps: tuple[str | int, ...]) -> list[str]:
        """The names or values that are allowed at `steps`."""


def for_fault(source: Names, definition: str, value: object, steps: tuple[str | int, ...]) -> str:
    """What was probably meant where a fault is; "" when nothing comes near."""
    holder, found = _at(value, steps[:-1]), _at(value, steps)
    if isinstance(found, str):
        return for_value(found, source.names(definition, value, steps))
    if not steps or not isinstance(holder, dict) or steps[-1] in holder:
        return ""
    wanted = str(steps[-1])
    known = set(source.names(definition, value, steps[:-1]))
    for name in holder:
        if name in known and name != wanted:
            continue
        if _folded(name) == _folded(wanted):
            return f'"{name}" is spelt {wanted} in v1'
        if wanted in _V2_FIELDS.get(name, "").split(" or ") or wanted in _V2_FIELDS.get(name, "").split(", "):
            return f'"{name}" is from the v2 draft; v1 has {_V2_FIELDS[name]}'
        if _OLD_NAMES.get(name) == wanted:
            return f'"{name}" is an old name of {wanted}'
    near = difflib.get_close_matches(wanted, [name for name in holder if name not in known], 1, _NEAR)
    return f'"{near[0]}" is probably meant to be {wanted}' if near else ""


def for_value(found: str, allowed: Iterable[str]) -> str:
    """The allowed value that was probably meant; "" when nothing comes near."""
    allowed = list(allowed)
    if found in allowed:
        return ""
    for value in allowed:
        if _folded(found) == _folded(value):
            return f"v1 spells it {value}"
    if _OLD_VALUES.get(found) in allowed:
        return f"did you mean {_OLD_VALUES[found]}?"
    if found in _V2_VALUES and allowed:
        instead = _V2_VALUES[found]
        return f"that is from the v2 draft{'; v1 has ' + instead if instead else ''}"
    near = difflib.get_close_matches(found, allowed, 1, _NEAR)
    return f"did you mean {near[0]}?" if near else ""


def for_method(found: str, allowed: Iterable[str]) -> str:
    """The method that was probably meant; "" when nothing comes near."""
    if found in _V2_METHODS:
        return f"that is from the v2 draft; v1 has {_V2_METHODS[found]}"
    if found in _OLD_METHODS:
        return f"that is an old name of {_OLD_METHODS[found]}"
    allowed = list(allowed)
    for name in allowed:
        if _folded(found) == _folded(name):
            return f"v1 spells it {name}"
    near = difflib.get_close_matches(found, allowed, 1, _NEAR)
    return f"did you mean {near[0]}?" if near else ""


def respelt(name: str, known: Iterable[str]) -> str:
    """The known field that is the same name in another spelling; ""."""
    folded = _folded(name)
    return next((other for other in known if _folded(other) == folded and other != name), "")


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _at(value: object, steps: tuple[str | int, ...]) -> object:
    for step in steps:
        try:
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return value

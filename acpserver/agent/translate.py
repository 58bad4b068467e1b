"""All translation between ACP and the model. Pure functions.

What the loop does becomes session updates; a replay uses the same functions on what was recorded. (What a
prompt becomes for the model is in `prompts`.) Texts on the wire are shortened here so that a line stays under
64 KiB, the limit of some clients' readers.
"""

from __future__ import annotations

import time

from acpserver.client import Update
from acpserver.jsontext import encoded_size
from acpserver.llm.types import ToolCall, ToolResult, Usage
from acpserver.tools.base import Action, Content, Tool, ToolOutcome
from acpserver.tools.content import shorten, text_content

SHOWN_VALUE = 8_000  # bytes of JSON that one string inside rawInput or rawOutput may take
SHOWN_RAW = 20_000  # bytes of JSON of the whole of it, nearly; content of `content.SHOWN` bytes stands beside
SHOWN_DEPTH = 20  # levels of nesting
LEFT_OUT = "…"


def call_shown(call: ToolCall, tool: Tool | None, action: Action | None) -> Update:
    """What is shown of a call beyond what the call itself says. Without an action it cannot run."""
    shown: Update = {
        "title": shorten(action.title if action else _title(call), 300),
        "kind": tool.kind if tool else "other",
    }
    if action and action.content:
        shown["content"] = action.content
    if action and action.locations:
        shown["locations"] = action.locations
    return shown


def _title(call: ToolCall) -> str:
    """The title of a call that cannot run: the tool's name in words, and the first text that it was given."""
    words = call.name.removeprefix("mcp__").replace("__", ": ").replace("_", " ").strip() or "unknown tool"
    texts = (value for value in (call.arguments or {}).values() if isinstance(value, str))
    about = " ".join(next(texts, "")[:300].split())
    return words[0].upper() + words[1:] + (f": {about}" if about else "")


def tool_call(call: ToolCall, shown: Update) -> Update:
    """The first report of a call, `pending`."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": call.id,
        "status": "pending",
        "rawInput": raw(call.arguments if call.arguments is not None else {"raw": call.raw}),
        **shown,
    }


def permission_call(update: Update) -> Update:
    """The `toolCall` of a permission request: the first report again, without its tag."""
    return {key: value for key, value in update.items() if key != "sessionUpdate"}


def tool_started(call: ToolCall) -> Update:
    """The call was allowed and runs."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": "in_progress"}


def tool_progress(call: ToolCall, content: list[Content]) -> Update:
    """What there is to see while the call runs."""
    return {**tool_started(call), "content": content}


def result_shown(outcome: ToolOutcome, before: list[Content]) -> Update:
    """What is shown of a result beyond its text; `before` is the content that the call already shows."""
    shown: Update = {}
    if outcome.raw_output:
        shown["rawOutput"] = raw(outcome.raw_output)
    if outcome.content is not None and not outcome.is_error:
        shown["content"] = [] if outcome.content == before else outcome.content
    return shown


def tool_ended(answer: ToolResult, shown: Update) -> Update:
    """The last report of a call, `completed` or `failed`. Content that is said to be empty is what the
    call shows already."""
    update: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": answer.call_id,
        "status": "failed" if answer.is_error else "completed",
        "rawOutput": raw({"error" if answer.is_error else "output": answer.text}),
        "content": [text_content(answer.text)],
        **shown,
    }
    if not update["content"]:
        del update["content"]
    return update


def text_chunk(kind: str, message_id: str, text: str) -> Update:
    """A piece of a message; `kind` is the tag, such as "agent_message_chunk"."""
    return content_chunk(kind, message_id, {"type": "text", "text": text})


def content_chunk(kind: str, message_id: str, content: Update) -> Update:
    """One content block of a message."""
    return {"sessionUpdate": kind, "content": content, "messageId": message_id}


def current_mode(mode: str) -> Update:
    """The mode has changed."""
    return {"sessionUpdate": "current_mode_update", "currentModeId": mode}


def config_options(options: list[dict[str, object]]) -> Update:
    """The full list of options, after a change."""
    return {"sessionUpdate": "config_option_update", "configOptions": options}


def session_info(title: str, updated: float) -> Update:
    """The session's title; `updated` is in seconds since 1970."""
    return {"sessionUpdate": "session_info_update", "title": title, "updatedAt": iso_time(updated)}


def iso_time(seconds: float) -> str:
    """A time since 1970 in UTC (RFC 3339)."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def plan(entries: list[dict[str, object]]) -> Update:
    """The whole plan (rule P8)."""
    return {"sessionUpdate": "plan", "entries": entries}


def usage_update(usage: Usage, window: int, cost: float | None = None) -> Update:
    """Tokens in the context, the size of the window, and what the session has cost in USD, if known."""
    update: Update = {"sessionUpdate": "usage_update", "used": usage.total_tokens, "size": window}
    if cost is not None:
        update["cost"] = {"amount": round(cost, 6), "currency": "USD"}
    return update


def prompt_usage(usage: Usage) -> dict[str, object]:
    """The experimental `usage` member of a prompt answer: the sum of the turn's model calls."""
    result: dict[str, object] = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
    }
    if usage.cached_tokens:
        result["cachedReadTokens"] = usage.cached_tokens
    if usage.written_tokens:
        result["cachedWriteTokens"] = usage.written_tokens
    if usage.thought_tokens:
        result["thoughtTokens"] = usage.thought_tokens
    return result


def raw(values: dict[str, object]) -> dict[str, object]:
    """A copy as rawInput and rawOutput show it: long strings are shortened, and what is too deep or more
    than `SHOWN_RAW` is left out."""
    return _Copy().members(values, SHOWN_DEPTH)


class _Copy:
    """One bounded copy of a JSON value; `room` is how many bytes of JSON it may still take."""

    def __init__(self) -> None:
        self.room = SHOWN_RAW

    def members(self, values: dict[str, object], depth: int) -> dict[str, object]:
        """An object; `depth` counts the levels that are left."""
        shown: dict[str, object] = {}
        for key, value in values.items():
            if self.room <= 0:
                shown[LEFT_OUT] = f"{len(values) - len(shown)} more"
                break
            name = str(self._value(str(key), 0))
            shown[name] = self._value(value, depth - 1)
        return shown

    def _items(self, values: list[object], depth: int) -> list[object]:
        shown: list[object] = []
        for value in values:
            if self.room <= 0:
                shown.append(f"{LEFT_OUT} {len(values) - len(shown)} more")
                break
            shown.append(self._value(value, depth - 1))
        return shown

    def _value(self, value: object, depth: int) -> object:
        self.room -= 4  # for what stands around it
        if isinstance(value, (dict, list)):
            if depth <= 0:
                return LEFT_OUT
            return self.members(value, depth) if isinstance(value, dict) else self._items(value, depth)
        if isinstance(value, str):
            value = shorten(value, max(0, min(SHOWN_VALUE, self.room)))
            self.room -= encoded_size(value)
        else:
            self.room -= len(str(value))
        return value

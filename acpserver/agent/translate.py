"""All translation between ACP and the model. Pure functions.

What the loop does becomes session updates (what a prompt becomes is in `prompts`). Texts on the wire are shortened here so that a line stays under 64 KiB, the limit of some clients' readers.
"""

from __future__ import annotations

from acpserver import jsontext
from acpserver.llm.types import ToolCall, Usage
from acpserver.tools.base import Action, Content, Tool, ToolOutcome

Update = dict[str, object]

SHOWN = 40_000  # bytes of JSON that one text of an update may take
SHOWN_VALUE = 8_000  # the same for one string inside rawInput or rawOutput


def tool_call(call: ToolCall, tool: Tool | None, action: Action | None) -> Update:
    """The first report of a call, `pending`. Without an action the call cannot run."""
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": call.id,
        "title": shorten(action.title if action else call.name or "unknown tool", 300),
        "kind": tool.kind if tool else "other",
        "status": "pending",
        "rawInput": raw(call.arguments if call.arguments is not None else {"raw": call.raw}),
    }
    if action and action.content:
        update["content"] = action.content
    if action and action.locations:
        update["locations"] = action.locations
    return update


def permission_call(update: Update) -> Update:
    """The `toolCall` of a permission request: the first report again, without its tag."""
    return {key: value for key, value in update.items() if key != "sessionUpdate"}


def tool_started(call: ToolCall) -> Update:
    """The call was allowed and runs."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": "in_progress"}


def tool_progress(call: ToolCall, content: list[Content]) -> Update:
    """What there is to see while the call runs."""
    return {**tool_started(call), "content": content}


def tool_ended(call: ToolCall, outcome: ToolOutcome) -> Update:
    """The last report of a call, `completed` or `failed`."""
    update: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call.id,
        "status": "failed" if outcome.is_error else "completed",
        "rawOutput": raw(outcome.raw_output or {"error" if outcome.is_error else "output": outcome.text}),
    }
    content = outcome.content
    if content is None or outcome.is_error:
        content = [text_content(outcome.text)]
    if content:
        update["content"] = content
    return update


def text_content(text: str) -> Content:
    """Text as tool call content."""
    return {"type": "content", "content": {"type": "text", "text": shorten(text, SHOWN)}}


def plan(entries: list[dict[str, object]]) -> Update:
    """The whole plan (rule P8)."""
    return {"sessionUpdate": "plan", "entries": entries}


def notice(title: str, severity: str = "info") -> Update:
    """A remark about the turn, for clients that announced `session.notices`."""
    return {"sessionUpdate": "notice", "severity": severity, "title": title}


def usage_update(usage: Usage, window: int) -> Update:
    """Tokens in the context and the size of the window."""
    return {"sessionUpdate": "usage_update", "used": usage.total_tokens, "size": window}


def prompt_usage(usage: Usage) -> dict[str, object]:
    """The experimental `usage` member of a prompt answer: the sum of the turn's model calls."""
    result: dict[str, object] = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
    }
    if usage.cached_tokens:
        result["cachedReadTokens"] = usage.cached_tokens
    if usage.thought_tokens:
        result["thoughtTokens"] = usage.thought_tokens
    return result


def raw(values: dict[str, object]) -> dict[str, object]:
    """A copy with long strings shortened, as rawInput and rawOutput show it."""
    return {str(key): _shortened(value) for key, value in values.items()}


def _shortened(value: object) -> object:
    if isinstance(value, str):
        return shorten(value, SHOWN_VALUE)
    if isinstance(value, dict):
        return raw(value)
    if isinstance(value, list):
        return [_shortened(item) for item in value[:200]]
    return value


def shorten(text: str, limit: int) -> str:
    """`text` if its JSON takes at most `limit` bytes, else its head and tail with the cut said."""
    if len(text) * 6 <= limit or jsontext.encoded_size(text) <= limit:
        return text
    share = limit * len(text) // jsontext.encoded_size(text)  # characters that would fit, evenly spread
    while True:
        head, tail = text[: share * 2 // 3], text[len(text) - share // 3 :]
        short = f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"
        if jsontext.encoded_size(short) <= limit or share < 64:
            return short
        share = share * 3 // 4

"""The OpenAI-compatible dialect, the way back: chunks of `/chat/completions` become events.

Pure; one parser belongs to one answer and one thread. It believes nothing: every field may be missing,
null or of another type, and then counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from acpserver import jsontext
from acpserver.llm import fields
from acpserver.llm.answer import AnswerParser
from acpserver.llm.assembly import new_call_id
from acpserver.llm.faults import Faults
from acpserver.llm.sse import Item
from acpserver.llm.types import Event, Opaque, TextDelta, ToolCall, Usage

_REASONS = {
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
_NOTHING: dict[str, object] = {}
_DETAILS = "reasoning_details"  # OpenRouter's list of signed or encrypted pieces


class OpenAiParser(AnswerParser):
    """Reads one answer. `own_reasoning`: the member that the server wants back (`openai_servers`)."""

    def __init__(
        self,
        faults: Faults,
        used_ids: Iterable[str] = (),
        make_id: Callable[[], str] = new_call_id,
        origin: str = "",
        own_reasoning: str = "",
    ):
        super().__init__(faults, used_ids, make_id, origin)
        self._keeps_details = own_reasoning == _DETAILS
        self._own_reasoning = "" if self._keeps_details else own_reasoning
        self._details: list[dict[str, object]] = []
        self._streamed = False
        """A delta has come; a whole message beside it would repeat it."""

    def _item(self, item: Item) -> None:
        if item.data == b"[DONE]":
            self.done = True
        else:
            super()._item(item)

    def _whole(self, value: object) -> bool:
        if not isinstance(value, dict) or "choices" not in value:
            return False
        self._value(value)
        return True

    def _is_complete(self) -> bool:
        return bool(self._reason) or (self.done and (self._streamed or bool(self._calls)))

    def _with_calls(self, calls: list[ToolCall]) -> list[Event]:
        kept = [Opaque(self._origin, {_DETAILS: self._details})] if self._details else []
        return [*kept, *calls]

    def _value(self, value: dict[str, object]) -> None:
        if value.get("usage"):
            self._usage = _usage(value["usage"]) or self._usage
        for choice in fields.records(value, "choices"):
            if not choice.get("index"):
                self._choice(choice)

    def _choice(self, choice: dict[str, object]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if delta:
                self._message(delta)
        elif not self._streamed and isinstance(message := choice.get("message"), dict):
            self._message(message, whole=True)
        if choice.get("usage"):  # Kimi tells it here
            self._usage = _usage(choice["usage"]) or self._usage
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            self._reason = _REASONS.get(reason, "stop")

    def _message(self, message: dict[str, object], whole: bool = False) -> None:
        """One delta, or the whole message: they have the same members, but in a whole one each entry of
        the list is a call of its own."""
        thought = message.get("reasoning_content") or message.get("reasoning")
        if thought and isinstance(thought, str):
            self._streamed = True
            self._think(thought)
        if self._keeps_details:
            for piece in fields.records(message, _DETAILS):
                _join(self._details, piece)
        content = message.get("content")
        if content:
            self._streamed = True
            self._content(content)
        if message.get("refusal"):
            self._streamed = self._has_refused = True
            self._deltas.add(TextDelta, fields.text(message, "refusal"))
        if message.get("tool_calls"):
            for position, fragment in enumerate(fields.records(message, "tool_calls")):
                index = position if whole else fragment.get("index")
                self._fragment(index, fragment, fragment.get("function"))
        if isinstance(call := message.get("function_call"), dict):  # the form before parallel calls
            self._fragment(0, _NOTHING, call)

    def _content(self, content: object) -> None:
        """Content is a text, or a list of parts; a thinking part holds parts itself."""
        if isinstance(content, str):
            self._deltas.add(TextDelta, content)
            return
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "thinking":
                self._think(_part_text(part.get("thinking")))
            else:
                self._deltas.add(TextDelta, _part_text(part))

    def _fragment(self, index: object, fragment: dict[str, object], function: object) -> None:
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, (dict, list)):
            arguments = jsontext.dumps(arguments)
        call_id = fragment.get("id")
        self._calls.add(
            index,
            str(call_id) if isinstance(call_id, (str, int)) else "",
            fields.text(function, "name"),
            arguments if isinstance(arguments, str) else "",
        )


def _join(details: list[dict[str, object]], piece: dict[str, object]) -> None:
    """Append a streamed piece of reasoning: text that goes on is one text, as it was when it was signed."""
    last = details[-1] if details else _NOTHING
    if not last or (last.get("index"), last.get("type")) != (piece.get("index"), piece.get("type")):
        details.append(dict(piece))
        return
    for key, value in piece.items():
        if key in ("text", "summary", "data") and isinstance(value, str):
            last[key] = fields.text(last, key) + value
        elif value is not None:
            last[key] = value


def _part_text(part: object) -> str:
    if isinstance(part, list):
        return "".join(fields.text(item, "text") for item in part)
    return part if isinstance(part, str) else fields.text(part, "text")


def _usage(value: object) -> Usage | None:
    """Token counts; a chunk that gives none (zeros before the end, an odd shape) counts as silent."""
    asked = fields.record(value, "prompt_tokens_details")
    usage = Usage(
        input_tokens=fields.count(value, "prompt_tokens"),
        output_tokens=fields.count(value, "completion_tokens"),
        cached_tokens=fields.count(asked, "cached_tokens")
        or fields.count(value, "prompt_cache_hit_tokens")  # DeepSeek
        or fields.count(value, "cached_tokens"),  # Kimi
        thought_tokens=fields.count(fields.record(value, "completion_tokens_details"), "reasoning_tokens"),
        written_tokens=fields.count(asked, "cache_write_tokens"),
    )
    return usage if usage.total_tokens else None

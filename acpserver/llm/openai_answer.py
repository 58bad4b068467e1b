"""The OpenAI-compatible dialect, the way back: chunks of `/chat/completions` become events.

Pure; one parser belongs to one answer and one thread. It believes nothing: every field may be missing,
null or of another type, and then counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from acpserver import jsontext
from acpserver.llm.assembly import Deltas, ToolCalls, new_call_id
from acpserver.llm.faults import Faults
from acpserver.llm.sse import Item
from acpserver.llm.types import Event, Finish, TextDelta, ThoughtDelta, Usage

_REASONS = {
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
_NOTHING: dict[str, object] = {}


class OpenAiParser:
    """Reads one answer, streamed or whole."""

    def __init__(
        self, faults: Faults, used_ids: Iterable[str] = (), make_id: Callable[[], str] = new_call_id
    ):
        self.done = False
        self._faults = faults
        self._deltas = Deltas()
        self._calls = ToolCalls(used_ids, make_id)
        self._usage: Usage | None = None
        self._reason = ""
        self._streamed = False
        """A delta has come; a whole message beside it would repeat it."""

    @property
    def finished(self) -> bool:
        """Whether the finish reason has come; usage and the end mark may follow."""
        return bool(self._reason)

    def feed(self, items: Sequence[Item]) -> list[Event]:
        """The events of chunks that arrived together; the tool calls wait for `end`."""
        for item in items:
            if self.done:
                break
            if item.data == b"[DONE]":
                self.done = True
            elif item.data.strip():
                self._chunk(item)
        return self._deltas.take()

    def whole(self, value: object) -> list[Event]:
        """The text of an answer that came as one JSON object; the rest waits for `end`."""
        if not isinstance(value, dict) or not ("choices" in value or "error" in value):
            raise self._faults.stream("is JSON, but no chat completion", retryable=False)
        self._value(value)
        self._reason = self._reason or "stop"  # the body is complete, whatever it says
        return self._deltas.take()

    def end(self) -> list[Event]:
        """What is left: text, tool calls, usage, finish."""
        events = self._deltas.take(last=True)
        if not self._reason and not (self.done and (self._streamed or self._calls)):
            raise self._faults.stream("is empty" if self.done else "broke off before its end")
        calls = self._calls.finish(cut=self._reason == "length")
        reason = _REASONS.get(self._reason, "stop")
        if reason == "stop" and calls:
            reason = "tool_calls"
        usage = [self._usage] if self._usage else []
        return [*events, *calls, *usage, Finish(reason)]

    def _chunk(self, item: Item) -> None:
        try:
            value = jsontext.loads(item.data.decode("utf-8", "replace"))
        except ValueError:
            if item.event == "error":
                raise self._faults.in_answer(item.data.decode("utf-8", "replace")) from None
            raise self._faults.stream("holds a chunk that is not JSON") from None
        if item.event == "error":
            raise self._faults.in_answer(value)
        if isinstance(value, dict):
            self._value(value)

    def _value(self, value: dict[str, object]) -> None:
        if value.get("error"):
            raise self._faults.in_answer(value)
        if value.get("usage"):
            self._usage = _usage(value["usage"]) or self._usage
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._choice(choice)

    def _choice(self, choice: dict[str, object]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if delta:
                self._message(delta)
        elif not self._streamed and isinstance(message := choice.get("message"), dict):
            self._message(message, whole=True)
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            self._reason = reason

    def _message(self, message: dict[str, object], whole: bool = False) -> None:
        """One delta, or the whole message: they have the same members, but in a whole one each entry of
        the list is a call of its own."""
        thought = message.get("reasoning_content") or message.get("reasoning")
        if thought and isinstance(thought, str):
            self._streamed = True
            self._deltas.add(ThoughtDelta, thought)
        content = message.get("content")
        if content:
            self._streamed = True
            self._content(content)
        refusal = message.get("refusal")
        if refusal and isinstance(refusal, str):
            self._streamed = True
            self._deltas.add(TextDelta, refusal)
        calls = message.get("tool_calls")
        for position, fragment in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(fragment, dict):
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
                self._deltas.add(ThoughtDelta, _part_text(part.get("thinking")))
            else:
                self._deltas.add(TextDelta, _part_text(part))

    def _fragment(self, index: object, fragment: dict[str, object], function: object) -> None:
        if not isinstance(function, dict):
            function = _NOTHING
        arguments = function.get("arguments")
        if isinstance(arguments, (dict, list)):
            arguments = jsontext.dumps(arguments)
        call_id = fragment.get("id")
        self._calls.add(
            index,
            str(call_id) if isinstance(call_id, (str, int)) else "",
            _text(function.get("name")),
            _text(arguments),
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _part_text(part: object) -> str:
    if isinstance(part, list):
        return "".join(_text(item.get("text")) for item in part if isinstance(item, dict))
    return _text(part.get("text")) if isinstance(part, dict) else _text(part)


def _usage(value: object) -> Usage | None:
    """Token counts; a chunk that gives none (zeros before the end, an odd shape) counts as silent."""
    if not isinstance(value, dict):
        return None
    usage = Usage(
        input_tokens=_count(value, "prompt_tokens"),
        output_tokens=_count(value, "completion_tokens"),
        cached_tokens=_count(value.get("prompt_tokens_details"), "cached_tokens"),
        thought_tokens=_count(value.get("completion_tokens_details"), "reasoning_tokens"),
    )
    return usage if usage.total_tokens else None


def _count(value: object, key: str) -> int:
    number = value.get(key) if isinstance(value, dict) else None
    if isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0:
        return int(number)
    return 0

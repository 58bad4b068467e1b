"""What the parsers of all dialects have in common: items become JSON values, then events, to the end.

Pure; one parser belongs to one answer and one thread. A dialect says in `_value` what one value of its
stream means, and in `_whole` how to read an answer that did not come as a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from acpserver import jsontext
from acpserver.llm.assembly import Deltas, ToolCalls, new_call_id
from acpserver.llm.faults import Faults
from acpserver.llm.sse import Item
from acpserver.llm.types import Event, Finish, Opaque, ThoughtDelta, ToolCall, Usage


class AnswerParser:
    """Reads one answer, streamed or whole."""

    def __init__(
        self,
        faults: Faults,
        used_ids: Iterable[str] = (),
        make_id: Callable[[], str] = new_call_id,
        origin: str = "",
    ):
        self.done = False
        self._faults = faults
        self._origin = origin
        self._deltas = Deltas()
        self._calls = ToolCalls(used_ids, make_id)
        self._usage: Usage | None = None
        self._reason = ""
        """The reason of `Finish`, once the server has said why it ends."""
        self._has_refused = False
        """The model has said, in the form that the API has for it, that it will not answer."""
        self._has_called = False
        """Tool calls have been given out before the end."""
        self._own_reasoning = ""
        """The member in which this server wants its open reasoning back; "" when it does not."""
        self._thoughts: list[str] = []

    @property
    def finished(self) -> bool:
        """Whether the finish reason has come; usage and the end mark may follow."""
        return bool(self._reason)

    def feed(self, items: Sequence[Item]) -> list[Event]:
        """The events of items that arrived together."""
        for item in items:
            if self.done:
                break
            if item.data.strip():
                self._item(item)
        return self._deltas.take()

    def whole(self, value: object) -> list[Event]:
        """The text of an answer that came as one JSON value; the rest waits for `end`."""
        if isinstance(value, dict) and value.get("error"):
            raise self._faults.in_answer(value)
        if not self._whole(value):
            raise self._faults.stream("is JSON, but no answer of a model", retryable=False)
        self._reason = self._reason or "stop"  # the body is complete, whatever it says
        return self._deltas.take()

    def end(self) -> list[Event]:
        """What is left: text, reasoning, tool calls, usage, finish."""
        events = self._deltas.take(last=True)
        if not self._is_complete():
            raise self._faults.stream("is empty" if self.done else "broke off before its end")
        if self._own_reasoning and self._thoughts:
            events.append(Opaque(self._origin, {self._own_reasoning: "".join(self._thoughts)}))
        calls = self._calls.finish(cut=self._reason == "length")
        reason = "refusal" if self._has_refused else self._reason or "stop"
        if reason == "stop" and (calls or self._has_called):
            reason = "tool_calls"
        usage = [self._usage] if self._usage else []
        return [*events, *self._with_calls(calls), *usage, Finish(reason)]

    def _item(self, item: Item) -> None:
        try:
            value = jsontext.loads(item.data.decode("utf-8", "replace"))
        except ValueError:
            if item.event == "error":
                raise self._faults.in_answer(item.data.decode("utf-8", "replace")) from None
            raise self._faults.stream("holds a chunk that is not JSON") from None
        if item.event == "error" or (isinstance(value, dict) and value.get("error")):
            raise self._faults.in_answer(value)
        if isinstance(value, dict):
            self._value(value)

    def _value(self, value: dict[str, object]) -> None:
        """One value of a stream."""
        raise NotImplementedError

    def _whole(self, value: object) -> bool:
        """The value of a whole answer; False when it is none."""
        raise NotImplementedError

    def _is_complete(self) -> bool:
        return bool(self._reason)

    def _with_calls(self, calls: list[ToolCall]) -> Sequence[Event]:
        """The calls that end the answer, with what the dialect keeps beside them."""
        return calls

    def _think(self, text: str) -> None:
        self._deltas.add(ThoughtDelta, text)
        if text and self._own_reasoning:
            self._thoughts.append(jsontext.mend_text(text))

    def _keep(self, data: dict[str, object]) -> None:
        """Give out something opaque at its place: behind the calls that came before it."""
        calls = self._calls.finish()
        self._has_called = self._has_called or bool(calls)
        for call in calls:
            self._deltas.put(call)
        self._deltas.put(Opaque(self._origin, data))

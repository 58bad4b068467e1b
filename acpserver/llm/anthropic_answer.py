"""The Anthropic dialect, the way back: the events of a message stream become ours.

Pure; one parser belongs to one answer and one thread. Written after Anthropic's public documentation and for
what other servers of this form send: blocks that end late or never, no `input`, usage only at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from acpserver import jsontext
from acpserver.llm import fields
from acpserver.llm.answer import AnswerParser
from acpserver.llm.faults import Faults
from acpserver.llm.types import TextDelta, Usage

_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "content_filter": "refusal",
    "pause_turn": "pause",
}
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_THINKING = ("thinking", "redacted_thinking")


class AnthropicParser(AnswerParser):
    """Reads one answer. Thinking is kept, block by block, as it came: signed, redacted or plain."""

    def __init__(self, faults: Faults, used_ids: Iterable[str] = (), origin: str = ""):
        super().__init__(faults, used_ids, origin=origin)
        self._counts: dict[str, int] = {}
        self._blocks: dict[object, dict[str, object]] = {}
        """The blocks of reasoning that have not ended, by index, as they will be sent back."""
        self._inputs: dict[object, dict[str, object]] = {}
        """Arguments that came with the beginning of a call, and count unless they come in pieces too."""

    def _value(self, value: dict[str, object]) -> None:
        kind, index = value.get("type"), value.get("index")
        if kind == "content_block_delta":
            self._delta(index, fields.record(value, "delta"))
        elif kind == "content_block_start":
            self._start(index, fields.record(value, "content_block"))
        elif kind == "content_block_stop":
            self._stop(index)
        elif kind == "message_start":
            self._count(fields.record(value, "message").get("usage"))
        elif kind == "message_delta":
            self._count(value.get("usage"))
            self._end(fields.record(value, "delta"))
        elif kind == "message_stop":
            self.done = True

    def _whole(self, value: object) -> bool:
        if not isinstance(value, dict) or "content" not in value:
            return False
        for index, block in enumerate(fields.records(value, "content")):
            self._start(index, block)
            self._stop(index)
        self._count(value.get("usage"))
        self._end(value)
        return True

    def _start(self, index: object, block: dict[str, object]) -> None:
        kind = block.get("type")
        if kind == "tool_use":
            self._calls.add(index, fields.text(block, "id"), fields.text(block, "name"), "")
            self._inputs[index] = fields.record(block, "input")
        elif kind == "text":
            self._deltas.add(TextDelta, fields.text(block, "text"))
        elif kind in _THINKING:
            self._blocks[index] = dict(block)
            self._think(fields.text(block, "thinking"))

    def _delta(self, index: object, delta: dict[str, object]) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            self._deltas.add(TextDelta, fields.text(delta, "text"))
        elif kind == "input_json_delta":
            written = fields.text(delta, "partial_json")
            self._calls.add(index, "", "", written)
            if written:
                self._inputs.pop(index, None)
        elif kind == "thinking_delta":
            thought = fields.text(delta, "thinking")
            self._append(index, "thinking", thought)
            self._think(thought)
        elif kind == "signature_delta":
            self._append(index, "signature", fields.text(delta, "signature"))

    def _append(self, index: object, member: str, text: str) -> None:
        block = self._blocks.setdefault(index, {"type": "thinking"})
        block[member] = fields.text(block, member) + text

    def _stop(self, index: object) -> None:
        """The end of a block. Servers that sign no thinking (DeepSeek, Kimi) want it back all the same."""
        if arguments := self._inputs.pop(index, None):
            self._calls.add(index, "", "", jsontext.dumps(arguments))
        block = self._blocks.pop(index, None)
        if block and any(block.get(member) for member in ("thinking", "signature", "data")):
            self._keep(block)

    def _end(self, message: dict[str, object]) -> None:
        reason = fields.text(message, "stop_reason")
        if reason:
            self._reason = _REASONS.get(reason, "stop")

    def _count(self, usage: object) -> None:
        """Counts come at the start and at the end, where they hold for the whole answer."""
        for name in _COUNTS:
            self._counts[name] = fields.count(usage, name) or self._counts.get(name, 0)
        cached = self._counts["cache_read_input_tokens"]
        written = self._counts["cache_creation_input_tokens"]
        asked = self._counts["input_tokens"] + cached + written
        found = Usage(asked, self._counts["output_tokens"], cached, written_tokens=written)
        self._usage = found if found.total_tokens else None

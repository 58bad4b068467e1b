"""The OpenAI Responses dialect, the way back: the events of `/responses` become ours.

Pure; one parser belongs to one answer and one thread. Written after OpenAI's public documentation and for
what other servers of this form send: no numbers, items that end all together, no deltas at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from acpserver import jsontext
from acpserver.llm import fields
from acpserver.llm.answer import AnswerParser
from acpserver.llm.faults import Faults
from acpserver.llm.types import TextDelta, Usage

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.done")


class ResponsesParser(AnswerParser):
    """Reads one answer. Reasoning items that are encrypted are kept as they came."""

    def __init__(self, faults: Faults, used_ids: Iterable[str] = (), origin: str = ""):
        super().__init__(faults, used_ids, origin=origin)
        self._told: set[str] = set()
        """The ids of the items whose text has come in deltas."""
        self._ended: set[str] = set()
        """The ids of the items that have ended."""
        self._called = 0

    def _value(self, value: dict[str, object]) -> None:
        kind = fields.text(value, "type")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._told.add(fields.text(value, "item_id"))
            self._has_refused = self._has_refused or kind == "response.refusal.delta"
            self._deltas.add(TextDelta, fields.text(value, "delta"))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._told.add(fields.text(value, "item_id"))
            self._think(fields.text(value, "delta"))
        elif kind == "response.reasoning_summary_part.added" and fields.count(value, "summary_index"):
            self._think("\n\n")
        elif kind == "response.output_item.done":
            self._item_done(fields.record(value, "item"))
        elif kind in _ENDS:
            self._response(fields.record(value, "response"))
            self.done = True
        elif kind == "error":  # its words stand beside the type
            raise self._faults.in_answer(value)

    def _whole(self, value: object) -> bool:
        if not isinstance(value, dict) or "output" not in value:
            return False
        self._response(value)
        return True

    def _response(self, response: dict[str, object]) -> None:
        """The whole response: its end, and the items that had no event of their own."""
        if response.get("error") or response.get("status") == "failed":
            raise self._faults.in_answer({"error": response.get("error") or "no reason given"})
        for item in fields.records(response, "output"):
            if fields.text(item, "id") not in self._ended:
                self._item_done(item)
        why = fields.text(fields.record(response, "incomplete_details"), "reason")
        if why == "content_filter":
            self._reason = "refusal"
        elif why or response.get("status") == "incomplete":
            self._reason = "length"
        else:
            self._reason = "stop"
        usage = fields.record(response, "usage")
        asked = fields.record(usage, "input_tokens_details")
        found = Usage(
            fields.count(usage, "input_tokens"),
            fields.count(usage, "output_tokens"),
            fields.count(asked, "cached_tokens"),
            fields.count(fields.record(usage, "output_tokens_details"), "reasoning_tokens"),
            fields.count(asked, "cache_write_tokens"),
        )
        self._usage = found if found.total_tokens else None

    def _item_done(self, item: dict[str, object]) -> None:
        kind, item_id = item.get("type"), fields.text(item, "id")
        self._ended.add(item_id)
        if kind == "function_call":
            self._call(item)
        elif kind == "message":
            for part in fields.records(item, "content"):
                refusal = fields.text(part, "refusal")
                self._has_refused = self._has_refused or bool(refusal)
                if item_id not in self._told:
                    self._deltas.add(TextDelta, fields.text(part, "text") or refusal)
        elif kind == "reasoning":
            if item_id not in self._told:
                for part in fields.records(item, "summary") or fields.records(item, "content"):
                    self._think(fields.text(part, "text"))
            if item.get("encrypted_content"):
                self._keep({name: value for name, value in item.items() if name != "status"})

    def _call(self, item: dict[str, object]) -> None:
        arguments = item.get("arguments")
        written = arguments if isinstance(arguments, str) else jsontext.dumps(arguments or {})
        self._calls.add(self._called, fields.text(item, "call_id"), fields.text(item, "name"), written)
        self._called += 1

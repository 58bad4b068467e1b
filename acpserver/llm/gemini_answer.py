"""The Gemini dialect, the way back: the chunks of `streamGenerateContent` become events.

Pure; one parser belongs to one answer and one thread. Written after Google's public documentation. There is
no end mark: the finish reason ends an answer.
"""

from __future__ import annotations

from acpserver import jsontext
from acpserver.llm import fields
from acpserver.llm.answer import AnswerParser
from acpserver.llm.types import TextDelta, Usage

_REFUSALS = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"}
)
_FAILURES = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
_SIGNATURE = "thoughtSignature"


class GeminiParser(AnswerParser):
    """Reads one answer. What is signed is kept: a call's signature (and id) stands before the call."""

    _called = 0

    def _value(self, value: dict[str, object]) -> None:
        self._count(fields.record(value, "usageMetadata"))
        for candidate in fields.records(value, "candidates"):
            if not candidate.get("index"):
                self._candidate(candidate)
        if fields.text(fields.record(value, "promptFeedback"), "blockReason"):
            self._reason = self._reason or "refusal"

    def _whole(self, value: object) -> bool:
        """One response, or the list of them that a stream without `alt=sse` is."""
        found = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        for item in found:
            if item.get("error"):
                raise self._faults.in_answer(item)
            self._value(item)
        return any("candidates" in item or "promptFeedback" in item for item in found)

    def _candidate(self, candidate: dict[str, object]) -> None:
        for part in fields.records(fields.record(candidate, "content"), "parts"):
            self._part(part)
        reason = fields.text(candidate, "finishReason")
        if reason in _FAILURES:
            raise self._faults.stream(f"is no answer ({reason})")
        if reason in _REFUSALS:
            self._reason = "refusal"
        elif reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = "length" if reason == "MAX_TOKENS" else "stop"

    def _part(self, part: dict[str, object]) -> None:
        signature = fields.text(part, _SIGNATURE)
        if isinstance(part.get("functionCall"), dict):
            self._call(fields.record(part, "functionCall"), signature)
            return
        text = fields.text(part, "text")
        if part.get("thought"):
            self._think(text)
            if signature:
                self._keep(part)
            return
        self._deltas.add(TextDelta, text)
        if signature:
            self._keep({"text": "", _SIGNATURE: signature})

    def _call(self, call: dict[str, object], signature: str) -> None:
        call_id = fields.text(call, "id")
        kept = {"id": call_id, _SIGNATURE: signature}
        kept = {member: text for member, text in kept.items() if text}
        if kept:
            self._keep({"functionCall": kept})
        arguments = jsontext.dumps(fields.record(call, "args"))
        self._calls.add(self._called, call_id, fields.text(call, "name"), arguments)
        self._called += 1

    def _count(self, usage: dict[str, object]) -> None:
        """The counts so far; the last chunk's hold."""
        thought = fields.count(usage, "thoughtsTokenCount")
        found = Usage(
            fields.count(usage, "promptTokenCount") + fields.count(usage, "toolUsePromptTokenCount"),
            fields.count(usage, "candidatesTokenCount") + thought,
            fields.count(usage, "cachedContentTokenCount"),
            thought,
        )
        if found.total_tokens:
            self._usage = found

"""Whatever a history holds, every dialect makes a request of it that its server takes.

Histories as crashes, other models and old session files leave them: calls without results, results without
calls, blank texts, ids and names in any form, reasoning of five models, images and recordings for
models that take none.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpserver.llm.dialects import DIALECTS
from acpserver.llm.types import (
    Audio,
    Endpoint,
    Image,
    Message,
    ModelRequest,
    Opaque,
    Part,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from acpserver.llm.wire import origin
from tests.fakes.signing import sign
from tests.fakes.wires import WIRES

MODELS = {
    "openai": "m",
    "openai-responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "ollama": "m",
}
ENDPOINTS = {dialect: Endpoint(f"http://{dialect}.example/v1", dialect) for dialect in DIALECTS}
KEPT: dict[str, dict[str, object]] = {
    "anthropic": {"type": "thinking", "thinking": "hm", "signature": sign("thinking", "hm")},
    "gemini": {"text": "", "thoughtSignature": sign("text")},
    "ollama": {"thinking": "hm"},
    "openai": {},
    "openai-responses": {},  # its items must stand before what they led to: `answer_of` sees to it
}
REASONING: dict[str, object] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": sign("reasoning", "hm"),
}
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})

words = st.sampled_from(["", " ", "\n\t", "hi", "ein Wort 😀", "\ud800", "\0", " trailing "])
names = st.sampled_from(["look", "a.b", "", "ÄÖ", "x" * 100, "9lives"])
arguments = st.sampled_from([None, {}, {"n": 1}, {"": None}])
kept = st.sampled_from([Opaque(origin(ENDPOINTS[name], MODELS[name]), KEPT[name]) for name in KEPT])
attachments = st.sampled_from(
    [Image("image/png", "iVBORw=="), Audio("audio/x-wav", "UklGRg=="), Audio("audio/ogg", "T2dnUw==")]
)


def answer_of(texts: list[Part], calls: list[ToolCall], is_reasoned: bool) -> Message:
    """An answer in the order in which models give one."""
    begin: list[Part] = []
    if is_reasoned and calls:
        begin = [Opaque(origin(ENDPOINTS["openai-responses"], "gpt-5"), REASONING)]
    return Message("assistant", (*texts, *begin, *calls))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Up to six prompts with what came of them. Ids are unique, as the parsers make them."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(0, 5))):
        messages.append(
            Message("user", tuple(draw(st.lists(st.builds(Text, words) | attachments, max_size=3))))
        )
        for _ in range(draw(st.integers(0, 3))):
            texts = draw(st.lists(st.builds(Text, words) | st.builds(Thought, words) | kept, max_size=3))
            calls = []
            for form in draw(
                st.lists(st.sampled_from(["c{}", "f.g:{}", "Ä{}", "x" * 70 + "{}"]), max_size=3)
            ):
                number += 1
                calls.append(ToolCall(form.format(number), draw(names), draw(arguments)))
            messages.append(answer_of(texts, calls, draw(st.booleans())))
            answered = [call for call in calls if draw(st.booleans())]
            results = [ToolResult(call.id, call.name, draw(words), draw(st.booleans())) for call in answered]
            if draw(st.booleans()):
                results.append(ToolResult("nobody's", "look", "r"))
            messages.append(Message("tool", tuple(draw(st.permutations(results)))))
    return (*messages, Message("user", (Text("and now?"),)))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(
    history=histories(),
    effort=st.sampled_from(["", "low", "high"]),
    has_eyes=st.booleans(),
    has_ears=st.booleans(),
)
@settings(max_examples=60)
def test_every_history_is_taken(
    dialect: str, history: tuple[Message, ...], effort: str, has_eyes: bool, has_ears: bool
) -> None:
    model = MODELS[dialect]
    asked = ModelRequest(model, "be brief", history, (TOOL,), None, effort, has_eyes, audio=has_ears)
    body = json.loads(DIALECTS[dialect].chat(ENDPOINTS[dialect], asked).body)
    assert WIRES[dialect].violations(body, model) == []

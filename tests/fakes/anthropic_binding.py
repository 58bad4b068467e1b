"""A model server that binds thinking to what stood before it, as newer Claude models do.

The signature of a block covers the system prompt, the tools and every block before it; marks for the cache do
not count. A request that sends a block back behind anything else is refused, unless it asks for the block to
be dropped. Written after Anthropic's public documentation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from tests.fakes.llm_answers import Answer, Reply, error
from tests.fakes.llm_server import Request
from tests.fakes.signing import sign
from tests.fakes.wires import WIRES

BETA = "thinking-binding-controls-2026-08-01"
ELSEWHERE = (
    "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a different "
    "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
    '"drop_block".'
)
UNKNOWN = "thinking.block_binding: Extra inputs are not permitted"


class Binding:
    """One such server. `controls` says what becomes of the request to drop blocks: it is "known", or a
    gateway in front has it "refused" or "removed"."""

    def __init__(self, controls: str = "known"):
        self.controls = controls
        self.refused: list[str] = []
        self.dropped = 0

    def __call__(self, reply: Reply) -> Callable[[Request], Answer]:
        """Answers a request with `reply`, when what it sends back still fits; else it is asked again."""

        def answer(request: Request) -> Answer:
            words = self._refusal(request)
            if words:
                self.refused.append(words)
                return error(400, WIRES["anthropic"].error(400, words))
            return _signed(WIRES["anthropic"].stream(reply), request.body)

        return answer

    def _refusal(self, request: Request) -> str:
        body = request.body
        asks = "block_binding" in body.get("thinking", {})
        if asks and self.controls == "refused":
            return UNKNOWN
        if asks and self.controls == "known" and BETA not in request.headers.get("anthropic-beta", ""):
            return f"thinking.block_binding: requires the anthropic-beta header {BETA}"
        for at, message in enumerate(body["messages"]):
            for position, block in enumerate(message["content"]):
                bound = str(block.get("signature", "")).partition(".")[2]
                if bound and bound != _prefix(body, at, position):
                    if not asks or self.controls == "removed":
                        return ELSEWHERE.format(at, position)
                    self.dropped += 1
        return ""


def _signed(answer: Answer, body: dict) -> Answer:
    """The answer with the prefix of its first block behind each signature."""
    bound = f'==.{_prefix(body, len(body["messages"]), 0)}"'.encode()
    steps = (
        step.replace(b'=="', bound) if isinstance(step, bytes) and b"signature_delta" in step else step
        for step in answer.steps
    )
    return replace(answer, steps=tuple(steps))


def _prefix(body: dict, at: int, position: int) -> str:
    before = body["messages"][:at]
    blocks = body["messages"][at]["content"][:position] if position else []
    return sign(json.dumps(_unmarked([body.get("system"), body.get("tools"), before, blocks])))


def _unmarked(value: object) -> object:
    """The value without the marks for the cache."""
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value

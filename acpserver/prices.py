"""What a model call costs. Values and pure functions; any thread."""

from __future__ import annotations

from typing import NamedTuple


class LongPrompt(NamedTuple):
    """What a whole call costs more when its input is longer than `above` tokens."""

    above: int
    input: float  # times the price of input, of all three kinds
    output: float  # times the price of output


class Price(NamedTuple):
    """USD per million tokens. `cached` is for input that the provider had in its cache, `written` for what it
    put there; None: as the rest."""

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    long: LongPrompt | None = None

    def cost(
        self, input_tokens: int, output_tokens: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> float:
        """What one call costs in USD; `cached_tokens` and `written_tokens` are part of `input_tokens`."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.written is None else self.written
        fresh = max(0, input_tokens - cached_tokens - written_tokens)
        asked = fresh * self.input + cached_tokens * cached + written_tokens * written
        answered = output_tokens * self.output
        if self.long and input_tokens > self.long.above:
            asked, answered = asked * self.long.input, answered * self.long.output
        return (asked + answered) / 1e6

"""JSON text <-> values, strict in both directions. Pure functions.

What goes out is ASCII on one line, holds no lone surrogates and no NaN or Infinity, so that every
client's parser and every line splitter accepts it. What comes in may nest badly or hold absurd numbers:
all of that is a `ValueError`.
"""

from __future__ import annotations

import json
import math

MAX_DEPTH = 128
"""Levels of nesting that are read. Whoever walks through a value by recursion, here and elsewhere, would end
with a `RecursionError` at some hundreds; real messages have about ten."""


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"number out of range: {text[:40]}")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
_encoder = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False, check_circular=False)


def loads(text: str) -> object:
    """Parse one JSON text (RFC 8259). Raises `ValueError` for anything else, also for NaN, 1e999 and
    nesting deeper than `MAX_DEPTH`."""
    try:
        value = _decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("{") + text.count("[") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _is_deeper(value: object, limit: int) -> bool:
    """Whether `value` is nested more than `limit` levels deep."""
    level = [value]
    for _ in range(limit + 1):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        if not inner:
            return False
        level = inner
    return True


def dumps(value: object) -> str:
    """One line of ASCII JSON. Raises `ValueError` for NaN, Infinity and values that are not JSON."""
    try:
        text = _encoder.encode(value)
        # A \ud escape is half of a pair or a lone surrogate; the second kind breaks strict parsers.
        return _encoder.encode(mend(value)) if "\\ud" in text else text
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def mend(value: object) -> object:
    """A copy of `value` in which split surrogate pairs are joined and lone surrogates are U+FFFD."""
    if isinstance(value, str):
        return mend_text(value)
    if isinstance(value, dict):
        return {mend_text(str(key)): mend(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mend(item) for item in value]
    return value


def mend_text(text: str) -> str:
    """`text` with split surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encoded_size(text: str) -> int:
    """How many bytes `text` takes inside a JSON string as `dumps` writes it, without the quotes."""
    return len(_encoder.encode(text)) - 2

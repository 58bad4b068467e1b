"""JSON text: strict in both directions, and mended where half a character would go out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver import jsontext

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "nul", "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "'a'", "{} {}", "[1,]"]
    + ['"\t"', "\ufeff1", "[" * 100_000, '{"a":' * 100_000, "1" * 5_000],
)
def test_what_is_not_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        jsontext.loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e5", 100_000.0),
        ("1e-999", 0.0),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\u0000"', "\0"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        (' {"a": [null, true]} ', {"a": [None, True]}),
    ],
)
def test_loads(text: str, value: object) -> None:
    assert jsontext.loads(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, "x"]}, '{"a":[1,null,"x"]}'),
        ("\u00e4\u2028", '"\\u00e4\\u2028"'),
        ("\U0001f600", '"\\ud83d\\ude00"'),
        ("\ud83d\ude00", '"\\ud83d\\ude00"'),  # a pair whose halves came apart
        ("a\ud83db", '"a\\ufffdb"'),
        ("\ude00\ud83d", '"\\ufffd\\ufffd"'),
        ({"\ud800": ("\udfff",)}, '{"\\ufffd":["\\ufffd"]}'),
        ("\\ud800", '"\\\\ud800"'),  # the six characters, not the escape
        ("a\r\n\0", '"a\\r\\n\\u0000"'),
    ],
)
def test_dumps(value: object, text: str) -> None:
    assert jsontext.dumps(value) == text


def nested(depth: int) -> object:
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": object()}, {1, 2}, nested(100_000)])
def test_what_json_cannot_carry_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        jsontext.dumps(value)


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_read_to_a_depth_that_anyone_can_walk(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    most = jsontext.MAX_DEPTH // levels
    deep = opening * most + '"\\ud83d\\ude00"' + closing * most
    assert jsontext.dumps(jsontext.loads(deep)) == deep
    with pytest.raises(ValueError, match="nested too deeply"):
        jsontext.loads(opening * (most + 1) + "1" + closing * (most + 1))


def test_many_brackets_side_by_side_are_not_deep() -> None:
    flat = "[" + ",".join(["[]"] * 10_000) + "]"
    assert jsontext.dumps(jsontext.loads(flat)) == flat


@given(any_text)
def test_any_text_goes_out_as_one_ascii_line_of_valid_unicode(text: str) -> None:
    line = jsontext.dumps({text: text})
    assert line.isascii() and "\n" not in line and "\r" not in line
    json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")


@given(any_json)
def test_round_trip(value: object) -> None:
    assert jsontext.loads(jsontext.dumps(value)) == value


@given(any_text)
def test_mended_text_is_valid_and_valid_text_is_not_touched(text: str) -> None:
    mended = jsontext.mend_text(text)
    mended.encode("utf-8")
    assert jsontext.mend_text(mended) == mended
    if mended == text:
        assert not any(0xD800 <= ord(char) < 0xE000 for char in text)


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("abc", 3), ('"', 2), ("\n", 2), ("\u00e4", 6), ("\U0001f600", 12)]
)
def test_encoded_size(text: str, size: int) -> None:
    assert jsontext.encoded_size(text) == size

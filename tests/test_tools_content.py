"""What is shown is bounded, and cut where no symbol breaks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.tools.content import SHOWN, code_content, diff_content, head_of, shorten, tail_of, text_content
from acpserver.tools.output import LIMIT, Output, readable

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # one symbol of five code points
ACCENT = "e\u0301"
THUMB = "\U0001f44d\U0001f3fd"


@pytest.mark.parametrize("symbol", [FAMILY, ACCENT, THUMB, "\u2764\ufe0f"])
def test_a_cut_never_breaks_a_symbol(symbol: str) -> None:
    text = symbol * 50
    for count in range(len(symbol), 40):
        assert head_of(text, count) == symbol * (len(head_of(text, count)) // len(symbol))
        assert tail_of(text, count) == symbol * (len(tail_of(text, count)) // len(symbol))


def test_a_cut_prefers_the_end_of_a_line() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    assert head_of(text, 30) == "line 0\nline 1\nline 2\nline 3\n"
    assert tail_of(text, 30) == "line 97\nline 98\nline 99\n"


@given(st.text(max_size=200), st.integers(100, 300))
def test_shortened_text_fits_and_short_text_stays(text: str, size: int) -> None:
    short = shorten(text, size)
    assert len(json.dumps(short)) - 2 <= size
    if len(json.dumps(text)) - 2 <= size:
        assert short == text


@pytest.mark.parametrize("unit", ["x", "\n", "é", "\U0001f600", "\0", "`", "\ud800", ACCENT])
def test_every_object_stays_small_whatever_it_holds(unit: str) -> None:
    text = unit * 200_000
    for item in (
        text_content(text),
        code_content(text),
        diff_content("/a", None, text),
        diff_content("/a", text, ""),
        diff_content("/a", text, text + "x"),
    ):
        assert len(json.dumps(item)) < SHOWN + 1024


def test_a_fence_is_longer_than_those_in_the_text() -> None:
    shown = code_content("```py\nx\n```\n````")
    assert shown == {
        "type": "content",
        "content": {"type": "text", "text": "`````\n```py\nx\n```\n````\n`````"},
    }


def collected(*pieces: bytes) -> Output:
    output = Output()
    for piece in pieces:
        output.add(piece)
    output.finish()
    return output


def test_characters_split_between_reads_are_whole() -> None:
    data = "aé\U0001f600z".encode()
    output = collected(*(bytes([byte]) for byte in data))
    assert output.text() == "aé\U0001f600z" and not output.cut


def test_a_character_that_never_ends_is_replaced() -> None:
    assert collected(b"a\xf0\x9f").text() == "a\ufffd"


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_long_output_keeps_head_and_tail_however_it_came(pieces: int) -> None:
    data = b"".join(b"%07d\n" % number for number in range(20_000))
    step = len(data) // pieces + 1
    output = collected(*(data[at : at + step] for at in range(0, len(data), step)))
    text = output.text()
    assert output.cut and len(text) <= LIMIT + 100
    assert text.startswith("0000000\n0000001\n") and text.endswith("0019998\n0019999\n")
    head, _, tail = text.partition("\n[… ")
    number = int(tail.split(" ", 1)[0])
    assert len(head) + 1 + number + len(tail.partition("…]\n")[2]) == len(data) + 1


def test_output_at_the_limit_is_whole_and_one_more_is_cut() -> None:
    assert collected(b"x" * LIMIT).text() == "x" * LIMIT
    one_more = collected(b"x" * (LIMIT + 1))
    assert one_more.cut and "characters of output left out" in one_more.text()


def test_the_last_part_is_the_newest() -> None:
    output = collected(*(b"%d\n" % number for number in range(100_000)))
    assert output.last(50).endswith("99998\n99999\n") and len(output.last(50)) <= 50
    assert collected(b"short").last(50) == "short"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "xlink"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("line\r\n", "line\n"),
        ("a\0b\x08c\x7f", "abc"),
        ("tab\tstays\n", "tab\tstays\n"),
        ("\x1b(Bx\x1b[?25l", "x"),
        ("unfinished \x1b[3", "unfinished [3"),
    ],
)
def test_terminal_output_becomes_plain_text(raw: str, text: str) -> None:
    assert readable(raw) == text

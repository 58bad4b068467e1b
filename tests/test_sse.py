"""The SSE decoder: the same events wherever the bytes are cut, and bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.llm import sse
from acpserver.llm.sse import Item, SseDecoder


def decode(*blocks: bytes) -> list[Item]:
    decoder = SseDecoder()
    items = [item for block in blocks for item in decoder.feed(block)]
    return items + decoder.end()


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_kind_of_line_end_at_every_cut(newline: bytes) -> None:
    stream = b": hi\n\ndata: one\n\nevent: error\ndata:two\ndata: three\nid: 7\n\ndata\n\n".replace(
        b"\n", newline
    )
    expected = [Item(b"one"), Item(b"two\nthree", "error"), Item(b"")]
    for cut in range(len(stream) + 1):
        assert decode(stream[:cut], stream[cut:]) == expected
    assert decode(*(stream[at : at + 1] for at in range(len(stream)))) == expected


def test_an_event_is_handed_out_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [Item(b"a")]
    assert decoder.feed(b"data: b\r\n\r") == [Item(b"b")]
    assert decoder.feed(b"\ndata: c\r\r") == [Item(b"c")]
    assert decoder.end() == []


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert decode(b"data:  two\n\ndata:none\n\n") == [Item(b" two"), Item(b"none")]


def test_the_last_event_needs_no_blank_line_and_no_newline() -> None:
    assert decode(b"data: a\n\ndata: b") == [Item(b"a"), Item(b"b")]
    assert decode(b"data: a\n") == [Item(b"a")]


def test_a_byte_order_mark_at_the_start_is_no_part_of_the_first_field() -> None:
    for cut in range(6):
        stream = b"\xef\xbb\xbfdata: a\n\n"
        assert decode(stream[:cut], stream[cut:]) == [Item(b"a")]
    assert decode(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [Item(b"a")]


def test_an_event_name_holds_for_one_event_only() -> None:
    assert decode(b"event: x\n\ndata: a\n\nevent: y\ndata: b\n\ndata: c\n\n") == [
        Item(b"a"),
        Item(b"b", "y"),
        Item(b"c"),
    ]


def test_unknown_fields_and_comments_are_ignored() -> None:
    assert decode(b"database: x\nretry: 10\n:\n: c\nfoo\ndata: a\n\n") == [Item(b"a")]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 100)
    decoder = SseDecoder()
    with pytest.raises(ValueError, match="longer than 100 bytes"):
        for _ in range(20):
            decoder.feed(b"data: xxxx")


def test_an_event_of_many_lines_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 100)
    with pytest.raises(ValueError, match="longer than 100 bytes"):
        SseDecoder().feed(b"data: xxxxxxxxx\n" * 12)


lines = st.sampled_from(
    [b"data: a", b"data:b", b"data:", b"event: e", b": c", b"", b"", b"data: \xff\xfe", b"id: 1"]
)


@given(st.lists(lines, max_size=12), st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_random_streams_at_random_cuts(rows: list[bytes], sizes: list[int], data: st.DataObject) -> None:
    ends = [data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for _ in rows]
    # A lone CR before an empty line that ends in LF would be one CRLF: use one kind where that could happen.
    if b"\r" in ends:
        ends = [b"\r"] * len(rows)
    stream = b"".join(row + end for row, end in zip(rows, ends, strict=True))
    blocks, at = [], 0
    while at < len(stream):
        size = sizes[len(blocks) % len(sizes)]
        blocks.append(stream[at : at + size])
        at += size
    assert decode(*blocks) == decode(stream)
    assert decode(stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")) == decode(stream)


def test_an_error_field_is_an_error() -> None:
    decoder = SseDecoder()
    items = decoder.feed(b'data: {"a":1}\n\nerror: {"code":500}\n\n')
    assert items == [Item(b'{"a":1}'), Item(b'{"code":500}', "error")]

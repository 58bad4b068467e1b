"""The chunked transfer coding, taken off at any cut."""

from __future__ import annotations

import http.client

import pytest

from acpserver.llm.chunked import ChunkDecoder


def decode(*blocks: bytes) -> tuple[bytes, bool]:
    decoder = ChunkDecoder()
    return b"".join(decoder.feed(block) for block in blocks), decoder.ended


BODY = b"5\r\nhello\r\n1\r\n \r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


def test_every_cut_gives_the_same_content() -> None:
    for cut in range(len(BODY) + 1):
        assert decode(BODY[:cut], BODY[cut:]) == (b"hello 0123456789", True)
    assert decode(*(BODY[at : at + 1] for at in range(len(BODY)))) == (b"hello 0123456789", True)


def test_content_comes_before_its_chunk_is_complete() -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(b"5\r\nhel") == b"hel"
    assert decoder.feed(b"lo") == b"lo"
    assert decoder.feed(b"\r\n") == b""
    assert not decoder.ended


def test_line_ends_inside_the_content_are_content() -> None:
    assert decode(b"4\r\n\r\n\r\n\r\n0\r\n\r\n") == (b"\r\n\r\n", True)


@pytest.mark.parametrize("cut", range(len(BODY)))
def test_a_body_cut_short_has_not_ended(cut: int) -> None:
    assert decode(BODY[:cut])[1] is False


@pytest.mark.parametrize(
    "body", [b"\r\nx", b"zz\r\n", b"-1\r\n", b"5_0\r\n", b"0x5\r\nhello", b"data: {}\n\n"]
)
def test_a_size_that_is_no_hexadecimal_number_is_an_error(body: bytes) -> None:
    with pytest.raises(http.client.HTTPException):
        decode(body)


def test_a_size_line_without_end_is_an_error() -> None:
    with pytest.raises(http.client.LineTooLong):
        decode(*[b"1" * 1000] * 10)

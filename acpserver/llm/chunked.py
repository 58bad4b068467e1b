"""The body of an HTTP answer, handed out as soon as it has arrived and as much as has arrived.

Entered by the thread that reads the answer. The standard library hands out one chunk of a chunked body a
call, with three small reads each; here one `recv` may bring hundreds of chunks, and all of them are handed
out together. It never waits for more than the first byte.
"""

from __future__ import annotations

import http.client

_MAX_SIZE_LINE = 4096  # bytes of a chunk's size line, extensions included, and of one trailer


class ChunkDecoder:
    """The chunked transfer coding taken off (RFC 9112, section 7.1)."""

    def __init__(self) -> None:
        self.ended = False
        self._left = 0
        """Bytes of the current chunk still to come, and its CRLF."""
        self._line = b""
        """A size line or trailer that has not ended yet."""
        self._in_trailers = False

    def feed(self, block: bytes) -> bytes:
        """The content in `block`. Raises `http.client.HTTPException` when this is no chunked body."""
        content: list[bytes] = []
        position = 0
        while position < len(block) and not self.ended:
            if self._left:
                piece = block[position : position + self._left]
                position += len(piece)
                content.append(piece[: max(0, self._left - 2)])
                self._left -= len(piece)
                continue
            newline = block.find(b"\n", position)
            if newline < 0:
                self._line += block[position:]
                position = len(block)
            else:
                line = self._line + block[position:newline]
                self._line = b""
                position = newline + 1
                self._end_line(line.strip())
            if len(self._line) > _MAX_SIZE_LINE:
                raise http.client.LineTooLong("chunk size")
        return b"".join(content)

    def _end_line(self, line: bytes) -> None:
        if self._in_trailers:
            self.ended = not line
            return
        digits = line.partition(b";")[0].strip()
        if not digits or digits.strip(b"0123456789abcdefABCDEF"):
            raise http.client.HTTPException("a chunk without a size")
        size = int(digits, 16)
        self._in_trailers = size == 0
        self._left = size + 2 if size else 0


class EagerResponse(http.client.HTTPResponse):
    """An HTTP response whose `read1` crosses the borders of chunks."""

    _decoder: ChunkDecoder | None = None

    def read1(self, n: int = -1) -> bytes:
        """At least one byte of content, as much as one `recv` brings; b"" at the end.

        Raises `http.client.IncompleteRead` when the connection ends before the body does.
        """
        if not self.chunked or self.fp is None:
            return super().read1(n)
        if self._decoder is None:
            self._decoder = ChunkDecoder()
        while True:
            block = self.fp.read1(n)
            if not block:
                raise http.client.IncompleteRead(b"")
            content = self._decoder.feed(block)
            if self._decoder.ended:
                self.close()
            if content or self._decoder.ended:
                return content

"""Server-sent events out of bytes as they arrive (WHATWG HTML, section 9.2.6).

Owns the splitting only: what an event means is the dialect's business. One decoder belongs to one answer
and one thread. It never waits for more than the blank line that ends an event, and never keeps more than
`MAX_EVENT` bytes.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT = 16 * 1024 * 1024  # bytes in one line, and in the data of one event
_BOM = b"\xef\xbb\xbf"


class Item(NamedTuple):
    """One piece of an answer: the bytes of its `data` and the name of its event ("" when unnamed)."""

    data: bytes
    event: str = ""


class SseDecoder:
    """Bytes in, whole events out."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        """Pieces of the line that has not ended yet: joined once, so that long lines stay cheap."""
        self._tail_size = 0
        self._skip_newline = False
        """The bytes so far end in CR, which ended the line; an LF that comes next belongs to it."""
        self._at_start = True
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""

    def feed(self, block: bytes) -> list[Item]:
        """The events that `block` completes. Raises `ValueError` when one grows past all bounds."""
        if self._skip_newline and block:
            self._skip_newline = False
            if block[:1] == b"\n":
                block = block[1:]
        if b"\r" in block:
            self._skip_newline = block.endswith(b"\r")
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, newline, rest = block.rpartition(b"\n")
        if not newline:
            self._keep(block)
            return []
        if self._tail:
            head = b"".join((*self._tail, head))
            self._tail.clear()
            self._tail_size = 0
        if rest:
            self._keep(rest)
        return self._lines(head.split(b"\n"))

    def end(self) -> list[Item]:
        """The event that the end of the stream completes although no blank line followed it."""
        last = b"".join(self._tail)
        self._tail.clear()
        self._tail_size = 0
        return self._lines([last, b""])

    def _keep(self, piece: bytes) -> None:
        self._tail.append(piece)
        self._tail_size += len(piece)
        if self._tail_size > MAX_EVENT:
            raise ValueError(f"a line of the stream is longer than {MAX_EVENT} bytes")

    def _lines(self, lines: list[bytes]) -> list[Item]:
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        items: list[Item] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                data.append(value)
                self._data_size += len(value)
                if self._data_size > MAX_EVENT:
                    raise ValueError(f"an event of the stream is longer than {MAX_EVENT} bytes")
            elif not line:
                if data:
                    items.append(Item(b"\n".join(data), self._event))
                    data.clear()
                    self._data_size = 0
                self._event = ""
            elif line.startswith(b"event:"):
                self._event = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            elif line.startswith(b"error:"):  # no field of the standard: older llama.cpp ends a stream so
                items.append(Item(line[6:].strip(), "error"))
            elif line == b"data":
                data.append(b"")
        return items

"""JSON Lines out of bytes as they arrive: one value a line. One decoder belongs to one answer and thread."""

from __future__ import annotations

from acpserver.llm.sse import MAX_EVENT, Item


class NdjsonDecoder:
    """Bytes in, whole lines out. It never keeps more than `MAX_EVENT` bytes."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        """Pieces of the line that has not ended yet."""
        self._size = 0

    def feed(self, block: bytes) -> list[Item]:
        """The lines that `block` completes. Raises `ValueError` when one grows past all bounds."""
        *lines, rest = block.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._tail, lines[0]))
            self._tail.clear()
            self._size = 0
        self._tail.append(rest)
        self._size += len(rest)
        if self._size > MAX_EVENT:
            raise ValueError(f"a line of the stream is longer than {MAX_EVENT} bytes")
        return [Item(line) for line in lines if line.strip()]

    def end(self) -> list[Item]:
        """The last line, which may have no line end."""
        return self.feed(b"\n")

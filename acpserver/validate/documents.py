"""The lines of a recording -> pieces that hold one JSON value each, also one that stands on several lines.

Pure, lazy, one thread. No more is kept than the piece that has begun. What is no JSON comes out line by line,
and a value that breaks off comes out as one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LONGEST_BEGINNING = 4096  # bytes of the first line of a value on several lines
LONGEST = 64 << 20  # bytes of a value on several lines; what is longer comes out cut

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')  # written so that one without an end costs no memory
_BEGINNING = re.compile(rb'\{\s*("|$)')


class Piece(NamedTuple):
    """One line, or the lines of one value."""

    line: int
    """The first one."""
    text: bytes
    lines: int
    """How many lines."""
    is_whole: bool
    """False for a value on several lines that breaks off."""


def pieces(numbered: Iterable[tuple[int, bytes]]) -> Iterator[Piece]:
    """The pieces of these lines. The elements of an array that begins the recording are pieces, too."""
    is_array = is_begun = False
    open_lines: list[bytes] = []
    first = size = depth = margin = 0
    for number, line in numbered:
        if not is_begun and line.strip():
            is_begun = True
            is_array = line.strip(b"\xef\xbb\xbf \t\r\n") == b"["
            if is_array:
                continue
        if open_lines and (size > LONGEST or _is_another(line, margin) or not _goes_on(open_lines[-1], line)):
            yield Piece(first, b"".join(open_lines), len(open_lines), False)
            open_lines = []
        if not open_lines and not begins(line):
            if not (is_array and line.strip() == b"]"):
                yield Piece(number, _element(line) if is_array else line, 1, True)
            continue
        if not open_lines:
            first, size, depth, margin = number, 0, 0, _margin(line)
        open_lines.append(line)
        size += len(line)
        depth += _depth(line)
        if depth <= 0:
            whole = Piece(first, b"".join(open_lines), len(open_lines), True)
            yield whole._replace(text=_element(whole.text), lines=1) if is_array else whole
            open_lines = []
    if open_lines:
        yield Piece(first, b"".join(open_lines), len(open_lines), False)


class Spread:
    """Follows a value that one side sends over several lines, each of which comes alone.

    Such a fault is told at its first line; the others say nothing new.
    """

    def __init__(self) -> None:
        self._before = b""
        self._depth = 0

    def goes_on(self, text: str) -> bool:
        """Whether this line, which is no message, belongs to a value that one before it has begun."""
        line = text.encode("utf-8", "replace")
        belongs = self._depth > 0 and _goes_on(self._before, line)
        if belongs:
            self._depth += _depth(line)
        else:
            self._depth = _depth(line) if begins(line) else 0
        self._before = line
        return belongs

    def end(self) -> None:
        """A message has come."""
        self._depth = 0


def begins(line: bytes) -> bool:
    """Whether an object begins in this line and does not end in it."""
    stripped = line.rstrip()
    if stripped.endswith(b"}") or len(stripped) > _LONGEST_BEGINNING or b"{" not in stripped:
        return False
    start = stripped.index(b"{")
    return _BEGINNING.match(stripped, start) is not None and _depth(stripped[start:]) > 0


def _is_another(line: bytes, margin: int) -> bool:
    """Whether something else begins here, though the value before, which stands at `margin`, is open."""
    found = _BEGINNING.search(line.rstrip())
    return found is not None and _margin(line) <= margin and line.lstrip()[:1] not in b'"}],'


def _goes_on(before: bytes, line: bytes) -> bool:
    """Whether JSON may have a line break between these two."""
    return before.rstrip()[-1:] in (b"{", b"[", b",", b":") or line.lstrip()[:1] in (b"}", b"]", b",", b":")


def _margin(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _depth(line: bytes) -> int:
    """How many brackets more open than close here."""
    bare = _STRING.sub(b"", line)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def _element(text: bytes) -> bytes:
    """An element without the comma behind it."""
    return text.rstrip().removesuffix(b",") + b"\n"

"""The output of a command: decoded, bounded, and made fit to read.

One `Output` belongs to one command and one thread.
"""

from __future__ import annotations

import codecs
import re

from acpserver.tools.content import head_of, tail_of

LIMIT = 30_000
"""Characters of output that the model reads: the first half and the last half of it are kept."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: window titles, links
    r"|\x1b[ -/]*[0-Z\\^-~]"  # the short ones
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Output:
    """Collects bytes; keeps the first and the last characters and the number of all."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._tail = ""
        self.length = 0
        """Characters so far, also those that were not kept."""

    def add(self, data: bytes) -> None:
        """Take the next bytes; a character may be split between two calls."""
        self._add(self._decoder.decode(data))

    def finish(self) -> None:
        """No more bytes come."""
        self._add(self._decoder.decode(b"", final=True))

    def _add(self, text: str) -> None:
        self.length += len(text)
        room = LIMIT // 2 - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        if text:
            # Cut only now and then: copying the tail for every small piece would be slow.
            self._tail += text[-LIMIT:]
            if len(self._tail) > 2 * LIMIT:
                self._tail = self._tail[-LIMIT // 2 :]

    @property
    def cut(self) -> bool:
        """Whether a part of the output is not in `text()`."""
        return self.length > LIMIT

    def text(self) -> str:
        """The output as it is read: all of it, or head and tail with what was left out said between."""
        if not self.cut:
            return readable(self._head + self._tail)
        head, tail = head_of(self._head, len(self._head) - 1), tail_of(self._tail, LIMIT // 2)
        left_out = self.length - len(head) - len(tail)
        note = f"\n[… {left_out} characters of output left out …]\n"
        return readable(head) + note + readable(tail)

    def last(self, count: int) -> str:
        """About the last `count` characters, from the start of a line where possible."""
        recent = self._tail if len(self._tail) >= count else self._head + self._tail
        return readable(tail_of(recent, count))


def readable(text: str) -> str:
    """Terminal output as plain text: no escape sequences, a progress line only in its last state."""
    lines = _ESCAPES.sub("", text).split("\n")
    if "\r" in text:  # what stands before it is overwritten by what comes after
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return _CONTROLS.sub("", "\n".join(lines))

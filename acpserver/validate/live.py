"""Blocks of bytes as they pass -> entries for the validator. Used by the proxy's judge and by the probe.

Pure; one `Lines` for each direction, used by one thread. The bytes are only looked at, never changed.
"""

from __future__ import annotations

from acpserver import jsontext
from acpserver.transports.trace import without_secrets
from acpserver.validate.findings import CLIENT, MAX_TEXT, Entry

LONGEST_LINE = 128 << 20  # bytes; what is longer is not looked at, so that memory stays bounded


class Lines:
    """Splits one direction at `\\n`. A line beyond `LONGEST_LINE` comes out as None."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._skipping = False

    def add(self, block: bytes) -> list[bytes | None]:
        """The lines that this block completes, without their ends; blank ones are left out."""
        first, *others = block.split(b"\n")
        self._extend(first)
        found: list[bytes | None] = []
        for piece in others:
            found += self.rest()
            self._extend(piece)
        return found

    def rest(self) -> list[bytes | None]:
        """The line that has begun, if any; for the end of the stream."""
        line: bytes | None = None if self._skipping else bytes(self._pending)
        self._pending.clear()
        self._skipping = False
        return [] if line is not None and not line.strip() else [line]

    def lose(self) -> None:
        """Bytes are missing here: what follows up to the next line end is no whole line."""
        self._pending.clear()
        self._skipping = True

    def _extend(self, piece: bytes) -> None:
        if not self._skipping:
            self._pending += piece
            if len(self._pending) > LONGEST_LINE:
                self.lose()


def entry_of(number: int, time: float | None, sender: str, line: bytes) -> Entry:
    """One line of the wire as an entry; `problem` says why it is not JSON."""
    message: object = None
    problem = ""
    try:
        message = jsontext.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8"
    except ValueError as error:
        problem = f"not JSON: {error}"
    text = line[: 4 * MAX_TEXT].decode("utf-8", "replace")[:MAX_TEXT]
    return Entry(number, time, sender, message, text, problem, len(line))


def trace_line(entry: Entry, line: bytes) -> bytes:
    """One line of a trace, as acpserver's own `--trace` writes it, but with the message's text unchanged."""
    body = b'"message":' + line.strip(b"\xef\xbb\xbf \t\r")
    if entry.problem:
        body = b'"text":' + jsontext.dumps(entry.text).encode("ascii")
    elif (shown := without_secrets(entry.message)) is not entry.message:
        body = b'"message":' + jsontext.dumps(shown).encode("ascii")
    direction = "in" if entry.sender == CLIENT else "out"
    return f'{{"time":{entry.time or 0:.6f},"direction":"{direction}",'.encode("ascii") + body + b"}\n"

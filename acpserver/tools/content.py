"""What tools show to the client: ACP content objects of bounded size, and text cut with care.

Pure functions. Every object stays so small that its line on the wire is under 64 KiB.
"""

from __future__ import annotations

import unicodedata

from acpserver.jsontext import encoded_size
from acpserver.tools.base import Content

SHOWN = 24 * 1024
"""Bytes that one content object may take as JSON. The arguments of the call travel on the same line."""

_CONTEXT_LINES = 3
_ZERO_WIDTH_JOINER = "\u200d"


def text_content(text: str) -> Content:
    """Text as the client renders it: Markdown."""
    return {"type": "content", "content": {"type": "text", "text": shorten(text, SHOWN)}}


def code_content(text: str) -> Content:
    """Text to be shown as it is: in a code fence that is longer than any in the text."""
    text = shorten(text, SHOWN)
    fence = "```"
    while fence in text:
        fence += "`"
    return text_content(f"{fence}\n{text.rstrip()}\n{fence}")


def diff_content(path: str, old: str | None, new: str) -> Content:
    """A change of the file `path` (absolute); `old` is None for a new file.

    Both texts are whole when they are small together. Otherwise they are the changed region alone, with
    three lines around it, and if that is still too much, the head and tail of it.
    """
    old_shown, new_shown = old, new
    if encoded_size(old or "") + encoded_size(new) > SHOWN:
        if old is not None:
            old_shown, new_shown = _changed_region(old, new)
            old_shown = shorten(old_shown, SHOWN // 2)
        new_shown = shorten(new_shown, SHOWN // 2)
    return {"type": "diff", "path": path, "oldText": old_shown, "newText": new_shown}


def _changed_region(old: str, new: str) -> tuple[str, str]:
    """Both texts without the lines that they share at the start and at the end."""
    old_lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    limit = min(len(old_lines), len(new_lines))
    head = 0
    while head < limit and old_lines[head] == new_lines[head]:
        head += 1
    tail = 0
    while tail < limit - head and old_lines[-1 - tail] == new_lines[-1 - tail]:
        tail += 1
    head, tail = max(0, head - _CONTEXT_LINES), max(0, tail - _CONTEXT_LINES)
    return "".join(old_lines[head : len(old_lines) - tail]), "".join(new_lines[head : len(new_lines) - tail])


def shorten(text: str, size: int) -> str:
    """`text` with its middle left out, and that said, if it takes more than `size` bytes as JSON."""
    total = encoded_size(text)
    if total <= size:
        return text
    keep = max(1, int(len(text) * size / total) - 60)  # characters; right on average, so look again
    while True:
        head, tail = head_of(text, keep // 2), tail_of(text, keep // 2)
        left_out = len(text) - len(head) - len(tail)
        short = f"{head}\n[… {left_out} characters left out …]\n{tail}"
        if encoded_size(short) <= size or keep <= 1:
            return short
        keep = keep * 3 // 4


def head_of(text: str, count: int) -> str:
    """The first `count` characters or a few less: whole lines if they are short, never half a symbol."""
    if len(text) <= count:
        return text
    line_end = text.rfind("\n", count - count // 4, count)
    return text[: line_end + 1] if line_end >= 0 else text[: safe_cut(text, count)]


def tail_of(text: str, count: int) -> str:
    """The last `count` characters or a few less: whole lines if they are short, never half a symbol."""
    start = len(text) - count
    if start <= 0:
        return text
    line_end = text.find("\n", start, start + count // 4)
    if line_end >= 0:
        return text[line_end + 1 :]
    while start < len(text) and _joins(text, start):
        start += 1
    return text[start:]


def safe_cut(text: str, index: int) -> int:
    """`index`, or the next smaller place that does not separate a character from what modifies it."""
    while index > 0 and _joins(text, index):
        index -= 1
    return index


def _joins(text: str, index: int) -> bool:
    """Whether the character at `index` belongs to the one before it."""
    character = text[index]
    return (
        text[index - 1] == _ZERO_WIDTH_JOINER
        or character == _ZERO_WIDTH_JOINER
        or unicodedata.combining(character) != 0
        or "\ufe00" <= character <= "\ufe0f"  # variation selectors
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or "\udc00" <= character <= "\udfff"  # second half of a surrogate pair
    )

"""The tools that change files: write_file and edit_file.

Any thread; without state. The change is computed when the call is prepared, so that the user sees it
before allowing it, and again when it is carried out: a file that changed in between is left alone.
"""

from __future__ import annotations

import difflib
import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import islice

from acpserver.cancel import CancelFlag
from acpserver.errors import ToolError
from acpserver.tools.base import WRITE, Action, TextFile, ToolContext, ToolOutcome
from acpserver.tools.content import diff_content
from acpserver.tools.textfile import MAX_BYTES
from acpserver.workspace import display, resolve, shorten

_LINES_TOLD = 5  # of a text that is there more than once
_HINT_LINES = 20_000  # lines of a file in which the first line of a text that was not found is looked for
_HINT_SECONDS = 0.5  # for looking for the most similar line
_HINT_LENGTH = 200  # characters
_SIMILAR = 0.6  # of 1; what looks less alike is no help


class WriteFile:
    """write_file: create a file, or replace its whole text."""

    name = "write_file"
    kind = "edit"
    description = (
        "Write a text file: create it with its folders, or replace all of its text. "
        "To change a part of an existing file use edit_file. "
        "An existing file keeps its encoding, and its CRLF line endings if all of them are."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, absolute or relative to the working directory"},
            "content": {"type": "string", "description": "The whole new text"},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for a folder, a device, a binary file or an impossible place."""
        path = resolve(str(arguments["path"]), context.cwd, context.roots)
        old = context.files.find(path)
        _check_parents(path)
        new = _in_form_of(old, str(arguments["content"]))
        verb = "Create" if old is None else "Write"
        return Action(
            f"{verb} {shorten(display(path, context.cwd))}",
            partial(_replace, path, old, new, context),
            content=[diff_content(path, old.text if old else None, new.text)],
            locations=[{"path": path}],
            access=WRITE,
        )


def _check_parents(path: str) -> None:
    """Raise `ToolError` if something on the way to `path` is not a folder."""
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise ToolError(f"{shorten(folder)} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ToolError(f"{shorten(folder)} may not be written to.")


def _in_form_of(old: TextFile | None, text: str) -> TextFile:
    """`text` with the line endings and the encoding of the file that it replaces, where they can hold it."""
    if old is None:
        return TextFile(text)
    crlf = old.text.count("\r\n")
    if crlf and crlf == old.text.count("\n") and "\r\n" not in text:
        text = text.replace("\n", "\r\n")
    new = TextFile(text, old.encoding, old.bom)
    try:
        new.encode(text)
    except ToolError:
        return TextFile(text)
    return new


class EditFile:
    """edit_file: replace one piece of text, and nothing else."""

    name = "edit_file"
    kind = "edit"
    description = (
        "Replace a piece of a text file. old_text must be in the file exactly as given, spaces included, "
        "and only once: give enough lines around the change, or set replace_all."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, absolute or relative to the working directory"},
            "old_text": {"type": "string", "minLength": 1, "description": "Text to be replaced"},
            "new_text": {"type": "string", "description": "Text to stand there instead; may be empty"},
            "replace_all": {"type": "boolean", "description": "Replace every occurrence (default false)"},
        },
        "required": ["path", "old_text", "new_text"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails when the text is not there, or not only once."""
        path = resolve(str(arguments["path"]), context.cwd, context.roots)
        old = context.files.read(path)
        old_text, new_text = str(arguments["old_text"]), str(arguments["new_text"])
        if old_text == new_text:
            raise ToolError("old_text and new_text are the same; there is nothing to change.")
        count, lines = find_text(old.text, old_text)
        if not count:
            hint = _closest(old.text, old_text, context.cancel)
            raise ToolError(f"old_text was not found in {shorten(path)}.{hint}")
        if count > 1 and arguments.get("replace_all") is not True:
            raise ToolError(
                f"old_text is in {shorten(path)} {count} times (lines {_first_few(lines, count)}). "
                "Give more of the text around it, or set replace_all."
            )
        if len(old.text) + count * (len(new_text) - len(old_text)) > MAX_BYTES:
            raise ToolError(f"{shorten(path)} would become too large (limit {MAX_BYTES} characters).")
        text = replace_text(old.text, old_text, new_text, context.cancel)
        new = TextFile(text, old.encoding, old.bom)
        new.encode(text)
        return Action(
            f"Edit {shorten(display(path, context.cwd))}",
            partial(_replace, path, old, new, context),
            content=[diff_content(path, old.text, text)],
            locations=[{"path": path, "line": lines[0]}],
            access=WRITE,
        )


def _replace(path: str, old: TextFile | None, new: TextFile, context: ToolContext) -> ToolOutcome:
    """Write the new text, unless the file is no longer what the user was shown, or where it was."""
    if resolve(path, context.cwd, context.roots) != path:
        raise ToolError(f"{shorten(path)} is now a link to another place.")
    if context.files.find(path) != old:
        raise ToolError(f"{shorten(path)} has changed meanwhile. Read it again and repeat the change.")
    context.files.write(path, new)
    text = f"Created {path}." if old is None else f"Changed {path}."
    shown = diff_content(path, old.text if old else None, new.text)
    return ToolOutcome(text, [shown], {"path": path, "created": old is None})


def find_text(text: str, old: str) -> tuple[int, list[int]]:
    """How often `old` is in `text`, CRLF and LF being the same, and the lines (from 1) of the first few."""
    flat, old_flat = _flat(text), _flat(old)
    lines: list[int] = []
    line, done = 1, 0
    for start in islice(_places(flat, old_flat), _LINES_TOLD):
        line += flat.count("\n", done, start)
        done = start
        lines.append(line)
    return flat.count(old_flat), lines


def replace_text(text: str, old: str, new: str, cancel: CancelFlag) -> str:
    """`text` with every `old` replaced. Raises `Cancelled`.

    CRLF and LF are the same while searching; what is put in takes the endings of what it replaces, or
    else those of the file. Everything outside the replaced pieces stays as it is.
    """
    flat, old_flat = _flat(text), _flat(old)
    if len(flat) == len(text):
        return text.replace(old_flat, new)
    # Where in `flat` the line endings are that are two characters in `text`.
    crlf = []
    for count, place in enumerate(_places(text, "\r\n")):
        cancel.check()
        crlf.append(place - count)
    file_uses_crlf = len(crlf) * 2 > flat.count("\n")
    span_lines = old_flat.count("\n")
    new_crlf = _flat(new).replace("\n", "\r\n")
    pieces, done = [], 0
    for start in _places(flat, old_flat):
        cancel.check()
        end = start + len(old_flat)
        before, inside = bisect_right(crlf, start - 1), bisect_right(crlf, end - 1)
        use_crlf = (inside - before) * 2 > span_lines if span_lines else file_uses_crlf
        pieces += [text[done : start + before], new_crlf if use_crlf else new]
        done = end + inside
    return "".join(pieces) + text[done:]


def _flat(text: str) -> str:
    return text.replace("\r\n", "\n")


def _places(text: str, piece: str) -> Iterator[int]:
    """Where `piece` is in `text`, without overlaps."""
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + len(piece))


def _first_few(lines: list[int], count: int) -> str:
    return ", ".join(map(str, lines)) + (", …" if count > len(lines) else "")


def _closest(text: str, wanted: str, cancel: CancelFlag) -> str:
    """A sentence with the line that looks most like the first line of what was not found, if any does."""
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")[:_HINT_LENGTH]
    lines = [line.strip()[:_HINT_LENGTH] for line in text.splitlines()[:_HINT_LINES]]
    if first in lines:
        number = lines.index(first) + 1
        return f" Its first line is there, as line {number}; the spaces or the lines after it differ."
    matcher = difflib.SequenceMatcher(b=first)
    best, nearest = _SIMILAR, ""
    deadline = time.monotonic() + _HINT_SECONDS
    for line in dict.fromkeys(lines):
        cancel.check()
        if time.monotonic() > deadline:  # a comparison takes from microseconds to 50 ms
            break
        matcher.set_seq1(line)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, nearest = matcher.ratio(), line
    return f" The most similar line is {lines.index(nearest) + 1}: {nearest!r}" if nearest else ""

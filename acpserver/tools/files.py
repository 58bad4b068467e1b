"""The tools that look at files and folders: read_file and list_files.

Any thread; without state. They only look, and never outside the session's roots.
"""

from __future__ import annotations

import os
from functools import partial

from acpserver.errors import ToolError
from acpserver.tools.base import Action, ToolContext, ToolOutcome
from acpserver.tools.content import code_content
from acpserver.workspace import display, explain, resolve, shorten

_MAX_LINES = 2000
_MAX_CHARACTERS = 50_000
_MAX_LINE = 2000  # characters of one line
_MAX_ENTRIES = 1000


class ReadFile:
    """read_file: lines of a text file."""

    name = "read_file"
    kind = "read"
    description = (
        "Read a text file. Returns its lines as they are. Large files come in parts: "
        "use line (first line wanted, counted from 1) and limit (number of lines)."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, absolute or relative to the working directory"},
            "line": {"type": "integer", "minimum": 1, "description": "First line, counted from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "Number of lines"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for a file that is missing, too large or not a file."""
        path = resolve(str(arguments["path"]), context.cwd, context.roots)
        line, limit = _number(arguments, "line", 1), _number(arguments, "limit", _MAX_LINES)
        context.files.check(path)
        title = f"Read {shorten(display(path, context.cwd))}"
        if arguments.get("limit"):
            title += f" (lines {line} to {line + limit - 1})"
        elif line > 1:
            title += f" (from line {line})"
        return Action(
            title, partial(_read, path, line, limit, context), locations=[{"path": path, "line": line}]
        )


def _read(path: str, line: int, limit: int, context: ToolContext) -> ToolOutcome:
    # Once more: a folder on the way may have become a link to the outside since it was checked.
    file = context.files.read(resolve(path, context.cwd, context.roots))
    lines = file.text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()  # what follows the last line ending is not a line
    if not lines:
        return ToolOutcome("(The file is empty.)")
    if line > len(lines):
        return ToolOutcome(f"(The file has {len(lines)} lines; line {line} is beyond its end.)")
    shown, end = _take(lines, line - 1, min(limit, _MAX_LINES))
    notes = []
    if file.encoding not in ("utf-8",):
        notes.append(f"The file is {file.encoding} text, not UTF-8.")
    if line > 1 or end < len(lines):
        more = f" Continue with line={end + 1}." if end < len(lines) else ""
        notes.append(f"Lines {line} to {end} of {len(lines)}.{more}")
    text = "\n".join(shown)
    note = f"\n({' '.join(notes)})" if notes else ""
    return ToolOutcome(
        text + note, [code_content(text)], {"firstLine": line, "lastLine": end, "lines": len(lines)}
    )


def _take(lines: list[str], start: int, limit: int) -> tuple[list[str], int]:
    """Lines from index `start`, as many as the limits allow, and the index after the last one."""
    shown: list[str] = []
    size = 0
    for text in lines[start : start + limit]:
        if len(text) > _MAX_LINE:
            text = f"{text[:_MAX_LINE]} [… {len(text) - _MAX_LINE} more characters in this line]"
        size += len(text) + 1
        if size > _MAX_CHARACTERS and shown:
            break
        shown.append(text)
    return shown, start + len(shown)


def _number(arguments: dict[str, object], name: str, default: int) -> int:
    """An optional integer argument; JSON may write it as 2.0."""
    value = arguments.get(name)
    return int(value) if isinstance(value, (int, float)) else default


class ListFiles:
    """list_files: the entries of one folder."""

    name = "list_files"
    kind = "read"
    description = "List one folder, hidden entries included: folders first, each with a / at the end."
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Folder; the working directory if absent"}},
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for a folder that is missing or not a folder."""
        path = resolve(str(arguments.get("path") or "."), context.cwd, context.roots)
        if not os.path.isdir(path):
            raise ToolError(
                f"{shorten(path)} {'is not a folder' if os.path.lexists(path) else 'does not exist'}."
            )
        title = f"List {shorten(display(path, context.cwd))}"
        return Action(title, partial(_list, path, context), locations=[{"path": path}])


def _list(path: str, context: ToolContext) -> ToolOutcome:
    folders, files = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                context.cancel.check()
                if entry.is_dir():
                    folders.append(entry.name + "/")
                else:
                    files.append(entry.name)
    except OSError as error:
        raise explain(error, path) from None
    names = sorted(folders) + sorted(files)
    if not names:
        return ToolOutcome("(The folder is empty.)", raw_output={"entries": 0})
    text = "\n".join(names[:_MAX_ENTRIES])
    if len(names) > _MAX_ENTRIES:
        text += f"\n(and {len(names) - _MAX_ENTRIES} more of {len(names)} entries)"
    return ToolOutcome(text, [code_content(text)], {"entries": len(names)})

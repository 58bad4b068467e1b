"""The tools that search: glob for names, grep for text.

Any thread; glob runs on it, grep in a process of its own (see `grepworker`). They only look.
"""

from __future__ import annotations

import os
import re
import time
from functools import partial

from acpserver.errors import ToolError
from acpserver.processes import Children, python_command
from acpserver.tools.base import Action, ToolContext, ToolOutcome
from acpserver.tools.content import code_content, head_of, shorten
from acpserver.tools.pump import OutputPump
from acpserver.tools.walk import PathPattern, walk
from acpserver.workspace import display, resolve
from acpserver.workspace import shorten as shorten_path

_MAX_PATHS = 500
_MAX_FOUND = 200  # lines
_MAX_TEXT = 30_000  # characters
_TITLE_SIZE = 300  # bytes of JSON
_SECONDS = 30.0
_GRACE = 0.02  # seconds from asking the search process to killing it; it has nothing to lose


class Glob:
    """glob: files by their names."""

    name = "glob"
    kind = "search"
    description = (
        "Find files whose path fits a pattern: * and ? within a name, ** for any folders, {a,b}. "
        "A pattern without / fits names in every folder. Leaves out .git, node_modules and their like, "
        "unless the pattern names them."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "src/**/*.py"},
            "path": {"type": "string", "description": "Folder to search; the working directory if absent"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for a missing folder and a bad pattern."""
        top = _existing(arguments.get("path"), context)
        if not os.path.isdir(top):
            raise ToolError(f"{shorten_path(top)} is not a folder.")
        text = str(arguments["pattern"])
        wanted = _path_pattern(text)
        title = f"Find {shorten(text, _TITLE_SIZE)}"
        return Action(title, partial(_find, wanted, top, context), locations=[{"path": top}])


def _find(wanted: PathPattern, top: str, context: ToolContext) -> ToolOutcome:
    deadline = time.monotonic() + _SECONDS

    def visit() -> None:
        context.cancel.check()
        if time.monotonic() > deadline:
            raise ToolError(f"Not finished after {_SECONDS:g} seconds. Search a smaller folder.")

    found = [path for path in walk(top, wanted.skipped, visit) if wanted.matches(path)]
    if not found:
        return ToolOutcome("No file fits.", raw_output={"files": 0})
    prefix = _prefix(top, context.cwd)
    text = "\n".join(prefix + path for path in found[:_MAX_PATHS])
    if len(found) > _MAX_PATHS:
        text += f"\n(and {len(found) - _MAX_PATHS} more of {len(found)} files)"
    return ToolOutcome(text, [code_content(text)], {"files": len(found)})


class Grep:
    """grep: lines of files by a regular expression."""

    name = "grep"
    kind = "search"
    description = (
        "Search the text of files for a regular expression (Python's), line by line. Returns path, "
        "line number and text of each line that matches. Leaves out binary files, .git, node_modules and "
        "their like."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "minLength": 1,
                "maxLength": 10000,
                "description": "Regular expression",
            },
            "path": {"type": "string", "description": "Folder or file; the working directory if absent"},
            "glob": {"type": "string", "maxLength": 1000, "description": "Only files that fit this: *.py"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }

    def __init__(self, children: Children):
        self._children = children

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for a missing path and a bad expression."""
        top = _existing(arguments.get("path"), context)
        pattern, only = str(arguments["pattern"]), str(arguments.get("glob") or "")
        _path_pattern(only)
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"Not a regular expression: {error}") from None
        if "\0" in pattern + only:
            raise ToolError("A pattern cannot hold a NUL character; write \\x00.")
        title = f"Search {shorten(pattern, _TITLE_SIZE)}"
        return Action(title, partial(self._run, pattern, top, only, context), locations=[{"path": top}])

    def _run(self, pattern: str, top: str, only: str, context: ToolContext) -> ToolOutcome:
        shown_top = display(top, context.cwd) if os.path.isfile(top) else _prefix(top, context.cwd)
        module = "acpserver.tools.grepworker"
        command = python_command(module, "main", pattern, top, only, shown_top, str(_MAX_FOUND))
        child = self._children.start(command, context.cwd)
        pump = OutputPump.of(child)
        try:
            with context.cancel.waking(pump.wake):
                text = _read_all(pump, context)
        finally:
            child.end(_GRACE)
        if child.poll() != 0:
            raise ToolError(f"The search failed: {text[-500:]}")
        if not text:
            return ToolOutcome("No line matches.", raw_output={"lines": 0})
        short = head_of(text, _MAX_TEXT)
        if short != text:
            short += f"\n(cut: {len(text) - len(short)} more characters)"
        return ToolOutcome(short, [code_content(short)], {"lines": text.count("\n")})


def _read_all(pump: OutputPump, context: ToolContext) -> str:
    """The output up to its end. Raises `ToolError` when time is up and `Cancelled`."""
    deadline = time.monotonic() + _SECONDS
    data = bytearray()
    while True:
        piece = pump.read(deadline - time.monotonic())
        context.cancel.check()
        if piece == b"":
            return data.decode("utf-8", "replace")
        if piece is None:
            raise ToolError(
                f"Not finished after {_SECONDS:g} seconds. Search a smaller folder, or simplify the "
                "expression: nested repetition such as (a+)+ can take for ever."
            )
        data += piece


def _existing(path: object, context: ToolContext) -> str:
    """The path to search in; `ToolError` if nothing is there."""
    top = resolve(str(path or "."), context.cwd, context.roots)
    if not os.path.exists(top):
        raise ToolError(f"{shorten_path(top)} does not exist.")
    return top


def _path_pattern(text: str) -> PathPattern:
    try:
        return PathPattern(text)
    except (ValueError, re.error) as error:
        raise ToolError(f"Not a usable pattern: {error}") from None


def _prefix(top: str, cwd: str) -> str:
    """What stands before paths relative to `top` to make them relative to `cwd`, or else absolute."""
    shown = display(top, cwd)
    return "" if shown == "." else f"{shown.rstrip('/')}/"

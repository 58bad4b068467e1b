"""What a turn looks like in a terminal: the answer on one stream, everything around it on the other.

Belongs to the one thread that writes to the terminal. It only shows; it never asks and never waits.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

OUTPUT_LINES = 40
"""How many lines of one tool call's output are shown; the model reads more than a person wants to."""

DIM, RED, GREEN, CYAN, BOLD = "2", "31", "32", "36", "1"
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
# Control characters in a model's or a file's text could move the cursor or worse; tab and newline stay.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Agents wrap output in a Markdown fence for editors; here the indentation says the same.
_FENCED = re.compile(r"(`{3,})[^\n`]*\n(.*?)\n?\1\s*", re.DOTALL)


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to colour what goes to `stream`: a terminal that can, and nobody said NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def diff_lines(path: str, old: str | None, new: str) -> list[str]:
    """A unified diff without line ends; `old` is None for a new file."""
    before = [] if old is None else old.splitlines()
    source = "/dev/null" if old is None else path
    return list(difflib.unified_diff(before, new.splitlines(), source, path, lineterm=""))


def content_text(block: object) -> str:
    """The text of one ACP ContentBlock; other types become a marker that names them."""
    if not isinstance(block, dict):
        return ""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") == "resource_link":
        return f"[{block.get('uri', '')}]"
    return f"[{block.get('type', 'content')}]"


@dataclass
class _Tool:
    """What is known and already shown of one tool call."""

    title: str = ""
    status: str = "pending"
    diffs: set[tuple[object, ...]] = field(default_factory=set)
    shown: str = ""  # the output text that stands on the screen
    latest: str = ""  # the output text as last reported
    lines: int = 0
    cut: bool = False


class Renderer:
    """Shows session updates. `answer` gets the agent's words alone, so that it can be piped on."""

    def __init__(self, answer: TextIO, around: TextIO, environ: Mapping[str, str] = os.environ):
        self._answer = answer
        self._around = around
        self._answer_is_terminal = answer.isatty()
        self._around_is_terminal = around.isatty()
        self._colour = wants_colour(around, environ)
        self._answer_open = False  # the answer stands in the middle of a line
        self._around_open = False
        self._message: object = None  # the id of the message that is being written
        self._thought: object = None  # the same of a thought
        self._tools: dict[str, _Tool] = {}

    def update(self, update: Mapping[str, object]) -> None:
        """Show one ACP SessionUpdate; kinds that say nothing to a person are left out."""
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            self._show_answer(content_text(update.get("content")), update.get("messageId"))
        elif kind == "agent_thought_chunk":
            self._show_thought(content_text(update.get("content")), update.get("messageId"))
        elif kind in ("tool_call", "tool_call_update"):
            self.tool(update)
        elif kind == "plan":
            self._show_plan(update.get("entries"))
        elif kind == "notice":
            texts = (update.get("title"), update.get("description"))
            self.line("\n".join(str(text) for text in texts if text), DIM)

    def tool(self, call: Mapping[str, object]) -> None:
        """Show what is new in a tool call or in an update of one."""
        tool = self._tools.setdefault(str(call.get("toolCallId")), _Tool())
        title = call.get("title")
        if isinstance(title, str) and title != tool.title:
            tool.title = title
            self.line(f"* {title}", CYAN)
        content = call.get("content")
        if isinstance(content, list):
            self._show_content(tool, content)
        status = call.get("status")
        if isinstance(status, str) and status != tool.status:
            tool.status = status
            if status in ("completed", "failed"):
                self._finish_output(tool)
                self.line(f"  {status}", GREEN if status == "completed" else RED)

    def line(self, text: str, style: str = "") -> None:
        """Write whole lines beside the answer."""
        self._break_lines()
        self._write_around(text + "\n", style)

    def ask(self, text: str) -> None:
        """Write a question whose answer the user types behind it."""
        self._break_lines()
        self._write_around(text, BOLD)
        self._around_open = False

    def end(self) -> None:
        """Close the open lines at the end of a turn."""
        if self._answer_open:
            self._write_answer("\n")
        self._break_lines()
        self._message = None
        self._tools.clear()

    def _show_answer(self, text: str, message: object) -> None:
        if not text:
            return
        if self._around_open:
            self._write_around("\n")
        if self._answer_open and message != self._message:
            self._write_answer("\n")
        self._message = message
        self._write_answer(text)

    def _show_thought(self, text: str, message: object) -> None:
        if self._around_open and message != self._thought:
            self._write_around("\n")
        self._thought = message
        self._write_around(text, DIM)

    def _show_plan(self, entries: object) -> None:
        self.line("plan", CYAN)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                self.line(f"  {_MARKS.get(str(entry.get('status')), '[ ]')} {entry.get('content', '')}")

    def _show_content(self, tool: _Tool, content: list[object]) -> None:
        texts = []
        for item in content:
            if not isinstance(item, dict):
                continue
            if item.get("type") == "diff":
                self._show_diff(tool, item)
            elif item.get("type") == "content":
                text = content_text(item.get("content"))
                fenced = _FENCED.fullmatch(text)
                texts.append(fenced[2] if fenced else text)
        tool.latest = "\n".join(texts)
        # Only whole lines: the last one may still grow. What does not continue what stands there was
        # cut in the middle by the server, and is shown when it is complete.
        whole = tool.latest[: tool.latest.rfind("\n") + 1]
        if whole.startswith(tool.shown):
            self._show_output(tool, whole[len(tool.shown) :])
            tool.shown = whole

    def _show_diff(self, tool: _Tool, item: Mapping[str, object]) -> None:
        key = (item.get("path"), item.get("oldText"), item.get("newText"))
        if key in tool.diffs:
            return
        tool.diffs.add(key)
        old = item.get("oldText")
        lines = diff_lines(str(key[0]), old if isinstance(old, str) else None, str(key[2] or ""))
        for line in lines:
            self.line(f"  {line}", _diff_style(line))

    def _show_output(self, tool: _Tool, text: str) -> None:
        for line in text.splitlines():
            if tool.lines < OUTPUT_LINES:
                self.line(f"  {line}", DIM)
            tool.lines += 1

    def _finish_output(self, tool: _Tool) -> None:
        if tool.latest.startswith(tool.shown):
            self._show_output(tool, tool.latest[len(tool.shown) :])
        elif tool.lines < OUTPUT_LINES:
            self.line("  (the whole output:)", DIM)
            self._show_output(tool, tool.latest)
        if tool.lines > OUTPUT_LINES:
            self.line(f"  ... {tool.lines - OUTPUT_LINES} more lines", DIM)

    def _break_lines(self) -> None:
        """Make sure that what comes beside the answer starts on a line of its own."""
        if self._answer_open and self._answer_is_terminal:
            self._write_answer("\n")
        if self._around_open:
            self._write_around("\n")

    def _write_answer(self, text: str) -> None:
        if self._answer_is_terminal:
            text = _CONTROLS.sub("", text)
        _write(self._answer, text)
        self._answer_open = not text.endswith("\n")

    def _write_around(self, text: str, style: str = "") -> None:
        if not text:
            return
        if self._answer_open and self._answer_is_terminal:
            self._write_answer("\n")
        if self._around_is_terminal:
            text = _CONTROLS.sub("", text)
        self._around_open = not text.endswith("\n")
        _write(self._around, _styled(text, style) if self._colour and style else text)


def _styled(text: str, style: str) -> str:
    """`text` in a style that ends before each line end, so that no line inherits it."""
    lines: Iterable[str] = text.split("\n")
    return "\n".join(f"\x1b[{style}m{line}\x1b[0m" if line else "" for line in lines)


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return DIM
    return GREEN if line.startswith("+") else RED if line.startswith("-") else ""


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()

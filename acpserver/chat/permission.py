"""Answers to the agent's permission requests: from a flag, or from the person at the terminal.

Runs on the thread that owns the terminal. Without a terminal nothing is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from acpserver.chat.render import Renderer

REFUSED: dict[str, object] = {"outcome": {"outcome": "cancelled"}}
LETTERS = {"allow_once": "y", "allow_always": "a", "reject_once": "n", "reject_always": "d"}
"""What may be typed instead of an option's number, by kind."""

ReadLine = Callable[[], str]


def outcome(option: Mapping[str, object] | None) -> dict[str, object]:
    """The RequestPermissionResponse that selects an option; None refuses."""
    if option is None:
        return REFUSED
    return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}


def options_of(params: Mapping[str, object]) -> list[dict[str, object]]:
    """The options of a session/request_permission."""
    options = params.get("options")
    return [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []


def by_flag(options: list[dict[str, object]], allow: bool) -> dict[str, object] | None:
    """The option that `--yes` or `--no` chooses: for this once where the agent offers that."""
    kinds = ("allow_once", "allow_always") if allow else ("reject_once", "reject_always")
    found = [option for kind in kinds for option in options if option.get("kind") == kind]
    return found[0] if found else None


def by_person(
    options: list[dict[str, object]], renderer: Renderer, read_line: ReadLine
) -> dict[str, object] | None:
    """Ask until an option is named by number or letter. None at the end of input."""
    for number, option in enumerate(options, 1):
        letter = LETTERS.get(str(option.get("kind")), "")
        renderer.line(f"  {number}{f' or {letter}' if letter else ''}: {option.get('name', '')}")
    while True:
        renderer.ask("allow? ")
        line = read_line()
        if not line:
            renderer.line("")
            return None
        found = chosen(options, line.strip().lower())
        if found is not None:
            return found
        renderer.line("please type one of the numbers or letters above")


def chosen(options: list[dict[str, object]], word: str) -> dict[str, object] | None:
    """The option that a typed word means, None for a word that means none."""
    if word.isascii() and word.isdigit() and 1 <= int(word) <= len(options):
        return options[int(word) - 1]
    for option in options:
        if word and word == LETTERS.get(str(option.get("kind"))):
            return option
    return None


def terminal_reader() -> ReadLine | None:
    """Something that reads a line from the person: stdin if it is a terminal, else the controlling
    terminal, else None."""
    if sys.stdin is not None and sys.stdin.isatty():
        return sys.stdin.readline
    try:
        # Kept open for the rest of the process; closed by it.
        return open("/dev/tty", encoding="utf-8", errors="replace").readline
    except OSError:
        return None

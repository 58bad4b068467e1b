"""The system prompt: who the model is here, where it works, and the rules of the tools. Pure."""

from __future__ import annotations

import platform

_TEXT = """\
You are a coding agent inside a user's editor. You work in the folder {cwd}{more}, on {system}.
Use the tools to look before you claim, to change files and to run commands. Paths may be relative to that \
folder. Keep changes small and say briefly what you did. Some calls need the user's permission; if one is \
denied, do not repeat it. Answer in the user's language.\
"""


def system_prompt(cwd: str, roots: tuple[str, ...]) -> str:
    """The text for a session in `cwd` with these roots (absolute paths, `cwd` first)."""
    others = [root for root in roots if root != cwd]
    more = f" (and may also use {', '.join(others)})" if others else ""
    return _TEXT.format(cwd=cwd, more=more, system=platform.system() or "an unknown system")

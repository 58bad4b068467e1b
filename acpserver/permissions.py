"""Whether a tool call may run: by its access, the session's mode, and what the user said "always" to.

Pure decisions; asking is the agent's part. Used by the thread of the turn.
"""

from __future__ import annotations

from typing import NamedTuple

from acpserver.tools.base import READ, WRITE

ALLOW, ASK, DENY = "allow", "ask", "deny"


class Mode(NamedTuple):
    """A session mode as the client sees it (ACP SessionMode)."""

    id: str
    name: str
    description: str


MODES = (
    Mode("default", "Ask", "Asks before it changes files or runs commands"),
    Mode("accept_edits", "Accept edits", "Changes files without asking; asks before it runs commands"),
    Mode("read_only", "Read only", "Reads and searches; changes nothing and runs nothing"),
    Mode("bypass", "Never ask", "Changes files and runs commands without asking"),
)

OPTIONS = (
    ("allow_once", "Allow"),
    ("allow_always", "Always allow {tool} in this session"),
    ("reject_once", "Reject"),
    ("reject_always", "Always reject {tool} in this session"),
)


def options(tool: str) -> list[dict[str, object]]:
    """The ACP PermissionOption objects; id and kind of each are the same."""
    return [{"optionId": kind, "name": name.format(tool=tool), "kind": kind} for kind, name in OPTIONS]


def decide(mode: str, access: str, remembered: str | None) -> str:
    """ALLOW, ASK or DENY. `remembered` is the user's "always" answer for this tool: ALLOW, DENY or None."""
    if access == READ:
        return ALLOW
    if mode == "read_only":
        return DENY
    if remembered is not None:
        return remembered
    if mode == "bypass" or (mode == "accept_edits" and access == WRITE):
        return ALLOW
    return ASK


def outcome(option_id: str | None) -> tuple[str, bool]:
    """What an answer means: (ALLOW or DENY, whether it holds for the session).

    None stands for every answer that is not one of our options: not allowed (rule M3).
    """
    if option_id in ("allow_once", "allow_always"):
        return ALLOW, option_id == "allow_always"
    return DENY, option_id == "reject_always"

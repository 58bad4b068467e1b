"""What goes into the judgement and what comes out: one recorded message, one fault, the whole report.

Values only; any thread. Levels: "error" (a MUST is broken), "warning" (a SHOULD, or something that receivers
are told to forgive) and "remark" (worth knowing, no fault).
"""

from __future__ import annotations

from typing import NamedTuple

CLIENT, AGENT = "client", "agent"
ERROR, WARNING, REMARK = "error", "warning", "remark"

MAX_TEXT = 65_536  # characters of a line that are kept for excerpts
MAX_EXCERPT = 160  # characters


class Entry(NamedTuple):
    """One message of a conversation as it was recorded."""

    line: int
    """1-based line in the file, or a running number."""
    time: float | None
    """Seconds, from any beginning; None when unknown."""
    sender: str
    """"client" or "agent"."""
    message: object
    """The parsed JSON value; None when it is not JSON."""
    text: str
    """The message as it stood, shortened to `MAX_TEXT` characters."""
    problem: str = ""
    """Why it is no JSON, or what is wrong with its line."""
    size: int = 0
    """Bytes of the message, when known."""
    is_sure: bool = True
    """False where the recording does not tell who sent this, or may have cut it itself."""
    lines: int = 1
    """On how many lines it stands, if that is worth a word; on the wire it has one."""


class Finding(NamedTuple):
    """One broken rule, at the message that completes the fault."""

    rule: str
    """Id of the rule, as in `acp-validate rules`."""
    level: str
    """"error", "warning" or "remark"."""
    side: str
    """Who is wrong: "client" or "agent"."""
    line: int
    """Line of the message."""
    time: float | None
    """Time of the message."""
    path: str
    """The place in the message, such as `params.update.status`; "" for the whole."""
    text: str
    """One sentence."""
    excerpt: str
    """A short piece of the message around the place."""
    related: int | None = None
    """Line of the message that makes this one wrong, such as the request."""


def other(side: str) -> str:
    """The other side of the conversation."""
    return AGENT if side == CLIENT else CLIENT

"""The table of rules: who must do what, with an example of right and wrong. Data from `rules.json`.

Any thread; read once, at import. A level is the usual one: a finding may be milder where only a suspicion
is possible. `seen` says whether a recording can show the fault; the others are for `probe`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("rules.json")


class Rule(NamedTuple):
    """One rule of the protocol."""

    id: str
    side: str
    """Who must keep to it: "client", "agent" or "both"."""
    level: str
    """"error" for a MUST, "warning" for a SHOULD, "remark" for what is no fault."""
    seen: bool
    """Whether a recorded conversation can show the fault."""
    text: str
    right: str
    wrong: str


def _rules() -> Iterator[tuple[str, Rule]]:
    for name, row in json.loads(_FILE.read_text(encoding="utf-8")).items():
        side, level, seen, text, right, wrong = row
        yield name, Rule(name, side, level, seen, text, right, wrong)


RULES: dict[str, Rule] = dict(_rules())
"""Every rule by its id."""


def explain(rule: Rule) -> str:
    """A rule in full, as `acp-validate rules ID` prints it."""
    must = {"error": "MUST", "warning": "SHOULD", "remark": "remark"}[rule.level]
    lines = [f"{rule.id} ({must}; {rule.side})", f"  {rule.text}"]
    if rule.right:
        lines.append(f"  right: {rule.right}")
    if rule.wrong:
        lines.append(f"  wrong: {rule.wrong}")
    if not rule.seen:
        lines.append("  No recording can show this; `acp-validate probe` tries it out where it can.")
    return "\n".join(lines)


def summary(rule: Rule) -> str:
    """A rule on one line, as `acp-validate rules` lists it."""
    return f"{rule.id:<9} {rule.level:<8} {rule.side:<7} {rule.text}"

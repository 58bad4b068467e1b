"""Which side of an ACP connection is wrong, and why: the library behind `acp-validate`.

    from acpserver.validate import check_trace
    report = check_trace(Path("conversation.jsonl"))
    assert not report.errors, report.errors

`Validator` judges message by message, `check_trace` a whole recording. Nothing here is needed by the server.
The names are loaded when they are first used: `acp-validate run` starts the agent before anything large.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acpserver.validate.findings import Entry, Finding
    from acpserver.validate.recording import Report, check_trace
    from acpserver.validate.validator import Validator

__all__ = ["Entry", "Finding", "Report", "Validator", "check_trace"]

_HOMES = {
    "Entry": "findings",
    "Finding": "findings",
    "Report": "recording",
    "Validator": "validator",
    "check_trace": "recording",
}


def __getattr__(name: str) -> object:
    """Load a public name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Which side of an ACP connection is wrong, and why: the library behind `acp-validate`.

    from acpserver.validate import check_trace
    report = check_trace(Path("conversation.jsonl"))
    assert not report.errors, report.errors

`Validator` judges message by message, `check_trace` a whole recording. Nothing here is needed by the server.
"""

from __future__ import annotations

from acpserver.validate.findings import Entry, Finding
from acpserver.validate.recording import Report, check_trace
from acpserver.validate.validator import Validator

__all__ = ["Entry", "Finding", "Report", "Validator", "check_trace"]

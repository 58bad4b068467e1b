"""Real conversations of the official SDKs' clients and agents: nothing in them is called an error.

`tests/validate/recordings/README.md` says how they were made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from acpserver.validate import check_trace
from acpserver.validate.findings import ERROR, WARNING
from tests.official_schema import CACHE, STABLE

RECORDINGS = sorted((Path(__file__).parent / "validate" / "recordings").glob("*.jsonl"))
MADE_ON_PURPOSE = {
    # The test's own client asks for a mode that does not exist, and prompts a session that it has closed.
    "typescript-client-acpserver-options": [("N3", "client")],
    "typescript-client-acpserver-close": [("S5", "client")],
    # The SDKs' example agents do not say who they are; one shows no diff, and forgets a rejected call.
    "python-client-python-echo-agent": [("I5", "agent")],
    "typescript-client-typescript-agent-allowed": [("I5", "agent"), ("K4", "agent")],
    "typescript-client-typescript-agent-rejected": [("I5", "agent"), ("M4", "agent")],
}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_shows_no_error_but_the_ones_made_on_purpose(path: Path) -> None:
    report = check_trace(path)
    found = [(one.rule, one.side) for one in report.findings if one.level in (ERROR, WARNING)]
    assert found == MADE_ON_PURPOSE.get(path.stem, [])
    assert [one for one in report.errors if one.rule != "N3"] == []
    assert report.messages >= 10


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_official_schema_agrees(path: Path) -> None:
    file = CACHE / STABLE
    if not file.is_file():
        pytest.skip("the official schema has not been fetched (tests/test_schema_official.py does that)")
    shapes = {"schema", "forgiven", "error", "unknown"}
    report = check_trace(path, schema=file)
    assert [one for one in report.findings if one.rule in shapes] == []

"""The table of the field tests names tests that are there, and has every row that a test is named after."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_the_table_fits_the_tests() -> None:
    """A row whose test is gone, or a test whose row is not in the table."""
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    there: set[str] = set()
    for path in FOLDER.glob("test_*.py"):
        there |= set(re.findall(r"^def (test_rows?_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"test_rows?_\w+", table)) <= there
    rows = set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE))
    assert {str(int(number)) for name in there for number in re.findall(r"_(\d{3})(?=_)", name)} <= rows

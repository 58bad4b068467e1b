"""A whole recording: read, judged and counted. One thread; memory does not grow with the recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from acpserver.validate import formats
from acpserver.validate.findings import ERROR, INFO, WARNING, Entry, Finding
from acpserver.validate.stats import Stats
from acpserver.validate.validator import Validator

MAX_FINDINGS = 10_000  # that are kept; the others are only counted


class Report(NamedTuple):
    """What came out of a whole recording."""

    findings: list[Finding]
    """In the order of the messages that they stand at; at most `MAX_FINDINGS`."""
    messages: int
    stats: Stats
    counts: Counter[str]
    """All findings by level, also those that were not kept."""

    @property
    def errors(self) -> list[Finding]:
        """The broken MUSTs."""
        return [finding for finding in self.findings if finding.level == ERROR]

    @property
    def has_faults(self) -> bool:
        """Whether anything is worse than a remark."""
        return self.counts[ERROR] + self.counts[WARNING] > 0


class Reporter:
    """Feeds a validator, counts, and keeps what it finds. `tap` is told of each entry, as it is read."""

    def __init__(self, validator: Validator, tap: Callable[[Entry], None] | None = None):
        self._validator = validator
        self._tap = tap
        self._stats = Stats()
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter({ERROR: 0, WARNING: 0, INFO: 0})

    def add(self, entry: Entry) -> list[Finding]:
        """Judge one message; what it completes."""
        if self._tap:
            self._tap(entry)
        found = self._validator.feed(entry)
        self._stats.add(entry, self._validator.label, self._validator.answers)
        self._keep(found)
        return found

    def end(self) -> Report:
        """Nothing more comes: the report."""
        self._keep(self._validator.finish())
        self._findings.sort(key=lambda finding: finding.line)
        return Report(self._findings, self._stats.messages, self._stats, self._counts)

    def _keep(self, found: list[Finding]) -> None:
        for finding in found:
            self._counts[finding.level] += 1
            if len(self._findings) < MAX_FINDINGS:
                self._findings.append(finding)


def check_trace(
    source: Path | Iterable[bytes],
    *,
    format: str | None = None,
    pedantic: bool = False,
    unstable: bool = False,
    schema: Path | None = None,
    tap: Callable[[Entry], None] | None = None,
) -> Report:
    """Judge a recording: a file, or its lines. `format` is one of `formats.FORMATS`, None to recognise it.

    `tap` is called with each entry. Raises `OSError` for a file that cannot be read, `ConfigError` for a
    format or a schema that cannot be used.
    """
    reporter = Reporter(Validator(pedantic=pedantic, unstable=unstable, schema=schema), tap)
    if isinstance(source, Path):
        with source.open("rb") as lines:
            for entry in formats.read(lines, format):
                reporter.add(entry)
    else:
        for entry in formats.read(source, format):
            reporter.add(entry)
    return reporter.end()

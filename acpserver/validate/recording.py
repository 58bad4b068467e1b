"""A whole recording: read, judged and counted. One thread; memory does not grow with the recording."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from acpserver.validate.findings import ERROR, REMARK, WARNING, Entry, Finding
from acpserver.validate.formats import read
from acpserver.validate.stats import Stats
from acpserver.validate.validator import Validator

MAX_FINDINGS = 10_000  # that are kept; the others are only counted
LONGEST_LINE = 128 << 20  # bytes that are read at a time, so that memory stays bounded


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; what is longer than `LONGEST_LINE` comes in pieces."""
    return iter(lambda: file.readline(LONGEST_LINE), b"")


class Report(NamedTuple):
    """What came out of a whole recording."""

    findings: list[Finding]
    """In the order of the messages that they stand at; at most `MAX_FINDINGS`."""
    messages: int
    stats: Stats
    counts: Counter[str]
    """All findings by level, also those that were not kept."""
    is_recording: bool
    """Whether there is at least one JSON-RPC message, be it a faulty one."""

    @property
    def errors(self) -> list[Finding]:
        """The broken MUSTs."""
        return [finding for finding in self.findings if finding.level == ERROR]

    @property
    def has_faults(self) -> bool:
        """Whether anything is worse than a remark."""
        return self.counts[ERROR] + self.counts[WARNING] > 0


class Reporter:
    """Feeds a validator, counts, and keeps what it finds."""

    def __init__(self, validator: Validator):
        self._validator = validator
        self._stats = Stats()
        self._counts: Counter[str] = Counter({ERROR: 0, WARNING: 0, REMARK: 0})
        self.findings: list[Finding] = []
        """What was found so far; sorted by line at the end."""
        self.is_recording = False
        """Whether a JSON-RPC message has come."""

    def add(self, entry: Entry) -> list[Finding]:
        """Judge one message; what it completes."""
        found = self._validator.feed(entry)
        self.is_recording = self.is_recording or _is_rpc(entry.message)
        self._stats.add(entry, self._validator.label, self._validator.answers)
        self._keep(found)
        return found

    def judged(self, lines: Iterable[bytes], format: str | None = None) -> Iterator[Entry]:
        """The entries of a recording, each judged before it is passed on without secrets; the end too."""
        for entry in read(lines, format):
            self.add(entry)
            yield self._validator.shown(entry)
        self._keep(self._validator.finish())
        self.findings.sort(key=lambda finding: finding.line)

    def report(self) -> Report:
        """What came out, once everything is judged."""
        return Report(self.findings, self._stats.messages, self._stats, self._counts, self.is_recording)

    def _keep(self, found: list[Finding]) -> None:
        for finding in found:
            self._counts[finding.level] += 1
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)


def _is_rpc(message: object) -> bool:
    """Whether this is a JSON-RPC message, or was meant to be one."""
    if isinstance(message, list):
        return any(map(_is_rpc, message))
    if not isinstance(message, dict):
        return False
    has_content = not message.keys().isdisjoint(("method", "result", "error"))
    return "jsonrpc" in message or ("id" in message and has_content) or {"method", "params"} <= message.keys()


def check_trace(
    source: Path | str | Iterable[bytes | str],
    *,
    format: str | None = None,
    pedantic: bool = False,
    unstable: bool = False,
    schema: Path | None = None,
) -> Report:
    """Judge a recording: a file, or its lines. `format` is one of `formats.FORMATS`, None to recognise it.

    Raises `OSError` for a file that cannot be read, `ConfigError` for a format or a schema that cannot be
    used.
    """
    reporter = Reporter(Validator(pedantic=pedantic, unstable=unstable, schema=schema))
    if isinstance(source, (Path, str)):
        with open(source, "rb") as file:
            deque(reporter.judged(lines_of(file), format), maxlen=0)
    else:
        lines = (line.encode("utf-8", "replace") if isinstance(line, str) else line for line in source)
        deque(reporter.judged(lines, format), maxlen=0)
    return reporter.report()

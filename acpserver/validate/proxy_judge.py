"""The process that `acp-validate run` starts beside itself: it judges what passes and writes the trace.

One thread, which reads the feed from stdin until the proxy says goodbye. It is also the one who outlives a
killed proxy: then it ends the agent. It never writes to stdout, and ignores the signals that are meant for
the agent.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from acpserver import system
from acpserver.errors import ConfigError
from acpserver.validate.findings import AGENT, CLIENT, ERROR, WARNING, Entry, Finding
from acpserver.validate.live import Lines, entry_of, trace_line
from acpserver.validate.proxy_feed import CLOSING, Frame, frames
from acpserver.validate.report_text import block, counted
from acpserver.validate.validator import Validator

NAME = "acp-validate"  # begins every line, since stderr is the agent's too
KILL_AFTER = 0.5  # seconds that the agent of a killed proxy has to notice the end of its input

ALONE = frozenset({"T1", "T2", "J1", "J5", "J10", "schema"})
"""Rules that one message can break by itself; so far they are still judged after something was missed."""


def main() -> int:
    """Judge until the feed ends. The exit status says nothing; the report does."""
    system.ignore_shutdown()
    args = _parser().parse_args()
    with contextlib.ExitStack() as files:
        report = files.enter_context(open(args.report, "ab", buffering=0)) if args.report else None
        trace = files.enter_context(open(args.trace, "ab", buffering=0)) if args.trace else None
        validator = _validator(args.pedantic, args.unstable, Path(args.schema) if args.schema else None)
        judge = Judge(validator, report or sys.stderr.buffer, trace)
        in_peace = False
        for frame in frames(sys.stdin.buffer):
            in_peace = frame.kind == CLOSING
            judge.take(frame)
        judge.finish(verbose=report is not None)
    if not in_peace:
        _end_orphan(args.agent_pid)
    return 0


def _validator(pedantic: bool, unstable: bool, schema: Path | None) -> Validator:
    """What judges. A file that is no schema must not end the watch over the agent and the trace."""
    try:
        return Validator(pedantic=pedantic, unstable=unstable, schema=schema)
    except ConfigError as error:
        sys.stderr.write(f"{NAME}: {error}; the built-in schema is used\n")
        return Validator(pedantic=pedantic, unstable=unstable)


class Judge:
    """Feeds the validator with what passed, and writes what it finds as soon as it is found."""

    def __init__(self, validator: Validator, report: BinaryIO, trace: BinaryIO | None = None):
        self._validator = validator
        self._report = report
        self._trace = trace
        self._lines = {CLIENT: Lines(), AGENT: Lines()}
        self._number = 0
        self._counts = {ERROR: 0, WARNING: 0}
        self._missed = 0  # bytes

    def take(self, frame: Frame) -> None:
        """Look at one block."""
        if frame.kind == CLOSING:
            return
        lines = self._lines[frame.kind]
        if frame.lost:
            lines.lose()
            self._miss(f"fell behind: {frame.lost:,} bytes of the {frame.kind} were not checked", frame.lost)
        self._look_at(frame.kind, frame.time, lines.add(frame.data))

    def finish(self, verbose: bool) -> None:
        """What is only wrong at the end, and a summary: always when `verbose`, else only after faults."""
        now = time.time()
        for sender, lines in self._lines.items():
            self._look_at(sender, now, lines.rest())
        if not self._missed:
            self._tell(self._validator.finish())
        if verbose or any(self._counts.values()):
            errors, warnings = self._counts[ERROR], self._counts[WARNING]
            told = zip((self._number, errors, warnings), ("message", "error", "warning"), strict=True)
            self._write(f"{NAME}: {', '.join(counted(*one) for one in told)}")

    def _look_at(self, sender: str, at: float, lines: Iterable[bytes | None]) -> None:
        for line in lines:
            self._number += 1
            if line is None:
                self._miss(f"line {self._number} of the {sender} was not checked: it is too long", 1)
                continue
            entry = entry_of(self._number, at, sender, line)
            if self._trace is not None:
                self._record(entry, line)
            self._tell(self._validator.feed(entry))

    def _miss(self, text: str, count: int) -> None:
        more = "" if self._missed else "; from here on only single messages are judged"
        self._write(f"{NAME}: {text}{more}")
        self._missed += count

    def _tell(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            is_alone = finding.rule in ALONE and finding.related is None
            if self._missed and not is_alone:
                continue
            if finding.level in self._counts:
                self._counts[finding.level] += 1
            self._write(block(NAME, finding))

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a full disk or a closed stderr ends the report only
            self._report.write(f"{text}\n".encode("utf-8", "replace"))
            self._report.flush()

    def _record(self, entry: Entry, line: bytes) -> None:
        assert self._trace is not None
        with contextlib.suppress(OSError):  # a full disk must not end the judging
            self._trace.write(trace_line(entry, line))


def _end_orphan(pid: int) -> None:
    """The proxy was killed, so the agent must go too, as it would have if it had been the one started."""
    deadline = time.monotonic() + KILL_AFTER
    while system.process_alive(pid):
        if time.monotonic() > deadline:
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    for name in ("--trace", "--report", "--schema"):
        parser.add_argument(name, default="")
    for name in ("--pedantic", "--unstable"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("agent_pid", type=int)
    return parser

"""A report for people: one block for each fault, a summary last. Colours only where they are wanted.

Writes to the stream that it is given, from one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple, TextIO

from acpserver.validate.findings import AGENT, ERROR, REMARK, WARNING, Finding
from acpserver.validate.recording import Report
from acpserver.validate.stats import Samples, Stats

_COLOURS = {ERROR: "31", WARNING: "33", REMARK: "36", "dim": "2", "bold": "1", "mark": "4"}
_ARROWS = {"client": "client -> agent", AGENT: "agent -> client"}
_SAME = 3  # findings of one rule and path that are shown in full; the others are counted


class Style(NamedTuple):
    """How a report is shown."""

    colour: bool = False
    quiet: bool = False
    """Only the summary."""
    most: int | None = None
    """How many findings are shown; None: all."""

    def paint(self, kind: str, text: str) -> str:
        """`text` in the colour of a level, "bold", "dim" or "mark"."""
        return f"\033[{_COLOURS[kind]}m{text}\033[0m" if self.colour else text


PLAIN = Style()


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours (NO_COLOR and TERM=dumb say no)."""
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def print_report(stream: TextIO, name: str, report: Report, style: Style) -> None:
    """Write the findings of one recording and their summary."""
    if not style.quiet:
        shown = _folded(report.findings)
        for finding, more in shown[: style.most]:
            stream.write(block(name, finding, style) + "\n")
            if more:
                stream.write(style.paint("dim", f"    and {more} more like this") + "\n")
            stream.write("\n")
        hidden = len(shown[style.most :]) if style.most is not None else 0
        if hidden:
            stream.write(style.paint("dim", f"{hidden} more are not shown (--max)") + "\n\n")
    stream.write(summary(name, report, style) + "\n")


def block(name: str, finding: Finding, style: Style = PLAIN) -> str:
    """One finding in full, without a line end."""
    when = "" if finding.time is None else f" {_clock(finding.time)}"
    head = f"{style.paint(finding.level, finding.level)} {style.paint('bold', finding.rule)}"
    lines = [f"{plain(name)}:{finding.line}:{when} {head} {finding.side}: {plain(finding.text)}"]
    if finding.path:
        lines.append(f"    at {style.paint('bold', plain(finding.path))}")
    if finding.excerpt:
        lines.extend(f"    {line}" for line in _marked(finding, style))
    if finding.related is not None:
        lines.append(f"    see line {finding.related}")
    return "\n".join(lines)


def summary(name: str, report: Report, style: Style = PLAIN) -> str:
    """One line: what there was and who is wrong; perhaps only, where it is all warnings."""
    counts = report.counts
    wrong = {finding.side for finding in report.findings if finding.level == ERROR}
    suspected = {finding.side for finding in report.findings if finding.level == WARNING} - wrong
    parts = [counted(report.messages, "message")]
    parts += [counted(counts[level], level) for level in (ERROR, WARNING)]
    if counts[REMARK]:
        parts.append(counted(counts[REMARK], REMARK))
    who = f"; wrong: {' and '.join(sorted(wrong))}" if wrong else ""
    who += f"; perhaps: {' and '.join(sorted(suspected))}" if suspected else ""
    worst = ERROR if counts[ERROR] else WARNING if counts[WARNING] else "dim"
    return style.paint(worst, f"{plain(name)}: {', '.join(parts)}{who}")


def print_stats(stream: TextIO, stats: Stats) -> None:
    """Write the figures of a conversation."""
    lines = [f"messages {stats.messages}, bytes {stats.size}"]
    if stats.begin is not None and stats.end is not None:
        lines.append(f"time {stats.end - stats.begin:.3f} s, longest silence {stats.silence:.3f} s")
    lines.append("sent:")
    for (side, method), count in sorted(stats.calls.items()):
        lines.append(f"  {side:<7} {plain(method):<28} {count}")
    for kind, count in stats.updates.most_common():
        lines.append(f"    {plain(kind):<32} {count}")
    lines.append("bytes of a message (median, 95 %, greatest):")
    for method, sizes in sorted(stats.sizes.items()):
        lines.append(f"  {plain(method) or '(no message)':<36} {_row(sizes, 0)}")
    if stats.latencies:
        lines.append("answered after ms (median, 95 %, greatest):")
        rows = sorted(stats.latencies.items())
        lines += [f"  {plain(name):<36} {_row(times, 1, 1000)}" for name, times in rows]
    if stats.first_chunk.count:
        lines.append(f"first chunk after ms (median, 95 %, greatest): {_row(stats.first_chunk, 1, 1000)}")
    if stats.chunk_rate.count:
        lines.append(f"chunks in a second (median, 95 %, greatest): {_row(stats.chunk_rate, 1)}")
    stream.write("\n".join(lines) + "\n")


def _row(samples: Samples, digits: int, factor: float = 1) -> str:
    values = (samples.quantile(0.5), samples.quantile(0.95), samples.greatest)
    return " ".join(f"{value * factor:>10.{digits}f}" for value in values)


def _folded(findings: Iterable[Finding]) -> list[tuple[Finding, int]]:
    """The findings to show, each with the number of later ones that are like it and are not shown."""
    shown: list[tuple[Finding, int]] = []
    seen: dict[tuple[str, str, str], list[int]] = {}
    for finding in findings:
        kind = (finding.rule, finding.side, "".join(c for c in finding.path if not c.isdigit()))
        places = seen.setdefault(kind, [])
        if len(places) >= _SAME:
            first, count = shown[places[-1]]
            shown[places[-1]] = (first, count + 1)
        else:
            places.append(len(shown))
            shown.append((finding, 0))
    return shown


def _marked(finding: Finding, style: Style) -> list[str]:
    """The excerpt, with the place marked: underlined, or by a line of carets."""
    text = plain(finding.excerpt)
    name = finding.path.rpartition(".")[2].partition("[")[0]
    at = text.find(f'"{name}"') if name else -1
    if at < 0:
        return [text]
    end = at + len(name) + 2
    if style.colour:
        return [text[:at] + style.paint("mark", text[at:end]) + text[end:]]
    return [text, " " * at + "^" * (end - at)]


def plain(text: str) -> str:
    """`text` without what a terminal would obey or no encoding can hold: recordings hold anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _clock(time: float) -> str:
    seconds = time % 86_400
    return f"{int(seconds // 3600):02}:{int(seconds // 60 % 60):02}:{seconds % 60:06.3f}"


def counted(number: int, word: str) -> str:
    """ "1 error", "2 errors"."""
    return f"{number} {word}" + ("" if number == 1 else "s")

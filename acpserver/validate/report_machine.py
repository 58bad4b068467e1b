"""Reports for programs: JSON, SARIF 2.1.0 and JUnit XML. Pure functions that return text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from acpserver.validate.findings import ERROR, REMARK, WARNING, Finding
from acpserver.validate.recording import Report
from acpserver.validate.rules import RULES
from acpserver.validate.stats import Samples, Stats
from acpserver.version import __version__

Reports = Sequence[tuple[str, Report]]
"""(name of the recording, its report)."""
Failures = Sequence[tuple[str, str]]
"""(name of a file that could not be judged, the reason)."""

_SARIF_LEVELS = {ERROR: "error", WARNING: "warning", REMARK: "note"}


def as_json(reports: Reports, failures: Failures = (), with_stats: bool = False) -> str:
    """One object: for each recording its counts, its findings and, if wanted, its figures."""
    files: list[dict[str, object]] = [
        {
            "file": name,
            "messages": report.messages,
            "errors": report.counts[ERROR],
            "warnings": report.counts[WARNING],
            "remarks": report.counts[REMARK],
            "findings": [finding._asdict() for finding in report.findings],
            **({"stats": _stats(report.stats)} if with_stats else {}),
        }
        for name, report in reports
    ]
    failed = [{"file": name, "reason": reason} for name, reason in failures]
    return json.dumps({"version": __version__, "files": files, "failed": failed}, indent=2)


def _stats(stats: Stats) -> dict[str, object]:
    """The figures; times in seconds, null where no times were recorded."""
    has_times = stats.begin is not None and stats.end is not None
    return {
        "messages": stats.messages,
        "bytes": stats.size,
        "seconds": stats.end - stats.begin if stats.begin is not None and stats.end is not None else None,
        "longestSilence": stats.silence if has_times else None,
        "sent": [
            {"side": side, "method": name, "count": count}
            for (side, name), count in sorted(stats.calls.items())
        ],
        "updates": dict(stats.updates),
        "messageBytes": {name: _samples(sizes) for name, sizes in sorted(stats.sizes.items())},
        "latencies": {name: _samples(times) for name, times in sorted(stats.latencies.items())},
        "firstChunk": _samples(stats.first_chunk),
        "chunksPerSecond": _samples(stats.chunk_rate),
    }


def _samples(samples: Samples) -> dict[str, float]:
    return {
        "count": samples.count,
        "p50": samples.quantile(0.5),
        "p95": samples.quantile(0.95),
        "max": samples.greatest,
    }


def as_sarif(reports: Reports, failures: Failures = (), with_stats: bool = False) -> str:
    """SARIF, which code hosts show beside the file."""
    used = sorted({finding.rule for _, report in reports for finding in report.findings})
    rules = [
        {
            "id": name,
            "shortDescription": {"text": RULES[name].text},
            "defaultConfiguration": {"level": _SARIF_LEVELS[RULES[name].level]},
        }
        for name in used
    ]
    results = [_result(name, finding) for name, report in reports for finding in report.findings]
    driver = {"name": "acp-validate", "version": __version__, "rules": rules}
    told = [{"level": "error", "message": {"text": reason}} for _, reason in failures]
    invocation = {"executionSuccessful": not told, "toolExecutionNotifications": told}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2)


def _result(name: str, finding: Finding) -> dict[str, object]:
    place = f" ({finding.path})" if finding.path else ""
    region = {"startLine": max(finding.line, 1)}
    location = {"physicalLocation": {"artifactLocation": {"uri": quote(os.fsencode(name))}, "region": region}}
    return {
        "ruleId": finding.rule,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": f"{finding.side}: {finding.text}{place}"},
        "locations": [location],
    }


def as_junit(reports: Reports, failures: Failures = (), with_stats: bool = False) -> str:
    """JUnit: a suite for each recording, a case for each rule that can be judged; broken ones fail."""
    suites = [_suite(name, report) for name, report in reports]
    suites += [_failed_suite(name, reason) for name, reason in failures]
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "".join(suites) + "</testsuites>"


def _suite(name: str, report: Report) -> str:
    broken: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.level != REMARK:
            broken.setdefault(finding.rule, []).append(finding)
    cases = [rule for rule in RULES if RULES[rule].seen]
    head = f'tests="{len(cases)}" failures="{len(broken)}"'
    label = quoteattr(_xml(name))
    lines = [f"  <testsuite name={label} {head}>\n"]
    for rule in cases:
        case = f"    <testcase classname={label} name={quoteattr(f'{rule} {RULES[rule].text}')}"
        if rule not in broken:
            lines.append(f"{case}/>\n")
            continue
        told = "\n".join(f"line {one.line}: {one.side}: {one.path} {one.text}" for one in broken[rule])
        message = quoteattr(_xml(broken[rule][0].text))
        lines.append(
            f"{case}>\n      <failure message={message}>{escape(_xml(told))}</failure>\n    </testcase>\n"
        )
    return "".join(lines) + "  </testsuite>\n"


def _failed_suite(name: str, reason: str) -> str:
    label, message = quoteattr(_xml(name)), quoteattr(_xml(reason))
    case = f'<testcase classname={label} name="judge the recording"><error message={message}/></testcase>'
    return f'  <testsuite name={label} tests="1" errors="1">\n    {case}\n  </testsuite>\n'


def _xml(text: str) -> str:
    """`text` without the characters that XML 1.0 does not have."""
    return "".join(
        c if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c != "\ufffe" else "?" for c in text
    )


OUTPUTS: dict[str, Callable[[Reports, Failures, bool], str]] = {
    "json": as_json, "sarif": as_sarif, "junit": as_junit
}  # fmt: skip
"""By the name on the command line; the figures stand in JSON only, the other two have no place for them."""

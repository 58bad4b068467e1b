"""`acp-validate probe`: run the scenarios one after another, a line for each, a summary last.

One thread. The exit status is 0 without a FAIL, 1 with one, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from acpserver import system
from acpserver.validate.findings import ERROR, WARNING, Finding
from acpserver.validate.probe import (  # noqa: F401 - a scenario module registers its scenarios on import
    cancels,
    ending,
    framing,
    handshake,
    options,
    permissions,
    sessions,
    tools,
    turns,
)
from acpserver.validate.probe.stage import SCENARIOS, Options, Scenario, Stage
from acpserver.validate.probe.verdict import (
    FAIL,
    PASS,
    SKIP,
    STATUSES,
    WARN,
    Broken,
    Doubtful,
    Skipped,
    Verdict,
)
from acpserver.validate.report_text import plain

PROMPT_KEYS = ("hello", "tool", "permission", "read", "write", "terminal", "slow", "plan")
GROUPS = (
    "handshake",
    "ids",
    "malformed",
    "methods",
    "lines",
    "sessions",
    "options",
    "turns",
    "cancel",
    "permission",
    "tools",
    "files",
    "terminals",
    "ending",
)
_WRONG_ON_PURPOSE = ("malformed", "methods", "ids", "lines")
"""Groups that send what no client may send; they judge the answers to it themselves."""
_END = "the end of the run"
_COLOURS = {PASS: "32", FAIL: "31", WARN: "33", SKIP: "2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `probe` understands."""
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        help="a JSON object with prompts that make this agent do "
        f"things: {', '.join(PROMPT_KEYS)}; each turns its scenarios into demands",
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        action="append",
        help="only scenarios whose rule is TEXT, or whose name contains it; may be repeated",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=10.0,
        help="how long an answer may take (default 10)",
    )
    parser.add_argument(
        "--start-timeout",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long a start, a session and a whole turn may take (default 60)",
    )
    parser.add_argument(
        "--own-home",
        action="store_true",
        help="let the agent use your home folder, its logins and sessions, instead of an empty one",
    )
    parser.add_argument("--unstable", action="store_true", help="allow the experimental parts of v1")
    parser.add_argument("--schema", metavar="FILE", help="an official schema file to judge by")
    parser.add_argument("--traces", metavar="DIR", help="write each conversation to a file in DIR")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="what is printed")
    parser.add_argument("--list", action="store_true", help="list the scenarios and run none")
    parser.add_argument("agent", nargs=argparse.REMAINDER, metavar="-- AGENT ARGS…", help="the agent")


def run(args: argparse.Namespace) -> int:
    """Probe the agent; the exit status."""
    command = args.agent[1:] if args.agent[:1] == ["--"] else args.agent
    chosen = [one for one in ordered(SCENARIOS) if _wanted(one, args.only or [])]
    if args.list:
        _print("".join(f"{one.rule:<4} {one.name}\n" for one in chosen))
        return 0
    try:
        given = prompts(args.prompts) if args.prompts else {}
    except (OSError, ValueError) as error:
        return _cannot(f"{args.prompts}: {getattr(error, 'strerror', None) or error}")
    if not command or not chosen:
        return _cannot("name the agent after --" if chosen else "no scenario fits --only")
    if shutil.which(command[0]) is None:
        return _cannot(f"{command[0]}: there is no such program")
    settings = Options(
        command,
        given,
        args.timeout,
        args.start_timeout,
        unstable=args.unstable,
        own_home=args.own_home,
        schema=Path(args.schema) if args.schema else None,
        traces=Path(args.traces) if args.traces else None,
    )
    if settings.traces is not None:
        settings.traces.mkdir(parents=True, exist_ok=True)
    system.unwind_on("SIGINT", "SIGTERM", "SIGHUP")  # the agent is in a group of its own, and must not stay
    stage = Stage(settings)
    verdicts: list[Verdict] = []
    try:
        for verdict in probe(stage, chosen):
            verdicts.append(verdict)
            if args.output == "text":
                _print(line(verdict, sys.stdout.isatty()))
    except KeyboardInterrupt:
        stage.close()
        return 130
    counts = Counter(verdict.status for verdict in verdicts)
    if args.output == "json":
        summary = {status: counts[status] for status in STATUSES}
        body = {"agent": command, "summary": summary, "verdicts": [verdict._asdict() for verdict in verdicts]}
        _print(json.dumps(body, indent=2) + "\n")
    else:
        _print(", ".join(f"{counts[status]} {status}" for status in STATUSES) + "\n")
    return 1 if counts[FAIL] else 0


def ordered(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """In the order in which a conversation goes."""
    return sorted(scenarios, key=lambda one: GROUPS.index(one.name.partition("/")[0]))


def probe(stage: Stage, scenarios: Iterable[Scenario]) -> Iterable[Verdict]:
    """Run the scenarios; then one verdict for each rule that any message broke on the way."""
    found: list[Verdict] = []
    try:
        for one in scenarios:
            verdict = _try(stage, one)
            found.append(verdict)
            yield verdict
    finally:
        stage.scenario = _END
        stage.close()
    known = {verdict.rule for verdict in found if verdict.status in (FAIL, WARN)}
    yield from conversation(stage.findings, stage.noise, known)


def _try(stage: Stage, one: Scenario) -> Verdict:
    """One scenario, whatever the agent does."""
    stage.scenario = one.name
    start = time.monotonic()
    status, text, well = PASS, "", True
    try:
        one.run(stage)
    except Skipped as skipped:
        status, text = SKIP, str(skipped)
    except Doubtful as doubtful:
        status, text = WARN, str(doubtful)
    except Broken as broken:
        status, text, well = WARN if one.advice else FAIL, str(broken), False
    stage.collect()
    stage.leave(well)
    return Verdict(status, one.rule, one.name, text, round(time.monotonic() - start, 3))


def conversation(
    findings: list[tuple[str, Finding]], noise: list[tuple[str, str]], known: set[str]
) -> Iterable[Verdict]:
    """What the validator found in all conversations of the run, a line for each rule."""
    by_rule: dict[str, list[tuple[str, Finding]]] = {}
    for name, finding in findings:
        ours = finding.rule.startswith("J") and name.partition("/")[0] in (*_WRONG_ON_PURPOSE, _END)
        if finding.level in (ERROR, WARNING) and finding.rule not in known and not ours:
            by_rule.setdefault(finding.rule, []).append((name, finding))
    if noise and "T2" not in known and "T2" not in by_rule:
        name, text = noise[0]
        yield Verdict(
            FAIL, "T2", "messages/T2", f"stdout holds what is no message, as in {name}: {text[:120]!r}"
        )
    for rule, items in sorted(by_rule.items()):
        errors = [item for item in items if item[1].level == ERROR]
        name, first = (errors or items)[0]
        place = f"{first.path}: " if first.path else ""
        times = f" ({len(items)} times)" if len(items) > 1 else ""
        text = f"{place}{first.text}{times}, as in {name}: {first.excerpt[:120]}"
        yield Verdict(FAIL if errors else WARN, rule, f"messages/{rule}", text)
    if not by_rule and not noise:
        yield Verdict(PASS, "J1", "messages/all", "every message of the agent fits")


def line(verdict: Verdict, coloured: bool) -> str:
    """One line of the report."""
    status = f"{verdict.status:<4}"
    if coloured:
        status = f"\x1b[{_COLOURS[verdict.status]}m{status}\x1b[0m"
    text = plain(" ".join(verdict.text.split()))
    return f"{status} {verdict.rule:<6} {verdict.name}{': ' if text else ''}{text}\n"


def prompts(path: str) -> dict[str, str]:
    """The user's prompts. Raises `ValueError` for anything but an object of texts with known keys."""
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise ValueError("must be a JSON object of texts")
    if unknown := set(given) - set(PROMPT_KEYS):
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}; there are {', '.join(PROMPT_KEYS)}")
    return given


def _wanted(one: Scenario, texts: list[str]) -> bool:
    return not texts or any(text == one.rule or text in one.name for text in texts)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _cannot(text: str) -> int:
    sys.stderr.write(f"acp-validate: {text}\n")
    return 2

"""The command line `acp-validate`, but for `run`: judge recordings and messages, probe agents, explain rules.

Runs on the main thread. The exit status is 0 without faults, 1 with some, 2 when it could not run.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from acpserver import jsontext
from acpserver.errors import ConfigError
from acpserver.validate import page
from acpserver.validate.findings import ERROR, WARNING, Entry, Finding
from acpserver.validate.formats import FORMATS
from acpserver.validate.hints import for_method
from acpserver.validate.probe import command as probe
from acpserver.validate.recording import Report, Reporter, lines_of
from acpserver.validate.report_machine import OUTPUTS
from acpserver.validate.report_text import Style, block, plain, print_report, print_stats, wants_colour
from acpserver.validate.rules import RULES, explain, summary
from acpserver.validate.schemas import Judge
from acpserver.validate.validator import Validator, excerpt_of, quotable
from acpserver.version import __version__

NO_FAULTS, FAULTS, CANNOT = 0, 1, 2
_EARLY = 2000  # lines before the first message that a page shows

_EPILOG = """\
other ways to use it:
  acp-validate run [FLAGS] -- AGENT ARGS...    stand between an editor and an agent
  acp-validate probe [FLAGS] -- AGENT ARGS...  try out an agent
  acp-validate message METHOD FILE             judge one message
  acp-validate rules [ID...]                   explain the rules

Exit status: 0 no faults, 1 faults, 2 could not run.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # recordings hold what the terminal's encoding may not have
        sys.stdout.reconfigure(errors="backslashreplace")
    commands = {"probe": _probe, "message": _message, "rules": _rules}  # `run` is the door's
    try:
        if given and given[0] in commands:
            return commands[given[0]](given[1:])
        return _files(given)
    except (ConfigError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader of our report has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAULTS
        sys.stderr.write(f"acp-validate: {_words(error)}\n")
        return CANNOT


def _words(error: Exception) -> str:
    """What a person should read about an error: of the system's, the file and the reason, not the number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def parser() -> argparse.ArgumentParser:
    """The parser for recordings, the usual way to call it."""
    root = argparse.ArgumentParser(
        prog="acp-validate",
        description="Find out which side of an ACP connection is wrong, and why.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"acp-validate {__version__}")
    root.add_argument("files", nargs="+", metavar="FILE", help="a recorded conversation; - is stdin")
    root.add_argument("--format", choices=FORMATS, help="of the recordings; without it, it is recognised")
    _add_checks(root)
    root.add_argument("--output", choices=("text", *OUTPUTS), default="text", help="what is printed")
    root.add_argument("--html", metavar="FILE", help="write a page that shows the conversation (one FILE)")
    root.add_argument("--stats", action="store_true", help="print counts, sizes and times too (text, json)")
    root.add_argument("--quiet", action="store_true", help="print only the summary (text)")
    root.add_argument("--max", type=_count, metavar="N", help="print at most N findings of each (text)")
    return root


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of findings")
    return int(text)


def _add_checks(target: argparse.ArgumentParser) -> None:
    target.add_argument("--pedantic", action="store_true", help="report unknown fields too")
    target.add_argument("--unstable", action="store_true", help="allow the experimental parts of v1")
    target.add_argument("--schema", metavar="FILE", type=Path, help="an official schema file to judge by")


def _files(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.html and len(options.files) > 1:
        raise ConfigError("--html shows one recording; give one FILE")
    if options.html and all(map(os.path.exists, (options.html, options.files[0]))):
        if os.path.samefile(options.html, options.files[0]):
            raise ConfigError("--html names the recording itself, which would be lost")
    _validator(options)  # raises what is wrong with every file
    style = Style(wants_colour(sys.stdout), options.quiet, options.max)
    reports: list[tuple[str, Report]] = []
    failures: list[tuple[str, str]] = []
    has_faults = False
    for name in options.files:
        try:
            report = _judge(name, options)
        except (ConfigError, OSError) as error:
            failures.append((name, _words(error)))
            sys.stderr.write(f"acp-validate: {failures[-1][1]}\n")
            continue
        has_faults = has_faults or report.has_faults
        if options.output == "text":
            _show(name, report, options, style)
        else:
            reports.append((name, report))
    if options.output != "text":
        sys.stdout.write(OUTPUTS[options.output](reports, failures, options.stats) + "\n")
    sys.stdout.flush()
    return CANNOT if failures else FAULTS if has_faults else NO_FAULTS


def _validator(options: argparse.Namespace) -> Validator:
    return Validator(pedantic=options.pedantic, unstable=options.unstable, schema=options.schema)


def _judge(name: str, options: argparse.Namespace) -> Report:
    """Judge one file, and write its page. Raises `ConfigError` for one that holds no conversation."""
    reporter = Reporter(_validator(options))
    with _opened(name) as file:
        entries = reporter.judged(lines_of(file), options.format)
        early: deque[Entry] = deque(maxlen=_EARLY)  # a page is only written of what is a recording
        while not reporter.is_recording and (entry := next(entries, None)):
            early.append(entry)
        if reporter.is_recording and options.html:
            page.write(Path(options.html), chain(early, entries), reporter.findings, title=name)
        deque(entries, maxlen=0)
    if not reporter.is_recording:
        formats = f"try --format, one of {', '.join(FORMATS)}"
        raise ConfigError(f"{name}: not a recording: there is no JSON-RPC message in it ({formats})")
    return reporter.report()


def _show(name: str, report: Report, options: argparse.Namespace, style: Style) -> None:
    print_report(sys.stdout, name, report, style)
    if options.stats:
        print_stats(sys.stdout, report.stats)
    if options.html and not options.quiet:
        sys.stdout.write(f"{plain(name)}: the page is {plain(options.html)}\n")


def _opened(name: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb")


def _probe(arguments: list[str]) -> int:
    own = argparse.ArgumentParser(
        prog="acp-validate probe", description="Try out an agent, scenario by scenario."
    )
    probe.add_arguments(own)
    return probe.run(own.parse_args(arguments))


def _message(arguments: list[str]) -> int:
    """Judge the params, the result or the error of one message."""
    own = argparse.ArgumentParser(prog="acp-validate message", description="Judge one message.")
    own.add_argument("method", metavar="METHOD", help="such as session/new")
    own.add_argument("file", metavar="FILE", help="the JSON text of it, or of the whole message; - is stdin")
    parts = own.add_mutually_exclusive_group()
    for part in ("params", "result", "error"):
        parts.add_argument(
            f"--{part}", dest="part", action="store_const", const=part, help=f"FILE holds {part}"
        )
    _add_checks(own)
    options = own.parse_args(arguments)
    judge = Judge(options.schema, options.unstable, options.pedantic)
    known = judge.method(options.method)
    if known is None:
        hint = for_method(options.method, judge.methods())
        raise ConfigError(f"{options.method}: no method of the protocol{hint and '; ' + hint}")
    part = options.part or "params"
    if part != "params" and known.result is None:
        raise ConfigError(f"{options.method} is a notification; nothing answers it")
    with _opened(options.file) as file:
        text = file.read().decode("utf-8-sig", "replace")
    try:
        value = jsontext.loads(text)
    except ValueError as error:
        raise ConfigError(f"{options.file}: not JSON: {error}") from None
    if isinstance(value, dict) and "jsonrpc" in value:  # the message with its envelope
        if part not in value and part != "params":
            raise ConfigError(f"{options.file}: this message has no {part}")
        value = value.get(part)
    receiver = "agent" if known.receiver == "agent" else "client"
    sender = "client" if receiver == "agent" else "agent"
    if part == "error":
        found = judge.error(receiver, value)
    elif part == "result":
        found = judge.result(receiver, options.method, value)
    else:
        found = judge.params(sender, options.method, value)
    entry = quotable(Entry(1, None, sender, {part: value}, " ".join(text.split())))
    for breach in found:
        excerpt = excerpt_of(entry, breach.path)
        told = Finding(breach.rule, breach.level, breach.side, 1, None, breach.path, breach.text, excerpt)
        sys.stdout.write(block(options.file, told, Style(wants_colour(sys.stdout))) + "\n\n")
    is_faulty = any(breach.level in (ERROR, WARNING) for breach in found)
    sys.stdout.write(f"{options.file}: {'does not fit' if is_faulty else 'fits'} {options.method}\n")
    return FAULTS if is_faulty else NO_FAULTS


def _rules(arguments: list[str]) -> int:
    own = argparse.ArgumentParser(prog="acp-validate rules", description="Explain the rules.")
    own.add_argument("ids", nargs="*", metavar="ID", help="such as K1; without any, all are listed")
    wanted = own.parse_args(arguments).ids
    if not wanted:
        sys.stdout.write("\n".join(map(summary, RULES.values())) + "\n")
        return NO_FAULTS
    by_id = {name.lower(): rule for name, rule in RULES.items()}
    unknown = [name for name in wanted if name.lower() not in by_id]
    if unknown:
        raise ConfigError(f"no rule {', '.join(unknown)}; `acp-validate rules` lists them")
    sys.stdout.write("\n\n".join(explain(by_id[name.lower()]) for name in wanted) + "\n")
    return NO_FAULTS


if __name__ == "__main__":
    sys.exit(main())

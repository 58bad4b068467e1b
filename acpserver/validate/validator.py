"""One conversation, judged message by message.

One thread at a time. Nothing is raised for what is in the messages, and no more is kept than the open
things: requests, sessions, turns, calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from acpserver import jsontext
from acpserver.rpc import legacy
from acpserver.transports.trace import without_secrets
from acpserver.validate.documents import Spread
from acpserver.validate.envelope import ANSWER, CALL, Envelope, open_envelope
from acpserver.validate.findings import (
    AGENT,
    CLIENT,
    ERROR,
    MAX_EXCERPT,
    MAX_TEXT,
    REMARK,
    WARNING,
    Entry,
    Finding,
)  # fmt: skip
from acpserver.validate.hints import for_method
from acpserver.validate.rules import RULES
from acpserver.validate.schemas import Judge
from acpserver.validate.state import Answer, Breach, Call, Mark, key
from acpserver.validate.state_answers import Secrets
from acpserver.validate.state_requests import Requests
from acpserver.validate.watchers import Watcher, watchers
from acpserver.validate.world import World


class Validator:
    """Judges one conversation. `schema` is an official schema file to use in place of ours.

    `pedantic` reports unknown fields too; `unstable` takes the experimental parts of the protocol for
    granted. Raises `ConfigError` for a schema that cannot be used.
    """

    def __init__(self, *, pedantic: bool = False, unstable: bool = False, schema: Path | None = None):
        self._judge = Judge(schema, unstable, pedantic)
        self.label = ""
        """What the last message was: its method, or the method that it answers."""
        self.answers: Call | None = None
        """The request that the last message answers."""
        self._begin()

    def _begin(self) -> None:
        """Forget everything: a connection begins."""
        self._world = World()
        self._requests = Requests(self._world)
        self._watchers: list[Watcher] = watchers(self._world)
        self._secrets = Secrets()
        self._spread = {CLIENT: Spread(), AGENT: Spread()}
        self._end: Mark | None = None
        self._opening: str | None = None  # the key of the id of `initialize`

    def feed(self, entry: Entry) -> list[Finding]:
        """Judge the next message: the findings that it completes."""
        opened = self._opened(entry)
        ended = self._ended(entry, opened)
        leaks = list(self._secrets.look(entry))
        quoted = self._secrets.shown(quotable(entry))
        mark = Mark(entry.line, entry.time, quoted.text[:MAX_EXCERPT])
        self._end, self.label, self.answers = mark, "", None
        found = list(opened.breaches)
        if opened.kind == CALL:
            found += self._call(entry, mark, opened)
        elif opened.kind == ANSWER:
            found += self._answer(entry, mark, opened)
        else:
            self._requests.broken(entry, opened, mark)
            for watcher in self._watchers:
                watcher.disturbed(entry.sender)
        found += leaks
        placed = [self._place(breach, quoted, mark) for breach in found]
        if leaks:  # a sentence may quote the very value
            placed = [one._replace(text=self._secrets.hidden(one.text)) for one in placed]
        return [*ended, *placed]

    def shown(self, entry: Entry) -> Entry:
        """A message that was judged, as people may see it: without the secrets that were found."""
        return self._secrets.shown(entry)

    def _opened(self, entry: Entry) -> Envelope:
        """The envelope; of what one side sends over several lines, only the first one is told."""
        opened, spread = open_envelope(entry), self._spread[entry.sender]
        if opened.kind in (CALL, ANSWER):
            spread.end()
        elif spread.goes_on(entry.text):
            return opened._replace(breaches=[])
        return opened

    def _ended(self, entry: Entry, opened: Envelope) -> list[Finding]:
        """The end of a connection that shows only in the beginning of another: an `initialize` with the id of
        the first one, which has been answered. Several processes wrote to one file, one after the other."""
        if entry.sender != CLIENT or opened.method != "initialize" or opened.id is None:
            return []
        name = key(opened.id)
        if self._opening != name or name in self._world.open[CLIENT]:
            self._opening = self._opening or name
            return []
        found = self.finish()
        self._begin()
        self._opening = name
        return found

    def finish(self) -> list[Finding]:
        """The end of the conversation: what is only wrong because nothing more comes."""
        found = list(self._requests.finish(self._end))
        for watcher in self._watchers:
            found += watcher.finish(self._end)
        nothing = Entry(0, None, AGENT, None, "")
        end = self._end or Mark(0, None, "")
        return [self._place(breach, nothing, end) for breach in found]

    def _call(self, entry: Entry, mark: Mark, opened: Envelope) -> Iterator[Breach]:
        side = entry.sender
        method, params = opened.method, opened.params
        if side == CLIENT:  # agents were never told to take old names
            method, params = legacy.canonical(method, params)
        self.label = method
        if method != opened.method:
            yield Breach("L1", side, "method", f"{opened.method} is an old name of {method}", WARNING)
        if (
            isinstance(opened.params, dict)
            and isinstance(params, dict)
            and params.keys() != opened.params.keys()
        ):
            yield from _old_names(side, opened.params, params)
        call = Call(side, mark, opened.id, method, params if isinstance(params, dict) else {})
        judged = list(self._method(call))
        if not any(breach.path == "method" for breach in judged if breach.level == ERROR):
            judged += self._judge.params(side, method, params)
        call.faults = [
            breach for breach in judged if breach.level == ERROR and breach.path.startswith("params")
        ]
        call.is_damaged = bool(judged)
        yield from judged
        if side == CLIENT:
            call.unknown = self._judge.unknown(method, params)
            self._secrets.learn(call)
        yield from self._requests.called(call, entry.size or len(entry.text))
        for watcher in self._watchers:
            yield from watcher.called(call)

    def _method(self, call: Call) -> Iterator[Breach]:
        """Is it a method that this side may call, and called in the right way?"""
        known = self._judge.method(call.method)
        if self._judge.is_experimental(call.method):
            reason = f"{call.method} is not in the stable protocol"
            yield Breach("unstable", call.side, "method", reason, REMARK)
        if known is None:
            if not call.method.startswith("_") and not self._judge.is_draft(call.method):
                hint = for_method(call.method, self._judge.methods())
                reason = "no method of the protocol; own methods begin with _" + (f"; {hint}" if hint else "")
                yield Breach("method", call.side, "method", reason, WARNING)
            return
        if known.receiver == call.side:
            yield Breach(
                "method", call.side, "method", f"{call.method} is sent to the {call.side}, not by it", ERROR
            )
        if known.is_request and not call.is_request:
            yield Breach("method", call.side, "id", f"{call.method} is a request and needs an id", ERROR)
        elif call.is_request and not known.is_request:
            yield Breach("method", call.side, "id", f"{call.method} is a notification and has no id", ERROR)

    def _answer(self, entry: Entry, mark: Mark, opened: Envelope) -> Iterator[Breach]:
        side = entry.sender
        if opened.id is None:
            yield from self._requests.nameless(side, opened.error, mark)
            return

        def fits(call: Call) -> bool:
            return opened.error is not None or not self._judge.result(side, call.method, opened.result)

        call, breaches = self._requests.match(side, opened.id, mark, fits)
        yield from breaches
        if call is None:
            if side == CLIENT:
                self._requests.stray(opened.id, mark)
            return
        self.label, self.answers = call.method, call
        known = self._judge.method(call.method)
        error = opened.error
        judged = []
        if error is not None:
            judged = self._judge.error(side, error)
        elif known is not None and known.receiver != call.side and not opened.breaches:
            judged = self._judge.result(side, call.method, opened.result)
        yield from judged
        answer = Answer(
            side,
            mark,
            call,
            opened.result,
            error if isinstance(error, dict) else {} if error is not None else None,
        )
        answer.is_damaged = bool(judged or opened.breaches)
        is_known = self._judge.is_draft(call.method) or (known is not None and known.receiver != call.side)
        yield from self._requests.answered(answer, is_known)
        for watcher in self._watchers:
            yield from watcher.answered(answer)

    def _place(self, breach: Breach, entry: Entry, mark: Mark) -> Finding:
        at = breach.at or mark
        level = breach.level or RULES[breach.rule].level
        excerpt = at.text if breach.at else excerpt_of(entry, breach.path)
        related = breach.related if breach.related != at.line else None
        return Finding(
            breach.rule, level, breach.side, at.line, at.time, breach.path, breach.text, excerpt, related
        )


def _old_names(side: str, given: dict[str, object], meant: dict[str, object]) -> Iterator[Breach]:
    for name in given:
        if name not in meant:
            now = "sessionId" if name == "session_id" else "prompt"
            yield Breach("L2", side, f"params.{name}", f'"{name}" is an old name of {now}', WARNING)


def quotable(entry: Entry) -> Entry:
    """The message as reports may quote it: with the values of `env` and `headers` hidden, as in a trace."""
    shown = without_secrets(entry.message)
    if shown is entry.message:
        return entry
    try:
        return entry._replace(text=jsontext.dumps(shown)[:MAX_TEXT])
    except ValueError:  # a value that came from elsewhere than JSON
        return entry._replace(text="")


def excerpt_of(entry: Entry, path: str) -> str:
    """A short piece of the message around the last name of `path`."""
    text = entry.text.strip()
    name = path.rpartition(".")[2].partition("[")[0]
    at = text.find(f'"{name}"') if name else 0
    if len(text) <= MAX_EXCERPT:
        return text
    start = max(0, min(at - 40, len(text) - MAX_EXCERPT))
    piece = text[start : start + MAX_EXCERPT]
    return ("..." if start else "") + piece + ("..." if start + MAX_EXCERPT < len(text) else "")

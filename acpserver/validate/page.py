"""One self-contained HTML page that shows a conversation and its faults; it needs no network.

One thread. Messages are written as they come, in bounded memory. The page's own parts lie in `html/`;
here they are put together with the data. The data stands in a block that no browser executes, and a
content policy lets only the page's own script run: a recording can never become code. Values that may be
secrets are hidden as in a trace.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

from acpserver import jsontext
from acpserver.transports.trace import without_secrets
from acpserver.validate.findings import Entry, Finding
from acpserver.validate.timeline import Row, Timeline

SCRIPTS = ("model.js", "timeline.js", "panel.js", "main.js")

MOST_MESSAGES = 200_000
"""What comes after that is counted and not shown: a browser would not stay quick."""
LONGEST_TEXT = 16_384  # characters of one message
LONGEST_STRING = 2_048  # characters of one string inside a message that is too long
WHOLE_BUDGET = 48 << 20  # characters of all messages together; after that each gets `LITTLE`
LITTLE = 256


def write(path: Path, entries: Iterable[Entry], findings: Iterable[Finding], *, title: str = "") -> None:
    """Write the page. Raises `OSError`.

    `findings` is read after the last entry was taken, so that it may be a list which grows meanwhile.
    """
    title = jsontext.mend_text(title)  # a file name may be no Unicode
    before, after = _template(title or "ACP conversation").split("{{data}}")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(before)
        for piece in _data(entries, findings, title):
            file.write(_harmless(piece))
        file.write(after)


def _template(title: str) -> str:
    """The page around its data: style and scripts put in, and allowed by their hashes."""
    style = _part("page.css")
    script = "\n".join(_part(name) for name in SCRIPTS)
    page = _part("page.html").replace("{{style-hash}}", _hash(style))
    page = page.replace("{{script-hash}}", _hash(script))
    page = page.replace("{{style}}", style).replace("{{script}}", script)
    return page.replace("{{title}}", html.escape(title.replace("{{data}}", "")))


def _part(name: str) -> str:
    folder = resources.files("acpserver.validate") / "html"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source expression of a Content Security Policy (CSP level 3, section 2.3.1)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _harmless(text: str) -> str:
    """ASCII JSON as text that no HTML parser can take for a tag, an entity or the end of the block."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(entries: Iterable[Entry], findings: Iterable[Finding], title: str) -> Iterator[str]:
    """One JSON object: title, rows, then spans, findings and the number of messages left out."""
    timeline = Timeline()
    texts = _Texts()
    rows: dict[int, int] = {}  # line -> row
    count = left_out = 0
    yield f'{{"title":{jsontext.dumps(title)},"rows":[\n'
    for entry in entries:
        if count >= MOST_MESSAGES:
            left_out += 1
            continue
        rows.setdefault(entry.line, count)
        separator = ",\n" if count else ""
        yield separator + _row(timeline.add(entry), texts.of(entry), entry.size or len(entry.text))
        count += 1
    yield f'\n],"spans":{jsontext.dumps(timeline.finish())},"findings":[\n'
    separator = ""
    for finding in findings:
        yield separator + _finding(finding, rows)
        separator = ",\n"
    yield f'\n],"leftOut":{left_out}}}'


def _row(row: Row, text: str, size: int) -> str:
    time = None if row.time is None else round(row.time, 6)
    return jsontext.dumps([*row._replace(time=time), text, size])


def _finding(finding: Finding, rows: dict[int, int]) -> str:
    """A finding with rows in place of lines; null for a line that the page does not hold."""
    related = None if finding.related is None else rows.get(finding.related)
    place = rows.get(finding.line)
    about = (finding.rule, finding.level, finding.side, finding.path, finding.text)
    return jsontext.dumps([place, *about, related])


class _Texts:
    """What the page keeps of each message, within the budget."""

    def __init__(self) -> None:
        self._left = WHOLE_BUDGET

    def of(self, entry: Entry) -> str:
        """The message's text: without secrets, readable, and short enough."""
        text, message = entry.text, without_secrets(entry.message)
        is_json = not entry.problem
        if is_json and (message is not entry.message or "\\u" in text):
            text = _readable(message)
        limit = LONGEST_TEXT if self._left > 0 else LITTLE
        if is_json and len(text) > limit:
            text = _readable(_shorter(message))
        if len(text) > limit:
            text = text[:limit] + "…"
        self._left -= len(text)
        return text


def _readable(value: object) -> str:
    """JSON in which a person can read, and find, what is not ASCII."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "(nested too deeply)"


def _shorter(value: object) -> object:
    """A copy in which long strings are cut."""
    if isinstance(value, str) and len(value) > LONGEST_STRING:
        return f"{value[:LONGEST_STRING]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {name: _shorter(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorter(item) for item in value]
    return value

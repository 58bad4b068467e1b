"""Recordings of conversations in the formats that editors, agents and SDKs write -> entries.

Reads message by message, so that memory does not grow with the file. Four formats; `recognise` says which:

- `lines`     JSON Lines of bare messages; who sent one follows from its method, or from the request's id
- `wrapped`   JSON Lines of objects that hold a direction and a message, such as this server's traces
- `prefixed`  text lines in which a direction stands before the message: `[10:00:01] -> {"jsonrpc": ...}`
- `zed`       the array of objects that Zed's log of ACP messages copies to the clipboard
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice

from acpserver import jsontext
from acpserver.errors import ConfigError
from acpserver.validate.documents import Piece, pieces
from acpserver.validate.event_logs import from_conducted, from_zed, is_conducted, is_zed
from acpserver.validate.findings import AGENT, CLIENT, MAX_TEXT, Entry
from acpserver.validate.sides import IN, OUT, Raw, with_sides

FORMATS = ("lines", "wrapped", "prefixed", "zed")
_PEEKED = 40  # lines that are looked at to recognise a format
_PEEKED_AT_MOST = 2000  # when the first ones show none
_DIRECTIONS = {
    OUT: "out outgoing send sent sending tx write wrote -> --> => ==> >> >>> > \u2192 \u25b6 \u2191",
    IN: "in incoming recv received receive receiving rx read <- <-- <= <== << <<< < \u2190 \u25c0 \u2193",
    CLIENT: "client fromclient from_client client_to_agent c2a client->agent editor stdin toagent to_agent",
    AGENT: "agent fromagent from_agent agent_to_client a2c agent->client server stdout toclient to_client",
}
_SIDES = {word: side for side, words in _DIRECTIONS.items() for word in words.split()}
_DIRECTION_KEYS = ("direction", "_direction", "dir", "from", "sender", "side", "source", "stream")
_MESSAGE_KEYS = ("message", "msg", "json", "data", "payload", "raw", "frame", "text", "line", "content")
_LEVEL_KEYS = {"level", "lvl", "severity", "levelname", "log_level"}  # of the lines of a log
_MARKS = {"jsonrpc", "method", "result", "error"}  # of a message, also of a faulty one
_TIME_KEYS = ("time", "ts", "timestamp", "_timestamp", "at")
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))  # nano-, micro- and milliseconds since 1970
_WORD = re.compile(
    r"[A-Za-z_]+->[A-Za-z_]+|[A-Za-z_]+|[-=]{1,2}>|<[-=]{1,2}|>{1,3}|<{1,3}|[\u2190-\u2193\u25b6\u25c0]"
)
_SIDE = "client|editor|agent|server"
_AROUND_ARROW = re.compile(rf"(?i)(?<=\b)({_SIDE}) *(?:-+>|=+>|\u2192|to) *(?:{_SIDE})\b")
""""Client -> Agent": the first word tells who sends."""
_BRACE, _OBJECT = re.compile(r"\{"), re.compile(r'\{\s*"')
_QUOTED = re.compile(r'"\{\\"[^"\\]*(?:\\.[^"\\]*)*"')
_MESSAGE = re.compile(r'\{\s*"(jsonrpc|id|method)"\s*:')
_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d(?:[.,]\d+)?"
)


def read(lines: Iterable[bytes], format: str | None = None) -> Iterator[Entry]:
    """The messages of a recording. Raises `ConfigError` for a format that does not exist."""
    if format is not None and format not in FORMATS:
        raise ConfigError(f"--format {format}: not one of {', '.join(FORMATS)}")
    stream = iter(lines)
    first = list(islice(stream, 2))
    whole = chain(first, stream)
    encoding = _wide_encoding(b"".join(first))
    if encoding:
        return read(_from_utf16(whole, encoding), format)
    parts = pieces(enumerate(_elements(first) if len(first) == 1 else whole, 1))
    head: list[Piece] = []
    while more := list(islice(parts, _PEEKED)):
        head += more
        if format or len(head) >= _PEEKED_AT_MOST or any(_looks_like(part.text) for part in more):
            break
    return with_sides(_raws(chain(head, parts), format or _recognised(head)))


def recognise(head: Iterable[bytes]) -> str:
    """The format of a recording that begins like this."""
    return _recognised(pieces(enumerate(head, 1)))


def _recognised(head: Iterable[Piece]) -> str:
    votes = Counter(_looks_like(part.text) for part in head)
    return max(("lines", "wrapped", "prefixed", "zed"), key=lambda name: votes[name])


def _looks_like(line: bytes) -> str:
    """The format that one line speaks for, or ""."""
    value, problem = _parse(line)
    if not problem and isinstance(value, dict):
        if is_zed(value):
            return "zed"
        is_wrapped = is_conducted(value) or _wrapping(value) is not None
        return "wrapped" if is_wrapped and "jsonrpc" not in value else "lines"
    return "prefixed" if _prefix(_unquoted(line.decode("utf-8", "replace"))) else ""


def _elements(lines: list[bytes]) -> list[bytes]:
    """The only line of a recording; of an array of messages on it, the elements."""
    value, _ = _parse(lines[0])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return lines
    return [jsontext.dumps(one).encode() + b"\n" for one in value]


def _wide_encoding(start: bytes) -> str:
    """The kind of UTF-16 in which a recording is written, or ""."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-16-le" if start[1:4:2] == b"\0\0" else "utf-16-be" if start[:3:2] == b"\0\0" else ""


def _from_utf16(lines: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Lines in UTF-16, as PowerShell writes them, in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = ""
    for line in lines:  # they were split at a byte, not at a character
        *whole, rest = (rest + decoder.decode(line)).split("\n")
        yield from (text.encode("utf-8", "replace") + b"\n" for text in whole)
    if rest:
        yield rest.encode("utf-8", "replace")


def _raws(parts: Iterable[Piece], format: str) -> Iterator[Raw]:
    take = {"lines": _bare, "wrapped": _wrapped, "prefixed": _prefixed, "zed": _zed}[format]
    is_ended = has_spread = False
    for part in parts:
        is_cut = is_ended and not part.text.endswith(b"\n")  # only the last one can be
        is_ended = part.text.endswith(b"\n")
        raw = take(part.line, part.text) if part.text.strip() else None
        if raw is None or (is_cut and raw.problem and raw.text.startswith("{")):
            continue
        if "\n" in raw.text:
            raw = raw._replace(text=_on_one_line(raw))
        if part.lines > 1 and not has_spread and format in ("lines", "prefixed"):
            raw, has_spread = raw._replace(lines=part.lines), True  # said once: it goes on like that
        yield raw


def _on_one_line(raw: Raw) -> str:
    return " ".join(raw.text.split()) if raw.problem else jsontext.dumps(raw.message)[:MAX_TEXT]


def _bare(number: int, line: bytes) -> Raw:
    value, problem = _parse(line)
    return Raw(number, None, "", value, _text(line), problem, len(line), is_sure=False)


def _wrapped(number: int, line: bytes) -> Raw | None:
    value, problem = _parse(line)
    if isinstance(value, dict) and is_conducted(value):
        sent = from_conducted(value)
        return _rebuilt(number, _time(value), *sent, len(line)) if sent else None
    keys = _wrapping(value)
    if problem or keys is None or not isinstance(value, dict):
        return _bare(number, line) if isinstance(value, dict) and "jsonrpc" in value else None
    direction, holder = keys
    message = value[holder]
    if _LEVEL_KEYS & value.keys() and not _is_like_a_message(message):
        return None
    size = len(line)
    if isinstance(message, str) and (holder != "message" or message[:1] in ("{", "[")):
        inner = message.encode("utf-8", "replace")
        message, problem = _parse(inner)
        text, size = _text(inner), len(inner)
    else:
        text = jsontext.dumps(message)[:MAX_TEXT]
    return Raw(number, _time(value), _SIDES[str(value[direction]).lower()], message, text, problem, size)


def _wrapping(value: object) -> tuple[str, str] | None:
    """(key of the direction, key of the message) of an object that wraps one."""
    if not isinstance(value, dict):
        return None
    direction = next((key for key in _DIRECTION_KEYS if str(value.get(key)).lower() in _SIDES), None)
    holders = [key for key in _MESSAGE_KEYS if isinstance(value.get(key), (dict, list, str))]
    holder = next((key for key in holders if _is_like_a_message(value[key])), next(iter(holders), None))
    if holder is None and "message" in value:
        holder = "message"  # JSON that is no message
    return (direction, holder) if direction and holder else None


def _is_like_a_message(value: object) -> bool:
    """Whether this is a message, or should be one, and no words of a log."""
    if isinstance(value, str):
        return '"jsonrpc"' in value
    return not _MARKS.isdisjoint(value) if isinstance(value, dict) else isinstance(value, list)


def _prefixed(number: int, line: bytes) -> Raw | None:
    """A line of a log; one that holds no direction and no message is none of the conversation's."""
    text = _unquoted(line.decode("utf-8", "replace"))
    found = _prefix(text)
    if found is None:
        return None
    label, start = found
    body = text[start:].strip().encode("utf-8", "replace")
    value, problem = _parse(body)
    if problem and b"}" in body:  # something may stand behind the message
        end = body.rindex(b"}") + 1
        value, problem = _parse(body[:end])
        body = body if problem else body[:end]
    if not _is_like_a_message(text[start:] if problem else value):
        return None
    is_sure = not problem  # else the log may have cut it
    return Raw(number, _clock(text[:start]), label, value, _text(body), problem, len(body), is_sure)


def _prefix(text: str) -> tuple[str, int] | None:
    """The direction that stands before a message in `text`, and where the message begins. A message may have
    something before it that names no direction."""
    begin = _OBJECT.search(text) or _BRACE.search(text)
    if begin is None:
        return None
    start = begin.start()
    words = _WORD.findall(_AROUND_ARROW.sub(r"\1", text[:start]))
    labels = [_SIDES[word.lower()] for word in words if word.lower() in _SIDES]
    arrows = [label for label in labels if label in (OUT, IN)]
    chosen = arrows or labels
    if chosen:
        return chosen[-1], start
    return ("", start) if start > 0 and _MESSAGE.match(text, start) else None


def _unquoted(text: str) -> str:
    """The line of a log that quotes messages as a programming language does, with the message as it was."""
    found = _QUOTED.search(text) if '{\\"' in text else None
    value, problem = _parse(found.group().encode("utf-8", "replace")) if found else (None, "")
    return text[: found.start()] + value if found and isinstance(value, str) else text


def _zed(number: int, line: bytes) -> Raw | None:
    """An element of Zed's log; its lines of stderr are none of the conversation's."""
    value, problem = _parse(line)
    if not isinstance(value, dict) or value.get("_direction") not in ("incoming", "outgoing"):
        return None
    label = IN if value["_direction"] == "incoming" else OUT
    return _rebuilt(number, None, label, from_zed(value), len(line))


def _rebuilt(number: int, time: float | None, label: str, message: object, size: int) -> Raw:
    """A message that the log does not hold as it was."""
    return Raw(number, time, label, message, jsontext.dumps(message)[:MAX_TEXT], "", size)


def _parse(line: bytes) -> tuple[object, str]:
    try:
        return jsontext.loads(line.decode("utf-8-sig")), ""
    except UnicodeDecodeError as error:
        return None, f"byte {error.start + 1} is not UTF-8"
    except ValueError as error:
        return None, f"not JSON: {str(error)[:100]}"


def _text(line: bytes) -> str:
    return line[: 4 * MAX_TEXT].decode("utf-8", "replace").strip()[:MAX_TEXT]


def _time(value: dict[str, object]) -> float | None:
    given = next((value[key] for key in _TIME_KEYS if key in value), None)
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given) / next((unit for limit, unit in _UNITS if given > limit), 1)
    return _clock(given) if isinstance(given, str) else None


def _clock(text: str) -> float | None:
    """Seconds of the first time in `text`; of a time without a date, since midnight."""
    found = _CLOCK.search(text)
    if found is None:
        return None
    clock = found.group().replace(",", ".")
    if clock[4:5] != "-":
        hours, minutes, seconds = clock.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return _date(clock)


def _date(clock: str) -> float | None:
    match = re.fullmatch(r"(.{10})[T ](.{8})(\.\d+)?(Z|[+-]\d\d:?\d\d)?", clock)
    if match is None:
        return None
    day, second, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        return datetime.fromisoformat(f"{day}T{second}{zone}").timestamp() + float(fraction or 0)
    except ValueError:
        return None

"""Members of JSON objects that somebody else wrote: what is null or of another type is absent. Pure."""

from __future__ import annotations


def text(value: object, key: str) -> str:
    """The text in `value[key]`, or ""."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


MOST = 2**53
"""The largest count that is believed: the integers up to here are exact in every JSON parser."""


def count(value: object, key: str) -> int:
    """The positive number in `value[key]`, or 0 when there is none up to `MOST`."""
    found = value.get(key) if isinstance(value, dict) else None
    if isinstance(found, (int, float)) and not isinstance(found, bool) and 0 < found <= MOST:
        return int(found)
    return 0


def record(value: object, key: str) -> dict[str, object]:
    """The object in `value[key]`, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def records(value: object, key: str) -> list[dict[str, object]]:
    """The objects in the list `value[key]`."""
    found = value.get(key) if isinstance(value, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

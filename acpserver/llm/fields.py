"""Members of JSON objects that somebody else wrote: what is null or of another type is absent. Pure."""

from __future__ import annotations


def text(value: object, key: str) -> str:
    """The text in `value[key]`, or ""."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def count(value: object, key: str) -> int:
    """The positive number in `value[key]`, or 0."""
    found = value.get(key) if isinstance(value, dict) else None
    if isinstance(found, (int, float)) and not isinstance(found, bool) and found > 0:
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

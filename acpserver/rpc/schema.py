"""Does this message fit the schema of its method, and if not, where and why.

Any thread may ask; everything is built on first use, for one definition at a time, and kept. A value is
only looked at, never changed (the forgiving functions return a copy), and no reason repeats more of it
than a few characters of a tag: what is checked may be large, and may hold secrets.

A message is looked up by its method; what the definitions mean is the business of `rpc/checker.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from acpserver.rpc import forgive
from acpserver.rpc.checker import checker, excerpt, fits
from acpserver.rpc.definitions import Method, methods

MAX_FAULTS = 20  # of one message; the first ones say what is wrong
_MAX_REASON = 200  # characters


class Fault(NamedTuple):
    """One thing that is wrong with a message."""

    path: str  # such as params.prompt[0].type
    reason: str  # at most 200 characters


def method(name: str) -> Method | None:
    """The method of this name; None for one outside the protocol."""
    return methods().get(name)


def check_params(name: str, params: object) -> list[Fault]:
    """What is wrong with the params of this method (None: there are none). Unknown methods: nothing."""
    known = method(name)
    if known is None:
        return []
    return _check(known.params, {} if params is None else params, "params")


def check_result(name: str, result: object) -> list[Fault]:
    """What is wrong with the result of a request of this method. Unknown methods: nothing."""
    known = method(name)
    if known is None or known.result is None:
        return []
    return _check(known.result, result, "result")


def check_error(error: object) -> list[Fault]:
    """What is wrong with the `error` member of an answer."""
    return _check("Error", error, "error")


def describe(faults: Iterable[Fault]) -> str:
    """All faults in one line: path and reason of each."""
    return "; ".join(f"{fault.path}: {fault.reason}" for fault in faults)


def forgive_params(name: str, params: object) -> tuple[object, list[Fault]]:
    """Params as they were meant (absent ones as `{}`), and what was mended. What is left is for the check."""
    known = method(name)
    if known is None:
        return params, []
    notes: forgive.Notes = []
    mended = forgive.mend_habits(name, {} if params is None else params, notes)
    mended = forgive.mend(mended, checker(known.params), (), notes)
    return mended, _as_faults("params", notes)


def forgive_result(name: str, result: object) -> tuple[object, list[Fault]]:
    """A result as it was meant, and what was mended. What is left is for the check."""
    known = method(name)
    if known is None or known.result is None:
        return result, []
    node = checker(known.result)
    if result is None and fits(node, {}):
        # Many clients answer a request whose result has no fields with null.
        return {}, [Fault("result", "null, taken as {}")]
    notes: forgive.Notes = []
    mended = forgive.mend(result, node, (), notes)
    return mended, _as_faults("result", notes)


def _check(definition: str, value: object, prefix: str) -> list[Fault]:
    errors = islice(checker(definition).iter_errors(value), MAX_FAULTS)
    return _as_faults(prefix, ((tuple(error.path), error.message) for error in errors))


def _as_faults(prefix: str, found: Iterable[tuple[forgive.Path, str]]) -> list[Fault]:
    faults = (Fault(_path_text(prefix, path), reason[:_MAX_REASON]) for path, reason in found)
    return sorted(islice(faults, MAX_FAULTS))


def _path_text(prefix: str, path: forgive.Path) -> str:
    text = prefix
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{excerpt(part)}]"  # a key that the sender chose, such as the name of a header
    return text[:_MAX_REASON]

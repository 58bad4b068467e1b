"""Walking a folder tree, and patterns for paths in it.

Pure apart from reading folders; used by the server and by the search process, so it imports little.
Links to folders are not followed: they could lead in circles or out of the session's roots.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator

SKIPPED = frozenset(
    {
        ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox",
        ".mypy_cache", ".pytest_cache", ".ruff_cache", ".idea", ".gradle", ".terraform", ".next",
    }
)  # fmt: skip
"""Folders that hold what nobody looks for."""

_MAX_ALTERNATIVES = 64  # patterns that one pattern with braces may stand for
_ANY_DEPTH = "**"


def walk(top: str, skipped: frozenset[str], visit: Callable[[], None] = lambda: None) -> Iterator[str]:
    """Paths of all files below `top`, relative to it, with "/", in a stable order, folder after folder.

    `visit` is called for each folder and may raise to stop. Folders that cannot be read are left out."""
    waiting = [""]
    while waiting:
        visit()
        folder = waiting.pop()
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue  # no permission, or gone meanwhile
        inner = []
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not _is_folder(entry):
                yield path
            elif entry.name not in skipped:
                inner.append(path)
        waiting += reversed(inner)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # gone meanwhile


class PathPattern:
    """A glob: * and ? within a name, ** for any folders, [abc], {a,b}.

    A pattern without "/" is matched with the name alone, wherever the file is. Raises `ValueError` for one
    that stands for too many."""

    def __init__(self, pattern: str):
        self._alternatives = []
        for plain in _expand_braces(pattern.removeprefix("./")):
            parts = plain.strip("/").split("/")
            if len(parts) == 1 and parts[0] != _ANY_DEPTH:
                parts.insert(0, _ANY_DEPTH)
            self._alternatives.append([_matcher(part) for part in parts])
        self.skipped = SKIPPED - set(pattern.split("/"))
        """Folders to leave out: those that the pattern names are wanted."""

    def matches(self, path: str) -> bool:
        """Whether the relative path (with "/") fits."""
        names = path.split("/")
        return any(_fits(names, parts) for parts in self._alternatives)


def _matcher(part: str) -> re.Pattern[str] | None:
    """How one name is matched; None stands for any number of names.

    `fnmatch` makes regular expressions that never backtrack without end."""
    return None if part == _ANY_DEPTH else re.compile(fnmatch.translate(part))


def _fits(names: list[str], parts: list[re.Pattern[str] | None]) -> bool:
    """Match names with parts by keeping the set of parts that may come next: no backtracking."""
    reached = _past_any({0}, parts)
    for name in names:
        following = set()
        for index in reached:
            if index < len(parts):
                part = parts[index]
                if part is None:
                    following.add(index)
                elif part.match(name):
                    following.add(index + 1)
        reached = _past_any(following, parts)
    return len(parts) in reached


def _past_any(reached: set[int], parts: list[re.Pattern[str] | None]) -> set[int]:
    """Also the places behind each "**", which may stand for no name at all."""
    closed = set(reached)
    for index in range(len(parts)):
        if index in closed and parts[index] is None:
            closed.add(index + 1)
    return closed


def _expand_braces(pattern: str) -> list[str]:
    """The patterns without braces that `pattern` stands for."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop(0)
        group = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if group is None:
            done.append(current)
        else:
            waiting += [
                current[: group.start()] + part + current[group.end() :] for part in group[1].split(",")
            ]
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ValueError(f"the braces stand for more than {_MAX_ALTERNATIVES} patterns")
    return done

"""Which paths a session may touch, and how a path argument becomes one of them.

Pure apart from asking the file system; any thread. Must never let a path out of the session's roots,
not by "..", not by a symbolic link, and never changes the process's own working directory.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from acpserver.errors import INVALID_PARAMS, RpcError, ToolError

_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def validate_cwd(cwd: str, name: str = "cwd") -> str:
    """A directory of a session as the client gave it, checked (rules S1, S8).

    Raises `RpcError` -32602 whose details say what is wrong with the parameter `name`."""
    problem = _cwd_problem(cwd)
    if problem:
        raise RpcError.with_details(INVALID_PARAMS, f"{name} {problem}: {cwd[:200]!r}")
    return cwd


def _cwd_problem(cwd: str) -> str:
    """What is wrong with the directory, as the end of a sentence; empty if nothing is."""
    if not cwd or "\0" in cwd:
        return "is empty or holds a NUL character"
    if cwd.startswith("file:"):
        return "must be a plain path, not a URI"
    if cwd.startswith("~"):
        return "must be absolute; ~ is not expanded"
    if sys.platform != "win32" and _WINDOWS_PATH.match(cwd):
        return "is a Windows path, and this server does not run on Windows"
    if not os.path.isabs(cwd):
        return "must be an absolute path"
    try:
        if not os.path.exists(cwd):
            return "does not exist"
        if not os.path.isdir(cwd):
            return "is not a directory"
        if not os.access(cwd, os.R_OK | os.X_OK):
            return "may not be read by this user"
    except (OSError, ValueError) as error:  # ValueError: text that no file system can hold
        return f"cannot be used ({error})"
    return ""


def resolve(path: str, cwd: str, roots: Sequence[str]) -> str:
    """The absolute path that a path argument means: relative to `cwd`, or a file:// URI, inside `roots`.

    All links below the root are followed; the root itself keeps the client's spelling, so that editors
    recognise the file. It need not exist. Raises `ToolError` for everything outside and for nonsense."""
    plain = _plain_path(path)
    try:
        real = os.path.realpath(os.path.join(cwd, plain))
        os.fsencode(real)
    except (OSError, ValueError) as error:
        raise ToolError(f"Not a usable path: {shorten(path)} ({error})") from None
    for root in roots:
        real_root = os.path.realpath(root)
        if real == real_root:
            return root
        if real.startswith(real_root.rstrip(os.sep) + os.sep):
            return os.path.join(root, os.path.relpath(real, real_root))
    raise ToolError(
        f"{shorten(path)} is outside the folders of this session. Allowed: {', '.join(roots)}"
        + (f". (It leads to {shorten(real)}.)" if real != os.path.abspath(os.path.join(cwd, plain)) else "")
    )


def _plain_path(path: str) -> str:
    """`path` without URI form. Raises `ToolError` for what is not a path at all."""
    if path.startswith("file:"):
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise ToolError(f"Only files of this machine can be used, not {shorten(path)}")
        path = unquote(parts.path)
        if sys.platform == "win32":  # untested: /C:/x -> C:/x
            path = path.lstrip("/")
    if not path or "\0" in path:
        raise ToolError("The path is empty or holds a NUL character.")
    if path == "~" or path.startswith("~/"):
        raise ToolError(
            "~ is not expanded; give a path relative to the working directory, or an absolute one."
        )
    return path


def display(path: str, cwd: str) -> str:
    """The path as short as it can be said: relative to `cwd` where it is inside."""
    if path == cwd:
        return "."
    prefix = cwd.rstrip(os.sep) + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else path


def shorten(path: str) -> str:
    """A path for an error text: the middle of a very long one left out."""
    return path if len(path) <= 300 else f"{path[:150]}…{path[-100:]}"


def explain(error: OSError, path: str) -> ToolError:
    """The `ToolError` for a failed file operation: the path and the system's words."""
    return ToolError(f"{shorten(path)}: {error.strerror or error}")

"""Text files on the disk: read without ever hanging, written without changing what was not meant.

Any thread. Must only be given paths that `workspace.resolve` returned.
"""

from __future__ import annotations

import contextlib
import os
import stat

from acpserver.errors import ToolError
from acpserver.tools.base import TextFile
from acpserver.workspace import explain, shorten

MAX_BYTES = 10 * 1024 * 1024
"""Larger files are not read as a whole."""

_BINARY = getattr(os, "O_BINARY", 0)  # Windows only
# Non-blocking, because opening a pipe for reading would wait for a writer; without following a link, because
# `resolve` has followed them all and one that is there now was put there since.
_READING = os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_BINARY_SAMPLE = 8192  # bytes looked at for a NUL
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def check_readable(path: str) -> None:
    """Raise `ToolError` unless there is a regular file of a size that can be read. Opens nothing."""
    try:
        _check_kind(os.stat(path), path)
    except OSError as error:
        raise explain(error, path) from None


def read_bytes(path: str) -> bytes:
    """The content of a regular file of at most `MAX_BYTES`.

    Raises `ToolError` for everything else: devices, pipes and folders are recognised without reading."""
    try:
        with open(os.open(path, _READING), "rb") as file:
            _check_kind(os.fstat(file.fileno()), path)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise explain(error, path) from None
    if len(data) > MAX_BYTES:
        raise ToolError(f"{shorten(path)} is too large to be read (limit {MAX_BYTES} bytes).")
    return data


def _check_kind(status: os.stat_result, path: str) -> None:
    """Raise `ToolError` unless it is a regular file of a size that can be read."""
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{shorten(path)} is a folder.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{shorten(path)} is not a regular file (a device, a pipe or a socket).")
    if status.st_size > MAX_BYTES:
        raise ToolError(
            f"{shorten(path)} has {status.st_size} bytes, too large to be read (limit {MAX_BYTES})."
        )


def read_text(path: str) -> TextFile:
    """A text file: UTF-8, UTF-16 with a mark, else Windows-1252 or Latin-1. `ToolError` for binary ones."""
    data = read_bytes(path)
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            with contextlib.suppress(UnicodeDecodeError):  # then the mark was no mark
                return TextFile(data[len(bom) :].decode(encoding), encoding, bom)
    if b"\0" in data[:_BINARY_SAMPLE]:
        raise ToolError(f"{shorten(path)} is a binary file ({len(data)} bytes).")
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):  # then the next one
            return TextFile(data.decode(encoding), encoding)
    return TextFile(data.decode("latin-1"), "latin-1")


def write_bytes(path: str, data: bytes) -> None:
    """Replace or create the file in one step, so that no reader ever sees half of it.

    An existing file keeps its mode; missing folders are made. Raises `ToolError`."""
    folder, name = os.path.split(path)
    # Beside the file, because only within one file system can it be moved into place in one step.
    # Only the end of the name: with all of it, and four bytes a character, it could become too long.
    temporary = os.path.join(folder, f".{os.urandom(6).hex()}.{name[-40:]}.tmp")
    try:
        os.makedirs(folder, exist_ok=True)
        mode = _mode_to_keep(path)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            if mode is not None:
                os.chmod(temporary, mode)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise explain(error, path) from None


def _mode_to_keep(path: str) -> int | None:
    """The permission bits of the file that is replaced, if there is one; `ToolError` if it may not be."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{shorten(path)} is not a regular file.")
    if not os.access(path, os.W_OK):
        raise ToolError(f"{shorten(path)} is write-protected.")
    return stat.S_IMODE(status.st_mode)


class DiskFiles:
    """The files on the disk as they are: `tools.base.TextFiles`."""

    def check(self, path: str) -> None:
        """See `TextFiles`."""
        check_readable(path)

    def read(self, path: str) -> TextFile:
        """See `TextFiles`."""
        check_readable(path)  # opening some devices has an effect
        return read_text(path)

    def find(self, path: str) -> TextFile | None:
        """See `TextFiles`."""
        return self.read(path) if os.path.lexists(path) else None

    def write(self, path: str, file: TextFile) -> None:
        """See `TextFiles`."""
        write_bytes(path, file.encode(file.text))

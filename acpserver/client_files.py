"""Text files through the editor, as far as it offers that: `tools.base.TextFiles`.

The editor knows what the user has typed and not saved, and shows what is changed. One `ClientFiles` belongs
to one tool call and the turn's thread. Paths have been checked by `workspace.resolve`; what is no text on
the disk, and text that is not UTF-8, never goes through the editor: the protocol has nothing but text, and
many editors would damage it.
"""

from __future__ import annotations

import os

from acpserver.cancel import CancelFlag
from acpserver.client import Client
from acpserver.errors import ToolError
from acpserver.tools.base import TextFile, TextFiles
from acpserver.tools.textfile import MAX_BYTES, DiskFiles
from acpserver.workspace import explain, shorten

DISK = DiskFiles()

_MARK = "\ufeff"  # a byte order mark, read as text
_UTF8_MARK = _MARK.encode()


def files_for(client: Client, session_id: str, cancel: CancelFlag) -> TextFiles:
    """The files of a session: the editor's as far as it offers them, else the disk's."""
    if client.can("fs", "readTextFile") or client.can("fs", "writeTextFile"):
        return ClientFiles(client, session_id, cancel)
    return DISK


class ClientFiles:
    """The session's files, read or written or both through the editor."""

    def __init__(self, client: Client, session_id: str, cancel: CancelFlag):
        self._client = client
        self._session_id = session_id
        self._cancel = cancel
        self._reads = client.can("fs", "readTextFile")
        self._writes = client.can("fs", "writeTextFile")

    def check(self, path: str) -> None:
        """See `TextFiles`. What is not on the disk may be a buffer that was never saved."""
        if os.path.lexists(path) or not self._reads:
            DISK.check(path)

    def read(self, path: str) -> TextFile:
        """See `TextFiles`."""
        if not self._reads:
            return DISK.read(path)
        if not os.path.lexists(path):
            return self._asked(path)
        disk = DISK.read(path)
        if not _is_for_editors(path, disk):
            return disk
        asked = self._asked(path)
        return asked if self._writes else _in_form_of(disk, asked)

    def find(self, path: str) -> TextFile | None:
        """See `TextFiles`."""
        if os.path.lexists(path):
            return self.read(path)
        if not self._reads:
            return None
        try:
            file = self._asked(path)
        except ToolError:  # the editor does not know it either: it is a new file
            return None
        return file if file.text else None  # some editors read a file that is not there as empty

    def write(self, path: str, file: TextFile) -> None:
        """See `TextFiles`."""
        if not self._writes or not _is_for_editors(path, file):
            DISK.write(path, file)
            return
        try:  # whether the editor makes missing folders is left open by the protocol
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise explain(error, path) from None
        text = _MARK + file.text if file.bom else file.text
        self._client.write_text_file(self._session_id, path, text, self._cancel)

    def _asked(self, path: str) -> TextFile:
        """The file as the editor has it. Read whole: editors disagree on what a part of a file is."""
        text = self._client.read_text_file(self._session_id, path, self._cancel)
        if len(text) > MAX_BYTES:
            raise ToolError(f"{shorten(path)} is too large to be read (limit {MAX_BYTES} characters).")
        return TextFile(text.removeprefix(_MARK), bom=_UTF8_MARK if text.startswith(_MARK) else b"")


def _is_for_editors(path: str, file: TextFile) -> bool:
    """Whether the file's text and its name are such that the protocol can carry them."""
    try:
        path.encode()
    except UnicodeEncodeError:  # a name that is not UTF-8 stands for bytes that JSON cannot say
        return False
    return file.encoding == "utf-8"


def _in_form_of(disk: TextFile, asked: TextFile) -> TextFile:
    """The editor's text as it is written to the disk by us: editors may show CRLF as LF, and leave out the
    mark, and what was not meant must not change."""
    text = asked.text
    if _unix(disk.text) == _unix(text):
        return disk
    if "\r\n" not in text and disk.text.count("\r\n") * 2 > disk.text.count("\n"):
        text = text.replace("\n", "\r\n")
    return disk._replace(text=text)


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")

"""The trace: every message of both directions as one JSON line each, for `acp-validate` and for people.

Called by the reader (incoming) and the writer thread (outgoing). A trace that cannot be written must
never disturb the conversation.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from acpserver import jsontext
from acpserver.logs import open_to_append
from acpserver.redaction import HIDDEN, Secrets, secrets_in_url

log = logging.getLogger(__name__)


class Trace:
    """An open trace file. `secrets` are texts that are replaced wherever they stand.

    Raises `OSError` when the file cannot be opened. Lines: {"time": seconds since 1970, "direction":
    "in" or "out", "message": the message}; a line that is no JSON stands as text under "text".
    """

    def __init__(self, path: str, secrets: Iterable[str] | Secrets = ()):
        self._file = open(open_to_append(path), "ab", buffering=0)  # noqa: SIM115
        self._file_lock = threading.Lock()  # guards _file
        self._secrets = Secrets.of(secrets)

    def incoming(self, line: bytes) -> None:
        """Write one line as it came."""
        try:
            message = jsontext.loads(line.decode("utf-8-sig"))
            entry = '"message":' + jsontext.dumps(without_secrets(message))
        except ValueError:
            entry = '"text":' + jsontext.dumps(line[:65_536].decode("utf-8", "replace"))
        self._write("in", [entry.encode("ascii")])

    def outgoing(self, data: bytes) -> None:
        """Write the lines that go out with one write."""
        self._write("out", [b'"message":' + line for line in data.splitlines()])

    def close(self) -> None:
        """Close the file."""
        with self._file_lock:
            try:
                self._file.close()
            except OSError as error:  # the disk did not take what was left
                log.debug("trace: %s", error)

    def _write(self, direction: str, entries: list[bytes]) -> None:
        head = f'{{"time":{time.time():.6f},"direction":"{direction}",'.encode("ascii")
        data = b"".join(head + entry + b"}\n" for entry in entries)
        data = self._secrets.hide_bytes(data)
        with self._file_lock:
            try:
                self._file.write(data)
            except (OSError, ValueError) as error:  # disk full, or closed at the end
                log.debug("trace: %s", error)


def without_secrets(message: object) -> object:
    """The message with the values of `env` and `headers` hidden, of MCP servers, terminals and providers,
    and what their addresses hold of keys.

    Wrong shapes are hidden too: a client that errs must not find its tokens in a file.
    """
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(params, dict):
        return message
    hidden = _hidden(params)
    servers = params.get("mcpServers")
    if isinstance(servers, list):
        hidden = {**hidden, "mcpServers": [_hidden(server) for server in servers]}
    elif isinstance(servers, dict):
        hidden = {**hidden, "mcpServers": {name: _hidden(server) for name, server in servers.items()}}
    return message if hidden is params else {**message, "params": hidden}


def _hidden(holder: Any) -> Any:
    """A copy without the values of `env` and `headers`, and without keys in a URL; the same object when it
    has nothing of it."""
    if not isinstance(holder, dict):
        return holder
    found = {key: _names_only(holder[key]) for key in ("env", "headers") if key in holder}
    for key in ("url", "baseUrl"):
        url = holder.get(key)
        if isinstance(url, str) and (secrets := tuple(secrets_in_url(url))):
            found[key] = Secrets(secrets).hide(url)
    return {**holder, **found} if found else holder


def _names_only(pairs: object) -> object:
    if isinstance(pairs, dict):
        return dict.fromkeys(pairs, HIDDEN)
    if isinstance(pairs, list):
        return [{**pair, "value": HIDDEN} if isinstance(pair, dict) else HIDDEN for pair in pairs]
    return HIDDEN if isinstance(pairs, str) else pairs

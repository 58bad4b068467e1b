"""Logging: to stderr or a file, without secrets, and never waiting for whoever reads stderr.

Set up once at start by `cli`. Some editors never read an agent's stderr, others show each line of it as
an error: so nothing is logged in a normal run, and a full pipe loses lines instead of stopping a thread.
"""

from __future__ import annotations

import errno
import logging
import os
import select
from collections.abc import Iterable

from acpserver.redaction import Secrets

LONGEST = 4_000  # bytes of one line on stderr: what a pipe takes whole when it takes anything


class DescriptorHandler(logging.Handler):
    """Writes to a descriptor, or drops the line when that would block."""

    def __init__(self, descriptor: int, longest: int | None):
        super().__init__()
        self._descriptor = descriptor
        self._longest = longest  # bytes of one line

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            data = self.format(record).encode("utf-8", "replace")[: self._longest] + b"\n"
            if select.select([], [self._descriptor], [], 0)[1]:
                os.write(self._descriptor, data)
        except (OSError, ValueError):
            pass  # there is nowhere left to report it


def open_to_append(path: str) -> int:
    """A descriptor of a file that only its owner may read, made where there is none. Never waits.

    Raises `OSError`, also for a pipe that nobody reads.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "It is a pipe that nobody reads", path) from None
        raise


class SecretFilter(logging.Filter):
    """Replaces secrets in every record."""

    def __init__(self, secrets: Iterable[str] | Secrets):
        super().__init__()
        self._secrets = Secrets.of(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record; always let it pass."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # arguments that do not fit, perhaps in a library of ours
            text = f"{record.msg} {record.args!r}"
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        text = self._secrets.hide(text)
        record.msg, record.args, record.exc_info, record.exc_text = text, (), None, None
        return True


def set_up(level: str, path: str, secrets: Iterable[str] | Secrets) -> None:
    """Send the package's log to `path`, or to stderr when it is empty; what is added to `secrets` later is
    hidden, too. Raises `OSError`."""
    handler = DescriptorHandler(open_to_append(path), None) if path else DescriptorHandler(2, LONGEST)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))
    handler.addFilter(SecretFilter(secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What libraries warn of, some with a traceback, is told in our own words where it matters.
    root.setLevel(logging.WARNING if level.lower() == "debug" else logging.CRITICAL)
    logging.getLogger("acpserver").setLevel(level.upper())
    logging.captureWarnings(True)
    logging.raiseExceptions = False

"""The server as a child process, and the link to it.

`ServerProcess` starts one thread, the reader, which runs the handlers given; it ends with the child. Never
leaves a child behind: the server ends when its input ends, and is killed if it does not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from acpserver import system
from acpserver.rpc.call import Handler
from acpserver.rpc.connection import Connection
from acpserver.settings import SETTINGS
from acpserver.transports.stdio import LineReader, LineWriter

GRACE = 3.0  # seconds for the server to end by itself; it allows itself 2

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What `python -m acpserver` does, but the folder we are in, the user's project, lends us no modules.
_BOOT = """\
import sys
sys.path[:] = filter(None, sys.path)
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
sys.argv[:2] = ["acpserver"]
from acpserver.__main__ import main
sys.exit(main())
"""


def server_command(flags: Mapping[str, object]) -> list[str]:
    """The command line that serves with the flags that chat was given."""
    command = [sys.executable, "-c", _BOOT, _ROOT]
    for setting in SETTINGS:
        value = flags.get(setting.name)
        if value is None:
            continue
        command.append(f"--{setting.name.replace('_', '-')}")
        if setting.kind != "switch":
            command.append(str(value))
    return command


class ServerProcess:
    """A running server. Raises `OSError` if it cannot be started."""

    def __init__(self, command: Sequence[str], handlers: Mapping[str, Handler]):
        self._child: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C at the terminal is for us; the server is told with session/cancel.
            **system.new_group(),
        )  # type: ignore[call-overload]
        assert self._child.stdin and self._child.stdout
        self._writer = LineWriter(self._child.stdin.fileno())
        self._writer.start()
        self.connection = Connection(LineReader(self._child.stdout.fileno()), self._writer, handlers)
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """The reader thread: serve until the server's output ends; then nothing can be asked any more."""
        try:
            self.connection.serve()
        finally:
            self.connection.close()

    def close(self) -> int:
        """End the server and wait for it. Returns its exit status; may be called again."""
        assert self._child.stdin and self._child.stdout
        self._writer.close(timeout=1.0)
        self._child.stdin.close()
        status = self._wait()
        self._reader.join(GRACE)
        if not self._reader.is_alive():
            self._child.stdout.close()
        return status

    def _wait(self) -> int:
        for end in (signal.SIGTERM, signal.SIGKILL):
            try:
                return self._child.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._child.send_signal(end)
        return self._child.wait()

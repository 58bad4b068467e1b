"""What the benchmarks share: an agent as a child process, a model server as another, medians, a table.

Everything here runs on the benchmark's own thread; reading is `os.read` in large blocks, so that the
benchmark itself costs as little as a reader can.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
AnyChild = TypeVar("AnyChild", bound="Child")
LIMIT = 120.0  # seconds after which a wait is a failure


class Child:
    """A child process with lines of bytes on its stdin and stdout."""

    def __init__(self, command: Sequence[str], environ: dict[str, str] | None = None, **more: Any):
        """`more` is for `Popen`."""
        more = {"cwd": ROOT, "bufsize": 0, **more}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, **more
        )
        assert self.process.stdin and self.process.stdout
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._rest = b""

    def __enter__(self: AnyChild) -> AnyChild:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._in, view) :]

    def read(self) -> bytes:
        """What has arrived, at least one byte. Raises `EOFError` and `TimeoutError`."""
        if not select.select([self._out], [], [], LIMIT)[0]:
            raise TimeoutError(f"nothing came for {LIMIT:g} s")
        block = os.read(self._out, 1 << 20)
        if not block:
            raise EOFError("the child ended")
        return block

    def line(self) -> bytes:
        """The next line, without its end."""
        while b"\n" not in self._rest:
            self._rest += self.read()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def cpu(self) -> float:
        """Seconds of processor time that the child has used so far. Linux only."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until(self, mark: bytes, count: int = 1) -> bytes:
        """All bytes up to the line that holds `mark` for the `count`th time."""
        blocks = [self._rest]
        found = 0
        tail = b""
        block = self._rest
        while True:
            found += (tail + block).count(mark)
            tail = block[-len(mark) + 1 :]
            if found >= count and block.endswith(b"\n"):
                self._rest = b""
                return b"".join(blocks)
            block = self.read()
            blocks.append(block)


class Agent(Child):
    """`python -m acpserver` with the endpoint given, or the offline model."""

    def __init__(self, base_url: str = "", flags: Iterable[str] = (), python: str = sys.executable):
        self.home = tempfile.TemporaryDirectory(prefix="acpserver-bench-")
        ours = ("ACPSERVER_", "OPENAI_", "HTTP_PROXY", "http_proxy")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environ["HOME"] = self.home.name
        environ["ACPSERVER_MODEL"] = "fake" if base_url else "offline"
        if base_url:
            environ["ACPSERVER_BASE_URL"] = base_url
        super().__init__([python, "-m", "acpserver", *flags], environ)
        self._next_id = 0

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.home.cleanup()

    def post(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; its id."""
        self._next_id += 1
        self.write(encoded({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}))
        return self._next_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self.write(encoded({"jsonrpc": "2.0", "method": method, "params": params}))

    def answer_to(self, request_id: int) -> dict[str, Any]:
        """The answer to a request; messages before it are dropped."""
        while True:
            message: dict[str, Any] = json.loads(self.line())
            if message.get("id") == request_id and "method" not in message:
                return message

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its result."""
        message = self.answer_to(self.post(method, params))
        if "result" not in message:
            raise RuntimeError(f"{method}: {message}")
        result: dict[str, Any] = message["result"]
        return result

    def initialize(self, capabilities: dict[str, Any] | None = None) -> None:
        """The handshake."""
        self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities or {}})

    def new_session(self) -> str:
        """A new session; its id."""
        session_id: str = self.ask("session/new", {"cwd": self.home.name, "mcpServers": []})["sessionId"]
        return session_id

    def prompt(self, session: str, text: str = "go") -> int:
        """Send a prompt; the id of the request."""
        return self.post("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def cancel(self, session: str) -> None:
        """Cancel the session's turns."""
        self.notify("session/cancel", {"sessionId": session})

    def memory(self, field: str = "VmHWM") -> float:
        """Resident memory in MiB: the peak so far (VmHWM), or at this moment (VmRSS). Linux only."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"no {field}")


class ModelServer(Child):
    """`bench/model_server.py`, running."""

    def __init__(self) -> None:
        super().__init__([sys.executable, str(Path(__file__).with_name("model_server.py"))])
        self.port = int(self.line())

    def url(self, behaviour: str) -> str:
        """The base URL under which the server behaves like that."""
        return f"http://127.0.0.1:{self.port}/{behaviour}"

    def wait_for(self, event: str) -> float:
        """Wait until the server says "asked" or "closed"; the time of it, of the monotonic clock."""
        while True:
            name, _, at = self.line().decode().partition(" ")
            if name == event:
                return float(at)

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        super().__exit__(*error)


def encoded(message: dict[str, Any]) -> bytes:
    """One line."""
    return json.dumps(message).encode() + b"\n"


def text_of(lines: bytes, session: str = "") -> str:
    """The message text in all update lines, or in those of one session."""
    pieces = []
    for line in lines.splitlines():
        message = json.loads(line)
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            if not session or message["params"]["sessionId"] == session:
                pieces.append(update["content"]["text"])
    return "".join(pieces)


def milliseconds(function: Any, *arguments: Any) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function(*arguments)
    return (time.perf_counter() - start) * 1000


def parser(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """A parser with the flag that all benchmarks have."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--repeats", type=int, default=repeats, help=f"how often (default {repeats})")
    return made


class Table:
    """Rows of figures, printed as they come, and whether each meets its target."""

    def __init__(self, title: str):
        print(f"{title}   [{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}]")
        print("$ " + shlex.join(["python", *sys.argv]))
        self.missed = 0

    def row(
        self, name: str, value: float, unit: str, most: float | None = None, least: float | None = None
    ) -> None:
        """Print one figure; `most` and `least` are its targets."""
        goal, verdict = "", ""
        if most is not None:
            goal, verdict = f"at most {most:g}", "ok" if value <= most else "MISSED"
        if least is not None:
            goal, verdict = f"at least {least:g}", "ok" if value >= least else "MISSED"
        self.missed += verdict == "MISSED"
        print(f"  {name:<52} {value:>10,.2f} {unit:<9} {goal:<14} {verdict}", flush=True)

    def samples(self, name: str, values: Sequence[float], unit: str, **target: float | None) -> None:
        """Print the median of a series, with its lowest and highest value."""
        spread = f" ({min(values):.2f} to {max(values):.2f}, n={len(values)})"
        self.row(name + spread, statistics.median(values), unit, **target)

    def exit_status(self) -> int:
        """1 when a target was missed."""
        return 1 if self.missed else 0

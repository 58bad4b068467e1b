"""Other ACP agents, measured like acpserver: start, memory, junk on the input, end of the input.

    python bench/peers.py --folder ~/acp-peers [--python python3.13] [--only gemini-cli ...]

Installs each peer from npm or PyPI into a folder of its own (a temporary one without `--folder`; 2 GB for
all), so it needs the network, Node.js with npm, for some a newer Python, and Linux (`/proc`). No account:
nothing is asked of a model. They start with an empty HOME and none of your variables. Each figure is a
median over fresh processes, which take turns; an agent is silent after junk when the `initialize` behind
that line has no answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from common import ROOT, Child, encoded, parser

SDK_PYTHON = """
import asyncio, acp
class Least(acp.Agent):
    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=protocol_version)
asyncio.run(acp.run_agent(Least()))
"""
SDK_TYPESCRIPT = """
import * as acp from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";
const answer = ({ params }) => ({ protocolVersion: params.protocolVersion, agentCapabilities: {} });
acp.agent({ name: "least" }).onRequest(acp.methods.agent.initialize, answer)
   .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
"""
HELLO = {"protocolVersion": 1, "clientCapabilities": {}}
JUNK = {
    "no JSON": b"hello\n",
    "half a message": b'{"jsonrpc":"2.0","id":7,"method"\n',
    "no object": b"7\n",
    "not UTF-8": b'{"jsonrpc":"2.0","method":"\xff\xfe"}\n',
    "100,000 brackets": b"[" * 100_000 + b"\n",
    "20 MB, valid": encoded({"jsonrpc": "2.0", "method": "_x", "params": {"text": "x" * 20_000_000}}),
}
PATIENCE = 15.0  # seconds for an answer, or for the end after the end of the input
SETTLED = 1.0  # seconds from the answer to the second look at the memory


class Peer(NamedTuple):
    """What to install, and the command, in which {} is the folder of the installation."""

    name: str
    packages: list[str]
    command: list[str]


NPM = "{}/node_modules/.bin/"
PEERS = [
    Peer("TypeScript SDK 2.4.0, least agent", ["npm:@agentclientprotocol/sdk@2.4.0", "npm:zod@4.1.12"],
         ["node", "--input-type=module", "-e", SDK_TYPESCRIPT]),
    Peer("Python SDK 0.12.1, least agent", ["pip:agent-client-protocol==0.12.1"],
         ["{}/bin/python", "-c", SDK_PYTHON]),
    Peer("codex-acp 0.16.0", ["npm:@zed-industries/codex-acp@0.16.0"], [NPM + "codex-acp"]),
    Peer("claude-agent-acp 0.49.0", ["npm:@agentclientprotocol/claude-agent-acp@0.49.0"],
         [NPM + "claude-agent-acp"]),
    Peer("gemini-cli 0.61.0", ["npm:@google/gemini-cli@0.61.0"], [NPM + "gemini", "--experimental-acp"]),
    Peer("opencode 1.18.33", ["npm:opencode-ai@1.18.33"], [NPM + "opencode", "acp"]),
    Peer("qwen-code 0.24.4", ["npm:@qwen-code/qwen-code@0.24.4"], [NPM + "qwen", "--acp"]),
    Peer("mistral-vibe 3.0.2", ["pip:mistral-vibe==3.0.2"], ["{}/bin/vibe-acp"]),
    Peer("kimi-cli 1.50.0", ["pip:kimi-cli==1.50.0"], ["{}/bin/kimi", "acp"]),
    Peer("deepagents-acp 0.0.13", ["pip:deepagents-acp==0.0.13"], ["{}/bin/python", "-m", "deepagents_acp"]),
]  # fmt: skip


class Agent(Child):
    """One process of an agent, with all that it starts, in a home folder of its own."""

    def __init__(self, command: list[str], folder: Path):
        self._home = tempfile.TemporaryDirectory(prefix="acpserver-peer-", ignore_cleanup_errors=True)
        environ = {"PATH": os.environ["PATH"], "HOME": self._home.name, "TERM": "dumb", "LANG": "C.UTF-8"}
        if folder == ROOT:  # acpserver itself, as `start.py` measures it; nothing listens there
            environ |= {"ACPSERVER_MODEL": "fake", "ACPSERVER_BASE_URL": "http://127.0.0.1:9/v1"}
        self._last_id = 0
        command = [word if "\n" in word else word.replace("{}", str(folder)) for word in command]
        super().__init__(command, environ, cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        with contextlib.suppress(ProcessLookupError):  # what it has started and left behind
            os.killpg(self.process.pid, signal.SIGKILL)
        self._home.cleanup()

    def hello(self) -> bool:
        """Ask `initialize`; whether the answer came in time."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": "initialize", "params": HELLO}
        try:
            self.write(encoded(message))
            while self.parsed().get("id") != self._last_id:
                pass
        except (OSError, EOFError):
            return False
        return True

    def parsed(self) -> dict[str, object]:
        """The next line, {} for one that is no message."""
        try:
            value = json.loads(self.line())
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def read(self) -> bytes:
        """As in `Child`, but less patient."""
        if not select.select([self._out], [], [], PATIENCE)[0]:
            raise TimeoutError
        return super().read()

    def used(self) -> tuple[float, float]:
        """Milliseconds of processor time and MiB of resident memory of it and all its descendants."""
        used = [_used(pid) for pid in _with_descendants(self.process.pid)]
        return sum(each[0] for each in used), sum(each[1] for each in used)


def _with_descendants(pid: int) -> list[int]:
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                found += _with_descendants(int(child))
    return found


def _used(pid: int) -> tuple[float, float]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0, 0.0
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks * 1000 / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def install(peer: Peer, folder: Path, python: str) -> Path:
    """Install a peer into its own folder, once. Raises `CalledProcessError`."""
    made = folder / peer.name.split(",")[0].replace(" ", "-")
    if (made / "installed").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    pip = [package[4:] for package in peer.packages if package.startswith("pip:")]
    npm = [package[4:] for package in peer.packages if package.startswith("npm:")]
    if pip:
        _run([python, "-m", "venv", str(made)])
        _run([str(made / "bin/python"), "-m", "pip", "install", "-q", *pip])
    if npm:
        (made / "package.json").write_text('{"private": true}')
        _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(made), *npm])
    (made / "installed").touch()
    return made


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)


class Figures:
    """What was measured of one agent."""

    def __init__(self, name: str, command: list[str], folder: Path):
        self.name = name
        self._command = command
        self._folder = folder
        self._rounds: list[tuple[float, ...]] = []
        """For each process: start in ms, processor time of that, memory then and later in MiB, end in s."""

    def measure(self) -> None:
        """Start it once. Raises `TimeoutError` when it does not answer."""
        begin = time.perf_counter()
        with Agent(self._command, self._folder) as agent:
            if not agent.hello():
                raise TimeoutError(f"{self.name} does not answer `initialize`")
            start = (time.perf_counter() - begin) * 1000
            processor, early = agent.used()
            time.sleep(SETTLED)
            self._rounds.append((start, processor, early, agent.used()[1], _end(agent)))

    def row(self) -> str:
        """Its row of the table; the first start, which fills the cache of files, is left out."""
        lost = [kind for kind, junk in JUNK.items() if not _survives(self._command, self._folder, junk)]
        start, processor, early, settled, end = map(statistics.median, zip(*self._rounds[1:], strict=True))
        ends = f"not in {PATIENCE:g} s" if end >= PATIENCE else f"{end * 1000:,.0f} ms"
        memory = (f"{early:,.0f} MiB", f"{settled:,.0f} MiB")
        cells = (f"{start:,.0f} ms", f"{processor:,.0f} ms", *memory, ", ".join(lost) or "nothing", ends)
        return f"| {self.name} | {' | '.join(cells)} |"


def _end(agent: Agent) -> float:
    """Seconds from the end of the input to the end of the process."""
    assert agent.process.stdin
    agent.process.stdin.close()
    begin = time.perf_counter()
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.process.wait(PATIENCE)
    return time.perf_counter() - begin


def _survives(command: list[str], folder: Path, junk: bytes) -> bool:
    """Whether a request behind a line of junk is answered."""
    with Agent(command, folder) as agent:
        if not agent.hello():
            return False
        with contextlib.suppress(OSError):
            agent.write(junk)
        return agent.hello()


def main() -> int:
    """Install, measure, print a table."""
    flags = parser(__doc__, 5)
    flags.add_argument("--folder", type=Path, help="where peers are installed and kept")
    flags.add_argument("--python", default=sys.executable, help="for the peers from PyPI")
    flags.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="how the names of some peers begin"
    )
    options = flags.parse_args()
    agents = [Figures("acpserver", [sys.executable, "-m", "acpserver"], ROOT)]
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acp-peers-")))
        for peer in PEERS:
            if options.only and not peer.name.startswith(tuple(options.only)):
                continue
            try:
                place = install(peer, folder.expanduser().resolve(), options.python)
                figures = Figures(peer.name, peer.command, place)
                figures.measure()
            except (OSError, subprocess.SubprocessError) as error:
                why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
                print(f"left out: {peer.name}: {why[:200]}", file=sys.stderr, flush=True)
            else:
                agents.append(figures)
        agents[0].measure()
        for _ in range(options.repeats):  # in turns: what else the machine does hits all alike
            for figures in agents:
                figures.measure()
        print("| agent | start | its processor time | memory then | 1 s later | silent after | ends |")
        print("|---|---|---|---|---|---|---|")
        for figures in agents:
            print(figures.row(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

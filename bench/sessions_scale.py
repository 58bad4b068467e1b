"""Large sessions and many of them.

    python bench/sessions_scale.py [--repeats 5]

Targets: a session of 10,000 messages is loaded, replay included, in 1.5 s and resumed in 0.3 s; the first
page of session/list with 10,000 stored sessions in 100 folders comes in 100 ms; a record costs the same at
message 10 and at message 10,000. Each measurement uses a fresh server process (but the list, which is asked
several times); the time is from the request to its answer, read by a client as fast as a client can be.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, Agent, Table, encoded, parser

sys.path.insert(0, str(ROOT))

from acpserver import records  # noqa: E402
from acpserver.llm.types import Text, ToolCall, ToolResult, Usage  # noqa: E402
from acpserver.session import Session  # noqa: E402
from acpserver.session_file import SessionFile  # noqa: E402
from acpserver.sessions import new_id  # noqa: E402
from acpserver.store import Store  # noqa: E402

MESSAGES = 10_000
SESSIONS, FOLDERS = 10_000, 100
PARAGRAPH = "A sentence of an answer that is neither short nor long. " * 8


def big_session(store: Store, cwd: str) -> str:
    """A session of so many messages for the model: prompts, answers with a call, results, answers."""
    session_id = new_id()
    found = [records.header(session_id, cwd)]
    for turn in range(MESSAGES // 4):
        call = ToolCall(f"call_{turn}", "read_file", {"path": f"src/{turn}.py"}, "")
        shown: records.Record = {"title": f"Read src/{turn}.py", "kind": "read"}
        shown["locations"] = [{"path": f"{cwd}/src/{turn}.py"}]
        usage = Usage(1000, 100)
        found += [
            records.user(f"u{turn}", [{"type": "text", "text": f"Question {turn}: what does it do?"}]),
            records.assistant([Text("I look."), call], [f"a{turn}"], usage, True),
            records.call(call.id, shown),
            records.result(ToolResult(call.id, "read_file", PARAGRAPH), {}),
            records.assistant([Text(PARAGRAPH)], [f"b{turn}"], usage, True),
        ]
    store.create(session_id, cwd, found)
    return session_id


def asked(agent: Agent, method: str, params: dict[str, object]) -> tuple[float, int]:
    """Milliseconds until the answer, and how many lines came before it."""
    start = time.perf_counter()
    agent.write(encoded({"jsonrpc": "2.0", "id": "x", "method": method, "params": params}))
    data = agent.until(b'"id":"x"')
    taken = (time.perf_counter() - start) * 1000
    lines = data.splitlines()
    assert b'"result"' in lines[-1], lines[-1]
    return taken, len(lines) - 1


def measure_big(table: Table, repeats: int) -> None:
    """Load and resume."""
    for method, most in (("session/load", 1500.0), ("session/resume", 300.0)):
        taken = []
        for _ in range(repeats):
            with Agent() as agent:
                store = Store(os.path.join(agent.home.name, ".local", "state", "acpserver"))
                cwd = agent.home.name
                session = big_session(store, cwd)
                agent.initialize()
                params: dict[str, object] = {"sessionId": session, "cwd": cwd, "mcpServers": []}
                milliseconds, updates = asked(agent, method, params)
                taken.append(milliseconds)
        table.samples(f"{method}, {MESSAGES} messages, {updates} updates", taken, "ms", most=most)


def measure_list(table: Table, repeats: int) -> None:
    """The first page of many sessions."""
    with Agent() as agent:
        store = Store(os.path.join(agent.home.name, ".local", "state", "acpserver"))
        for number in range(SESSIONS):
            cwd = f"{agent.home.name}/project-{number % FOLDERS}"
            session_id = new_id()
            prompt = records.user("m", [{"type": "text", "text": f"Question {number}"}])
            answer = records.assistant([Text(PARAGRAPH)], ["a"], None, True)
            store.create(session_id, cwd, [records.header(session_id, cwd), prompt, answer])
        agent.initialize()
        first = asked(agent, "session/list", {})[0]
        taken = [asked(agent, "session/list", {})[0] for _ in range(repeats * 4)]
        one = [asked(agent, "session/list", {"cwd": cwd})[0] for _ in range(repeats * 4)]
    table.row(f"session/list, {SESSIONS} sessions, the first time", first, "ms", most=100)
    table.samples("session/list again", taken, "ms", most=100)
    table.samples("session/list of one folder of 100", one, "ms", most=100)


def measure_append(table: Table) -> None:
    """The cost of a record early and late."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session("s", folder, (folder,), SessionFile(str(Path(folder) / "s.jsonl"), "s"), ["m"])
        session.file.create([records.header("s", folder)])
        costs = []
        for number in range(MESSAGES + 500):
            record = records.user(f"m{number}", [{"type": "text", "text": PARAGRAPH}])
            start = time.perf_counter()
            session.note(record)
            costs.append((time.perf_counter() - start) * 1e6)
        assert len(json.dumps(session.conversation.title)) > 2
    early, late = statistics.median(costs[10:510]), statistics.median(costs[-500:])
    table.row("a record at message 10 (median of 500)", early, "us")
    table.row(f"a record at message {MESSAGES} (median of 500)", late, "us")
    table.row("late / early", late / early, "", most=1.5)


def main() -> int:
    """Run and return the exit status."""
    options = parser(__doc__, repeats=5).parse_args()
    table = Table("Large sessions, and many")
    measure_big(table, options.repeats)
    measure_list(table, options.repeats)
    measure_append(table)
    return table.exit_status()


if __name__ == "__main__":
    sys.exit(main())

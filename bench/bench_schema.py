"""What checking messages costs: microseconds a message, and time and memory of the first use.

    python bench/bench_schema.py [OFFICIAL_SCHEMA_JSON]

Each figure is the median of several rounds. With the path of the official schema.json, the same chunk is
checked against that too: against its root, and against the definition of its params.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from acpserver import jsontext  # noqa: E402
from acpserver.rpc import schema  # noqa: E402

ROUNDS = 7
ROUND_SECONDS = 0.1
LIMIT = 40  # microseconds that a checked chunk may take more than an unchecked one

FIRST_USE = """
import json, resource, sys, time
began = time.perf_counter()
from acpserver.rpc import schema
loaded = time.perf_counter()
import jsonschema
imported = time.perf_counter()
client = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
info = {"name": "client", "version": "1"}
params = {"protocolVersion": 1, "clientCapabilities": client, "clientInfo": info}
assert not schema.check_params("initialize", params)
answer = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
assert not schema.check_result("initialize", answer)
checked = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([loaded - began, imported - loaded, checked - imported, peak]))
"""


def update(variant: str, /, **fields: object) -> dict[str, object]:
    """Params of one session/update."""
    return {"sessionId": "0b1d6c1e", "update": {"sessionUpdate": variant, **fields}}


CHUNK = update(
    "agent_message_chunk", content={"type": "text", "text": "a few words of an answer "}, messageId="m1"
)
TOOL_CALL = update(
    "tool_call",
    toolCallId="c1",
    title="Edit main.py",
    kind="edit",
    status="pending",
    content=[{"type": "diff", "path": "/project/main.py", "oldText": "a\n", "newText": "b\n"}],
    locations=[{"path": "/project/main.py", "line": 3}],
    rawInput={"path": "main.py", "old": "a", "new": "b"},
)
PROMPT: dict[str, object] = {"sessionId": "0b1d6c1e", "prompt": [{"type": "text", "text": "hello"}]}


def message(params: object) -> dict[str, object]:
    """The whole notification around params."""
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def microseconds(work: Callable[[], object]) -> float:
    """The median time of one call."""
    rounds = []
    for _ in range(ROUNDS):
        calls, began = 0, time.perf_counter()
        while time.perf_counter() - began < ROUND_SECONDS:
            for _ in range(10):
                work()
            calls += 10
        rounds.append((time.perf_counter() - began) / calls * 1e6)
    return statistics.median(rounds)


def checked(params: object) -> str:
    """What the connection does with every outgoing update."""
    assert not schema.check_params("session/update", params)
    return jsontext.dumps(message(params))


def received(params: object) -> None:
    """What the connection does with every incoming prompt."""
    mended, _ = schema.forgive_params("session/prompt", params)
    assert not schema.check_params("session/prompt", mended)


def official_rows(path: str) -> dict[str, Callable[[], object]]:
    """The same chunk by the official schema as it stands."""
    import jsonschema

    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    root = jsonschema.Draft202012Validator(whole)
    rules = {"$ref": "#/$defs/SessionNotification", "$defs": whole["$defs"]}
    by_method = jsonschema.Draft202012Validator(rules)
    return {
        "chunk by the official schema: its root": lambda: root.is_valid(message(CHUNK)),
        "chunk by the official schema: SessionNotification": lambda: by_method.is_valid(CHUNK),
    }


def show_messages(official: str | None) -> float:
    """Print a line for each kind of message; the result is what checking adds to a chunk."""
    rows: dict[str, Callable[[], object]] = {
        "chunk: dumps alone": lambda: jsontext.dumps(message(CHUNK)),
        "chunk: check and dumps": lambda: checked(CHUNK),
        "tool_call: dumps alone": lambda: jsontext.dumps(message(TOOL_CALL)),
        "tool_call: check and dumps": lambda: checked(TOOL_CALL),
        "prompt received: forgive and check": lambda: received(PROMPT),
        **(official_rows(official) if official else {}),
    }
    found = {name: microseconds(work) for name, work in rows.items()}
    for name, cost in found.items():
        print(f"{name:52} {cost:9.1f} µs")
    return found["chunk: check and dumps"] - found["chunk: dumps alone"]


def show_first_use() -> None:
    """Print what the first checks of a fresh process cost."""
    command = [sys.executable, "-c", FIRST_USE]
    runs = []
    for _ in range(ROUNDS):
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        runs.append(json.loads(done.stdout))
    own, library, first, peak = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"{'first use: import of acpserver.rpc.schema':52} {own * 1e3:9.1f} ms")
    print(f"{'first use: import of jsonschema':52} {library * 1e3:9.1f} ms")
    print(f"{'first use: files and checkers for initialize':52} {first * 1e3:9.1f} ms")
    kibibytes = peak / 1024 if sys.platform == "darwin" else peak
    print(f"{'peak memory of that process':52} {kibibytes / 1024:9.1f} MiB")


def main() -> int:
    """Print the table; the exit status says whether the chunk stayed within its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("official", nargs="?", help="path of the official schema.json")
    added = show_messages(parser.parse_args().official)
    show_first_use()
    print(f"{'a checked chunk costs more than an unchecked one by':52} {added:9.1f} µs (limit {LIMIT})")
    return 0 if added <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

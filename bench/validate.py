"""`acp-validate` on a large trace: time, and that memory does not grow with the file.

    python bench/validate.py [MEGABYTES]

A trace of many turns is written, judged in a child, and removed. Prints figures and fails when the child
took more memory than it may.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_MEMORY = 100  # MB that the judge may take
_CHILD = """
import resource, sys
from acpserver.validate.command import main
status = main(sys.argv[1:])
print(status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def turns() -> Iterator[dict[str, object]]:
    """A conversation without end: a session every 50 turns, two calls and 40 chunks in each turn."""
    yield {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    info = {"name": "a", "version": "1"}
    yield {"id": 0, "result": {"protocolVersion": 1, "agentInfo": info}}
    number = 0
    while True:
        number += 1
        session = f"s-{number // 50}"
        if number % 50 == 0 or number == 1:
            yield {"id": f"new-{number}", "method": "session/new", "params": {"cwd": "/p", "mcpServers": []}}
            yield {"id": f"new-{number}", "result": {"sessionId": session}}
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go on " * 20}]}
        yield {"id": number, "method": "session/prompt", "params": prompt}
        for update in _updates(number):
            yield {"method": "session/update", "params": {"sessionId": session, "update": update}}
        yield {"id": number, "result": {"stopReason": "end_turn"}}


def _updates(number: int) -> Iterator[dict[str, object]]:
    for chunk in range(40):
        content = {"type": "text", "text": f"word {chunk} " * 10}
        yield {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": f"m-{number}"}
    for call in range(2):
        name = f"t-{number}-{call}"
        told = {"toolCallId": name, "title": "Read a", "kind": "read", "status": "pending"}
        yield {"sessionUpdate": "tool_call", **told, "rawInput": {"path": "/p/a"}}
        yield {"sessionUpdate": "tool_call_update", "toolCallId": name, "status": "in_progress"}
        output = {"text": "x" * 4000}
        yield {
            "sessionUpdate": "tool_call_update",
            "toolCallId": name,
            "status": "completed",
            "rawOutput": output,
        }


def write(path: Path, size: int) -> int:
    """Write a trace of at least `size` bytes; the number of messages."""
    written = count = 0
    clients = {"initialize", "session/new", "session/prompt"}
    with path.open("w") as file:
        for message in turns():
            direction = "in" if message.get("method") in clients else "out"
            entry = {"time": count / 1000, "direction": direction, "message": {"jsonrpc": "2.0", **message}}
            written += file.write(json.dumps(entry) + "\n")
            count += 1
            if written >= size:
                return count
    return count


def main() -> int:
    """Write, judge, tell."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.jsonl")
        count = write(path, size * 1_000_000)
        command = [sys.executable, "-c", _CHILD, "--quiet", str(path)]
        begin = time.monotonic()
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        taken = time.monotonic() - begin
    print(done.stdout.strip() or done.stderr)
    memory = int(done.stdout.split()[-1])
    print(
        f"{size} MB, {count} messages: {taken:.1f} s, {count / taken:.0f} messages/s, {size / taken:.1f} MB/s"
    )
    print(f"memory of the judge: {memory} MB (at most {MOST_MEMORY})")
    return 0 if memory <= MOST_MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())

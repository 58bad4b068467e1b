"""A small MCP server over stdio, good or misbehaving: `python -m tests.fakes.mcp_server [BEHAVIOUR ...]`.

Behaviours: chatter (log lines on stdout first), string-ids (answers 7 with "7"), early-note (a notification
before the first answer), flood-stderr (1 MB on stderr at start), deaf (never answers initialize), ignore-end
(stays when its input ends, and ignores SIGTERM), refuse (initialize is an error), pages (the list of tools
comes in two pages), bad-list (the list holds nonsense). Tools: echo, slow (never answers), broken
(a JSON-RPC error), failing (isError), env (the variable named), picture, crash (ends the server), sleepy
(from then on it reads nothing).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

BEHAVIOURS = set(sys.argv[1:])
TEXT_TOOL = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NAMES = ("echo", "slow", "broken", "failing", "env", "picture", "crash", "sleepy")


def say(message: dict[str, object]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, object], result: object) -> None:
    """Answer a request."""
    number = request["id"]
    say({"id": str(number) if "string-ids" in BEHAVIOURS else number, "result": result})


def listed(names: tuple[str, ...]) -> list[object]:
    """Entries of the list of tools."""
    return [{"name": name, "description": f"The tool {name}.", "inputSchema": TEXT_TOOL} for name in names]


def list_tools(request: dict[str, object]) -> None:
    """tools/list."""
    params = request.get("params")
    if "bad-list" in BEHAVIOURS:
        answer(request, {"tools": ["nonsense"]})
    elif "pages" not in BEHAVIOURS:
        answer(request, {"tools": listed(NAMES)})
    elif isinstance(params, dict) and params.get("cursor") == "2":
        answer(request, {"tools": listed(NAMES[3:])})
    else:
        answer(request, {"tools": listed(NAMES[:3]), "nextCursor": "2"})


def call_tool(request: dict[str, object]) -> None:
    """tools/call."""
    params = request["params"]
    assert isinstance(params, dict)
    name, value = params["name"], params["arguments"]["text"]
    if name == "broken":
        say({"id": request["id"], "error": {"code": -32000, "message": "it broke"}})
    elif name == "picture":
        answer(request, {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]})
    elif name == "crash":
        sys.exit("out of luck")
    elif name == "sleepy":
        time.sleep(60)
    elif name != "slow":
        text = os.environ.get(value, "unset") if name == "env" else f"{name}: {value}"
        answer(request, {"content": [{"type": "text", "text": text}], "isError": name == "failing"})


def initialize(request: dict[str, object]) -> None:
    """The handshake."""
    if "refuse" in BEHAVIOURS:
        say({"id": request["id"], "error": {"code": -32603, "message": "not today"}})
        return
    if "early-note" in BEHAVIOURS:
        say({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
        say({"id": "ping-1", "method": "ping"})
    if "deaf" not in BEHAVIOURS:
        info = {"name": "fake", "version": "1"}
        answer(request, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})


def main() -> None:
    """Serve until the end of input."""
    if "chatter" in BEHAVIOURS:
        print("Server listening on stdio...\n[info] ready", flush=True)
    if "flood-stderr" in BEHAVIOURS:
        sys.stderr.write("x" * (1 << 20) + "\n")
    if "ignore-end" in BEHAVIOURS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handlers = {"initialize": initialize, "tools/list": list_tools, "tools/call": call_tool}
    initialized = False
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method", "")
        if method == "notifications/initialized":
            initialized = True
        elif method.startswith("tools/") and not initialized:
            say({"id": message["id"], "error": {"code": -32002, "message": "not initialized"}})
        elif method in handlers:
            handlers[method](message)
    while "ignore-end" in BEHAVIOURS:
        time.sleep(60)


if __name__ == "__main__":
    main()

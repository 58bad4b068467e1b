"""Record what a real model server sends, byte for byte, into tests/captures/.

    python -m tests.record_captures http://127.0.0.1:8080/v1 [--vendor llamacpp] [--model NAME] [CASE ...]

Each case becomes tests/captures/VENDOR/CASE.http: the raw bytes of the response, head and framing included.
`tests/test_captures.py` replays them. The cases `think*` need a model or a chat template that thinks; what a
server answers differs from run to run, so look at what was recorded before you commit it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

CAPTURES = Path(__file__).parent / "captures"
PARIS = {"role": "user", "content": "What is the weather in Paris, in celsius?"}


def tool(name: str, argument: str) -> dict:
    """A tool with one text argument."""
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    function = {"name": name, "description": f"{name}, given its {argument}", "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [tool("get_weather", "city"), tool("run_command", "command")]
THINK = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget_tokens": 60}


def asked_before(first: str, second: str) -> list[dict]:
    """An exchange in which the model called two tools at once: it shows a small model how that is done."""
    cities = {f"call_{first}": first, f"call_{second}": second}
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
        }
        for call_id, city in cities.items()
    ]
    results = [{"role": "tool", "tool_call_id": call_id, "content": "12 C"} for call_id in cities]
    return [
        {"role": "user", "content": f"Get the weather of both {first} and {second}."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
        {"role": "assistant", "content": f"It is 12 C in {first} and in {second}."},
    ]


def user(text: str) -> list[dict]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


POEM = user("Use run_command to write a poem of 30 lines to poem.txt with cat and a heredoc.")
WHOLE = {"stream": False, "stream_options": None}
CASES: dict[str, dict | bytes] = {
    "plain": {"messages": user("Say hello in five words."), "max_tokens": 40},
    "no_usage": {"messages": user("Say hello in five words."), "max_tokens": 40, "stream_options": None},
    "not_streamed": {"messages": user("Say hello in five words."), "max_tokens": 40, **WHOLE},
    "utf8": {"messages": user("Repeat exactly: 你好，世界 🎉 naïve 👩‍👧"), "max_tokens": 60},
    "length": {"messages": user("Tell me a long story."), "max_tokens": 8},
    "tool_call": {"messages": [PARIS], "tools": TOOLS, "max_tokens": 120},
    "tool_call_not_streamed": {"messages": [PARIS], "tools": TOOLS, "max_tokens": 120, **WHOLE},
    "parallel_tool_calls": {
        "messages": [
            *asked_before("Rome", "Oslo"),
            *asked_before("Cairo", "Lima"),
            *user("Get the weather of both Paris and London."),
        ],
        "tools": TOOLS,
        "parallel_tool_calls": True,
        "max_tokens": 160,
    },
    "tool_call_length": {"messages": POEM, "tools": TOOLS, "tool_choice": "required", "max_tokens": 30},
    "think": {"messages": user("What is 17 times 3?"), "max_tokens": 160, **THINK},
    "think_tool_call": {"messages": [PARIS], "tools": TOOLS, "max_tokens": 200, **THINK},
    "error_too_long": {"messages": user("The quick brown fox jumps over it. " * 4000), "max_tokens": 5},
    "error_bad_json": b'{"model": "m", "messages": [',
}


def record(base_url: str, model: str, case: dict | bytes) -> bytes:
    """The raw response to one case, up to the end of the connection."""
    if isinstance(case, dict):
        whole = {"model": model, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        case = json.dumps({key: value for key, value in (whole | case).items() if value is not None}).encode()
    parts = urlsplit(base_url)
    head = [
        f"POST {parts.path.rstrip('/')}/chat/completions HTTP/1.1",
        f"Host: {parts.netloc}",
        "Content-Type: application/json",
        "Connection: close",
        f"Content-Length: {len(case)}",
    ]
    if key := os.environ.get("CAPTURE_API_KEY"):
        head.append(f"Authorization: Bearer {key}")
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=300) as sock:
        sock.sendall("\r\n".join([*head, "", ""]).encode() + case)
        pieces = []
        while piece := sock.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def main() -> None:
    """Record the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base_url")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--vendor", default="llamacpp")
    parser.add_argument("--model", default="local-llm")
    options = parser.parse_args()
    folder = CAPTURES / options.vendor
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.cases or CASES:
        raw = record(options.base_url, options.model, CASES[name])
        (folder / f"{name}.http").write_bytes(raw)
        print(f"{name}: {len(raw)} bytes, {raw.partition(bytes([13]))[0].decode()}", file=sys.stderr)


if __name__ == "__main__":
    main()

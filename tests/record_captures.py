"""Record what a real model server sends, byte for byte, into tests/captures/.

    python -m tests.record_captures http://127.0.0.1:8080/v1 [--vendor llamacpp] [--model NAME] [CASE ...]
    python -m tests.record_captures http://127.0.0.1:8080/v1 --dialect anthropic [--think JSON] [CASE ...]

Each case becomes tests/captures/VENDOR/CASE.http, or VENDOR/DIALECT/CASE.http: the raw bytes of the
response, head and framing included. `tests/test_captures.py` replays them. With `--dialect` the request is
the one that this dialect makes, so that a recording also shows that a server takes it. The cases `think*`
need a model or a chat template that thinks, which `--think` may switch on. What a server answers differs from
run to run, so look at what was recorded before you commit it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from acpserver.llm.dialects import DIALECTS
from acpserver.llm.types import Endpoint, Message, ModelRequest, Text, ToolCall, ToolResult, ToolSpec

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


def said(text: str) -> Message:
    """The user's words."""
    return Message("user", (Text(text),))


SPECS = tuple(
    ToolSpec(item["function"]["name"], item["function"]["description"], item["function"]["parameters"])
    for item in TOOLS
)
ASK = said(PARIS["content"])
CALLED = ToolCall("call_1", "get_weather", {"city": "Paris"})
HISTORY = (
    ASK,
    Message("assistant", (CALLED,)),
    Message("tool", (ToolResult("call_1", "get_weather", "18 C"),)),
)
NEUTRAL: dict[str, ModelRequest] = {
    "plain": ModelRequest("", "", (said("Say hello in five words."),), max_tokens=40),
    "utf8": ModelRequest("", "", (said("Repeat exactly: 你好，世界 🎉 naïve 👩‍👧"),), max_tokens=60),
    "length": ModelRequest("", "", (said("Tell me a long story."),), max_tokens=8),
    "tool_call": ModelRequest("", "", (ASK,), SPECS, 120),
    "tool_result": ModelRequest("", "Be brief.", HISTORY, SPECS, 120),
    "think": ModelRequest("", "", (said("What is 17 times 3?"),), max_tokens=2200, effort="low"),
    "think_tool_call": ModelRequest("", "", (ASK,), SPECS, 2200, "low"),
    "error_too_long": ModelRequest(
        "", "", (said("The quick brown fox jumps over it. " * 4000),), max_tokens=5
    ),
    # The mock answers these words with what they say.
    "mock_plain": ModelRequest("", "", (said("hi"),)),
    "mock_unicode": ModelRequest("", "", (said("unicode"),)),
    "mock_length": ModelRequest("", "", (said("stop at length"),)),
    "mock_refusal": ModelRequest("", "", (said("filtered"),)),
    "mock_tool_call": ModelRequest("", "", (said("call one"),), SPECS),
    "mock_parallel_tool_calls": ModelRequest("", "", (said("call two"),), SPECS),
    "mock_think": ModelRequest("", "", (said("think"),), effort="low"),
    "mock_think_tool_call": ModelRequest("", "", (said("think and call"),), SPECS, effort="low"),
    "mock_cut": ModelRequest("", "", (said("cut off"),)),
    "mock_error_429": ModelRequest("", "", (said("rate limit"),)),
    "mock_error_529": ModelRequest("", "", (said("overloaded"),)),
    "mock_error_too_long": ModelRequest("", "", (said("too long"),)),
}


def chat_request(base_url: str, model: str, case: dict | bytes) -> tuple[str, dict[str, str], bytes]:
    """URL, headers and body of one of `CASES`."""
    if isinstance(case, dict):
        whole = {"model": model, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        case = json.dumps({key: value for key, value in (whole | case).items() if value is not None}).encode()
    return f"{base_url.rstrip('/')}/chat/completions", {"Content-Type": "application/json"}, case


def dialect_request(
    base_url: str, dialect: str, model: str, case: ModelRequest, extra: dict
) -> tuple[str, dict[str, str], bytes]:
    """URL, headers and body that the dialect makes of one of `NEUTRAL`; `extra` is merged into the body."""
    made = DIALECTS[dialect].chat(Endpoint(base_url, dialect), case._replace(model=model))
    return made.url, made.headers, json.dumps(json.loads(made.body) | extra).encode()


def record(url: str, headers: dict[str, str], body: bytes) -> bytes:
    """The raw response to one request, up to the end of the connection."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    head = [f"POST {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    head.append(f"Content-Length: {len(body)}")
    if key := os.environ.get("CAPTURE_API_KEY"):
        head.append(f"Authorization: Bearer {key}")
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=300) as sock:
        sock.sendall("\r\n".join([*head, "", ""]).encode() + body)
        pieces = []
        try:
            while piece := sock.recv(65536):
                pieces.append(piece)
                if b"".join(pieces[-2:]).endswith(b"\r\n0\r\n\r\n"):
                    break  # some servers stay connected all the same
        except ConnectionError:
            print("cut by the server", file=sys.stderr)
    return b"".join(pieces)


def without_notes(raw: bytes) -> bytes:
    """The response without the headers in which a proxy tells about itself and its surroundings."""
    head, gap, body = raw.partition(b"\r\n\r\n")
    lines = [
        line for line in head.split(b"\r\n") if not line.lower().startswith((b"x-litellm", b"llm_provider"))
    ]
    return b"\r\n".join(lines) + gap + body


def main() -> None:
    """Record the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base_url")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join({**CASES, **NEUTRAL}))
    parser.add_argument("--dialect", default="", choices=["", *DIALECTS])
    parser.add_argument("--extra", default="{}", type=json.loads, help="JSON merged into each body")
    parser.add_argument("--think", default="{}", type=json.loads, help="the same for the cases think*")
    parser.add_argument("--vendor", default="llamacpp")
    parser.add_argument("--model", default="local-llm")
    options = parser.parse_intermixed_args()
    folder = CAPTURES / options.vendor / options.dialect
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.cases or (NEUTRAL if options.dialect else CASES):
        if options.dialect:
            extra = options.extra | (options.think if name.startswith("think") else {})
            case = NEUTRAL[name]
            request = dialect_request(options.base_url, options.dialect, options.model, case, extra)
        else:
            request = chat_request(options.base_url, options.model, CASES[name])
        raw = without_notes(record(*request))
        (folder / f"{name}.http").write_bytes(raw)
        print(f"{name}: {len(raw)} bytes, {raw.partition(bytes([13]))[0].decode()}", file=sys.stderr)


if __name__ == "__main__":
    main()

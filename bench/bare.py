"""The bare loop that the throughput is compared with: `requests`, split, `json.dumps`, one write a chunk.

A process like an agent: for each line "URL THREADS" on its stdin it asks the model on that many threads at
once and writes one update line for each chunk, and a line with a stop reason for each thread at the end.
Nothing is checked, nothing is kept, nothing can be cancelled.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import requests

here = threading.local()


def turn(url: str, session_id: str) -> None:
    """One answer, from the model's server to stdout."""
    if not hasattr(here, "session"):
        here.session = requests.Session()
    rest = b""
    with here.session.post(url + "/chat/completions", json={"messages": []}, stream=True) as response:
        for block in response.iter_content(65536):
            *events, rest = (rest + block).split(b"\n\n")
            for event in events:
                data = event[6:]
                if data != b"[DONE]":
                    for choice in json.loads(data)["choices"]:
                        text = choice["delta"].get("content")
                        if text:
                            put(session_id, text)
    os.write(1, b'{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}\n')


def put(session_id: str, text: str) -> None:
    """Write one chunk."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    params = {"sessionId": session_id, "update": update}
    os.write(1, json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n")


def main() -> None:
    """Serve until the end of input."""
    with ThreadPoolExecutor(20) as pool:
        for line in sys.stdin:
            url, threads = line.split()
            for future in [pool.submit(turn, url, f"sess_{number:032x}") for number in range(int(threads))]:
                future.result()


if __name__ == "__main__":
    main()

"""What is written to stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.moments import Stage, bash
from tests.fakes.editor import CHECKOUT
from tests.fakes.llm_answers import error, text


def test_row_240_a_stderr_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    """The pipe for stderr was full, and the agent stood still."""
    server = subprocess.Popen(
        [sys.executable, "-m", "acpserver", "--model", "offline", "--log-level", "debug"],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert server.stdin and server.stdout and server.stderr
    try:

        def ask(request_id: int, method: str, params: object) -> dict[str, object]:
            message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            server.stdin.flush()  # type: ignore[union-attr]
            while True:
                answer = json.loads(server.stdout.readline())  # type: ignore[union-attr]
                if answer.get("id") == request_id:
                    return answer  # type: ignore[no-any-return]

        ask(0, "initialize", {"protocolVersion": 1})
        new = ask(1, "session/new", {"cwd": str(tmp_path), "mcpServers": {}})
        session = new["result"]["sessionId"]  # type: ignore[index]
        prompt = [{"type": "text", "text": "fail 500"}]
        for number in range(2, 500):
            # Each of these leaves a line in the log: a value that had to be mended, and a failed turn.
            extra = {"_meta": None, "sessionId": session}
            assert "error" in ask(number, "session/prompt", {"prompt": prompt, **extra})
            server.stdin.write(b'{"jsonrpc":"2.0","method":"%s"}\n' % (b"x" * 300))
        server.stdin.close()
        assert server.wait(2.0) == 0
        assert 30_000 < len(server.stderr.read()) <= 65_536  # the pipe was full
    finally:
        server.kill()
        server.wait()
        for pipe in (server.stdin, server.stdout, server.stderr):
            if not pipe.closed:
                pipe.close()


def test_row_241_a_normal_session_is_silent(at: Stage, tmp_path: Path) -> None:
    """Clients show every line as an error, and there were many."""
    os.mkdir(tmp_path / "folder")
    for answers in (
        (text("hello"),),
        (bash("echo out; echo err >&2; exit 1"), text("end")),
        (error(500),),
        (error(401),),
    ):
        at.prompt(*answers).wait_reply()
    at.editor.request("session/set_mode", {"sessionId": at.session, "modeId": "no such mode"})
    at.editor.send_raw(b"garbage\n")
    at.editor.notify("example/unknown")
    at.editor.ping()
    assert at.editor.stderr() == ""

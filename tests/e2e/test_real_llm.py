"""A real model behind the server. Runs only with --real-llm.

ACPSERVER_TEST_LLM_URL and ACPSERVER_TEST_LLM_MODEL name a running OpenAI-compatible server, for example
one that llama.cpp serves on this machine. Small models say anything: only shapes are checked.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acpserver.processes import Children
from acpserver.tools.builtin import builtin_tools

ROOT = Path(__file__).parent.parent.parent
# Read at import: every test gets an environment without such variables.
URL = os.environ.get("ACPSERVER_TEST_LLM_URL", "http://127.0.0.1:18080/v1")
MODEL = os.environ.get("ACPSERVER_TEST_LLM_MODEL", "local")
DEADLINE = 280.0  # seconds; a small machine reads the first prompt at some tens of tokens a second

pytestmark = [pytest.mark.real_llm, pytest.mark.timeout(300)]


def chat(prompt: str, answer: str, cwd: Path, **environ: str) -> tuple[int, str, str, list[float]]:
    """One `acpserver chat` turn in `cwd`: exit status, the answer (stdout), the rest (stderr), and when each
    piece of the answer came."""
    # Small models may call tools without end, or talk so.
    flags = ["--model", MODEL, "--base-url", URL, "--max-steps", "3", "--max-tokens", "150"]
    command = [sys.executable, "-m", "acpserver", "chat", answer, *flags, prompt]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    rest = cwd / "stderr"
    with rest.open("wb") as file:
        child = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file
        )
    assert child.stdout is not None
    pieces: list[bytes] = []
    times: list[float] = []
    deadline = time.monotonic() + DEADLINE
    try:
        while select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                break
            pieces.append(piece)
            times.append(time.monotonic())
        status = child.wait(max(0.1, deadline - time.monotonic()))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    return status, b"".join(pieces).decode(), rest.read_text(), times


def test_an_answer_is_streamed(tmp_path: Path) -> None:
    # A small model that has tools writes its poem to a file as often as not, and then has little to say.
    home = tmp_path / "home"
    home.mkdir()
    denied = {"permissions": {"deny": sorted(builtin_tools(Children()))}}
    (home / "config.json").write_text(json.dumps(denied))
    prompt = "Write a poem of six lines about the sea."
    status, shown, rest, times = chat(prompt, "--no", tmp_path, ACPSERVER_HOME=str(home))
    assert len(shown.split()) >= 10, (status, shown, rest)
    assert len(times) >= 5, "the answer came in one piece"


def test_the_model_calls_a_tool(tmp_path: Path) -> None:
    (tmp_path / "colour.txt").write_text("The colour is turquoise.\n")
    prompt = "Call the tool read_file with path colour.txt, then tell me which colour the file names."
    _, shown, rest, _ = chat(prompt, "--yes", tmp_path)
    assert "colour.txt" in rest and "turquoise" in rest, shown  # the tool call and what it read

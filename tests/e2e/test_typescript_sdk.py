"""The client of the official TypeScript SDK against the real server process.

The SDK comes from the npm registry into the checkout's `.cache` on the first run. Without Node, or without
the registry and a copy, these tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.llm_answers import text, tool_call
from tests.fakes.llm_server import FakeLlm

ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "client.mjs"
SDK = "@agentclientprotocol/sdk@2.4.0"
ZOD = "zod@4.1.12"
OLDEST_NODE = 20
INSTALL_SECONDS = 45
DEADLINE = 15.0  # seconds for one scenario


@pytest.fixture(scope="session")
def sdk_folder() -> Path:
    """The folder whose node_modules holds the SDK, installed if it is not there yet."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("Node.js with npm is not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=10).stdout
    if int(version.lstrip("v").partition(".")[0] or 0) < OLDEST_NODE:
        pytest.skip(f"the SDK needs Node.js {OLDEST_NODE}, this is {version.strip()}")
    folder = ROOT / ".cache" / "typescript-sdk-2.4.0"
    if (folder / "installed").exists():
        return folder
    # Made beside it and moved: a second run at the same time, or a broken one, must not leave half a copy.
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    made.mkdir(parents=True)
    (made / "package.json").write_text('{"private": true}')
    flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"]
    command = [npm, "install", *flags, "--prefix", str(made), SDK, ZOD]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        problem = done.stderr.strip().splitlines()[:3] if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"no end within {INSTALL_SECONDS} s"
    if problem:
        shutil.rmtree(made, ignore_errors=True)
        pytest.skip(f"npm could not install {SDK}: {problem}")
    (made / "installed").touch()
    try:
        made.rename(folder)
    except OSError:  # the other run was first
        shutil.rmtree(made, ignore_errors=True)
    return folder


@pytest.fixture
def drive(sdk_folder: Path, tmp_path: Path) -> Any:
    """Run a scenario of client.mjs; what it found."""

    def run(scenario: str, *flags: str, answer: str = "allow_once", **env: str) -> dict[str, Any]:
        server = [sys.executable, "-m", "acpserver", "--strict", *flags]
        command = ["node", str(SCRIPT), scenario, str(sdk_folder), str(tmp_path), answer, *server]
        own_env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=own_env)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["status"] == 0
        assert found["stderr"] == ""
        return dict(found)

    return run


def texts(found: dict[str, Any], kind: str) -> str:
    """All text of one kind of chunk."""
    return "".join(u["content"]["text"] for u in found["updates"] if u["sessionUpdate"] == kind)


def statuses(found: dict[str, Any]) -> list[str]:
    """The statuses of the tool calls, in order."""
    calls = [u for u in found["updates"] if u["sessionUpdate"].startswith("tool_call")]
    return [call["status"] for call in calls if "status" in call]


def test_streams_text_thoughts_and_a_plan(drive: Any) -> None:
    found = drive("stream", "--model", "offline")
    assert found["handshake"]["protocolVersion"] == 1
    assert found["handshake"]["agentInfo"]["name"] == "acpserver"
    assert found["session"]["modes"]["currentModeId"] == "default"
    assert found["answer"]["stopReason"] == "end_turn"
    assert texts(found, "agent_thought_chunk") == "deep\n"
    assert texts(found, "agent_message_chunk") == "hello\n" + "".join(f"{n} " for n in range(1, 301))
    (plan,) = [u for u in found["updates"] if u["sessionUpdate"] == "plan"]
    assert [entry["content"] for entry in plan["entries"]] == ["one", "two"]


def test_the_first_auth_method_is_enough_without_a_model(drive: Any) -> None:
    found = drive("stream")
    assert found["handshake"]["authMethods"][0]["id"] == "offline"
    assert found["answer"]["stopReason"] == "end_turn"


def test_allowed_tools_run(drive: Any, tmp_path: Path) -> None:
    found = drive("tools", "--model", "offline")
    assert found["answer"]["stopReason"] == "end_turn"
    assert (tmp_path / "note.txt").read_text() == "hello"
    assert (tmp_path / "ran.txt").read_text() == "ran\n"
    assert statuses(found) == ["pending", "in_progress", "completed"] * 3
    kinds = [request["toolCall"]["kind"] for request in found["permissions"]]
    assert kinds == ["edit", "execute"]


@pytest.mark.parametrize("answer", ["reject_once", "reject_always", "no such kind"])
def test_rejected_tools_do_not_run_and_the_turn_ends_well(drive: Any, tmp_path: Path, answer: str) -> None:
    found = drive("tools", "--model", "offline", answer=answer)
    assert found["answer"]["stopReason"] == "end_turn"
    assert list(tmp_path.iterdir()) == []
    assert statuses(found) == ["pending", "failed"] * 3
    assert len(found["permissions"]) == 2  # reading the missing file needs none


def test_modes_and_options(drive: Any, tmp_path: Path) -> None:
    found = drive("options", "--model", "offline")
    assert found["update"]["currentModeId"] == "accept_edits"
    values = {option["id"]: option["currentValue"] for option in found["options"]["configOptions"]}
    assert values == {"mode": "read_only", "model": "offline"}
    assert found["unknown"]["code"] == -32602
    assert found["permissions"] == []
    assert list(tmp_path.iterdir()) == []


def test_cancel_ends_a_command_and_the_next_prompt_works(drive: Any) -> None:
    found = drive("cancel", "--model", "offline")
    assert found["answer"]["stopReason"] == "cancelled"
    assert statuses(found)[-1] == "failed"
    assert found["next"]["stopReason"] == "end_turn"
    assert texts(found, "agent_message_chunk") == "again\n"


def test_an_aborted_request_ends_cancelled(drive: Any) -> None:
    found = drive("abort", "--model", "offline")
    assert found["answer"]["stopReason"] == "cancelled"


def test_close_and_logout(drive: Any) -> None:
    found = drive("close", "--model", "offline")
    assert found["closed"] == {}
    assert found["answer"]["stopReason"] == "cancelled"
    assert found["gone"]["code"] == -32002
    assert found["loggedOut"] == {}
    assert found["refused"]["code"] == -32000


def test_a_model_behind_http_calls_a_tool_and_answers(drive: Any, tmp_path: Path) -> None:
    with FakeLlm() as llm:
        llm.script(
            text("I write. ") + tool_call("write_file", {"path": "note.txt", "content": "from afar"}),
            text("It is ", "written."),
        )
        found = drive("ask", "--model", "fake", "--base-url", llm.base_url)
        assert found["answer"]["stopReason"] == "end_turn"
        assert (tmp_path / "note.txt").read_text() == "from afar"
        assert texts(found, "agent_message_chunk") == "I write. It is written."
        assert statuses(found) == ["pending", "in_progress", "completed"]
        assert llm.violations == []
        roles = [message["role"] for message in llm.requests[1].messages]
        assert roles == ["system", "user", "assistant", "tool"]

"""The server in the odd environments in which editors start it: the first line is the `initialize` answer,
stderr is silent, the exit status is 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'
SERVER = [sys.executable, "-m", "acpserver", "--strict"]
SECONDS = 20

BARE = {"PYTHONPATH": str(ROOT)}  # the way to the package in a checkout, and nothing else
ENVIRONMENTS = {
    "nothing at all": {},
    "empty HOME": {"HOME": ""},
    "relative HOME": {"HOME": "here"},
    "HOME that is not there": {"HOME": "/nonexistent/home"},
    "HOME that is a file": {"HOME": "/dev/null"},
    "TERM=dumb": {"TERM": "dumb", "HOME": "/"},
    "all warnings": {"PYTHONWARNINGS": "default", "PYTHONDEVMODE": "1"},
    "LANG=C": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "another encoding": {"PYTHONIOENCODING": "latin-1"},
    "unbuffered": {"PYTHONUNBUFFERED": "1"},
    "value with a line break": {"VALUE": "a\nb", "PATH": "/usr/bin:" + "/x" * 20_000},
    "value that is not UTF-8": {"VALUE": os.fsdecode(b"\xff\xfe")},
    "debug of other programs": {"DEBUG": "*", "PYTHONASYNCIODEBUG": "1", "VERBOSE": "1"},
    "a colour terminal": {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"},
}


def serve(
    given: bytes | None, env: dict[str, str], cwd: str | Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the server with this whole input; None is the null device."""
    source = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    return subprocess.run(SERVER, env=env, cwd=cwd, capture_output=True, timeout=SECONDS, **source)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("extra", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_the_first_line_is_the_initialize_answer(extra: dict[str, str], tmp_path: Path) -> None:
    done = serve(INITIALIZE, BARE | extra, tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    answer = json.loads(lines[0])
    assert answer["id"] == 0
    assert answer["result"]["protocolVersion"] == 1
    assert done.stderr == b""
    assert done.returncode == 0


@pytest.mark.parametrize("given", [None, b"", b"\n", b"\r\n \n"], ids=["null", "empty", "blank", "blanks"])
def test_no_input_ends_it_quietly(given: bytes | None) -> None:
    done = serve(given, BARE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_last_line_without_its_end_counts() -> None:
    done = serve(INITIALIZE.rstrip(b"\n"), BARE)
    assert json.loads(done.stdout)["id"] == 0


def test_a_working_directory_that_was_deleted_does_not_matter(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    (tmp_path / "kept").mkdir()
    session = {"cwd": str(tmp_path / "kept"), "mcpServers": []}
    new = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": session}).encode() + b"\n"
    # The shell deletes its own directory before it becomes the server.
    command = ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *SERVER, "--model", "offline"]
    given = INITIALIZE + new
    done = subprocess.run(command, input=given, cwd=gone, env=BARE, capture_output=True, timeout=SECONDS)
    first, second = done.stdout.splitlines()
    assert json.loads(first)["result"]["protocolVersion"] == 1
    assert json.loads(second)["result"]["sessionId"]
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("redirection", ["<&-", "2>&-", "<&- 2>&-", "1>&- 2>&-"])
def test_descriptors_that_are_closed_do_not_break_it(redirection: str) -> None:
    command = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *SERVER]
    done = subprocess.run(command, input=INITIALIZE, env=BARE, capture_output=True, timeout=SECONDS)
    assert done.stderr == b""
    if "<&-" in redirection:
        assert (done.returncode, done.stdout) == (0, b"")
    elif "1>&-" not in redirection:
        assert json.loads(done.stdout)["id"] == 0


def test_a_read_only_home_and_state_folder_do_not_matter(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        done = serve(INITIALIZE, BARE | {"HOME": str(tmp_path), "ACPSERVER_HOME": str(tmp_path / "state")})
    finally:
        tmp_path.chmod(0o700)
    assert json.loads(done.stdout)["id"] == 0
    assert (done.returncode, done.stderr) == (0, b"")


def test_input_from_a_file_works(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(INITIALIZE * 2)
    with path.open("rb") as file:
        done = subprocess.run(SERVER, stdin=file, env=BARE, capture_output=True, timeout=SECONDS)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 0]
    assert (done.returncode, done.stderr) == (0, b"")


PEOPLE = (["chat", "say hi"], ["sessions", "list"], ["doctor"])
VALIDATE = [sys.executable, "-c", "from acpserver.validate.door import main; raise SystemExit(main())"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_what_people_call_runs_with_closed_descriptors(closed: str, tmp_path: Path) -> None:
    env = BARE | {"ACPSERVER_HOME": str(tmp_path), "ACPSERVER_MODEL": "offline"}
    for command in (*([*SERVER, *words] for words in PEOPLE), [*VALIDATE, "rules"]):
        shell = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command]
        done = subprocess.run(shell, input=b"", env=env, capture_output=True, timeout=SECONDS)
        assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr
        assert done.returncode == 0, command


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_behind_stdout_is_one_line(tmp_path: Path) -> None:
    env = BARE | {"ACPSERVER_HOME": str(tmp_path), "ACPSERVER_MODEL": "offline"}
    for words, status in ((PEOPLE[0], 1), (PEOPLE[2], 2)):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*SERVER, *words], stdout=full, stderr=subprocess.PIPE, env=env, timeout=SECONDS
            )
        assert done.stderr.decode() == "acpserver: [Errno 28] No space left on device\n"
        assert done.returncode == status


@pytest.mark.parametrize("module, loads", [("__main__", "cli"), ("validate.door", "validate.proxy")])
def test_an_interrupt_while_it_loads_is_no_traceback(module: str, loads: str) -> None:
    code = f"""
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "acpserver.{loads}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from acpserver.{module} import main
print("not reached")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no such name here")
def test_a_log_to_stdout_does_not_reach_the_protocol() -> None:
    given = INITIALIZE + b'{"jsonrpc": "2.0", "method": "nonsense", "params": {}}\n'
    flags = ["--model", "offline", "--log-file", "/dev/stdout", "--log-level", "debug"]
    done = subprocess.run([*SERVER, *flags], input=given, env=BARE, capture_output=True, timeout=SECONDS)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0]
    assert b"nonsense ignored" in done.stderr

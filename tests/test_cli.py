"""The command line: flags before and after the command, help at a terminal, errors and the exit status."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acpserver import cli, config
from acpserver.settings import SETTINGS
from acpserver.version import __version__
from tests.fakes.editor import CHECKOUT, Editor
from tests.fakes.llm_answers import error, text, tool_call
from tests.fakes.llm_server import FakeLlm


def run(*arguments: str, stdin: int = subprocess.DEVNULL, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acpserver", *arguments]
    environment = {**os.environ, **env}
    return subprocess.run(
        command, stdin=stdin, capture_output=True, text=True, cwd=CHECKOUT, env=environment, timeout=20
    )


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"acpserver {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["chat", "--help"], ["doctor", "--help"]])
def test_help_names_every_flag(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    for setting in SETTINGS:
        assert ("--" + setting.name.replace("_", "-") in done.stdout) is setting.flag


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "a"], "a"),
        (["acp", "--model", "a"], "a"),
        (["--model", "a", "acp"], "a"),
        (["--model", "a", "acp", "--model", "b"], "b"),
        (["--acp", "--model=a"], "a"),
        (["chat", "--model", "a", "hello"], "a"),
        (["--model", "a", "chat", "hello"], "a"),
        (["doctor"], None),
    ],
)
def test_flags_hold_before_and_after_the_command(arguments: list[str], expected: str | None) -> None:
    assert cli.parser().parse_args(arguments).model == expected


def test_several_flags_on_both_sides() -> None:
    options = vars(
        cli.parser().parse_args(["--strict", "--model", "a", "acp", "--max-steps", "7", "--trace", "t"])
    )
    assert (options["strict"], options["model"], options["max_steps"], options["trace"]) == (
        "true",
        "a",
        "7",
        "t",
    )
    settings = config.load(options, {"ACPSERVER_HOME": "/nowhere"})
    assert (settings.strict, settings.max_steps) == (True, 7)


@pytest.mark.parametrize("arguments", [["--nope"], ["nope"], ["--model"], ["chat", "--yes", "--no"]])
def test_a_wrong_command_line_is_told_on_stderr(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == "" and "usage: acpserver" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "word"),
    [
        (["--max-steps", "0"], {}, "--max-steps: maxSteps must be a whole number above 0"),
        ([], {"ACPSERVER_DIALECT": "klingon"}, "ACPSERVER_DIALECT: dialect must be one of"),
        (["--log-file", "/no/such/folder/log"], {}, "/no/such/folder/log"),
        (["--trace", "/no/such/folder/trace"], {}, "/no/such/folder/trace"),
        (["doctor", "--max-tokens", "x"], {}, "--max-tokens: maxTokens must be"),
        (["--base-url", "ftp://host", "--model", "m"], {}, "--base-url: baseUrl must look like https://host"),
        (
            [],
            {"ACPSERVER_BASE_URL": "http://:8080", "ACPSERVER_MODEL": "m"},
            "ACPSERVER_BASE_URL: baseUrl must",
        ),
    ],
)
def test_a_bad_setting_is_one_line_on_stderr(arguments: list[str], env: dict[str, str], word: str) -> None:
    done = run(*arguments, **env)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("acpserver: ") and word in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("flag", ["--log-file", "--trace"])
def test_a_pipe_that_nobody_reads_does_not_hold_the_start_up(tmp_path: Path, flag: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run("--model", "offline", flag, str(pipe))
    assert done.returncode == 2 and done.stdout == ""
    assert "It is a pipe that nobody reads" in done.stderr and str(pipe) in done.stderr


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    done = run(ACPSERVER_HOME=str(tmp_path))
    assert done.returncode == 2 and f"acpserver: {tmp_path}/config.json: " in done.stderr


def test_a_person_at_a_terminal_gets_a_hint() -> None:
    master, slave = pty.openpty()
    try:
        done = run(stdin=slave)
    finally:
        os.close(master)
        os.close(slave)
    assert (done.returncode, done.stdout) == (2, "")
    assert "acpserver chat" in done.stderr and "acpserver doctor" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["acp"], ["--acp"]])
def test_nothing_on_stdin_is_a_normal_end(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("flags", [["acp"], ["--acp"], ["--log-level", "debug", "--log-file", os.devnull]])
def test_every_way_to_start_serves(tmp_path: Path, flags: list[str]) -> None:
    with Editor("--model", "offline", *flags) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "say hi")
        assert turn.wait() == "end_turn" and turn.text == "hi\n"


def test_trace_and_log_hold_the_conversation_and_no_secret(tmp_path: Path) -> None:
    key = "sk-never-to-be-seen"
    trace, log = tmp_path / "trace", tmp_path / "log"
    flags = ["--model", "offline", "--trace", str(trace), "--log-file", str(log), "--log-level", "debug"]
    with Editor(*flags, env={"OPENAI_API_KEY": key}) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        assert editor.prompt(session, f"say {key}").wait() == "end_turn"
        editor.send_raw(b"no json\n")
        editor.ping()
        received = list(editor.received)
    assert key not in trace.read_text() + log.read_text()
    entries = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [e["direction"] for e in entries].count("out") == len(received)
    assert [e["text"] for e in entries if "text" in e] == ["no json"]
    assert entries[0]["direction"] == "in" and entries[0]["message"]["method"] == "initialize"


def test_the_help_of_login_is_about_the_login_and_any_flag_is_taken() -> None:
    done = run("login", "--help")
    assert "--log-file" in done.stdout and "--model" not in done.stdout and "--strict" not in done.stdout
    options = vars(cli.parser().parse_args(["login", "--model", "x", "openai"]))
    assert (options["command"], options["model"], options["provider"]) == ("login", "x", "openai")


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_log_tells_the_course_of_a_turn_and_no_text_of_it(tmp_path: Path, level: str) -> None:
    log = tmp_path / "log"
    with FakeLlm() as llm:
        llm.script(
            error(503, "server"), tool_call("bash", {"command": "echo quiet-output"}), text("quiet-answer")
        )
        flags = ["--model", "fake", "--base-url", llm.base_url, "--log-file", str(log), "--log-level", level]
        with Editor(*flags, env={"ACPSERVER_LIST_MODELS": "0"}) as editor:
            editor.initialize()
            session = editor.new_session(tmp_path)
            assert editor.prompt(session, "quiet-prompt").wait() == "end_turn"
            llm.script(error(400, "quiet-words"))
            assert editor.prompt(session, "quiet-prompt").wait_reply().error
    lines = [line.partition(": ")[2] for line in log.read_text().splitlines() if " acpserver." in line]
    lines = [re.sub(r"\d+\.\d{3} s", "N s", re.sub(", Usage.*", "", line)) for line in lines]
    told = [
        ("info", f"{session}: a turn begins with fake"),
        ("debug", f"POST {llm.base_url} answered HTTP 503"),
        ("debug", "attempt 1 failed: server, HTTP status 503"),
        ("debug", f"POST {llm.base_url} answered HTTP 200"),
        ("debug", f"{session}: fake ended its answer (tool_calls) after N s: 1 tool call(s)"),
        ("debug", f"{session}: bash: the user says allow this once"),
        ("debug", f"{session}: bash: completed"),
        ("debug", f"POST {llm.base_url} answered HTTP 200"),
        ("debug", f"{session}: fake ended its answer (stop) after N s: 0 tool call(s)"),
        ("info", f"{session}: the turn ends: end_turn, N s"),
        ("info", f"{session}: a turn begins with fake"),
        ("debug", f"POST {llm.base_url} answered HTTP 400"),
        ("debug", "attempt 1 failed: request, HTTP status 400"),
        ("info", f"{session}: the model failed: request, HTTP status 400"),
        ("info", f"{session}: the turn ends: failed, N s"),
    ]
    wanted = [line for at, line in told if at == "info" or level == "debug"]
    assert [line for line in lines if line in wanted] == wanted
    assert "quiet" not in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_process_in_order(tmp_path: Path, number: int) -> None:
    with Editor("--model", "offline") as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "sleep 600")
        editor.ping()
        editor.kill(number)
        assert turn.wait() == "cancelled"
        editor.close(status=143)


def test_a_client_that_goes_away_without_closing_ends_the_process() -> None:
    """Its reading end is closed, its writing end is held open by someone else."""
    process = subprocess.Popen(
        [sys.executable, "-m", "acpserver", "--model", "offline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=CHECKOUT,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n')
    process.stdin.flush()
    process.wait(5)
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()


def test_chat_goes_on_with_a_stored_session(tmp_path: Path) -> None:
    home = {"ACPSERVER_HOME": str(tmp_path), "ACPSERVER_LIST_MODELS": "false"}
    with FakeLlm() as llm:
        flags = ("--base-url", llm.base_url, "--model", "m")
        llm.script(text("Noted."), text("It is 7."), text("Still 7."))
        assert run("chat", *flags, "My number is 7.", **home).stdout == "Noted.\n"
        listed = run("sessions", "list", **home).stdout.split()[0]
        for beginning, answer in ((listed, "It is 7.\n"), (listed.removeprefix("sess_"), "Still 7.\n")):
            done = run("chat", *flags, "--resume", beginning, "Which was it?", **home)
            assert (done.returncode, done.stdout, done.stderr) == (0, answer, "")
        asked = [message["content"] for message in llm.requests[-1].messages if message["role"] == "user"]
    assert asked == ["My number is 7.", "Which was it?", "Which was it?"]
    assert len(run("sessions", "list", **home).stdout.splitlines()) == 1


def test_a_model_that_cannot_ask_is_not_offered_to(tmp_path: Path) -> None:
    with FakeLlm() as llm:
        llm.script(text("hello"))
        assert run("chat", "--yes", "--base-url", llm.base_url, "--model", "m", "hi").stdout == "hello\n"
        offered = {tool["function"]["name"] for tool in llm.requests[-1].body["tools"]}
    assert "bash" in offered and "ask_user" not in offered


def test_chat_cannot_go_on_with_what_is_not_stored() -> None:
    done = run("chat", "--model", "offline", "--resume", "sess_1234", "go on")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "acpserver: There is no session sess_1234. See: acpserver sessions list\n"

"""The terminal client, against an agent that does what its prompt says."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import acpserver
from acpserver.chat import permission
from acpserver.chat.conversation import Talk
from acpserver.chat.process import server_command
from acpserver.chat.render import Renderer, content_text, diff_lines, wants_colour

ROOT = Path(__file__).parent.parent
AGENT = Path(__file__).parent / "fakes" / "scripted_agent.py"
RUN = """
import sys
from acpserver.chat import command
from acpserver.config import Config
model, prompt, allow, *agent = sys.argv[1:]
sys.exit(command.run(
    Config(model=model), {}, prompt or None, {"yes": True, "no": False, "": None}[allow],
    [sys.executable, *agent],
))
"""


def chat_command(prompt: str = "", allow: str = "", *flags: str, model: str = "m") -> list[str]:
    """The command line of a chat with the scripted agent."""
    return [sys.executable, "-c", RUN, model, prompt, allow, str(AGENT), *flags]


def chat(
    prompt: str = "", allow: str = "", *flags: str, model: str = "m", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a chat through pipes to its end, away from any terminal."""
    return subprocess.run(
        chat_command(prompt, allow, *flags, model=model),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
        start_new_session=True,
    )


class Terminal:
    """A chat at a terminal of its own; what it shows is read from the other end."""

    def __init__(self, *arguments: str, pids: Path, **environment: str):
        self._master, slave = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            chat_command(*arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # makes it the controlling one
            env={**os.environ, "TERM": "xterm", "AGENT_PIDS": str(pids), **environment},
        )
        os.close(slave)
        self._pids = pids

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` is shown, after what was waited for before."""
        deadline = time.monotonic() + 20
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} not shown: {self.shown!r}"
            if select.select([self._master], [], [], 1)[0]:
                self.shown += self._read()
        self.shown = self.shown.partition(text)[2]

    def status(self) -> int:
        """Read to the end, and the exit status."""
        while data := self._read():
            self.shown += data
        return self.process.wait(20)

    def agents(self) -> list[int]:
        """The process ids of the agents that were started and still run."""
        return [int(pid) for pid in self._pids.read_text().split() if psutil.pid_exists(int(pid))]

    def wait_until_agents_ended(self) -> None:
        """Wait for the agents to be gone: they are not our children, so they cannot be waited for."""
        deadline = time.monotonic() + 10
        while self.agents():
            assert time.monotonic() < deadline, f"still running: {self.agents()}"
            time.sleep(0.01)

    def _read(self) -> str:
        try:
            return os.read(self._master, 65536).decode()
        except OSError:  # how Linux says that the other end is closed
            return ""

    def close(self) -> None:
        """Close the terminal, and end the chat if it runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    """Terminals that a test opens; closed behind it."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def terminal(terminals: list[Terminal], tmp_path: Path) -> Terminal:
    """A chat without a prompt, at a terminal."""
    terminals.append(Terminal(pids=tmp_path / "pids"))
    return terminals[0]


def test_stdout_holds_the_answer_alone() -> None:
    done = chat("everything")
    assert (done.returncode, done.stdout) == (0, "Three files.\n")


def test_what_happens_is_shown_beside_the_answer() -> None:
    assert chat("everything").stderr.splitlines() == [
        "let me see",
        "plan",
        "  [x] look",
        "  [>] act",
        "* Run ls",
        "  a.txt",
        "  b.txt",
        "  c.txt",
        "  completed",
        "* Edit a.txt",
        "  --- /w/a.txt",
        "  +++ /w/a.txt",
        "  @@ -1,2 +1,2 @@",
        "   one",
        "  -two",
        "  +2",
        "  failed",
    ]


def test_chunks_are_joined() -> None:
    done = chat("say Hello, wörld 👍")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, wörld 👍\n", "")


def test_a_long_answer_is_complete_and_in_order() -> None:
    assert chat("flood 5000").stdout == "".join(f"{number}\n" for number in range(5000))


@pytest.mark.parametrize(
    ("prompt", "status", "word"),
    [
        ("stop max_tokens", 3, "token limit"),
        ("stop max_turn_requests", 3, "limit of model calls"),
        ("stop refusal", 3, "refused"),
        ("fail the model is ill", 1, "acpserver: the model is ill"),
        ("die", 1, "the server has ended (exit status 9)"),
    ],
)
def test_an_ending_other_than_end_turn_is_said_and_is_the_exit_status(
    prompt: str, status: int, word: str
) -> None:
    done = chat(prompt)
    assert (done.returncode, done.stdout) == (status, "")
    assert word in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_server_that_cannot_start_is_one_line() -> None:
    command = chat_command("say x")
    command[command.index(str(AGENT)) :] = ["-c", "raise SystemExit(70)"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (1, "acpserver: the server has ended (exit status 70)\n")


def test_every_line_of_stdin_is_a_prompt() -> None:
    done = chat(stdin="say one\n\n   \nstop refusal\nsay two")
    assert (done.returncode, done.stdout) == (3, "one\ntwo\n")


def test_no_prompt_at_all_is_fine() -> None:
    done = chat(stdin="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("allow", "chosen"), [("yes", "opt-allow_once"), ("no", "opt-reject_once"), ("", "opt-reject_once")]
)
def test_permissions_are_answered_by_flag_and_refused_without_a_terminal(allow: str, chosen: str) -> None:
    done = chat("ask", allow)
    assert (done.returncode, done.stdout) == (0, f"chosen: {chosen}\n")
    assert ("no terminal" in done.stderr) == (allow == "")


DECLINED = 'answer: {"action": "decline"}\n'


@pytest.mark.parametrize("allow", ["yes", "no", ""])
def test_a_question_is_declined_where_nobody_can_be_asked(allow: str) -> None:
    done = chat("question one", allow)
    assert (done.returncode, done.stdout) == (0, DECLINED)
    assert done.stderr == "declined: there is nobody to ask\n"


def test_remarks_and_thoughts_stand_on_lines_of_their_own() -> None:
    done = chat("remarks")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == ("a thought 1\na thought 2\nnotice 1\nnotice 2\nnotice 3\nmore of it\n")


def test_the_offline_model_steps_in_with_one_line_when_no_model_is_configured() -> None:
    done = chat("say hi", "", "--needs-login", model="")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr == "acpserver: no model is configured, so the offline model answers\n"


def test_a_configured_model_is_never_replaced() -> None:
    done = chat("say hi", "", "--needs-login", model="gpt")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "acpserver: No model is configured\n"


def test_a_reader_that_leaves_ends_the_chat_quietly() -> None:
    process = subprocess.Popen(
        chat_command("flood 20000"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert (process.wait(20), process.stderr.read()) == (1, b"")
    process.stderr.close()


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("y", "allow_once"),
        ("a", "allow_always"),
        ("3", "reject_once"),
        ("d", "reject_always"),
        ("x\nn", "reject_once"),
    ],
)
def test_the_person_is_asked_at_the_terminal(terminal: Terminal, typed: str, chosen: str) -> None:
    terminal.wait_for("> ")
    terminal.type("ask\n")
    terminal.wait_for("allow? ")
    terminal.type(f"{typed}\n")
    terminal.wait_for(f"chosen: opt-{chosen}")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 0


@pytest.mark.parametrize(
    ("form", "typed", "answer"),
    [
        ("one", ["Colour: ", " sky blue \n"], '{"action": "accept", "content": {"colour": "sky blue"}}'),
        (
            "two",
            ["Colour: ", "red\n", "size: ", "5\n"],
            '{"action": "accept", "content": {"colour": "red", "size": "5"}}',
        ),
        ("one", ["Colour: ", "\n"], '{"action": "decline"}'),
        ("one", ["Colour: ", "\x04"], '{"action": "decline"}'),
        ("other", [], '{"action": "decline"}'),
    ],
)
def test_a_question_of_the_agent_is_answered_at_the_terminal(
    terminal: Terminal, form: str, typed: list[str], answer: str
) -> None:
    terminal.wait_for("> ")
    terminal.type(f"question {form}\n")
    if typed:
        terminal.wait_for("Which one?")
    for shown, keys in zip(typed[::2], typed[1::2], strict=True):
        terminal.wait_for(shown)
        terminal.type(keys)
    terminal.wait_for(f"answer: {answer}")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_ctrl_c_at_a_question_cancels_the_turn(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("question one\n")
    terminal.wait_for("Colour: ")
    terminal.type("\x03")
    terminal.wait_for('answer: {"action": "cancel"}')
    terminal.wait_for("cancelled")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 3


def test_the_question_comes_with_a_prompt_from_the_command_line_too(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    terminals.append(Terminal("ask", pids=tmp_path / "pids"))
    terminals[0].wait_for("allow? ")
    terminals[0].type("2\n")
    terminals[0].wait_for("chosen: opt-allow_always")
    assert terminals[0].status() == 0


def test_ctrl_c_cancels_the_turn_and_the_chat_goes_on(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("wait\n")
    terminal.wait_for("waiting")
    terminal.type("\x03")
    terminal.wait_for("cancelled")
    terminal.wait_for("> ")
    terminal.type("say still here\n")
    terminal.wait_for("still here")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 3
    assert terminal.agents() == []


def test_ctrl_c_at_a_permission_question_cancels_the_turn(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("ask\n")
    terminal.wait_for("allow? ")
    terminal.type("\x03")
    terminal.wait_for("chosen: cancelled")
    terminal.wait_for("cancelled")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 3


def test_a_second_ctrl_c_quits_although_the_agent_does_not_answer(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    terminals.append(Terminal("wait", "", "--deaf", pids=tmp_path / "pids"))
    terminals[0].wait_for("waiting")
    terminals[0].type("\x03")
    terminals[0].wait_for("again quits")
    terminals[0].type("\x03")
    assert terminals[0].status() == 130
    assert terminals[0].agents() == []


def test_a_ctrl_c_that_interrupts_nothing_is_found_all_the_same() -> None:
    """As one that comes just before the wait: here the system gives it to another thread."""
    talk = Talk(Renderer(io.StringIO(), io.StringIO()), None)
    talk._breakable = False
    send = threading.Event()

    def press() -> None:
        assert send.wait(10)
        clock = threading.Event()
        clock.wait(0.1)  # until the main thread waits, most likely
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    before = signal.signal(signal.SIGINT, lambda _number, _frame: talk.interrupt())
    try:
        presser.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        send.set()
        assert type(talk._next_event()).__name__ == "_Interrupt"
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        presser.join(10)
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_at_the_prompt_quits(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("\x03")
    assert terminal.status() == 130
    assert terminal.agents() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_agent_outlives_the_chat(terminal: Terminal, number: signal.Signals) -> None:
    terminal.wait_for("> ")
    terminal.type("wait\n")
    terminal.wait_for("waiting")
    terminal.process.send_signal(number)
    expected = -9 if number == signal.SIGKILL else 128 + number
    assert terminal.process.wait(20) == expected
    terminal.wait_until_agents_ended()


def test_colours_are_for_terminals_and_for_those_who_want_them(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    shown = []
    for environment in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        terminals.append(Terminal("everything", pids=tmp_path / "pids", **environment))
        assert terminals[-1].status() == 0
        shown.append("\x1b[" in terminals[-1].shown)
    assert shown == [True, False, False]


def test_control_characters_do_not_reach_the_terminal(terminals: list[Terminal], tmp_path: Path) -> None:
    terminals.append(Terminal("raw", pids=tmp_path / "pids"))
    assert terminals[0].status() == 0
    assert "a[2Jb" in terminals[0].shown
    assert chat("raw").stdout == "a\x1b[2Jb\x07\n"


def test_flags_are_handed_on_as_they_were_given() -> None:
    flags = {"model": "m", "trace": "t.jsonl", "strict": "true", "max_steps": "3", "log_file": None}
    command = server_command({**flags, "prompt": "not a setting"})
    assert command[4:] == ["--model", "m", "--max-steps", "3", "--trace", "t.jsonl", "--strict"]


def test_the_server_takes_no_modules_from_the_folder_it_runs_in(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('shadowed')")
    command = [*server_command({}), "--version"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"acpserver {acpserver.__version__}\n")


def test_messages_stand_on_lines_of_their_own() -> None:
    answer = io.StringIO()
    renderer = Renderer(answer, io.StringIO())
    for message, text in (("m1", "one"), ("m1", " more"), ("m2", "two\n"), ("m3", "three")):
        content = {"type": "text", "text": text}
        renderer.update({"sessionUpdate": "agent_message_chunk", "messageId": message, "content": content})
    renderer.end()
    assert answer.getvalue() == "one more\ntwo\nthree\n"


def test_long_output_is_cut_and_the_cut_is_said() -> None:
    around = io.StringIO()
    renderer = Renderer(io.StringIO(), around)
    text = "\n".join(str(number) for number in range(100))
    call = {"toolCallId": "c", "title": "Run seq", "status": "completed"}
    renderer.tool({**call, "content": [{"type": "content", "content": {"type": "text", "text": text}}]})
    lines = around.getvalue().splitlines()
    assert lines[:3] == ["* Run seq", "  0", "  1"]
    assert lines[-3:] == ["  39", "  ... 60 more lines", "  completed"]


def test_output_that_the_server_cut_in_the_middle_is_shown_at_the_end() -> None:
    around = io.StringIO()
    renderer = Renderer(io.StringIO(), around)
    for status, text in (
        ("in_progress", "1\n2\n"),
        ("in_progress", "1\n[cut]\n9\n"),
        ("completed", "1\n[cut]\n10"),
    ):
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        renderer.tool({"toolCallId": "c", "title": "Run seq", "status": status, "content": content})
    assert around.getvalue().splitlines() == [
        "* Run seq",
        "  1",
        "  2",
        "  (the whole output:)",
        "  1",
        "  [cut]",
        "  10",
        "  completed",
    ]


def test_a_new_file_is_a_diff_against_nothing() -> None:
    assert diff_lines("/w/n", None, "x\n") == ["--- /dev/null", "+++ /w/n", "@@ -0,0 +1 @@", "+x"]


def test_content_without_text_is_named() -> None:
    assert content_text({"type": "image", "data": "…", "mimeType": "image/png"}) == "[image]"
    assert content_text({"type": "resource_link", "uri": "file:///a", "name": "a"}) == "[file:///a]"


def test_pipes_have_no_colour() -> None:
    assert not wants_colour(io.StringIO(), {"TERM": "xterm"})


def test_a_flag_takes_the_option_for_once_and_never_one_of_the_other_side() -> None:
    always = [{"optionId": "1", "kind": "allow_always"}, {"optionId": "2", "kind": "allow_once"}]
    assert permission.by_flag(always, True) == always[1]
    assert permission.by_flag(always[:1], True) == always[0]
    assert permission.by_flag(always, False) is None
    assert permission.outcome(None) == {"outcome": {"outcome": "cancelled"}}


def real(folder: Path, prompt: str, *flags: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the whole command in a folder: client and server."""
    return subprocess.run(
        [*server_command({}), "chat", *flags, *(["--", prompt] if prompt else [])],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=folder,
        start_new_session=True,
    )


def test_the_real_server_lists_the_folder_it_was_started_in(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").touch()
    done = real(tmp_path, "what is in this folder?", "--model", "offline", "--strict")
    assert done.returncode == 0
    assert "hello.txt" in done.stdout and "not a language model" in done.stdout
    assert done.stderr.splitlines() == ["* List .", "  hello.txt", "  completed"]


@pytest.mark.parametrize(("flag", "written"), [("--yes", True), ("--no", False)])
def test_the_flags_decide_what_the_real_server_may_do(tmp_path: Path, flag: str, written: bool) -> None:
    done = real(tmp_path, "write new.txt: hello", flag, "--model", "offline")
    assert done.returncode == 0
    assert (tmp_path / "new.txt").exists() == written
    assert "  +hello" in done.stderr.splitlines()


def test_the_real_server_offers_the_offline_model_when_there_is_none(tmp_path: Path) -> None:
    done = real(tmp_path, "say hi")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr == "acpserver: no model is configured, so the offline model answers\n"


def test_a_chosen_model_without_a_key_is_told_in_words_for_this_terminal(tmp_path: Path) -> None:
    done = real(tmp_path, "say hi", "--model", "anthropic/claude-x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Anthropic needs a key" in done.stderr and "set the model to offline (--model)" in done.stderr


def test_a_failed_call_and_a_wait_of_the_real_server_are_told_in_words(tmp_path: Path) -> None:
    done = real(tmp_path, "read missing.txt", "--model", "offline")
    assert done.returncode == 0 and "* Read file: missing.txt" in done.stderr.splitlines()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    done = real(tmp_path, "hi", "--model", "m", "--base-url", url)
    waits = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert done.returncode == 1 and waits == ["Waiting 0.2 s", "Waiting 0.2 s", "acpserver"]


def test_turns_of_the_real_server_that_end_badly(tmp_path: Path) -> None:
    done = real(tmp_path, "", "--model", "offline", stdin="say a\nstop max_tokens\nsay b\n")
    assert (done.returncode, done.stdout) == (3, "a\nb\n")
    failed = real(tmp_path, "fail 400", "--model", "offline")
    assert failed.returncode == 1
    assert failed.stderr.startswith("acpserver: ") and "400" in failed.stderr


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--max-steps", "many"], "maxSteps"),
        (
            ["--base-url", "127.0.0.1/v1", "--model", "m"],
            "--base-url: baseUrl must look like https://host/v1",
        ),
        (["--trace", "/no/such/folder/trace"], "/no/such/folder/trace"),  # only the server opens it
        (["--log-file", "/no/such/folder/log"], "/no/such/folder/log"),
    ],
)
def test_a_wrong_setting_is_one_line_and_status_2(tmp_path: Path, flags: list[str], word: str) -> None:
    done = real(tmp_path, "say a", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and word in done.stderr

"""bash, with real shells: what it returns, what it shows meanwhile, and that it kills what it must."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from acpserver.errors import Cancelled, ToolError
from acpserver.processes import Children
from acpserver.tools import bash as room
from acpserver.tools.base import EXECUTE
from acpserver.tools.bash import Bash
from acpserver.tools.content import SHOWN
from acpserver.tools.output import LIMIT
from tests.fakes.tool_context import Surroundings

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="markers are found by /proc")


@pytest.fixture
def children() -> Iterator[Children]:
    """The children of one server."""
    made = Children()
    yield made
    made.close()


@pytest.fixture
def bash(children: Children) -> Bash:
    """The tool."""
    return Bash(children)


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A session in an empty folder."""
    return Surroundings(tmp_path)


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_for(file: Path) -> int:
    """The number that a command writes into a file once it runs."""
    deadline = time.monotonic() + 10
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return int(file.read_text())


def test_output_of_both_kinds_comes_in_order_with_the_exit_code(bash: Bash, here: Surroundings) -> None:
    done = here.call(bash, command="echo one; echo two >&2; echo three")
    assert done.text == "one\ntwo\nthree\n[exit code 0]"
    assert (done.raw_output, done.is_error) == ({"exitCode": 0}, False)


def test_a_failure_is_told_with_its_code_and_shown_as_failed(bash: Bash, here: Surroundings) -> None:
    done = here.call(bash, command="exit 3")
    assert (done.text, done.raw_output, done.is_error) == ("[exit code 3, no output]", {"exitCode": 3}, True)
    done = here.call(bash, command="kill -KILL $$")
    assert (done.raw_output, done.is_error) == ({"signal": "SIGKILL"}, True)
    assert "SIGKILL" in done.text


def test_the_user_is_asked_about_the_very_command(bash: Bash, here: Surroundings) -> None:
    action = here.prepare(bash, command="rm -rf build")
    assert action.access == EXECUTE and "rm -rf build" in action.title


def test_it_runs_in_the_sessions_folder_whatever_the_processs_own_is(bash: Bash, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    results: dict[Path, str] = {}

    def pwd(folder: Path) -> None:
        results[folder] = Surroundings(folder).call(bash, command="sleep 0.05; pwd").text.split("\n")[0]

    threads = [threading.Thread(target=pwd, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == {folder: str(folder) for folder in folders}


@pytest.mark.parametrize("command", ["cat", 'read x; echo "[$x]"', "python3 -c 'input()' 2>&1 | tail -1"])
def test_stdin_is_at_its_end_at_once(bash: Bash, here: Surroundings, command: str) -> None:
    began = time.monotonic()
    here.call(bash, command=command, timeout=10)
    assert time.monotonic() - began < 5


def test_a_timeout_in_seconds_ends_the_command_and_keeps_its_output(bash: Bash, here: Surroundings) -> None:
    began = time.monotonic()
    done = here.call(bash, command="echo before; trap '' TERM; sleep 60", timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 10
    assert done.is_error and done.raw_output["timedOut"] is True
    assert done.text.startswith("before\n[not finished after 0.3 seconds")


STUBBORN = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >pid; exec sleep 60' & wait; sleep 60"
ESCAPED = "(trap '' TERM; setsid sh -c 'echo $$ >pid; exec sleep 60' &); sleep 60"
OBEDIENT = "echo $$ >pid; exec sleep 60"
DEAF_AND_DUMB = "exec >&- 2>&-; trap '' TERM; echo $$ >pid; while :; do sleep 1; done"


@pytest.mark.parametrize("command", [OBEDIENT, STUBBORN, DEAF_AND_DUMB, pytest.param(ESCAPED, marks=linux)])
def test_a_cancel_is_answered_within_200_ms_and_nothing_lives_on(
    bash: Bash, here: Surroundings, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[float] = []
    if command != DEAF_AND_DUMB:
        monkeypatch.setattr(room, "_TICK", 5.0)  # the cancel wakes it; it does not come by on its round

    def run() -> None:
        with pytest.raises(Cancelled):
            here.call(bash, command=command)
        ended.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    pid = wait_for(tmp_path / "pid")
    began = time.monotonic()
    here.cancel.set("session/cancel")
    woken = time.monotonic()
    thread.join(10)
    assert woken - began < 0.2, "the waker must not block the thread that cancels"
    assert ended and ended[0] - began < 0.2
    assert gone(pid)


def test_a_cancel_before_the_start_runs_nothing_for_long(bash: Bash, here: Surroundings) -> None:
    here.cancel.set()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        here.call(bash, command="sleep 60")
    assert time.monotonic() - began < 10


def test_a_process_left_in_the_background_does_not_hold_the_tool_and_dies_with_the_server(
    children: Children, bash: Bash, here: Surroundings, tmp_path: Path
) -> None:
    began = time.monotonic()
    done = here.call(bash, command="(echo $BASHPID >pid; exec sleep 60) & echo started")
    assert time.monotonic() - began < 20
    assert "still run" in done.text and done.text.startswith("started\n") and not done.is_error
    pid = wait_for(tmp_path / "pid")
    assert not gone(pid)
    children.close()
    assert gone(pid)


def test_a_talkative_background_process_neither_holds_the_tool_nor_dies_of_it(
    children: Children, bash: Bash, here: Surroundings, tmp_path: Path
) -> None:
    began = time.monotonic()
    here.call(
        bash, command="(while ! [ -e go ]; do echo x; done; seq 1 500000; echo 1 >end; sleep 60) & true"
    )
    assert time.monotonic() - began < 20
    (tmp_path / "go").touch()
    assert wait_for(tmp_path / "end") == 1  # it got there, because somebody reads what it writes
    children.close()


def test_a_flood_is_cut_in_the_middle_and_shown_in_bounds(bash: Bash, here: Surroundings) -> None:
    done = here.call(bash, command="seq 1 35000; sleep 0.3; seq 1 35000; echo the end; exit 1")
    assert done.text.startswith("1\n2\n3\n") and done.text.endswith("35000\nthe end\n[exit code 1]")
    assert "characters of output left out" in done.text and len(done.text) < LIMIT + 200
    assert done.raw_output == {"exitCode": 1, "truncated": True}
    assert here.shown, "nothing was shown while it ran"
    emitted = sum(len(json.dumps(content)) for content in [*here.shown, done.content])
    assert emitted <= 3 * LIMIT


def test_what_is_shown_meanwhile_is_the_newest_output_and_comes_at_intervals(
    bash: Bash, here: Surroundings
) -> None:
    began = time.monotonic()
    here.call(bash, command="for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; sleep 0.05; done")
    assert 1 <= len(here.shown) <= (time.monotonic() - began) * 5  # five a second
    newest = [int(str(content).rsplit("line ", 1)[1].split("\\n")[0]) for content in here.shown]
    assert newest == sorted(set(newest)) and newest[-1] >= 3


def test_a_long_command_is_shown_a_bounded_number_of_times() -> None:
    now, shown = 0.0, 0
    while now < room.MAX_TIMEOUT:
        now += max(room._PROGRESS_EVERY, now / room._PROGRESS_SLOWER)
        shown += 1
    assert shown * (room._PROGRESS_SIZE + 200) + SHOWN < 3 * LIMIT


def test_bytes_that_are_no_text_become_text(bash: Bash, here: Surroundings) -> None:
    done = here.call(bash, command=r"printf 'a\000b\377c\n\033[31mred\033[0m\n10%%\r20%%\rdone\r\n'")
    assert done.text == "ab\ufffdc\nred\ndone\n[exit code 0]"


def test_fifty_commands_leave_no_zombie_no_thread_no_descriptor(bash: Bash, here: Surroundings) -> None:
    here.call(bash, command="true")
    me = psutil.Process()
    before = me.num_fds()
    for number in range(50):
        assert here.call(bash, command=f"echo {number}").text.startswith(f"{number}\n")
    assert [child for child in me.children() if child.status() == psutil.STATUS_ZOMBIE] == []
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("command output") <= 1  # the last one may still be on its way out
    assert me.num_fds() <= before + 1


@pytest.mark.parametrize("command", ["a\0b", "echo \ud800"])
def test_a_text_that_no_command_line_holds_is_refused_before_anyone_is_asked(
    bash: Bash, here: Surroundings, command: str
) -> None:
    with pytest.raises(ToolError):
        here.prepare(bash, command=command)


@pytest.mark.parametrize("arguments", [{}, {"command": ""}, {"command": 1}, {"command": "x", "timeout": 0}])
def test_bad_arguments_are_told(bash: Bash, here: Surroundings, arguments: dict[str, object]) -> None:
    with pytest.raises(ToolError, match="bash"):
        here.prepare(bash, **arguments)


def test_a_folder_that_is_gone_is_a_tool_error(bash: Bash, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Cannot start"):
        Surroundings(tmp_path / "gone").call(bash, command="true")


def test_a_command_whose_output_nobody_can_read_is_ended(
    bash: Bash, here: Surroundings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The system may have no thread left for it."""

    def no_thread(*_args: object, **_options: object) -> None:
        wait_for(tmp_path / "pid")
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("acpserver.tools.pump.threading.Thread", no_thread)
    with pytest.raises(ToolError, match="can't start new thread"):
        here.call(bash, command="echo $$ > pid; exec sleep 60")
    assert gone(wait_for(tmp_path / "pid"))

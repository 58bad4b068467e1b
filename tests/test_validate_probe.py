"""`acp-validate probe`: a right agent passes; each fault of a wrong one is found by the right scenario."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from acpserver.validate.probe.command import GROUPS, conversation, line, ordered, probe, prompts
from acpserver.validate.probe.process import AgentProcess
from acpserver.validate.probe.stage import SCENARIOS, Options, Stage
from acpserver.validate.probe.verdict import FAIL, PASS, SKIP, WARN, Verdict
from acpserver.validate.rules import RULES

ROOT = Path(__file__).parent.parent
AGENT = [sys.executable, "-S", "-E", str(Path(__file__).parent / "fakes" / "probed_agent.py")]
PROMPTS = {
    "hello": "hello",
    "slow": "slow",
    "tool": "tool",
    "plan": "plan",
    "permission": "permission {path}",
    "read": "read {path}",
    "write": "write {path}",
    "terminal": "terminal {cmd}",
}


def run(fault: str = "", *, only: str = "", given: dict[str, str] | None = None) -> dict[str, Verdict]:
    """The verdicts on the fake agent, by name."""
    command = [*AGENT, "--fault", fault] if fault else AGENT
    stage = Stage(
        Options(
            command,
            PROMPTS if given is None else given,
            timeout=1.5,
            start_timeout=5,
            patience=1.5,
            moment=0.15,
        )
    )
    chosen = [one for one in ordered(SCENARIOS) if only in one.name]
    assert chosen
    return {verdict.name: verdict for verdict in probe(stage, chosen)}


@pytest.mark.parametrize("group", GROUPS)
def test_an_agent_that_keeps_the_rules_passes(group: str) -> None:
    verdicts = run(only=f"{group}/")
    assert {verdict for verdict in verdicts.values() if verdict.status in (FAIL, WARN)} == set()
    assert verdicts["messages/all"].status == PASS


FAULTS = {
    "any-version": ("handshake/version-from-the-future", FAIL),
    "no-info": ("handshake/agent-info", WARN),
    "strict-info": ("handshake/odd-optional-fields", FAIL),
    "logout-does-nothing": ("handshake/logout", FAIL),
    "id-as-text": ("ids/zero", FAIL),
    "silent-about-rubbish": ("malformed/not-json", FAIL),
    "dies-of-bytes": ("malformed/invalid-utf-8", FAIL),
    "runs-batches": ("malformed/batch", FAIL),
    "wrong-code": ("methods/unknown-request", FAIL),
    "answers-notifications": ("methods/unknown-notification", FAIL),
    "short-lines": ("lines/100-kilobytes", WARN),
    "blank-is-error": ("lines/blank-lines", WARN),
    "same-id": ("sessions/new", FAIL),
    "relative-folder": ("sessions/relative-folder", FAIL),
    "no-replay": ("sessions/load", FAIL),
    "resume-replays": ("sessions/resume", FAIL),
    "fork-is-same": ("sessions/fork", FAIL),
    "list-of-all": ("sessions/list", FAIL),
    "close-does-nothing": ("sessions/close", FAIL),
    "delete-once": ("sessions/delete", FAIL),
    "early-update": ("sessions/nothing-before-the-answer", FAIL),
    "part-of-options": ("options/change-one", FAIL),
    "option-goes": ("options/change-one", PASS),
    "says-nothing": ("turns/hello", FAIL),
    "late-update": ("turns/hello", FAIL),
    "answers-twice": ("turns/hello", FAIL),
    "deaf-to-cancel": ("cancel/at-once", FAIL),
    "cancel-is-error": ("cancel/while-working", FAIL),
    "cancels-everything": ("cancel/does-not-reach-other-sessions", FAIL),
    "asks-first": ("permission/call-comes-first", FAIL),
    "asks-again": ("permission/allow-always", FAIL),
    "anything-is-yes": ("permission/unknown-option", FAIL),
    "open-calls": ("tools/a-call", FAIL),
    "own-reads": ("files/read-unsaved-buffer", FAIL),
    "own-writes": ("files/write-through-the-editor", FAIL),
    "uninvited": ("files/read-without-the-capability", FAIL),
    "error-ends-turn": ("files/write-error", FAIL),
    "keeps-terminal": ("terminals/in-the-editor", FAIL),
    "stays": ("ending/after-initialize", FAIL),
    "bad-status": ("ending/after-initialize", WARN),
    "leaves-command": ("ending/with-a-running-command", FAIL),
    "chatty": ("handshake/version-1", PASS),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_the_scenario_that_is_about_it(fault: str) -> None:
    name, status = FAULTS[fault]
    verdict = run(fault, only=name)[name]
    assert verdict.status == status, verdict
    assert bool(verdict.text) == (status != PASS)


def test_what_is_no_message_is_told_although_the_scenario_passes() -> None:
    verdicts = run("chatty", only="handshake/version-1")
    assert verdicts["messages/T2"].status == FAIL
    assert "Starting up" in verdicts["messages/T2"].text


def test_without_prompts_what_needs_a_model_is_skipped() -> None:
    verdicts = run(given={}, only="cancel/")
    assert verdicts["cancel/at-once"].status == SKIP
    assert "slow" in verdicts["cancel/at-once"].text


def test_an_agent_that_dies_at_once_is_not_tried_for_ever() -> None:
    stage = Stage(Options([sys.executable, "-c", "import sys; sys.exit('no licence')"], {}, 1.0, 3.0))
    start = time.monotonic()
    verdicts = list(probe(stage, [one for one in SCENARIOS if one.name.startswith(("handshake/", "ids/"))]))
    assert time.monotonic() - start < 30
    assert not [verdict for verdict in verdicts if verdict.status == PASS and verdict.name != "messages/all"]
    assert "no licence" in next(one.text for one in verdicts if one.name == "handshake/version-1")


def test_every_scenario_names_a_rule_and_a_group() -> None:
    assert len(SCENARIOS) >= 120
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
    assert {one.rule for one in SCENARIOS} <= set(RULES)
    assert {one.name.partition("/")[0] for one in SCENARIOS} == set(GROUPS)


def test_a_verdict_is_one_line() -> None:
    text = line(Verdict(FAIL, "J4", "malformed/nan", "two\nlines \x1b"), coloured=False)
    assert text == "FAIL J4     malformed/nan: two lines ?\n"
    assert list(conversation([], [], set()))[0].status == PASS


@pytest.mark.parametrize("content", ['{"hallo": "x"}', '{"hello": 5}', "[]", "{"])
def test_prompts_that_do_not_fit_are_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(content)
    with pytest.raises(ValueError):
        prompts(str(file))


def test_the_example_prompts_fit() -> None:
    assert set(prompts(str(ROOT / "docs" / "probe-prompts-offline.json"))) == set(PROMPTS)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "bin" / "acp-validate"), "probe", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_the_command_prints_verdicts_and_a_summary() -> None:
    done = command("--only", "ids/", "--", *AGENT)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "PASS J2     ids/zero"
    assert lines[-1] == f"{len(lines) - 1} PASS, 0 FAIL, 0 WARN, 0 SKIP"


def test_a_failure_is_the_exit_status_and_json_says_the_same() -> None:
    done = command("--only", "J6", "--output", "json", "--", *AGENT, "--fault", "wrong-code")
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert said["summary"]["FAIL"] == sum(one["status"] == "FAIL" for one in said["verdicts"]) >= 1


def test_conversations_are_kept_where_the_user_wants_them(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    done = command("--only", "handshake/version-", "--traces", str(folder), "--", *AGENT)
    assert done.returncode == 0, done.stderr
    files = sorted(folder.iterdir())
    assert files[0].name == "001-handshake-version-1.jsonl"
    assert len(files) == 4
    for file in files:
        entries = [json.loads(text) for text in file.read_text().splitlines()]
        assert [entry["direction"] for entry in entries] == ["in", "out"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "no such scenario", "--", "true"],
        [],
        ["--", "/no/such/agent"],
        ["--prompts", "/x", "--", "true"],
    ],
)
def test_what_cannot_run_is_status_2(arguments: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("acp-validate: ")


def test_a_probe_that_is_ended_leaves_no_agent() -> None:
    agent = "import time; time.sleep(100)"
    command = [sys.executable, "-m", "acpserver.validate.command", "probe", "--", sys.executable, "-c", agent]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    try:
        deadline = time.monotonic() + 10
        children: list[psutil.Process] = []
        while not children and time.monotonic() < deadline:
            time.sleep(0.05)
            children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 130
        assert children and not any(child.is_running() for child in children)
    finally:
        process.kill()
        process.wait()


def test_a_signal_while_an_agent_starts_waits_until_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the start of the process and the note that it runs there is room for a signal."""
    made = []

    def start(*arguments: Any) -> AgentProcess:
        made.append(AgentProcess(*arguments))
        signal.raise_signal(signal.SIGINT)
        return made[0]

    monkeypatch.setattr("acpserver.validate.probe.stage.AgentProcess", start)
    stage = Stage(Options([sys.executable, "-c", "input()"]))
    with pytest.raises(KeyboardInterrupt):
        stage.start()
    assert made[0].status() is None
    stage.close()
    assert made[0].status() is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_probe_may_run_on_any_thread() -> None:
    """Only the main one may change what a signal does, and only that one is interrupted."""
    stage = Stage(Options([sys.executable, "-c", "input()"]))
    with ThreadPoolExecutor(1) as pool:
        link = pool.submit(stage.start).result(20)
    assert link.process.status() is None
    stage.close()


@pytest.mark.parametrize("own", [False, True])
def test_an_agent_sees_a_home_of_its_own_unless_told_otherwise(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe must not log its user out, nor fill the user's list of sessions."""
    for name in ("HOME", "ACPSERVER_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    script = "import os; print([os.environ.get(n) for n in ('HOME', 'ACPSERVER_HOME', 'XDG_CONFIG_HOME')])"
    stage = Stage(Options([sys.executable, "-c", script], own_home=own))
    process = AgentProcess(stage.options.command, stage._home)
    said = b""
    while process.reading:
        said += process.step(1.0)
    process.end()
    home = str(tmp_path) if own else stage._home
    other = str(tmp_path) if own else None
    assert said.decode() == f"{[home, other, other]}\n"
    stage.close()

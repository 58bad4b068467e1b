"""`acpserver login` and `acpserver logout`: at a real terminal, and with a key on the input."""

from __future__ import annotations

import json
import os
import pty
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acpserver import credentials
from acpserver.errors import ConfigError
from tests.fakes.llm_server import FakeLlm

KEY = "sk-typed-by-a-person"


def configure(home: Path, base_url: str) -> None:
    """One provider of our own beside the known ones."""
    provider = {"title": "Work", "baseUrl": base_url, "apiKeyEnv": "WORK_KEY", "models": {"fake": {}}}
    (home / "config.json").write_text(json.dumps({"providers": {"work": provider}}))


def stored(home: Path) -> dict[str, str]:
    return credentials.stored_keys(str(home / "credentials.json"))


def run(home: Path, *arguments: str, typed: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command with this input, which is no terminal."""
    return subprocess.run(
        [sys.executable, "-m", "acpserver", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        env={**os.environ, "ACPSERVER_HOME": str(home), **environ},
        timeout=30,
    )


class Terminal:
    """A command at a terminal: what it shows, and what is typed at which prompt."""

    def __init__(self, home: Path, *arguments: str):
        self.fd, child = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "acpserver", *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            env={**os.environ, "ACPSERVER_HOME": str(home)},
        )
        os.close(child)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self.fd)

    def type(self, prompt: str, line: str) -> None:
        """Wait until the terminal shows this prompt, then type a line."""
        self.read(lambda: prompt in self.shown)
        self.shown = ""
        os.write(self.fd, line.encode() + b"\n")

    def end(self) -> int:
        """Wait for the end; the exit status."""
        self.read(lambda: False)
        return self.process.wait(10)

    def read(self, enough) -> None:  # type: ignore[no-untyped-def]
        """Read until `enough` says so or the command has ended."""
        deadline = time.monotonic() + 20
        while not enough():
            assert time.monotonic() < deadline, f"the terminal shows only {self.shown!r}"
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # the command has closed its side
                    return
                if not data:
                    return
                self.shown += data.decode()


def test_a_person_chooses_types_a_key_that_is_not_shown_and_it_is_stored_privately(tmp_path: Path) -> None:
    with FakeLlm(api_key=KEY) as llm:
        configure(tmp_path, llm.base_url)
        with Terminal(tmp_path, "login") as terminal:
            terminal.read(lambda: "Provider (number or name): " in terminal.shown)
            listed = terminal.shown
            terminal.type("Provider (number or name): ", "work")
            terminal.type("Key for Work (it is not shown): ", KEY)
            assert terminal.end() == 0
            everything = listed + terminal.shown
        assert [request.path for request in llm.lists] == ["/v1/models"]
    for name in ("1  work", "anthropic", "openai", "gemini", "openrouter", "mistral"):
        assert name in everything
    assert "ollama" not in everything, "it needs no key"
    assert "The key works. Models that Work offers: 1." in everything
    assert "sessions may now use work/fake" in everything
    assert KEY not in everything
    file = tmp_path / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stored(tmp_path) == {"work": KEY}


def test_a_refused_key_may_be_typed_again(tmp_path: Path) -> None:
    with FakeLlm(api_key=KEY) as llm:
        configure(tmp_path, llm.base_url)
        with Terminal(tmp_path, "login", "work") as terminal:
            terminal.type("Key for Work", "sk-wrong")
            terminal.type("Key for Work", KEY)
            assert terminal.end() == 0
    assert stored(tmp_path) == {"work": KEY}


def test_ctrl_c_stores_nothing(tmp_path: Path) -> None:
    with Terminal(tmp_path, "login", "anthropic") as terminal:
        terminal.read(lambda: "Key for Anthropic" in terminal.shown)
        terminal.process.send_signal(2)
        assert terminal.end() == 130
    assert not (tmp_path / "credentials.json").exists()


@pytest.mark.parametrize(("answer", "status", "kept"), [("y", 0, {"work": KEY}), ("", 1, {})])
def test_a_server_that_cannot_be_reached_leaves_it_to_the_person(
    tmp_path: Path, answer: str, status: int, kept: dict[str, str]
) -> None:
    with FakeLlm() as closed:
        configure(tmp_path, closed.base_url)
    with Terminal(tmp_path, "login", "work") as terminal:
        terminal.type("Key for Work", KEY)
        terminal.type("[y/N]", answer)
        if not answer:  # asked for another key: none
            terminal.type("Key for Work", "")
        assert terminal.end() == status
    assert stored(tmp_path) == kept


def test_a_key_on_the_input(tmp_path: Path) -> None:
    with FakeLlm(api_key=KEY) as llm:
        configure(tmp_path, llm.base_url)
        done = run(tmp_path, "login", "work", typed=f" {KEY} \n")
        assert (done.returncode, done.stderr) == (0, "") and KEY not in done.stdout
        refused = run(tmp_path, "login", "work", typed="sk-wrong\n")
        assert refused.returncode == 1 and "401" in refused.stdout and "sk-wrong" not in refused.stdout
        assert "the one that was just typed" in refused.stdout and "acpserver login" not in refused.stdout
    assert stored(tmp_path) == {"work": KEY}


def test_a_variable_that_comes_first_is_told(tmp_path: Path) -> None:
    with FakeLlm(api_key=KEY) as llm:
        configure(tmp_path, llm.base_url)
        done = run(tmp_path, "login", "work", typed=KEY, WORK_KEY="sk-other-one")
    assert done.returncode == 0
    assert "environment variable WORK_KEY is set, and comes first" in done.stdout
    assert "sk-other-one" not in done.stdout


@pytest.mark.parametrize("key", ["", "with space", "ключ", "tab\there"])
def test_what_is_no_key_is_not_sent(tmp_path: Path, key: str) -> None:
    with FakeLlm() as llm:
        configure(tmp_path, llm.base_url)
        assert run(tmp_path, "login", "work", typed=key + "\n").returncode == 1
        assert llm.requests == []
    assert not (tmp_path / "credentials.json").exists()


@pytest.mark.parametrize("name", ["nobody", "ollama", "main"])
def test_an_unknown_provider_is_named(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, "login", name)
    assert (
        done.returncode == 2 and f"no provider {name!r} that takes a key; there are anthropic" in done.stderr
    )


def test_logout_of_one_and_of_all(tmp_path: Path) -> None:
    path = str(tmp_path / "credentials.json")
    for name in ("a", "b", "c"):
        credentials.store_key(path, name, KEY)
    assert run(tmp_path, "logout", "a").stdout == "Removed: a.\n"
    assert run(tmp_path, "logout", "a").stdout == "There was no stored key.\n"
    done = run(tmp_path, "logout")
    assert (done.returncode, done.stdout) == (0, "Removed: b, c.\n") and not os.path.exists(path)


@pytest.mark.parametrize("content", ["", "{", '{"keys": [1]}', "[]"])
def test_a_damaged_file_is_told_without_its_content_and_logout_repairs_it(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="run 'acpserver logout'"):
        credentials.stored_keys(str(path))
    assert run(tmp_path, "doctor").returncode == 2
    assert run(tmp_path, "logout").returncode == 0 and not path.exists()
    assert run(tmp_path, "logout").returncode == 0


def test_storing_replaces_in_one_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "credentials.json"
    credentials.store_key(str(path), "a", "1234")
    before = path.stat().st_ino
    credentials.store_key(str(path), "a", "5678")
    assert path.stat().st_ino != before and os.listdir(path.parent) == ["credentials.json"]
    assert credentials.stored_keys(str(path)) == {"a": "5678"}

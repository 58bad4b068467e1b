"""What holds for every test: a time limit (setup.cfg), its own home folder, and nothing left running."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import hypothesis
import psutil
import pytest

GRACE = 2.0  # seconds for threads and children that are already on their way out

# Whatever these say about the developer's machine, the tests must not see it.
HIDDEN_PREFIXES = ("ACPSERVER_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "OLLAMA_", "XDG_")
HIDDEN_SUFFIXES = ("_API_KEY", "_PROXY")
HIDDEN_NAMES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NO_COLOR", "FORCE_COLOR", "PYTHON", "PYTHONPATH")

# The same examples on every run: a failure in CI is the failure at home.
hypothesis.settings.register_profile("acpserver", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("acpserver")


def pytest_configure(config: pytest.Config) -> None:
    """Undo what the suite's own parent ignores (`nohup` does so with SIGHUP): children would inherit it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one option of our own."""
    parser.addoption("--real-llm", action="store_true", help="also run what needs a real model server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, visibly, what was not asked for."""
    if config.getoption("--real-llm"):
        return
    skip = pytest.mark.skip(reason="needs a real model server: run with --real-llm")
    for item in items:
        if item.get_closest_marker("real_llm"):
            item.add_marker(skip)


def is_hidden(name: str) -> bool:
    """Whether a variable of the developer's environment is kept from the tests."""
    upper = name.upper()
    return upper in HIDDEN_NAMES or upper.startswith(HIDDEN_PREFIXES) or upper.endswith(HIDDEN_SUFFIXES)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a non-daemon thread or a child process is still there."""
    me = psutil.Process()
    threads_before = set(threading.enumerate())
    children_before = set(me.children(recursive=True))
    yield
    mark = request.node.get_closest_marker("leaves_behind")
    if mark:
        assert mark.args and mark.args[0], "the marker leaves_behind needs a reason"
        return
    deadline = time.monotonic() + GRACE
    threads = [thread for thread in set(threading.enumerate()) - threads_before if not thread.daemon]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    children = list(set(me.children(recursive=True)) - children_before)
    described = [f"{child.pid} {_command(child)}" for child in children]
    _, alive = psutil.wait_procs(children, timeout=max(0.0, deadline - time.monotonic()))
    for child in alive:
        child.kill()
    left = [text for child, text in zip(children, described, strict=True) if child in alive]
    left += [thread.name for thread in threads if thread.is_alive()]
    assert not left, f"still running after the test: {left}"


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:  # it ended while we looked
        return "(ended)"


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test an empty home folder and an environment without keys and proxies."""
    for name in list(os.environ):
        if is_hidden(name):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ACPSERVER_HOME", str(home / "acpserver"))

"""What a scenario works with: agents that are started for it, sessions, prompts, and how it is registered.

Used by the probe's only thread. A scenario is a function that takes the stage, returns when all is well,
and raises `Broken`, `Doubtful` or `Skipped` otherwise. One running agent is lent to one scenario after
another as long as nothing goes wrong; a scenario that harms its agent asks for a fresh one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from acpserver.validate.findings import Finding
from acpserver.validate.probe.editor import Editor
from acpserver.validate.probe.link import Answer, Json, Link
from acpserver.validate.probe.process import AgentProcess
from acpserver.validate.probe.verdict import Broken, Skipped
from acpserver.validate.validator import Validator
from acpserver.version import __version__

AUTH_REQUIRED = -32000
MOST_FAILED_STARTS = 3  # one after another, before no more are tried
CLIENT_INFO: Json = {"name": "acp-validate", "title": "acp-validate probe", "version": __version__}


class Scenario(NamedTuple):
    """One thing to try. `advice`: the rule is a SHOULD, so that breaking it is a WARN."""

    rule: str
    name: str
    run: Callable[[Stage], None]
    advice: bool


SCENARIOS: list[Scenario] = []


def scenario(rule: str, name: str, *, advice: bool = False) -> Callable[[Callable[[Stage], None]], None]:
    """Register the decorated function; `name` is group/what."""

    def register(run: Callable[[Stage], None]) -> None:
        SCENARIOS.append(Scenario(rule, name, run, advice))

    return register


@dataclass
class Options:
    """What the user of the probe asked for."""

    command: Sequence[str]
    prompts: dict[str, str] = field(default_factory=dict)
    timeout: float = 10.0
    """Seconds that an answer may take."""
    start_timeout: float = 60.0
    """Seconds that an agent may take to start, and a prompt to be worked on."""
    patience: float = 5.0
    """Seconds within which a cancel and an end of input must have had their effect."""
    moment: float = 0.5
    """Seconds that something is given to get going, or to come too late."""
    unstable: bool = False
    own_home: bool = False
    """The agent uses the user's home folder; what would log the user out is not tried then."""
    schema: Path | None = None
    traces: Path | None = None
    """A folder for the conversations, one file for each agent that is started."""


class Stage:
    """Everything that one run of the probe starts. `scenario` names the scenario that is running."""

    def __init__(self, options: Options):
        self.options = options
        self.scenario = ""
        self.findings: list[tuple[str, Finding]] = []
        """What the validator found, with the scenario in which it was."""
        self.noise: list[tuple[str, str]] = []
        """Lines on stdout that are no messages, with the scenario."""
        self._root = os.path.realpath(tempfile.mkdtemp(prefix="acp-validate-"))
        self._home = None if options.own_home else self._new_home()
        self._folders = self._traces = 0
        self._links: list[Link] = []
        self._shared: Link | None = None
        self._starts_failed = 0  # one after another
        self._no_session = ""  # why there is none to be had

    def _new_home(self) -> str:
        home = os.path.join(self._root, "home")
        os.mkdir(home)
        return home

    # Agents

    def start(self, editor: Editor | None = None) -> Link:
        """A fresh agent to which nothing has been said."""
        validator = Validator(unstable=self.options.unstable, schema=self.options.schema)
        trace = self._new_trace()
        with _uninterrupted():  # else the agent could run already, and nobody would know it
            try:
                process = AgentProcess(self.options.command, self._home)
            except OSError as error:
                raise Broken(f"the agent cannot be started: {error}") from None
            link = Link(process, validator, editor or Editor(), self.options.timeout, trace)
            self._links.append(link)
        return link

    def _new_trace(self) -> BinaryIO | None:
        """A file for the messages of the next agent, named for the scenario that starts it."""
        if self.options.traces is None:
            return None
        self._traces += 1
        name = f"{self._traces:03}-{self.scenario.replace('/', '-')}.jsonl"
        return open(self.options.traces / name, "wb")

    def initialize(self, link: Link, version: object = 1, **more: object) -> Answer:
        """Send `initialize` with the editor's capabilities and wait for the answer."""
        params: Json = {"protocolVersion": version, "clientCapabilities": link.editor.capabilities}
        params["clientInfo"] = CLIENT_INFO
        answer = link.request("initialize", {**params, **more}, self.options.start_timeout)
        link.initialized = answer.result or {}
        announced = link.initialized.get("agentCapabilities")
        link.capabilities = announced if isinstance(announced, dict) else {}
        return answer

    def fresh(self, editor: Editor | None = None) -> Link:
        """A fresh agent after the handshake. Skips the scenario when that does not work."""
        if self._starts_failed >= MOST_FAILED_STARTS:
            raise Skipped("initialize does not work")
        self._starts_failed += 1
        try:
            link = self.start(editor)
            answer = self.initialize(link)
        except Broken as broken:
            raise Skipped(f"initialize does not work: {broken}") from None
        if answer.result is None:
            raise Skipped(f"initialize does not work: {answer.told()}")
        self._starts_failed = 0
        return link

    def shared(self) -> Link:
        """An agent after the handshake, which earlier scenarios may have used. Its editor can do nothing."""
        if self._shared is None or not self._shared.process.reading:
            self._shared = self.fresh()
        self._shared.editor = Editor()
        return self._shared

    # Sessions and prompts

    def folder(self, name: str = "work") -> str:
        """A new empty folder."""
        self._folders += 1
        path = os.path.join(self._root, f"{self._folders}", name)
        os.makedirs(path)
        return path

    def new(self, link: Link, **params: object) -> Answer:
        """Ask for a session in a new folder. Skips the scenario when credentials are missing."""
        asked: Json = {"cwd": self.folder(), "mcpServers": [], **params}
        answer = link.request("session/new", asked, self.options.start_timeout)
        if answer.code == AUTH_REQUIRED:
            raise Skipped(f"needs credentials: session/new answers {answer.told()}")
        return answer

    def session(self, link: Link, **params: object) -> str:
        """A new session's id. Skips the scenario when there is none to be had."""
        if self._no_session:
            raise Skipped(self._no_session)
        try:
            answer = self.new(link, **params)
            session = (answer.result or {}).get("sessionId")
            if isinstance(session, str):
                return session
            self._no_session = f"session/new does not work: {answer.told()}"
        except Skipped as skipped:
            self._no_session = str(skipped)
        except Broken as broken:
            self._no_session = f"session/new does not work: {broken}"
        raise Skipped(self._no_session)

    def text(self, key: str, **values: str) -> str:
        """The user's prompt of this key, filled in. Skips the scenario when there is none."""
        text = self.options.prompts.get(key)
        if text is None:
            raise Skipped(f'no "{key}" in --prompts')
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text

    def prompt(self, link: Link, session: str, text: str) -> Answer:
        """Send a prompt; its answer comes later."""
        return link.post("session/prompt", prompt(session, text))

    def turn(self, link: Link, session: str, text: str) -> Answer:
        """Send a prompt and wait for its answer, which must be a result."""
        return self.finish(link, self.prompt(link, session, text))

    def finish(self, link: Link, turn: Answer) -> Answer:
        """Wait for a prompt's answer, which must be a result."""
        link.finish(turn, self.options.start_timeout)
        if turn.result is None:
            raise Broken(f"the prompt was answered with {turn.told()}")
        return turn

    # The end

    def leave(self, well: bool) -> None:
        """After a scenario: end its agents. The shared one stays as long as all is well."""
        for link in self._links:
            if link is not self._shared or not well:
                self._end(link, orderly=False)
        if not well:
            self._shared = None
        self._links = [self._shared] if self._shared else []

    def close(self) -> None:
        """End what is left, and remove the folders."""
        for link in self._links:
            self._end(link, orderly=True)
        self._links = []
        with contextlib.suppress(OSError):  # a left-over process may still write there
            shutil.rmtree(self._root)

    def _end(self, link: Link, orderly: bool) -> None:
        link.close(orderly)
        self._collect(link)

    def collect(self) -> None:
        """Note what the validator found so far, under the name of the running scenario."""
        for link in self._links:
            self._collect(link)

    def _collect(self, link: Link) -> None:
        self.findings += [(self.scenario, finding) for finding in link.findings]
        self.noise += [(self.scenario, line) for line in link.noise]
        link.findings.clear()
        link.noise.clear()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let a signal that interrupts (Ctrl-C, and what the probe treats so) wait for the end of the block. It
    interrupts the main thread, which alone may say what a signal does."""
    came = []
    is_main = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, lambda number, _frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGINT))
        if is_main and signal.getsignal(number) is signal.default_int_handler
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt


def prompt(session: str, *texts: str) -> Json:
    """The params of a prompt."""
    return {"sessionId": session, "prompt": [{"type": "text", "text": text} for text in texts]}


def offers(link: Link, *path: str) -> bool:
    """Whether the agent announced a capability. A missing one, null and false are no."""
    value: object = link.capabilities
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None and value is not False

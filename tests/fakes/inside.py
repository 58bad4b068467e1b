"""The server inside the test's process, with a scripted model and scripted tools, for the strict editor.

script = Script([TextDelta("hi"), Finish("stop")])
with Editor(run=Inside(tmp_path, script).run) as editor: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from acpserver.cancel import CancelFlag
from acpserver.config import Config
from acpserver.llm.types import Event, ModelRequest
from acpserver.rpc.connection import Connection
from acpserver.server import Server
from acpserver.tools.base import EXECUTE, Action, ToolContext, ToolOutcome
from acpserver.tools.builtin import builtin_tools
from acpserver.transports.stdio import LineReader, LineWriter

Step = Any
"""An event to yield, an error to raise, or a function of the cancel flag to call before the next step."""


class Script:
    """A provider that plays one list of steps for each model call, and keeps the requests."""

    def __init__(self, *answers: list[Step]):
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """See `llm.types.Provider`."""
        self.requests.append(request)
        assert self.answers, "one model call more than the script holds"
        for step in self.answers.pop(0):
            if isinstance(step, Exception):
                raise step
            if callable(step):
                step(cancel)
            else:
                yield step


def stall(cancel: CancelFlag) -> None:
    """A step that ends only with a cancel, by raising `Cancelled`."""
    cancel.sleep(30)


@dataclass(eq=False)
class FakeTool:
    """A tool whose two steps are functions of the test; `run` gets the arguments and the context."""

    name: str
    run: Callable[[dict[str, object], ToolContext], ToolOutcome] = lambda arguments, context: ToolOutcome(
        "ok"
    )
    access: str = EXECUTE
    kind: str = "execute"
    refuse: Exception | None = None  # raised by `prepare`
    description: str = "A tool of the tests."
    parameters: dict[str, object] = field(
        default_factory=lambda: {"type": "object", "properties": {"n": {"type": "integer"}}}
    )

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `tools.base.Tool`."""
        if self.refuse:
            raise self.refuse
        return Action(f"Do {self.name}", lambda: self.run(arguments, context), access=self.access)


class Inside:
    """A server for `Editor(run=...)`. `settings` are those of the configuration."""

    def __init__(self, folder: Path, script: Script | None = None, *tools: FakeTool, **settings: Any):
        defaults: dict[str, Any] = {"model": "scripted", "base_url": "http://127.0.0.1:9/v1"}
        config = Config(**{**defaults, "state_dir": str(folder / "state"), **settings})
        given = {tool.name: tool for tool in tools}
        with mock.patch("acpserver.server.builtin_tools", lambda children: given or builtin_tools(children)):
            self.server = Server(config)
        if script is not None:
            self.server.models.provider = lambda model: script  # type: ignore[method-assign]

    def run(self, input_fd: int, output_fd: int) -> None:
        """Serve until the end of input, as `cli.serve` does."""
        writer = LineWriter(output_fd)
        connection = Connection(
            LineReader(input_fd), writer, self.server.handlers(), admit=self.server.admit, strict=True
        )
        self.server.connect(connection)
        writer.start()
        connection.serve()
        self.server.stop("end of input")
        writer.close(0.4)

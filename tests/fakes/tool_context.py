"""A tool's surroundings without a server: records what the client would be shown."""

from __future__ import annotations

import json
from pathlib import Path

from acpserver.cancel import CancelFlag
from acpserver.tools.arguments import check_arguments
from acpserver.tools.base import Action, Content, Tool, ToolContext, ToolOutcome
from acpserver.tools.textfile import DiskFiles


class Surroundings:
    """One session's folder and what its client saw. `answer` is what the user says when asked."""

    def __init__(self, cwd: Path, *more_roots: Path):
        self.cancel = CancelFlag()
        self.shown: list[list[Content]] = []
        self.plans: list[list[dict[str, object]]] = []
        self.questions: list[str] = []
        self.answer: str | None = None
        roots = (str(cwd), *(str(root) for root in more_roots))
        self.context = ToolContext(
            "session-1",
            str(cwd),
            roots,
            self.cancel,
            self.shown.append,
            self.plans.append,
            self._ask,
            DiskFiles(),
        )

    def _ask(self, question: str) -> str | None:
        self.questions.append(question)
        return self.answer

    def prepare(self, tool: Tool, **arguments: object) -> Action:
        """Check and prepare as the agent loop does, and look at what the client would be shown."""
        check_arguments(tool, arguments)
        action = tool.prepare(arguments, self.context)
        assert action.title and "\n" not in action.title[:40]
        assert all(Path(str(place["path"])).is_absolute() for place in action.locations)
        check_content(action.content)
        return action

    def call(self, tool: Tool, **arguments: object) -> ToolOutcome:
        """Prepare and run."""
        outcome = self.prepare(tool, **arguments).run()
        assert outcome.text
        check_content(outcome.content or [])
        assert None not in outcome.raw_output.values()
        return outcome


def check_content(content: list[Content]) -> None:
    """Every object has the shape that the protocol demands, and its line stays small."""
    for item in content:
        assert len(json.dumps(item)) < 32 * 1024
        if item["type"] == "diff":
            assert set(item) == {"type", "path", "oldText", "newText"}
            assert Path(str(item["path"])).is_absolute() and isinstance(item["newText"], str)
        else:
            assert set(item) == {"type", "content"} and item["type"] == "content"
            inner = item["content"]
            assert isinstance(inner, dict) and inner["type"] == "text" and inner["text"]

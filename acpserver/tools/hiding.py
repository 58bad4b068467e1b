"""A tool whose results hold no keys of ours, whatever it came by.

Pure but for what the tool itself does; runs on the turn's thread. A command can read the server's own
environment (on Linux in `/proc`), and the model's answer to it would carry a key into the session file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acpserver import jsontext
from acpserver.redaction import Secrets
from acpserver.tools.base import Action, Content, Tool, ToolContext, ToolOutcome


class HidingTool:
    """`tool`, with every long secret hidden in what it shows and returns."""

    def __init__(self, tool: Tool, secrets: Secrets):
        self.name = tool.name
        self.description = tool.description
        self.parameters = tool.parameters
        self.kind = tool.kind
        self._tool = tool
        self._secrets = secrets

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """As the tool's own."""
        inner = context._replace(progress=lambda content: context.progress(self._hidden(content)))
        action = self._tool.prepare(arguments, inner)
        return replace(
            action,
            title=self._hidden(action.title),
            content=self._hidden(action.content),
            run=lambda: self._outcome(action.run()),
        )

    def _outcome(self, outcome: ToolOutcome) -> ToolOutcome:
        content: list[Content] | None = self._hidden(outcome.content)
        text, raw_output = self._hidden(outcome.text), self._hidden(outcome.raw_output)
        return replace(outcome, text=text, content=content, raw_output=raw_output)

    def _hidden(self, value: Any) -> Any:
        """A copy of a JSON value without secrets; the value itself when it holds none."""
        text = jsontext.dumps(value)
        hidden = self._secrets.hide_long(text)
        return value if hidden == text else jsontext.loads(hidden)

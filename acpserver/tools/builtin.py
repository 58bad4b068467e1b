"""The table of built-in tools, in the order in which the model is told about them."""

from __future__ import annotations

from acpserver.processes import Children
from acpserver.tools.ask import AskUser
from acpserver.tools.base import Tool
from acpserver.tools.bash import Bash
from acpserver.tools.edit import EditFile, WriteFile
from acpserver.tools.files import ListFiles, ReadFile
from acpserver.tools.plan import Plan
from acpserver.tools.search import Glob, Grep
from acpserver.tools.web import WebFetch


def builtin_tools(children: Children) -> dict[str, Tool]:
    """The tools by name. `children` starts their processes; whoever made it closes it at the end."""
    tools: list[Tool] = [
        ReadFile(),
        ListFiles(),
        Glob(),
        Grep(children),
        WriteFile(),
        EditFile(),
        Bash(children),
        WebFetch(),
        Plan(),
        AskUser(),
    ]
    return {tool.name: tool for tool in tools}

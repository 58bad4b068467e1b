"""Answers to the agent's questions (`elicitation/create`): what the person at the terminal types.

Runs on the thread that owns the terminal. Knows forms of plain text fields alone; what else is asked for is
declined, and so is every question that nobody can be shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from acpserver.chat.permission import ReadLine
from acpserver.chat.render import Renderer

DECLINED: dict[str, object] = {"action": "decline"}
CANCELLED: dict[str, object] = {"action": "cancel"}


def fields_of(params: Mapping[str, object]) -> dict[str, str]:
    """The title of each field by its name; empty for what is no form of plain texts."""
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if params.get("mode") != "form" or not isinstance(properties, dict):
        return {}
    for field in properties.values():
        if (
            not isinstance(field, dict)
            or field.get("type") != "string"
            or field.get("enum")
            or "oneOf" in field
        ):
            return {}
    return {name: str(field.get("title") or name) for name, field in properties.items()}


def by_person(params: Mapping[str, object], renderer: Renderer, read_line: ReadLine) -> dict[str, object]:
    """Show the question and read an answer to each field. An empty line, or the end of input, declines."""
    fields = fields_of(params)
    if not fields:
        renderer.line("declined: the question asks for more than text")
        return DECLINED
    renderer.line(str(params.get("message", "")))
    content: dict[str, object] = {}
    for name, title in fields.items():
        renderer.ask(f"{title}: ")
        line = read_line()
        if not line.strip():
            if not line:
                renderer.line("")  # the end of input left the cursor behind the question
            renderer.line("declined")
            return DECLINED
        content[name] = line.strip()
    return {"action": "accept", "content": content}

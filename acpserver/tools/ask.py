"""The tool with which the model asks the user: ask_user.

Runs on the turn's thread, which waits for the answer; a cancel ends the wait. Without state.
"""

from __future__ import annotations

from functools import partial

from acpserver.tools.base import Action, ToolContext, ToolOutcome
from acpserver.tools.content import shorten

_TITLE_SIZE = 200  # bytes of JSON


class AskUser:
    """ask_user: one question, one answer."""

    name = "ask_user"
    kind = "other"
    description = "Ask the user one question, when you cannot go on without knowing. Returns the answer."
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {"question": {"type": "string", "minLength": 1}},
        "required": ["question"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`."""
        question = str(arguments["question"])
        return Action(f"Ask: {shorten(question, _TITLE_SIZE)}", partial(_ask, question, context))


def _ask(question: str, context: ToolContext) -> ToolOutcome:
    answer = context.ask(question)
    if answer is None:
        return ToolOutcome(
            "The user could not be asked or did not answer. Go on with what you know and say what you "
            "assumed, or ask in your final message."
        )
    return ToolOutcome(f"The user answered: {answer}")

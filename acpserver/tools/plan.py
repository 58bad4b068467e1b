"""The tool with which the model shows its plan: plan.

Any thread; without state. The client replaces its whole list each time (rule P8).
"""

from __future__ import annotations

from functools import partial

from acpserver.tools.base import Action, ToolContext, ToolOutcome

PRIORITIES = ["high", "medium", "low"]
STATUSES = ["pending", "in_progress", "completed"]


class Plan:
    """plan: the list of steps that the user sees."""

    name = "plan"
    kind = "other"
    description = (
        "Show the user your plan for a task of several steps, and how far it is. "
        "Send the whole list each time; it replaces the one before."
    )
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {
                            "type": "string",
                            "minLength": 1,
                            "description": "The step, in a few words",
                        },
                        "priority": {"type": "string", "enum": PRIORITIES},
                        "status": {"type": "string", "enum": STATUSES},
                    },
                    "required": ["content"],
                },
            }
        },
        "required": ["entries"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`."""
        given = arguments["entries"]
        entries = (
            [_entry(item) for item in given if isinstance(item, dict)] if isinstance(given, list) else []
        )
        return Action(f"Plan with {len(entries)} steps", partial(_show, entries, context))


def _entry(item: dict[str, object]) -> dict[str, object]:
    """One ACP PlanEntry with its defaults."""
    return {
        "content": item["content"],
        "priority": item.get("priority", "medium"),
        "status": item.get("status", "pending"),
    }


def _show(entries: list[dict[str, object]], context: ToolContext) -> ToolOutcome:
    context.plan(entries)
    done = sum(entry["status"] == "completed" for entry in entries)
    return ToolOutcome(f"The user sees the plan: {done} of {len(entries)} steps completed.")

"""The story of a session as a client is told it: what a replay must tell again."""

from __future__ import annotations

from typing import Any

from tests.fakes.editor import Json

SILENT = {"notice", "current_mode_update", "config_option_update", "session_info_update", "usage_update"}


def story(updates: list[Json]) -> list[tuple[Any, ...]]:
    """Messages with their whole text, each tool call as it ended at the place where it began, each plan:
    in order. Where a chunk ends makes no difference."""
    told: list[tuple[Any, ...]] = []
    calls: dict[str, Json] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            message = (kind, update.get("messageId"))
            before = told.pop()[2] if told and told[-1][:2] == message else ""
            told.append((*message, before + update["content"]["text"]))
        elif kind == "plan":
            told.append((kind, update["entries"]))
        elif kind in ("tool_call", "tool_call_update"):
            call = calls.setdefault(update["toolCallId"], {})
            if not call:
                told.append(("call", call))
            call.update({key: value for key, value in update.items() if key != "sessionUpdate"})
        else:
            assert kind in SILENT, kind
    return told

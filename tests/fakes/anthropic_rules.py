"""What the strictest servers demand of a body of `POST /v1/messages`. Pure, for the fake server.

Written after Anthropic's public documentation, and stricter than it: what passes here passes there.
"""

from __future__ import annotations

import re

from tests.fakes.openai_rules import text_problems
from tests.fakes.signing import sign

_KEYS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "stream",
    "thinking",
    "output_config",
    "tool_choice",
    "temperature",
}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def violations(body: object) -> list[str]:
    """Every rule that this body breaks, in words."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = [f"unknown member {key!r}" for key in body if key not in _KEYS] + text_problems(body)
    limit = body.get("max_tokens")
    if type(limit) is not int or limit < 1:
        found.append("max_tokens: field required")
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("model: field required")
    marks = str(body).count("'cache_control'")
    if marks > 4:
        found.append(f"a maximum of 4 blocks with cache_control may be provided, found {marks}")
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled" and not 1024 <= thinking.get("budget_tokens", 0) < (limit or 0):
        found.append("thinking.budget_tokens: at least 1024 and less than max_tokens")
    for block in body.get("system", []):
        if block.get("type") != "text" or not block["text"].strip():
            found.append("system: text content blocks must be non-empty")
    for tool in body.get("tools", []):
        found += _tool(tool)
    return found + _messages(body.get("messages"), thinking.get("type") == "enabled")


def _tool(tool: dict) -> list[str]:
    found = [f"unknown member {key!r} of a tool" for key in tool.keys() - _TOOL_KEYS]
    if not _NAME.fullmatch(tool.get("name", "")):
        found.append(f"tool name {tool.get('name')!r} is invalid")
    if tool.get("input_schema", {}).get("type") != "object":
        found.append("input_schema.type: must be object")
    return found


_TOOL_KEYS = {"name", "description", "input_schema", "cache_control"}


def _messages(messages: object, thinks: bool) -> list[str]:
    if not isinstance(messages, list) or not messages:
        return ["messages: at least one message is required"]
    found: list[str] = []
    waiting: list[str] = []
    used: set[str] = set()
    expected = "user"
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role != expected:
            found.append(f"messages.{at}: roles must alternate, expected {expected}, not {role}")
        expected = "assistant" if role == "user" else "user"
        if not isinstance(content, list) or not content:
            found.append(f"messages.{at}: content must be a non-empty list")
            continue
        if role == "user":
            found += _user(at, content, waiting)
            waiting = []
        else:
            found += _assistant(at, content, used)
            waiting = [block["id"] for block in content if block.get("type") == "tool_use"]
    if waiting:
        found.append("tool_use ids without tool_result blocks at the end")
    if messages[-1].get("role") == "assistant" and str(messages[-1]["content"][-1].get("text")).endswith(" "):
        found.append("final assistant content cannot end with trailing whitespace")
    return found + (_open_turn(messages) if thinks else [])


def _user(at: int, content: list[dict], waiting: list[str]) -> list[str]:
    found = []
    results = [block.get("tool_use_id") for block in content if block.get("type") == "tool_result"]
    if sorted(results) != sorted(waiting):
        found.append(f"messages.{at}: tool_result blocks {results} do not answer tool_use {waiting}")
    kinds = [block.get("type") for block in content]
    if "tool_result" in kinds[len(results) :]:
        found.append(f"messages.{at}: tool_result blocks must come first")
    for block in content:
        if block.get("type") == "image":
            source = block["source"]
            if source.get("type") != "base64" or source.get("media_type") not in _IMAGES:
                found.append(f"messages.{at}: image source is invalid")
        elif block.get("type") == "text":
            found += _text(at, block)
        elif block.get("type") != "tool_result":
            found.append(f"messages.{at}: {block.get('type')} is no block of a user")
        elif "content" in block and not block["content"]:
            found.append(f"messages.{at}: content of a tool_result is empty")
    return found


def _assistant(at: int, content: list[dict], used: set[str]) -> list[str]:
    found = []
    for block in content:
        kind = block.get("type")
        if kind == "text":
            found += _text(at, block)
        elif kind == "thinking":
            # What may follow is for a server that binds it (`anthropic_binding`).
            signature = str(block.get("signature")).partition(".")[0]
            if signature != sign("thinking", block.get("thinking", "")):
                found.append(f"messages.{at}: invalid signature in thinking block")
            if "cache_control" in block:
                found.append(f"messages.{at}: cache_control on a thinking block")
        elif kind == "redacted_thinking":
            if block != {"type": kind, "data": sign("redacted")}:
                found.append(f"messages.{at}: invalid data in redacted_thinking block")
        elif kind == "tool_use":
            if not _ID.fullmatch(block.get("id", "")) or block["id"] in used:
                found.append(f"messages.{at}: tool_use id {block.get('id')!r} is invalid or used twice")
            used.add(block.get("id", ""))
            if not _NAME.fullmatch(block.get("name", "")) or not isinstance(block.get("input"), dict):
                found.append(f"messages.{at}: tool_use without a valid name or input")
        else:
            found.append(f"messages.{at}: {kind} is no block of an assistant")
    return found


def _text(at: int, block: dict) -> list[str]:
    blank = not str(block.get("text", "")).strip()
    return [f"messages.{at}: text content blocks must contain non-whitespace text"] if blank else []


def _open_turn(messages: list[dict]) -> list[str]:
    """With a budget of thinking, each answer with calls of the turn that goes on begins with thinking."""
    found = []
    for at in range(len(messages) - 1, -1, -1):
        content = messages[at].get("content") or [{}]
        kinds = [block.get("type") for block in content]
        if messages[at].get("role") == "user" and "tool_result" not in kinds:
            break
        if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
            found.append(f"messages.{at}: expected thinking or redacted_thinking, but found {kinds[0]}")
    return found

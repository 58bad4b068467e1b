"""What the fake demands of a body of Ollama's `POST /api/chat`. Pure, for the fake server.

Written after Ollama's public documentation, and stricter than it: what passes here passes there.
"""

from __future__ import annotations

import base64

from tests.fakes.openai_rules import is_base64, text_problems, tool_problems

_KEYS = {"model", "messages", "tools", "stream", "think", "options", "format", "keep_alive"}
_FIRST_BYTES = (b"\x89PNG", b"\xff\xd8\xff\xe0", b"GIF8", b"RIFF")  # RIFF: WebP, and WAV for models that hear
_OPTIONS = {"num_ctx", "num_predict", "temperature"}
_MEMBERS = {
    "system": {"role", "content"},
    "user": {"role", "content", "images"},
    "assistant": {"role", "content", "thinking", "tool_calls"},
    "tool": {"role", "content", "tool_name"},
}


def violations(body: object) -> list[str]:
    """Every rule that this body breaks, in words."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = [f"unknown member {key!r}" for key in body if key not in _KEYS] + text_problems(body)
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("model is required")
    found += [f"unknown option {key!r}" for key in body.get("options", {}).keys() - _OPTIONS]
    if body.get("think", True) not in (True, False, "low", "medium", "high"):
        found.append(f"think: invalid value {body['think']!r}")
    found += tool_problems(body["tools"]) if "tools" in body else []
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages is not a non-empty list"]
    return found + _messages(messages)


def _messages(messages: list[dict]) -> list[str]:
    found: list[str] = []
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role = message.get("role")
        if message.keys() - _MEMBERS.get(str(role), set()):
            found.append(f"messages[{at}]: unknown role or members: {sorted(message)}")
        if not isinstance(message.get("content"), str):
            found.append(f"messages[{at}]: content is no text")
        if role == "tool":
            if not waiting or message.get("tool_name") != waiting.pop(0):
                found.append(f"messages[{at}]: a result for no open call: {message.get('tool_name')!r}")
            continue
        if waiting:
            found.append(f"messages[{at}]: no result for the calls {waiting}")
        waiting = [call["function"]["name"] for call in message.get("tool_calls", [])]
        for call in message.get("tool_calls", []):
            if not isinstance(call["function"].get("arguments"), dict):
                found.append(f"messages[{at}]: arguments are no object")
        found += [
            f"messages[{at}]: image: unknown format"
            for image in message.get("images", [])
            if not is_base64(image) or base64.b64decode(image)[:4] not in _FIRST_BYTES
        ]
        if not (message.get("content") or message.get("images") or message.get("tool_calls")):
            found.append(f"messages[{at}]: empty")
    if waiting:
        found.append(f"no result for the calls {waiting} at the end")
    return found

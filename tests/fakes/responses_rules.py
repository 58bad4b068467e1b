"""What the strictest servers demand of a body of OpenAI's `POST /responses`. Pure, for the fake server.

Written after OpenAI's public documentation, and stricter than it: what passes here passes there.
"""

from __future__ import annotations

import json
import re

from tests.fakes.openai_rules import text_problems
from tests.fakes.signing import sign

_KEYS = {
    "model",
    "input",
    "instructions",
    "tools",
    "stream",
    "store",
    "include",
    "reasoning",
    "max_output_tokens",
}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTENT = {"user": {"input_text", "input_image"}, "assistant": {"output_text"}}


def violations(body: object) -> list[str]:
    """Every rule that this body breaks, in words."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = [f"Unknown parameter: {key!r}" for key in body if key not in _KEYS] + text_problems(body)
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("Missing required parameter: 'model'")
    if body.get("store") is not False:
        found.append("store: must be false, nothing may stay at the server")
    if not set(body.get("include", [])) <= {"reasoning.encrypted_content"}:
        found.append("include: unknown value")
    for tool in body.get("tools", []):
        if tool.get("type") != "function" or tool.get("strict") is not False or "function" in tool:
            found.append("a tool is no flat function with strict false")
        elif not _ID.fullmatch(tool["name"]) or tool["parameters"].get("type") != "object":
            found.append(f"tool {tool['name']!r} without a valid name or parameters")
    items = body.get("input")
    if not isinstance(items, list) or not items:
        return [*found, "input is not a non-empty list"]
    return found + _items(items)


def _items(items: list[dict]) -> list[str]:
    found: list[str] = []
    calls: list[str] = []
    used: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type")
        if kind == "message":
            found += [f"input[{at}]: no output for the calls {calls}"] if calls else []
            found += _message(at, item)
        elif kind == "function_call":
            found += _call(at, item, used)
            calls.append(item.get("call_id", ""))
        elif kind == "function_call_output":
            if item.get("call_id") in calls:
                calls.remove(item["call_id"])
            else:
                found.append(f"input[{at}]: an output for no call: {item.get('call_id')!r}")
            if not isinstance(item.get("output"), str):
                found.append(f"input[{at}]: output is no text")
        elif kind == "reasoning":
            found += _reasoning(at, item, items[at + 1 : at + 2])
        else:
            found.append(f"input[{at}]: unknown type {kind!r}")
    return found + ([f"No tool output found for function call {calls}"] if calls else [])


def _message(at: int, item: dict) -> list[str]:
    allowed = _CONTENT.get(item.get("role", ""), set())
    content = item.get("content")
    if not isinstance(content, list) or not content:
        return [f"input[{at}]: content is not a non-empty list"]
    found = [f"input[{at}]: content {part}" for part in content if part.get("type") not in allowed]
    blank = [part for part in content if "text" in part and not part["text"]]
    return found + ([f"input[{at}]: empty text"] if blank else [])


def _call(at: int, item: dict, used: set[str]) -> list[str]:
    found = []
    call_id = item.get("call_id", "")
    if not _ID.fullmatch(call_id) or call_id in used:
        found.append(f"input[{at}]: call_id {call_id!r} is invalid or used twice")
    used.add(call_id)
    if not _ID.fullmatch(item.get("name", "")) or not isinstance(json.loads(item["arguments"]), dict):
        found.append(f"input[{at}]: a call without a valid name or arguments")
    return found


def _reasoning(at: int, item: dict, following: list[dict]) -> list[str]:
    found = []
    thought = "".join(part["text"] for part in item.get("summary", []))
    if not str(item.get("id", "")).startswith("rs_"):
        found.append(f"input[{at}]: a reasoning item without its id")
    if item.get("encrypted_content") != sign("reasoning", thought):
        found.append(f"input[{at}]: encrypted_content could not be verified")
    follower = following[0] if following else {}
    if follower.get("type") not in ("function_call", "reasoning") and follower.get("role") != "assistant":
        found.append(f"input[{at}]: reasoning was provided without its required following item")
    return found

"""What the strictest servers demand of a body of `POST /chat/completions`. Pure, for the fake server.

Stricter than any one real server: what passes here passes everywhere.
"""

from __future__ import annotations

import base64
import json
import re

from tests.fakes.openai_server_rules import MORE_KEYS, RULES

_KEYS = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "reasoning_effort",
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def violations(body: object, server: str = "") -> list[str]:
    """Every rule that this body breaks, in words; an empty list is a valid request. `server` names one whose
    own rules hold as well."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    keys = _KEYS | MORE_KEYS.get(server, set())
    found = [f"unknown member {key!r}" for key in body if key not in keys] + text_problems(body)
    if not _is_text(body.get("model")):
        found.append("model is not a non-empty string")
    if "stream_options" in body and body.get("stream") is not True:
        found.append("stream_options without stream")
    if "max_tokens" in body and not (type(body["max_tokens"]) is int and body["max_tokens"] > 0):
        found.append("max_tokens is not a positive integer")
    found += tool_problems(body["tools"]) if "tools" in body else []
    found += _messages(body.get("messages"))
    return found or RULES[server](body)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def text_problems(body: object) -> list[str]:
    """What is wrong with the texts of a body of any dialect."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return ["a text holds half a surrogate pair"]
    return []


def tool_problems(tools: object) -> list[str]:
    """What is wrong with a list of tools, in the form that OpenAI and Ollama share."""
    if not isinstance(tools, list) or not tools:
        return ["tools is not a non-empty list"]
    found, names = [], set()
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            found.append("a tool is not of type function")
            continue
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in names:
            found.append(f"tool name {name!r} is invalid or used twice")
        names.add(str(name))
        parameters = function.get("parameters")
        if not isinstance(parameters, dict) or parameters.get("type") != "object":
            found.append(f"the parameters of tool {name!r} are not a schema of type object")
        if not isinstance(function.get("description"), str):
            found.append(f"tool {name!r} has no description")
    return found


def _messages(messages: object) -> list[str]:
    if not isinstance(messages, list) or not messages:
        return ["messages is not a non-empty list"]
    found: list[str] = []
    waiting: list[str] = []  # ids of calls whose results must come next
    used: set[str] = set()
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        if not isinstance(message, dict):
            found.append(f"{where} is not an object")
            continue
        role = message.get("role")
        if waiting and role != "tool":
            found.append(f"{where}: no result for the calls {waiting}")
            waiting = []
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id in waiting:
                waiting.remove(str(call_id))
            else:
                found.append(f"{where}: a result for no open call: {call_id!r}")
            if not isinstance(message.get("content"), (str, list)):
                found.append(f"{where}: a result without content")
        elif role == "assistant" and "tool_calls" in message:
            problems, waiting = _calls(message["tool_calls"], used)
            found += [f"{where}: {problem}" for problem in problems]
            if message.get("content") is not None and not _is_content(message["content"]):
                found.append(f"{where}: content is neither null nor a non-empty text")
        elif role not in ("system", "user", "assistant"):
            found.append(f"{where}: unknown role {role!r}")
        elif not _is_content(message.get("content")):
            found.append(f"{where}: empty content")
        if role == "system" and position:
            found.append(f"{where}: a system message after the first")
    if waiting:
        found.append(f"no result for the calls {waiting} at the end")
    if isinstance(messages[-1], dict) and messages[-1].get("role") not in ("user", "tool"):
        found.append("the last message is neither the user's nor a result")
    return found


def _is_content(content: object) -> bool:
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, dict) and _is_part(part) for part in content)
    return _is_text(content)


def _is_part(part: dict) -> bool:
    """One part of a content, each kind with exactly the members that it has at OpenAI."""
    kind, value = part.get("type"), part.get(str(part.get("type")))
    if part.keys() != {"type", kind}:
        return False
    if kind == "text":
        return _is_text(value)
    if not isinstance(value, dict):
        return False
    if kind == "image_url":
        head, _, data = str(value.get("url")).partition(";base64,")
        return value.keys() == {"url"} and head.startswith("data:image/") and is_base64(data)
    good = value.keys() == {"data", "format"} and value["format"] in ("wav", "mp3")
    return kind == "input_audio" and good and is_base64(value["data"])


def is_base64(data: object) -> bool:
    """Whether this is base64 in its strict form, and not empty."""
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def _calls(calls: object, used: set[str]) -> tuple[list[str], list[str]]:
    if not isinstance(calls, list) or not calls:
        return ["tool_calls is not a non-empty list"], []
    found, ids = [], []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type") != "function":
            found.append("a call is not of type function")
            continue
        call_id = call.get("id")
        if not isinstance(call_id, str) or not 0 < len(call_id) <= 64 or call_id in used:
            found.append(f"call id {call_id!r} is invalid or used twice")
        used.add(str(call_id))
        ids.append(str(call_id))
        if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
            found.append(f"call name {function.get('name')!r} is invalid")
        try:
            whole = isinstance(json.loads(function.get("arguments")), dict)
        except (TypeError, ValueError):
            whole = False
        if not whole:
            found.append("arguments is not the text of a JSON object")
    return found, ids

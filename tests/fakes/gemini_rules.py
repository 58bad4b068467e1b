"""What the strictest servers demand of a body of `streamGenerateContent`. Pure, for the fake server.

Written after Google's public documentation, and stricter than it: what passes here passes there.
"""

from __future__ import annotations

import json
import re

from tests.fakes.openai_rules import is_base64, text_problems
from tests.fakes.signing import sign

_KEYS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_SETTINGS = {"maxOutputTokens", "thinkingConfig", "temperature"}
_THINKING = {"includeThoughts", "thinkingBudget", "thinkingLevel"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_MEDIA = {"image": ("png", "jpeg", "gif", "webp"), "audio": ("wav", "mp3", "aiff", "aac", "ogg", "flac")}
_FOREIGN = "skip_thought_signature_validator"


def violations(body: object, model: str) -> list[str]:
    """Every rule that this body breaks, in words. Models from 3 on want their calls signed."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = [f"Unknown name {key!r}" for key in body if key not in _KEYS] + text_problems(body)
    settings = body.get("generationConfig", {"maxOutputTokens": 1})
    thinking = settings.get("thinkingConfig", {})
    found += [f"Unknown name {key!r} at generation_config" for key in settings.keys() - _SETTINGS]
    found += [f"Unknown name {key!r} at thinking_config" for key in thinking.keys() - _THINKING]
    if "thinkingBudget" in thinking and "thinkingLevel" in thinking:
        found.append("only one of thinking budget and thinking level may be set")
    if "thinkingLevel" in thinking and not model.startswith("gemini-3"):
        found.append("thinking level is not supported by this model")
    for tool in body.get("tools", []):
        for declaration in tool["functionDeclarations"]:
            found += _declaration(declaration)
    if "systemInstruction" in body and not body["systemInstruction"]["parts"][0].get("text"):
        found.append("system_instruction is empty")
    return found + _contents(body.get("contents"), model.startswith("gemini-3"))


def _declaration(declaration: dict) -> list[str]:
    found = []
    if not _NAME.fullmatch(declaration.get("name", "")) or not declaration.get("description"):
        found.append(f"function declaration {declaration.get('name')!r} without a valid name or description")
    if ("parameters" in declaration) == ("parametersJsonSchema" in declaration):
        found.append("exactly one of parameters and parameters_json_schema must be set")
    if declaration.keys() - {"name", "description", "parameters", "parametersJsonSchema"}:
        found.append(f"unknown members of a function declaration: {sorted(declaration)}")
    return found


def _contents(contents: object, signed: bool) -> list[str]:
    if not isinstance(contents, list) or not contents:
        return ["contents is not specified"]
    found: list[str] = []
    waiting: list[tuple] = []
    expected = "user"
    for at, content in enumerate(contents):
        role, parts = content.get("role"), content.get("parts")
        if role != expected:
            found.append(f"contents[{at}]: roles must alternate, expected {expected}, not {role}")
        expected = "model" if role == "user" else "user"
        if not isinstance(parts, list) or not parts:
            found.append(f"contents[{at}]: must include at least one parts field")
            continue
        for part in parts:
            found += _part(at, role, part)
        answers = [_key(part["functionResponse"]) for part in parts if "functionResponse" in part]
        if answers != waiting:
            found.append(f"contents[{at}]: function responses {answers} do not answer the calls {waiting}")
        waiting = [_key(part["functionCall"]) for part in parts if "functionCall" in part]
    if waiting:
        found.append("function calls without responses at the end")
    return found + (_open_turn(contents) if signed else [])


def _key(function: dict) -> tuple:
    return function.get("name"), function.get("id")


def _part(at: int, role: str, part: dict) -> list[str]:
    data = [key for key in part if key not in ("thought", "thoughtSignature")]
    allowed = {"text", "inlineData", "functionResponse"} if role == "user" else {"text", "functionCall"}
    if len(data) != 1 or data[0] not in allowed:
        return [f"contents[{at}]: a part of a {role} with {data}"]
    found = []
    if data == ["text"] and not part["text"] and "thoughtSignature" not in part:
        found.append(f"contents[{at}]: empty text parameter")
    if data == ["inlineData"]:
        kind, _, name = str(part["inlineData"].get("mimeType")).partition("/")
        if part["inlineData"].keys() != {"mimeType", "data"} or name not in _MEDIA.get(kind, ()):
            found.append(f"contents[{at}]: Unsupported MIME type: {kind}/{name}")
        if not is_base64(part["inlineData"].get("data")):
            found.append(f"contents[{at}]: Base64 decoding failed")
    if data == ["functionCall"]:
        call = part["functionCall"]
        if not _NAME.fullmatch(call.get("name", "")) or not isinstance(call.get("args"), dict):
            found.append(f"contents[{at}]: a function call without name or args")
        valid = (_FOREIGN, call_signature(call["name"], call["args"]))
        if part.get("thoughtSignature", _FOREIGN) not in valid:
            found.append(f"contents[{at}]: Thought signature is not valid")
    if data == ["functionResponse"] and not isinstance(part["functionResponse"].get("response"), dict):
        found.append(f"contents[{at}]: function response is no object")
    if data == ["text"] and part.get("thoughtSignature", sign("text")) != sign("text"):
        found.append(f"contents[{at}]: Thought signature is not valid")
    return found


def call_signature(name: str, arguments: dict) -> str:
    """The signature that the fake server gives a call."""
    return sign("call", name, json.dumps(arguments, sort_keys=True))


def _open_turn(contents: list[dict]) -> list[str]:
    """The first call of each step of the turn that goes on is signed."""
    found = []
    for at in range(len(contents) - 1, -1, -1):
        parts = contents[at].get("parts") or []
        if contents[at].get("role") == "user" and any("functionResponse" not in part for part in parts):
            break
        calls = [part for part in parts if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            found.append(f"contents[{at}]: function call is missing a thought_signature")
    return found

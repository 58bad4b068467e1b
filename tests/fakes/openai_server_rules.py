"""What single OpenAI-compatible servers demand beyond the rules of all (`openai_rules`). Pure, for the fake.

Written after the vendors' public documentation; where that is silent, after what users report of refusals.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MORE_KEYS = {"dashscope": {"enable_thinking", "thinking_budget"}, "openrouter": {"reasoning"}}
"""Members that only this server knows."""

_MISTRAL_KEYS = {
    "model", "messages", "stream", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "temperature",
    "reasoning_effort",
}  # fmt: skip
_MISTRAL_MESSAGE_KEYS = {"role", "content", "tool_calls", "tool_call_id", "name", "prefix"}
_DEEPSEEK_EFFORTS = {"minimal", "low", "medium", "high", "xhigh", "max", "ultra"}


def _reasoning_behind_calls(body: dict) -> list[str]:
    """Each answer with calls, of this turn and all before, has its reasoning; an empty text is none."""
    return [
        f"messages[{at}]: the reasoning_content in the thinking mode must be passed back"
        for at, message in enumerate(body["messages"])
        if message.get("tool_calls") and not message.get("reasoning_content")
    ]


def _effort(body: dict, known: set[str]) -> list[str]:
    effort = body.get("reasoning_effort")
    return [] if effort is None or effort in known else [f"reasoning_effort {effort!r} is unknown"]


def _deepseek(body: dict) -> list[str]:
    return _reasoning_behind_calls(body) + _effort(body, _DEEPSEEK_EFFORTS)


def _moonshot(body: dict) -> list[str]:
    return _reasoning_behind_calls(body) + _effort(body, {"low", "high", "max"})


def _mistral(body: dict) -> list[str]:
    found = [f"{key}: extra inputs are not permitted" for key in body.keys() - _MISTRAL_KEYS]
    for message in body["messages"]:
        found += [f"{key}: extra inputs are not permitted" for key in message.keys() - _MISTRAL_MESSAGE_KEYS]
        ids = [call["id"] for call in message.get("tool_calls", [])]
        ids += [message["tool_call_id"]] if "tool_call_id" in message else []
        found += [
            f"tool call id {one!r} is not nine letters or digits"
            for one in ids
            if not re.fullmatch("[A-Za-z0-9]{9}", one)
        ]
    large = body["model"].startswith("mistral-large-4")
    return found + _effort(body, {"none", "low", "medium", "high"} if large else {"none", "high"})


def _dashscope(body: dict) -> list[str]:
    found = _effort(body, {"low", "medium", "high", "xhigh"})
    if "reasoning_effort" in body and "thinking_budget" in body:
        found.append("thinking_budget and reasoning_effort exclude one another")
    if type(body.get("enable_thinking", True)) is not bool:
        found.append("enable_thinking is neither true nor false")
    if type(body.get("thinking_budget", 1)) is not int or body.get("thinking_budget", 1) < 1:
        found.append("thinking_budget is not a positive integer")
    return found


def _openrouter(body: dict) -> list[str]:
    effort = body.get("reasoning", {"effort": "low"}).get("effort")
    found = [] if effort in ("minimal", "low", "medium", "high") else [f"unknown effort {effort!r}"]
    return [*found, "reasoning_effort beside reasoning"] if "reasoning_effort" in body else found


def _openai(body: dict) -> list[str]:
    return ["max_tokens is not supported: use max_completion_tokens"] if "max_tokens" in body else []


def _nothing(body: dict) -> list[str]:
    return []


RULES: dict[str, Callable[[dict], list[str]]] = {
    "": _nothing,
    "openai": _openai,
    "azure": _openai,
    "openrouter": _openrouter,
    "deepseek": _deepseek,
    "moonshot": _moonshot,
    "dashscope": _dashscope,
    "mistral": _mistral,
    "groq": _nothing,
    "vllm": _nothing,
    "llama.cpp": _nothing,
    "lm-studio": _nothing,
}
"""By the server's name."""

"""What differs between the servers that all speak "OpenAI-compatible" chat completions: one table. Pure.

Written after the servers' public documentation. A server is known by its address, or by the name that the
configuration gives it: a local one, or one behind a gateway, cannot be known by where it is. A server that is
not here is taken at its word, and what it refuses may be asked in another form (`verdicts.lessons`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from acpserver.llm.types import Endpoint

_ANY_ID = re.compile(r"[!-~]{1,64}")

Effort: TypeAlias = Mapping[str, Mapping[str, object]]
"""By level ("low", "medium", "high"): the members of the body that ask for so much thinking."""


def _named(low: str, medium: str, high: str, **beside: object) -> Effort:
    levels = {"low": low, "medium": medium, "high": high}
    return {level: {"reasoning_effort": name, **beside} for level, name in levels.items()}


_PLAIN = _named("low", "medium", "high")
_OPENROUTER: Effort = {level: {"reasoning": {"effort": level}} for level in _PLAIN}
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 24_576}  # tokens of thinking
_QWEN: Effort = {
    level: {"enable_thinking": True, "thinking_budget": budget} for level, budget in _BUDGETS.items()
}
_QWEN_3_8 = _named("low", "medium", "xhigh", enable_thinking=True)  # takes no budget beside it
_ON_OR_OFF = _named("none", "high", "high")  # "none" thinks least


class Server(NamedTuple):
    """How one server wants to be asked."""

    limit: str = "max_tokens"
    """The member that limits the answer."""
    asks_for_usage: bool = True
    """It knows `stream_options`; servers that do not refuse it or ignore it, and send usage anyway."""
    effort: Effort = _PLAIN
    """How its models are told how much to think."""
    efforts: tuple[tuple[str, Effort], ...] = ()
    """The same for models whose names begin so, where its models differ."""
    own_reasoning: str = ""
    """The member of the answer that it wants to see again in the calls of the turn that goes on."""
    remembers: bool = False
    """It wants that of the turns before too, and refuses a conversation in which one call has none."""
    call_id: re.Pattern[str] = _ANY_ID
    """The ids of tool calls that it accepts."""
    id_length: int = 24
    audio: str = ""
    """How it is given a recording: as OpenAI documents it, as nothing but its base64 ("text"), or with a data
    URL in the place of that ("url")."""
    list_path: str = "/models"
    """Its list of models; without a "v1" in the base URL where it begins with "/api"."""
    key_header: str = "Authorization"
    scheme: str = "Bearer "

    def effort_of(self, model: str, level: str) -> dict[str, object]:
        """The members that ask this model for this much thinking; none for a level that is not known."""
        found = next((effort for begin, effort in self.efforts if model.startswith(begin)), self.effort)
        return dict(found.get(level, {}))


_NOTHING_SPECIAL = Server()

SERVERS: dict[str, Server] = {
    "openai": Server(limit="max_completion_tokens"),
    "azure": Server(limit="max_completion_tokens", key_header="api-key", scheme=""),
    "openrouter": Server(effort=_OPENROUTER, own_reasoning="reasoning_details"),
    "deepseek": Server(own_reasoning="reasoning_content", remembers=True),
    "moonshot": Server(
        limit="max_completion_tokens",
        effort=_named("low", "high", "max"),
        own_reasoning="reasoning_content",
        remembers=True,
    ),
    "dashscope": Server(effort=_QWEN, efforts=(("qwen3.8", _QWEN_3_8),), audio="url"),
    "mistral": Server(
        asks_for_usage=False,
        efforts=(("mistral-small", _ON_OR_OFF), ("mistral-medium", _ON_OR_OFF)),
        call_id=re.compile("[A-Za-z0-9]{9}"),
        id_length=9,
        audio="text",
    ),
    "groq": Server(limit="max_completion_tokens"),
    "vllm": Server(own_reasoning="reasoning"),
    "llama.cpp": Server(own_reasoning="reasoning_content"),
    "lm-studio": Server(list_path="/api/v0/models"),  # the other one tells nothing but names
}
"""By the names that the configuration knows them by (`catalog.SERVERS`)."""

HOSTS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "services.ai.azure.com": "azure",
    "cognitiveservices.azure.com": "azure",
    "openrouter.ai": "openrouter",
    "api.deepseek.com": "deepseek",
    "api.moonshot.ai": "moonshot",
    "api.moonshot.cn": "moonshot",
    "dashscope.aliyuncs.com": "dashscope",
    "dashscope-intl.aliyuncs.com": "dashscope",
    "dashscope-us.aliyuncs.com": "dashscope",
    "maas.aliyuncs.com": "dashscope",
    "api.mistral.ai": "mistral",
    "api.groq.com": "groq",
}
"""Which server answers at a host, and at the hosts below it."""


def server_at(endpoint: Endpoint) -> Server:
    """What is known about the server of an endpoint: the one that it names, or the one at its address."""
    if endpoint.server:
        return SERVERS.get(endpoint.server, _NOTHING_SPECIAL)
    try:
        host = (urlsplit(endpoint.base_url.strip()).hostname or "").lower()
    except ValueError:  # such a URL is refused elsewhere, in words
        return _NOTHING_SPECIAL
    while host:
        if host in HOSTS:
            return SERVERS[HOSTS[host]]
        host = host.partition(".")[2]
    return _NOTHING_SPECIAL

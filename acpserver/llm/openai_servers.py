"""What differs between the servers that all speak "OpenAI-compatible" chat completions: one table. Pure.

Written after the servers' public documentation. A server that is not here is taken at its word: local ones
(llama.cpp, vLLM, LM Studio, Ollama) cannot be told by their address, and differ only in what they send, which
`openai_answer` takes as it comes.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_ANY_ID = re.compile(r"[!-~]{1,64}")


class Server(NamedTuple):
    """How one server wants to be asked."""

    limit: str = "max_tokens"
    """The member that limits the answer."""
    asks_for_usage: bool = True
    """It knows `stream_options`; servers that do not refuse it or ignore it, and send usage anyway."""
    effort: str = "reasoning_effort"
    """How it is told to think: the member `reasoning_effort`, `reasoning` (an object), `enable_thinking` (a
    switch), or "" for a server whose models decide for themselves."""
    own_reasoning: str = ""
    """The member of the answer that it wants to see again in the calls of the turn that goes on."""
    remembers: bool = False
    """It wants that of the turns before too: DeepSeek refuses a conversation in which one call has none."""
    call_id: re.Pattern[str] = _ANY_ID
    """The ids of tool calls that it accepts."""
    id_length: int = 24
    key_header: str = "Authorization"
    scheme: str = "Bearer "


_DEFAULT = Server()
_AZURE = Server(limit="max_completion_tokens", key_header="api-key", scheme="")
_KIMI = Server(effort="", own_reasoning="reasoning_content", remembers=True)

SERVERS: dict[str, Server] = {
    "api.openai.com": Server(limit="max_completion_tokens"),
    "openai.azure.com": _AZURE,
    "services.ai.azure.com": _AZURE,
    "cognitiveservices.azure.com": _AZURE,
    "openrouter.ai": Server(effort="reasoning", own_reasoning="reasoning_details"),
    "api.deepseek.com": Server(own_reasoning="reasoning_content", remembers=True),
    "api.moonshot.ai": _KIMI,
    "api.moonshot.cn": _KIMI,
    "dashscope.aliyuncs.com": Server(effort="enable_thinking"),
    "dashscope-intl.aliyuncs.com": Server(effort="enable_thinking"),
    "api.mistral.ai": Server(
        asks_for_usage=False, effort="", call_id=re.compile("[A-Za-z0-9]{9}"), id_length=9
    ),
    "api.groq.com": Server(limit="max_completion_tokens"),
}
"""By host name; a key also stands for the hosts below it."""


def server_at(base_url: str) -> Server:
    """What is known about the server at this address."""
    try:
        host = (urlsplit(base_url.strip()).hostname or "").lower()
    except ValueError:  # such a URL is refused elsewhere, in words
        return _DEFAULT
    while host:
        if host in SERVERS:
            return SERVERS[host]
        host = host.partition(".")[2]
    return _DEFAULT

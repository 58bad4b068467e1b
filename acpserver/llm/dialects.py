"""The table of dialects: the names that `Endpoint.dialect` may have. Values only.

A new kind of server is one pure module and one line here.
"""

from __future__ import annotations

from acpserver.llm.anthropic import Anthropic
from acpserver.llm.gemini import Gemini
from acpserver.llm.ollama import Ollama
from acpserver.llm.openai import OpenAi
from acpserver.llm.responses import Responses
from acpserver.llm.wire import Dialect

DIALECTS: dict[str, Dialect] = {
    "openai": OpenAi(),
    "openai-responses": Responses(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
    "ollama": Ollama(),
}

"""Providers of models that everybody may use: where they are, which variables hold their keys, and a few of
their models. Values only; any thread.

Written after the vendors' public documentation in November 2026. Prices are those of the standard tier, in
USD per million tokens; a model whose figures could not be confirmed has none. What a user's config.json says
of a provider or a model comes first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from acpserver.prices import LongPrompt, Price


class ModelInfo(NamedTuple):
    """What is known of one model; None where nobody has said it."""

    name: str
    context_window: int | None = None  # tokens
    output_limit: int | None = None  # tokens of one answer
    price: Price | None = None
    images: bool | None = None
    thinking: bool | None = None  # it can be told how much to think
    audio: bool | None = None


class KnownProvider(NamedTuple):
    """A provider that needs nothing but a key."""

    name: str
    title: str
    dialect: str
    base_url: str
    key_variables: tuple[str, ...]  # the first one that is set holds the key; none: it needs no key
    url_variables: tuple[str, ...] = ()  # the first one that is set replaces `base_url`
    models: tuple[ModelInfo, ...] = ()  # the first one is what a new session starts with
    images: bool = False  # of models of which neither this table nor the provider's list says it
    audio: tuple[str, ...] = ()  # parts of the names of models that take audio
    thinking: tuple[str, ...] = ()  # how the names of models begin that can be told how much to think
    not_chat: tuple[str, ...] = ()  # parts of the names of models in its list that do not chat
    open_list: bool = False  # its list of models is given to everybody, so a key cannot be tried with it
    server: str = ""  # what its models want of an OpenAI-compatible server, at a gateway as well


_MILLION = 1_000_000
_HAIKU_5_5 = Price(0.1, 0.5, 0.01, 0.125, LongPrompt(100_000, 5, 5))
_OPENAI_LONG = LongPrompt(272_000, 2, 1.5)
_GROK_LONG = LongPrompt(199_999, 2, 2)  # from 200,000 on
_GEMINI_PRO = Price(2, 12, 0.2, None, LongPrompt(200_000, 2, 1.5))

KNOWN = (
    KnownProvider(
        "anthropic",
        "Anthropic",
        "anthropic",
        "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        (
            ModelInfo("claude-sonnet-5-5", _MILLION, 128_000, Price(2, 10, 0.1, 2.5), True, True),
            ModelInfo("claude-opus-5-5", _MILLION, 128_000, Price(4, 20, 0.2, 5), True, True),
            ModelInfo("claude-sonnet-5", _MILLION, 128_000, Price(2, 10, 0.2, 2.5), True, True),
            ModelInfo("claude-haiku-5-5", _MILLION, 128_000, _HAIKU_5_5, True, True),
            ModelInfo("claude-haiku-4-5", 200_000, 64_000, Price(1, 5, 0.1, 1.25), True, True),
        ),
        images=True,
        thinking=(
            "claude-3-7", "claude-fable", "claude-haiku-4", "claude-haiku-5", "claude-opus", "claude-sonnet",
        ),
    ),
    KnownProvider(
        "openai",
        "OpenAI",
        "openai-responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        (
            ModelInfo("gpt-6.2-sol", 1_050_000, 128_000, Price(2, 10, 0.1, 2.5, _OPENAI_LONG), True, True),
            ModelInfo("gpt-5.5", 1_050_000, 128_000, Price(5, 30, 0.5, None, _OPENAI_LONG), True, True),
            ModelInfo("gpt-5.4", 1_050_000, 128_000, Price(2.5, 15, 0.25, None, _OPENAI_LONG), True, True),
            ModelInfo("gpt-5.4-mini", None, 128_000, Price(0.75, 4.5, 0.075), True, True),
        ),
        images=True,
        thinking=("gpt-5", "gpt-6", "o1", "o3", "o4"),
        not_chat=(
            "audio", "babbage", "chat-latest", "computer-use", "dall-e", "davinci", "deep-research",
            "embedding", "image", "instruct", "moderation", "realtime", "search", "sora", "transcribe", "tts",
            "whisper",
        ),
    ),
    KnownProvider(
        "gemini",
        "Google Gemini",
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        models=(
            # At half price until the end of 2026.
            ModelInfo("gemini-3.8-flash", 1_048_576, 65_536, Price(0.75, 3.75, 0.075), True, True, True),
            ModelInfo("gemini-3-flash-preview", 1_048_576, 65_536, Price(0.5, 3), True, True, True),
            ModelInfo("gemini-3.1-pro-preview", 1_048_576, 65_536, _GEMINI_PRO, True, True, True),
        ),
        images=True,
        audio=("gemini-",),
        thinking=("gemini-2.5", "gemini-3", "gemini-4"),
        not_chat=("aqa", "embedding", "gemma", "image", "imagen", "live", "robotics", "tts", "veo"),
    ),
    KnownProvider(
        "openrouter",
        "OpenRouter",
        "openai",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        models=(ModelInfo("openrouter/auto"),),
        open_list=True,
        server="openrouter",
    ),
    KnownProvider(
        "deepseek",
        "DeepSeek",
        "openai",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        # The price of the busy hours; the other hours cost half.
        models=(ModelInfo("deepseek-flash", _MILLION, 384_000, Price(0.3, 1.2, 0.006), True, True),),
        thinking=("deepseek-flash", "deepseek-v4"),
        server="deepseek",
    ),
    KnownProvider(
        "mistral",
        "Mistral",
        "openai",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        models=(ModelInfo("mistral-large-latest"), ModelInfo("devstral-latest")),
        thinking=("mistral-large-4", "mistral-medium-3-5", "mistral-small-2603", "mistral-small-latest"),
        not_chat=("embed", "moderation", "ocr", "transcribe", "voxtral"),
        server="mistral",
    ),
    KnownProvider(
        "dashscope",
        "Qwen (DashScope)",
        "openai",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY",),
        ("DASHSCOPE_BASE_URL",),
        (ModelInfo("qwen3.8-max", _MILLION, None, Price(2, 6), thinking=True),),
        audio=("-omni",),
        thinking=("qwen3", "qwen-plus", "qwen-flash"),
        not_chat=("asr", "audio", "embedding", "image", "ocr", "rerank", "tts", "wan"),
        server="dashscope",
    ),
    KnownProvider(
        "moonshot",
        "Kimi (Moonshot)",
        "openai",
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY",),
        models=(ModelInfo("kimi-k2.6", None, None, Price(0.95, 4, 0.16)),),
        thinking=("kimi-k3",),  # those before think or do not, and think unless told not to
        server="moonshot",
    ),
    KnownProvider(
        "xai",
        "xAI",
        "openai",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        models=(
            ModelInfo("grok-4.6", 500_000, images=True, thinking=True),
            ModelInfo("grok-4.20", _MILLION, None, Price(1.25, 2.5, 0.2, None, _GROK_LONG), True, False),
        ),
        thinking=("grok-4.5", "grok-4.6"),
        not_chat=("imagine", "image", "video", "voice"),
    ),
    KnownProvider(
        "groq",
        "Groq",
        "openai",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        models=(ModelInfo("openai/gpt-oss-120b"),),
        thinking=("openai/gpt-oss",),
        not_chat=("guard", "orpheus", "safeguard", "tts", "whisper"),
        server="groq",
    ),
    KnownProvider(
        "cerebras",
        "Cerebras",
        "openai",
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        models=(ModelInfo("gpt-oss-120b", price=Price(0.35, 0.75)),),  # its window depends on the account
        thinking=("gpt-oss",),
    ),
    KnownProvider(
        "together",
        "Together AI",
        "openai",
        "https://api.together.ai/v1",
        ("TOGETHER_API_KEY",),
        models=(ModelInfo("moonshotai/Kimi-K2.5"),),
        not_chat=("bge", "embed", "flux", "FLUX", "rerank", "tts", "whisper"),
    ),
    KnownProvider(
        "fireworks",
        "Fireworks AI",
        "openai",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        not_chat=("embed", "flux", "rerank", "whisper"),
    ),
    KnownProvider(
        "zai",
        "Z.AI",
        "openai",
        "https://api.z.ai/api/paas/v4",
        ("ZAI_API_KEY",),
        models=(ModelInfo("glm-5.3"),),
    ),
    KnownProvider(
        "ollama",
        "Ollama",
        "ollama",
        "http://127.0.0.1:11434",
        (),
        ("OLLAMA_HOST",),
        thinking=("deepseek-r1", "gpt-oss", "magistral", "qwen3"),
        not_chat=("embed",),
    ),
)  # fmt: skip
"""Where several could be used and nobody says which, the one that comes first here is."""

_OPENAI = re.compile(r"https://([a-z]+\.)?api\.openai\.com(/|$)")

DIALECTS = ("openai", "openai-responses", "anthropic", "gemini", "ollama")
"""The names that `llm.dialects` knows."""

AUDIO_SENT: dict[str, tuple[str, ...]] = {
    "openai": ("wav", "mp3"),
    "gemini": ("wav", "mp3", "aiff", "aac", "ogg", "flac"),
    "ollama": ("wav",),
}
"""The formats (see `prompts.AUDIO_FORMATS`) in which a dialect can send audio to a model that takes it. They
stand here because a start needs them and does not load the dialects."""

SERVERS = (
    "openai", "azure", "openrouter", "deepseek", "moonshot", "dashscope", "mistral", "groq", "vllm",
    "llama.cpp", "lm-studio",
)  # fmt: skip
"""The names that `llm.openai_servers` knows."""


def known(name: str) -> KnownProvider | None:
    """The known provider of this name."""
    return next((provider for provider in KNOWN if provider.name == name), None)


def usual_dialect(base_url: str) -> str:
    """How a server is spoken to by default. OpenAI gives tools to its newer models in one way only."""
    return "openai-responses" if _OPENAI.match(base_url) else "openai"


def speaker(dialect: str) -> KnownProvider:
    """The known provider whose server is the usual one for a dialect."""
    name = "openai" if dialect.startswith("openai") else dialect
    return known(name) or KNOWN[0]

"""Lists of models in the shapes that servers give them, and what an entry tells about its model. Pure."""

from __future__ import annotations

from acpserver.llm import fields
from acpserver.llm.types import Endpoint, ModelDetails
from acpserver.llm.wire import HttpRequest

_WINDOW = (
    "loaded_context_length", "context_length", "max_model_len", "context_window", "max_context_length",
    "max_input_tokens",
)  # fmt: skip
"""Where LM Studio (of a model that is loaded), OpenRouter and Kimi, vLLM, Groq, Mistral and LM Studio, and
Anthropic put it."""

_OUTPUT = ("max_output_tokens", "max_completion_tokens", "max_tokens")
"""Where gateways, Groq and OpenRouter, and Anthropic put the limit of one answer."""


def entries(value: object) -> list[dict[str, object]]:
    """The entries of `{"data": [...]}`, of `{"models": [...]}` or of a bare list. Raises `ValueError`."""
    if isinstance(value, dict):
        value = value.get("data", value.get("models"))
    if not isinstance(value, list):
        raise ValueError("no list of models")
    return [item for item in value if isinstance(item, dict)]


def listed(value: object) -> dict[str, ModelDetails]:
    """The models in a list by name, in order. Raises `ValueError` for what is none."""
    named = [(entry.get("id") or entry.get("name") or entry.get("model"), entry) for entry in entries(value)]
    return {name: details_of(entry) for name, entry in named if isinstance(name, str)}


def details_of(entry: dict[str, object]) -> ModelDetails:
    """What an entry says in any of the usual members."""
    window = _first(entry, _WINDOW)
    # llama.cpp; what it was started with comes before what the model was trained with
    window = window or _first(fields.record(entry, "meta"), ("n_ctx", "n_ctx_train"))
    able = entry.get("capabilities")  # a list at Ollama, switches at Mistral
    inputs = fields.record(entry, "architecture").get("input_modalities", able)  # OpenRouter
    parameters = entry.get("supported_parameters", able)
    kind = entry.get("type")  # LM Studio: "llm", or "vlm" for one that sees
    sees = kind == "vlm" if kind in ("llm", "vlm") else _says(inputs, "image", "vision")
    return ModelDetails(
        window or None,
        sees,
        _says(parameters, "tools", "function_calling", "tool_use"),
        _says(parameters, "reasoning", "thinking") if isinstance(parameters, list) else None,
        _first(entry, _OUTPUT) or _first(fields.record(entry, "top_provider"), _OUTPUT) or None,
        fields.count(entry, "created") or None,
        _says(inputs, "audio"),
    )


def _says(told: object, *names: str) -> bool | None:
    """Whether something that has one of these names is listed, or switched on; None when neither is told."""
    if isinstance(told, list):
        return any(name in told for name in names)
    switches = [told[name] for name in names if name in told] if isinstance(told, dict) else []
    return switches[0] if switches and isinstance(switches[0], bool) else None


def _first(entry: dict[str, object], keys: tuple[str, ...]) -> int:
    return next((found for key in keys if (found := fields.count(entry, key))), 0)


def listed_details(value: object, model: str) -> ModelDetails:
    """What a list says about one model; nothing when it is not there. Raises `ValueError` for no list."""
    found = (entry for entry in entries(value) if model in (entry.get("id"), entry.get("name")))
    return details_of(next(found, {}))


class ListedModels:
    """The half of a dialect that asks for models, where the list of them says all there is to know."""

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        raise NotImplementedError

    def listed(self, value: object) -> dict[str, ModelDetails]:
        """The models in the list, by name."""
        return listed(value)

    def details(self, endpoint: Endpoint, model: str) -> HttpRequest:
        """The request for the list again."""
        return self.models(endpoint)

    def model_details(self, value: object, model: str) -> ModelDetails:
        """What the list says about the model."""
        return listed_details(value, model)

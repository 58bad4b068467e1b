"""Lists of models in the shapes that servers give them, and what an entry tells about its model. Pure."""

from __future__ import annotations

from acpserver.llm import fields
from acpserver.llm.types import Endpoint
from acpserver.llm.wire import HttpRequest, ModelDetails

_WINDOW = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens")
"""Where OpenRouter and Kimi, vLLM, Groq, Mistral and LM Studio, and Anthropic put it."""


def entries(value: object) -> list[dict[str, object]]:
    """The entries of `{"data": [...]}`, of `{"models": [...]}` or of a bare list. Raises `ValueError`."""
    if isinstance(value, dict):
        value = value.get("data", value.get("models"))
    if not isinstance(value, list):
        raise ValueError("no list of models")
    return [item for item in value if isinstance(item, dict)]


def model_names(value: object) -> list[str]:
    """The names of the models in a list. Raises `ValueError` for what is none."""
    names = [entry.get("id") or entry.get("name") or entry.get("model") for entry in entries(value)]
    return [name for name in names if isinstance(name, str)]


def details_of(entry: dict[str, object]) -> ModelDetails:
    """What an entry says in any of the usual members."""
    window = next((found for key in _WINDOW if (found := fields.count(entry, key))), 0)
    window = window or fields.count(fields.record(entry, "meta"), "n_ctx_train")  # llama.cpp
    inputs = fields.record(entry, "architecture").get("input_modalities")  # OpenRouter
    parameters = entry.get("supported_parameters")
    return ModelDetails(
        window or None,
        "image" in inputs if isinstance(inputs, list) else None,
        "tools" in parameters if isinstance(parameters, list) else None,
        "reasoning" in parameters if isinstance(parameters, list) else None,
    )


def listed_details(value: object, model: str) -> ModelDetails:
    """What a list says about one model; nothing when it is not there. Raises `ValueError` for no list."""
    found = (entry for entry in entries(value) if model in (entry.get("id"), entry.get("name")))
    return details_of(next(found, {}))


class ListedModels:
    """The half of a dialect that asks for models, where the list of them says all there is to know."""

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The request for the list of models."""
        raise NotImplementedError

    def model_names(self, value: object) -> list[str]:
        """The names in the list."""
        return model_names(value)

    def details(self, endpoint: Endpoint, model: str) -> HttpRequest:
        """The request for the list again."""
        return self.models(endpoint)

    def model_details(self, value: object, model: str) -> ModelDetails:
        """What the list says about the model."""
        return listed_details(value, model)

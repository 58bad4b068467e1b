"""`providers/list`, `providers/set`, `providers/disable` (experimental): the client routes a provider through
its own gateway, for as long as this process lives.

Run by the reader: they only touch memory. Headers are secret and are never told again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from acpserver.addresses import shown
from acpserver.errors import INVALID_PARAMS, ProviderError, RpcError
from acpserver.llm.providers import Models
from acpserver.llm.wire import check_headers, join_url
from acpserver.provider_setup import ProviderSetup
from acpserver.redaction import Secrets, secrets_in, secrets_in_url
from acpserver.rpc.call import Call, Handler

DIALECTS = {"openai": "openai", "anthropic": "anthropic"}
"""The dialect for each `apiType` that a client may route to."""


class ProviderMethods:
    """One handler for each method. `changed` is called when the offer of models may have changed."""

    def __init__(self, models: Models, secrets: Secrets, changed: Callable[[], None]):
        self._models = models
        self._secrets = secrets
        self._changed = changed

    def handlers(self) -> dict[str, Handler]:
        """The handlers, for the reader."""
        return {
            "providers/list": self._list,
            "providers/set": self._set,
            "providers/disable": self._disable,
        }

    def _list(self, call: Call) -> None:
        setups = self._models.setups()
        call.answer({"providers": [_info(setup, in_use) for setup, in_use in setups]})

    def _set(self, call: Call) -> None:
        name, api_type = str(call.params.get("providerId")), str(call.params.get("apiType"))
        base_url = str(call.params.get("baseUrl")).strip().rstrip("/")
        given = call.params.get("headers")
        headers = {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}
        self._secrets.add((*secrets_in(headers.items()), *secrets_in_url(base_url)))
        if api_type not in DIALECTS:
            raise _invalid(f"apiType: must be one of {', '.join(DIALECTS)}")
        try:
            join_url(base_url, "/")
            check_headers(headers, "providers/set")
        except ProviderError as error:
            raise _invalid(f"baseUrl or headers: {error}") from None
        try:
            self._models.route(name, DIALECTS[api_type], base_url, headers)
        except KeyError:
            raise _invalid("providerId: unknown, the providers are those of providers/list") from None
        call.answer({})
        self._changed()

    def _disable(self, call: Call) -> None:
        """An unknown provider is as good as disabled."""
        with contextlib.suppress(KeyError):
            self._models.disable(str(call.params.get("providerId")))
        call.answer({})
        self._changed()


def _info(setup: ProviderSetup, in_use: bool) -> dict[str, object]:
    """One ACP ProviderInfo. A dialect that the protocol has no name for has one of ours."""
    api_type = "openai" if setup.dialect.startswith("openai") else setup.dialect
    if api_type not in DIALECTS:
        api_type = f"_{api_type}"
    return {
        "providerId": setup.name,
        "supported": list(DIALECTS),
        "required": False,
        "current": {"apiType": api_type, "baseUrl": shown(setup.base_url)} if in_use else None,
    }


def _invalid(details: str) -> RpcError:
    return RpcError.with_details(INVALID_PARAMS, details)

"""What stands between a dialect and the network: a request value, and the protocols of the pure side.

Values and protocols only. A dialect never touches a socket, and `llm/http.py` never looks into a body:
a new kind of server needs a new `Dialect` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from acpserver import jsontext
from acpserver.addresses import is_address
from acpserver.errors import ProviderError
from acpserver.llm.faults import Faults
from acpserver.llm.sse import Item
from acpserver.llm.types import Endpoint, Event, ModelDetails, ModelRequest, ToolSpec

KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request, ready to send. The headers hold the key: never printed, never logged."""

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: bytes = b""


class Decoder(Protocol):
    """Splits the bytes of a streamed answer into items."""

    def feed(self, block: bytes) -> list[Item]:
        """The items that these bytes complete. Raises `ValueError` for bytes that cannot be split."""

    def end(self) -> list[Item]:
        """What the end of the stream completes."""


class Parser(Protocol):
    """Turns the items of one answer into events. One thread, one answer."""

    done: bool
    """The server said that nothing follows."""

    @property
    def finished(self) -> bool:
        """The answer is complete: what may still follow (usage, end marks) is not needed."""

    def feed(self, items: Sequence[Item]) -> list[Event]:
        """The events of items that arrived together. Raises `ProviderError`."""

    def whole(self, value: object) -> list[Event]:
        """The events of an answer that came as one JSON value, without its end. Raises `ProviderError`."""

    def end(self) -> list[Event]:
        """The last events, `Finish` the last of all. Raises `ProviderError` when the answer broke off."""


class Dialect(Protocol):
    """How one kind of server is asked and understood. Pure; one object serves all threads."""

    streams_json: bool
    """A stream begins like a JSON value, so only the decoder can tell them apart."""

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The HTTP request that asks for one answer. Raises `ProviderError` when none can be made."""

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The HTTP request that asks which models there are."""

    def listed(self, value: object) -> dict[str, ModelDetails]:
        """By name, what the answer to `models` says of each. Raises `ValueError` for anything else."""

    def details(self, endpoint: Endpoint, model: str) -> HttpRequest:
        """The HTTP request that asks what a model can do."""

    def model_details(self, value: object, model: str) -> ModelDetails:
        """What the answer to `details` says. Raises `ValueError` for anything else."""

    def decoder(self) -> Decoder:
        """A fresh decoder for one streamed answer."""

    def parser(self, endpoint: Endpoint, request: ModelRequest, faults: Faults) -> Parser:
        """A fresh parser for one answer to `request`; it takes its errors from `faults`."""


def origin(endpoint: Endpoint, model: str) -> str:
    """The name of a model at its server, for what only this model there understands."""
    host = urlsplit(endpoint.base_url.strip()).netloc.rpartition("@")[2].lower()
    return f"{endpoint.dialect}:{model}@{host}"


def post(url: str, headers: dict[str, str], body: dict[str, object]) -> HttpRequest:
    """The request that sends `body` as JSON."""
    return HttpRequest(
        "POST", url, headers | {"Content-Type": "application/json"}, jsontext.dumps(body).encode("ascii")
    )


def function_tools(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    """The tools as OpenAI's chat completions want them told, and others after them."""
    return [{"type": "function", "function": tool._asdict()} for tool in tools]


def make_headers(
    endpoint: Endpoint, accept: str, key_header: str = "Authorization", scheme: str = "Bearer "
) -> dict[str, str]:
    """The headers of a request, with the key in `key_header` and those of the configuration.

    A configured header replaces ours of that name, in whatever case it is written.
    """
    headers = {"Accept": accept, "User-Agent": "acpserver"}
    if endpoint.api_key:
        check_headers({key_header: endpoint.api_key}, endpoint.api_key_source)
        headers[key_header] = scheme + endpoint.api_key
    configured = check_headers(dict(endpoint.headers), "the configuration")
    names = {name.lower() for name in configured}
    return {name: value for name, value in headers.items() if name.lower() not in names} | configured


def join_url(base_url: str, path: str, query: str = "") -> str:
    """`path` (with its slash) below `base_url`, whose query stays, with `query` behind it.

    Raises `ProviderError` for a bad base.
    """
    if not is_address(base_url):
        raise ProviderError(
            f'The base URL "{Faults.clean(base_url.rpartition("@")[2].partition("?")[0], 200)}" cannot be '
            "used: it must look like https://host/v1.",
            kind="request",
        )
    parts = urlsplit(base_url.strip())
    below = parts.path.rstrip("/")
    if not below.endswith(path):
        below += path
    return urlunsplit((parts.scheme, parts.netloc, below, "&".join(filter(None, (parts.query, query))), ""))


def check_headers(headers: dict[str, str], source: str) -> dict[str, str]:
    """`headers`, when all can travel in HTTP. Raises `ProviderError` that names `source`, never a value."""
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable() or value != value.strip():
            raise ProviderError(
                f"The {name} header from {source or 'the configuration'} cannot be sent: it holds a line "
                "break, a space at an end or a character outside ASCII. Set the key again without it.",
                kind="auth" if name.lower() in KEY_HEADERS else "request",
            )
    return headers

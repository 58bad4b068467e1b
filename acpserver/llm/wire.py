"""What stands between a dialect and the network: a request value, and the protocols of the pure side.

Values and protocols only. A dialect never touches a socket, and `llm/http.py` never looks into a body:
a new kind of server needs a new `Dialect` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from acpserver.errors import ProviderError
from acpserver.llm.faults import Faults
from acpserver.llm.sse import Item
from acpserver.llm.types import Endpoint, Event, ModelRequest


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request, ready to send. The headers hold the key: never printed, never logged."""

    method: str
    url: str
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

    def chat(self, endpoint: Endpoint, request: ModelRequest) -> HttpRequest:
        """The HTTP request that asks for one answer. Raises `ProviderError` when none can be made."""

    def models(self, endpoint: Endpoint) -> HttpRequest:
        """The HTTP request that asks which models there are."""

    def model_names(self, value: object) -> list[str]:
        """The names in the answer to `models`. Raises `ValueError` for anything else."""

    def decoder(self) -> Decoder:
        """A fresh decoder for one streamed answer."""

    def parser(self, request: ModelRequest, faults: Faults) -> Parser:
        """A fresh parser for one answer to `request`; it takes its errors from `faults`."""


def join_url(base_url: str, path: str) -> str:
    """`path` (with its slash) below `base_url`, whose query stays. Raises `ProviderError` for a bad base."""
    try:
        parts = urlsplit(base_url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number, a broken IPv6 address
        usable = False
    if not usable:
        raise ProviderError(
            f'The base URL "{Faults.clean(base_url.rpartition("@")[2], 200)}" cannot be used: it must look '
            "like https://host/v1.",
            kind="request",
        )
    below = parts.path.rstrip("/")
    if not below.endswith(path):
        below += path
    return urlunsplit((parts.scheme, parts.netloc, below, parts.query, ""))


def check_headers(headers: dict[str, str], source: str) -> dict[str, str]:
    """`headers`, when all can travel in HTTP. Raises `ProviderError` that names `source`, never a value."""
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable() or value != value.strip():
            raise ProviderError(
                f"The {name} header from {source or 'the configuration'} cannot be sent: it holds a line "
                "break, a space at an end or a character outside ASCII. Set the key again without it.",
                kind="auth" if name.lower() in ("authorization", "x-api-key", "api-key") else "request",
            )
    return headers

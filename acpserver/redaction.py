"""Keys that must stand nowhere: a growing set of texts, hidden wherever log or trace would show them.

One `Secrets` per process, shared by everything that writes for people; any thread may add and hide.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from acpserver import jsontext

HIDDEN = "***"
_SECRET_NAME = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
SHORTEST = 8  # characters; a shorter "key" is a word such as "none", found in every message
LONG = 16  # characters; a shorter "key", as local servers have it, may well be a word that is meant


class Secrets:
    """A set of secrets, each known in the forms in which it could come by."""

    def __init__(self, secrets: Iterable[str] = ()):
        self._adding = threading.Lock()  # guards the replacing of the two below
        self._forms: tuple[str, ...] = ()  # replaced as a whole, the longest first
        self._long_forms: tuple[str, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these texts from now on."""
        found = {secret: _forms(secret) for secret in secrets if len(secret) >= SHORTEST}
        with self._adding:
            for secret, forms in found.items():
                self._forms = _longest_first({*self._forms, *forms})
                if len(secret) >= LONG:
                    self._long_forms = _longest_first({*self._long_forms, *forms})

    def hide(self, text: str, mark: str = HIDDEN) -> str:
        """`text` with `mark` for every form of a secret."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, mark)
        return text

    def hide_long(self, text: str) -> str:
        """The same for what is part of the conversation: there only secrets that can be nothing else."""
        for form in self._long_forms:
            text = text.replace(form, HIDDEN)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        """Bytes of JSON or text, without any form of a secret."""
        for form in self._forms:
            data = data.replace(form.encode("utf-8", "surrogatepass"), HIDDEN.encode("ascii"))
        return data

    @classmethod
    def of(cls, secrets: Iterable[str] | Secrets) -> Secrets:
        """`secrets` itself when it is a set of secrets that may still grow, else a new one."""
        return secrets if isinstance(secrets, Secrets) else cls(secrets)


def secrets_in(headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What in HTTP headers is secret: the whole value, and the token behind a scheme such as Bearer."""
    for name, value in headers:
        if _SECRET_NAME.search(name):
            yield value
            yield value.split(" ")[-1]


def secrets_in_url(url: str) -> Iterator[str]:
    """What in a URL is secret: the password, and the keys and tokens of its query; all of a broken one."""
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        yield url
        return
    if password:
        yield from (password, unquote(password), f"{parts.username}:{password}")
    yield from (value for name, value in parse_qsl(parts.query) if _SECRET_NAME.search(name))


def _longest_first(forms: set[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=len, reverse=True))


def _forms(secret: str) -> set[str]:
    """The text as it is, inside JSON, in a URL, in hex, and what base64 makes of it wherever it begins."""
    data = secret.encode("utf-8", "surrogatepass")
    forms = {secret, jsontext.dumps(secret)[1:-1], quote(data, safe=""), quote(data), data.hex()}
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + data).decode("ascii")
        # The first and the last characters depend on what stands around the secret.
        inner = encoded[(0, 2, 3)[shift] :].rstrip("=")[: -1 if (len(data) + shift) % 3 else None]
        if len(inner) >= SHORTEST:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms

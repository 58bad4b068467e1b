"""Failed model calls put into words: one or two sentences that a user can act on.

Pure; one `Faults` per endpoint, used by any thread. Every text that leaves here has lost the endpoint's
secrets, fits on one line and stays under `MAX_TEXT` characters, whatever the server sent.
"""

from __future__ import annotations

import base64
import html
import re
from urllib.parse import quote, urlsplit

from acpserver import jsontext
from acpserver.errors import ProviderError
from acpserver.llm.types import Endpoint

MAX_TEXT = 480  # characters of a whole error text
_MAX_WORDS = 240  # characters of it that may be the server's own
_SHORTEST_SECRET = 4  # hiding anything shorter would only garble the text

RETRY_STATUS = frozenset({408, 409, 429})  # and all of 5xx
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context (?:length|size|window)|prompt is too long"
    r"|input is too long|too many (?:input )?tokens|maximum (?:prompt|input) length|model_max_prompt_tokens",
    re.IGNORECASE,
)
_OVERLOADED = re.compile(
    r"overload|rate.?limit|too many requests|unavailable|server_error|timeout|internal", re.I
)
_NO_QUOTA = re.compile(r"insufficient_quota|billing_hard_limit|exceeded your current quota", re.I)
_ADVICE = {
    400: "Check the model name and its settings.",
    402: "Check the credit of the account.",
    404: "Check the base URL and the model name.",
    405: "Check the base URL.",
    422: "Check the model name and its settings.",
    429: "Wait a little, then send the prompt again.",
}


class Faults:
    """Makes the errors of one endpoint."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self._secrets = _secrets(endpoint)
        self.place = self.redact(_place(endpoint.base_url))
        """Where the server is, for a person: scheme, host and path without credentials."""

    def redact(self, text: str) -> str:
        """`text` with every form of the endpoint's secrets replaced."""
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return text

    @staticmethod
    def clean(text: str, limit: int) -> str:
        """`text` on one line, without control characters, at most `limit` characters long."""
        text = "".join(char if char.isprintable() else " " for char in text[: limit * 20])
        text = " ".join(jsontext.mend_text(text).split())
        return text if len(text) <= limit else text[: limit - 4].rstrip() + " ..."

    def error(
        self,
        text: str,
        *,
        kind: str,
        status: int = 0,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> ProviderError:
        """A `ProviderError` whose text is safe to show."""
        text = self.clean(self.redact(text), MAX_TEXT)
        return ProviderError(text, kind=kind, status=status, retryable=retryable, retry_after=retry_after)

    def network(
        self, what: str, *, retryable: bool = True, retry_after: float | None = None
    ) -> ProviderError:
        """No connection, or one that failed: `what` says how, and may say what to do."""
        return self.error(
            f"{self.place}: {what}", kind="network", retryable=retryable, retry_after=retry_after
        )

    def stream(self, what: str) -> ProviderError:
        """An answer that broke off or cannot be understood."""
        return self.error(
            f"{self.place}: the model's answer {what}. Send the prompt again; if it fails again, check that "
            "the base URL belongs to a compatible server.",
            kind="stream",
            retryable=True,
        )

    def output(self, what: str) -> ProviderError:
        """An answer that is too large to be used."""
        return self.error(f"{self.place}: the model's answer {what}.", kind="output")

    def response(self, status: int, body: bytes, retry_after: float | None = None) -> ProviderError:
        """The error for an answer with an HTTP status that is not 2xx."""
        words, code = _words(body)
        said = self._quoted(words)
        facts = f"{code} {words}"
        name = f"{self.place} answered HTTP {status}"
        if status in (401, 403):
            return self.error(
                f"{name}, the credentials were refused{said}. {self._key_advice()}",
                kind="auth",
                status=status,
            )
        if status == 413 or (status in (400, 422, 500) and _TOO_LONG.search(facts)):
            return self.too_long(f"{name}{said}", status)
        if 300 <= status < 400:
            return self.error(
                f"{name}, a redirect{said}. Set the base URL to the address it points to.",
                kind="request",
                status=status,
            )
        if status == 429:
            wait = f" and asks to wait {retry_after:.0f} s" if retry_after else ""
            quota = bool(_NO_QUOTA.search(facts))
            advice = _ADVICE[402] if quota else _ADVICE[429]
            return self.error(
                f"{name}, the rate limit is reached{wait}{said}. {advice}",
                kind="rate_limit",
                status=status,
                retryable=not quota,
                retry_after=retry_after,
            )
        retryable = status in RETRY_STATUS or status >= 500
        advice = _ADVICE.get(
            status,
            "The server has a problem; send the prompt again later."
            if status >= 500
            else "Check the base URL and the model name.",
        )
        return self.error(
            f"{name}{said}. {advice}",
            kind="server" if retryable else "request",
            status=status,
            retryable=retryable,
            retry_after=retry_after,
        )

    def in_answer(self, value: object) -> ProviderError:
        """The error for an error object inside an answer that began with HTTP 200."""
        words, code = _error_words(value)
        number = next((int(part) for part in code.split() if re.fullmatch("[45][0-9][0-9]", part)), 0)
        facts = f"{code} {words}"
        name = f"{self.place} broke off its answer with an error"
        if _TOO_LONG.search(facts):
            return self.too_long(f"{name}{self._quoted(words)}", number)
        limited = number == 429 or bool(re.search("rate.?limit", code, re.I))
        retryable = number in RETRY_STATUS or number >= 500 or bool(_OVERLOADED.search(code))
        if _NO_QUOTA.search(facts):
            retryable = False
        said = self._quoted(words) + (f" (status {number})" if number else "")
        return self.error(
            f"{name}{said}. Send the prompt again.",
            kind="rate_limit" if limited else "server",
            status=number,
            retryable=retryable,
        )

    def too_long(self, name: str, status: int) -> ProviderError:
        """The conversation does not fit the model's context."""
        return self.error(
            f"{name}. The conversation is too long for this model: start a new session, shorten "
            "the prompt, or use a model with a larger context.",
            kind="context",
            status=status,
        )

    def _key_advice(self) -> str:
        if not self._endpoint.api_key:
            return "No API key is set: set one, or choose another base URL."
        return f"Check the API key ({self._endpoint.api_key_source or 'as configured'}) and what it may use."

    def _quoted(self, words: str) -> str:
        words = self.clean(self.redact(words), _MAX_WORDS).rstrip(".")
        return f': "{words}"' if words else ""


def _place(base_url: str) -> str:
    try:
        parts = urlsplit(base_url.strip())
    except ValueError:
        return Faults.clean(base_url.rpartition("@")[2], 120)
    return Faults.clean(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}", 120)


def _secrets(endpoint: Endpoint) -> list[str]:
    """Every text that must not be shown, the longest first so that none hides a part of another."""
    plain = {endpoint.api_key, *(value for _, value in endpoint.headers if len(value) >= 8)}
    try:
        plain.add(urlsplit(endpoint.base_url).password or "")
    except ValueError:
        plain.add("")  # a base URL that cannot be split has no password either
    forms: set[str] = set()
    for secret in plain:
        secret = secret.strip()
        if len(secret) < _SHORTEST_SECRET:
            continue
        raw = secret.encode("utf-8", "replace")
        forms |= {secret, quote(secret, safe=""), quote(secret), jsontext.dumps(secret)[1:-1]}
        forms |= {
            base64.b64encode(raw).decode().rstrip("="),
            base64.urlsafe_b64encode(raw).decode().rstrip("="),
        }
    return sorted(forms, key=len, reverse=True)


def _words(body: bytes) -> tuple[str, str]:
    """What a failed response says, and its codes: from JSON of any usual shape, HTML or plain text."""
    text = body.decode("utf-8", "replace").strip()
    if text[:1] in ("{", "["):
        try:
            return _error_words(jsontext.loads(text))
        except ValueError:
            return text, ""  # cut or broken JSON still says more than nothing
    if text[:1] == "<":
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1", text[:65536], re.IGNORECASE | re.DOTALL)
        text = title.group(2) if title else re.sub(r"(?is)<(script|style).*?</\1>", " ", text[:65536])
        return html.unescape(re.sub(r"<[^>]*>", " ", text)), ""
    return text, ""


def _error_words(value: object) -> tuple[str, str]:
    """The message and the codes (number, type, code) of an error object, however it is wrapped."""
    if isinstance(value, list):
        value = value[0] if value else ""
    codes: list[str] = []
    while isinstance(value, dict):
        codes.append(_codes(value))
        inner = value.get("error")
        if not isinstance(inner, dict):
            break
        value = inner
    if not isinstance(value, dict):
        return (value, "") if isinstance(value, str) else ("", "")
    found = (value.get(key) for key in ("message", "error", "detail", "msg", "error_message", "title"))
    words = next((item for item in found if item and isinstance(item, (str, list, dict))), value)
    return words if isinstance(words, str) else _shown(words), " ".join(codes)


def _shown(value: object) -> str:
    try:
        return jsontext.dumps(value) if value else ""
    except ValueError:  # nested too deeply to be of any use to a reader
        return ""


def _codes(value: dict[str, object]) -> str:
    found = (value.get(key) for key in ("code", "type", "status", "status_code"))
    return " ".join(str(item) for item in found if isinstance(item, (str, int)))

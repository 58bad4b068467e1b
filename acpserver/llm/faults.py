"""Failed model calls put into words: one or two sentences that a user can act on.

Pure; one `Faults` per endpoint, used by any thread. Every text that leaves here has lost the endpoint's
secrets, fits on one line and stays under `MAX_TEXT` characters, whatever the server sent.
"""

from __future__ import annotations

import math
import re

from acpserver import jsontext
from acpserver.addresses import shown
from acpserver.errors import ProviderError
from acpserver.llm.server_words import asked_wait, error_words, server_words
from acpserver.llm.types import Endpoint
from acpserver.llm.verdicts import KEY, lessons, verdict
from acpserver.redaction import Secrets, secrets_in, secrets_in_url

MAX_TEXT = 480  # characters of a whole error text
_MAX_WORDS = 240  # characters of it that may be the server's own
_MAX_FACTS = 8_192  # characters that a failure is judged by: nothing else runs while an expression is tried

_MEANING = {
    401: " (the credentials were refused)",
    403: " (the credentials were refused)",
    404: " (not found)",
    429: " (the rate limit is reached)",
}


class Fault(ProviderError):
    """A failed model call: `brief` says what happened, the text of the error also what to do."""

    lessons: tuple[str, ...] = ()
    """Other forms in which the server may take the request (`verdicts.lessons`)."""

    def __init__(
        self,
        brief: str,
        advice: str,
        *,
        kind: str,
        status: int = 0,
        retryable: bool = False,
        retry_after: float | None = None,
    ):
        self.brief = brief
        super().__init__(
            f"{brief}. {advice}", kind=kind, status=status, retryable=retryable, retry_after=retry_after
        )


class Faults:
    """Makes the errors of one endpoint."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self._secrets = _secrets(endpoint)
        self.place = self.redact(self.clean(shown(endpoint.base_url) or "the configured address", 120))
        """Where the server is, for a person: scheme, host and path without credentials."""

    def redact(self, text: str) -> str:
        """`text` with every form of the endpoint's secrets replaced."""
        return self._secrets.hide(text, "[hidden]")

    @staticmethod
    def clean(text: str, limit: int) -> str:
        """`text` on one line, without control characters, at most `limit` characters long."""
        text = "".join(char if char.isprintable() else " " for char in text[: limit * 20])
        text = " ".join(jsontext.mend_text(text).split())
        return text if len(text) <= limit else text[: limit - 4].rstrip() + " ..."

    def error(
        self,
        what: str,
        advice: str,
        *,
        kind: str,
        status: int = 0,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> Fault:
        """A `Fault` at this endpoint, safe to show: what happened, and what to do."""
        advice = self.redact(advice)
        brief = self.clean(self.redact(f"{self.place} {what}"), MAX_TEXT - len(advice) - 2)
        return Fault(brief, advice, kind=kind, status=status, retryable=retryable, retry_after=retry_after)

    def network(
        self, what: str, advice: str, *, retryable: bool = True, retry_after: float | None = None
    ) -> Fault:
        """No connection, or one that failed before the answer began."""
        return self.error(what, advice, kind="network", retryable=retryable, retry_after=retry_after)

    def stream(self, what: str, *, retryable: bool = True) -> Fault:
        """An answer that broke off or cannot be understood."""
        advice = "Send the prompt again; if it fails again, check the base URL."
        return self.error(f"sent an answer that {what}", advice, kind="stream", retryable=retryable)

    def output(self, what: str) -> Fault:
        """An answer that is too large to be used."""
        return self.error(f"sent an answer that {what}", "Ask for less.", kind="output")

    def response(self, status: int, body: bytes, retry_after: float | None = None) -> Fault:
        """The error for a response with a status that is not 2xx."""
        words, codes = server_words(body)
        if retry_after is None:
            retry_after = asked_wait(body)
        what = f"answered HTTP {status}{self._meaning(status, retry_after)}{self._quoted(words)}"
        return self._judged(what, f"{codes} {words}", status, retry_after)

    def in_answer(self, value: object) -> Fault:
        """The error for an error object inside an answer that began with HTTP 200."""
        words, codes = error_words(value)
        status = next((int(code) for code in codes.split() if re.fullmatch("[45][0-9][0-9]", code)), 0)
        number = f" {status}" if status else ""
        what = f"broke off its answer with error{number}{self._quoted(words)}"
        return self._judged(what, f"{codes} {words}", status, None)

    def _judged(self, what: str, facts: str, status: int, retry_after: float | None) -> Fault:
        facts = facts[:_MAX_FACTS]
        found = verdict(status, facts, retry_after is not None)
        fault = self.error(
            what,
            self._key_advice() if found.advice == KEY else found.advice,
            kind=found.kind,
            status=status,
            retryable=found.retryable,
            retry_after=retry_after if found.retryable else None,
        )
        if found.kind in ("request", "server"):
            fault.lessons = lessons(self._endpoint.dialect, status, facts)
        return fault

    @staticmethod
    def _meaning(status: int, retry_after: float | None) -> str:
        meaning = _MEANING.get(status, " (a redirect)" if 300 <= status < 400 else "")
        return f"{meaning} and asks to wait {math.ceil(retry_after)} s" if retry_after else meaning

    def _key_advice(self) -> str:
        if not self._endpoint.api_key:
            return "No API key is set: set one, or choose another base URL."
        return f"Check the API key ({self._endpoint.api_key_source or 'as configured'}) and what it may use."

    def _quoted(self, words: str) -> str:
        words = self.clean(self.redact(words).rstrip(" .\n"), _MAX_WORDS)
        return f': "{words}"' if words else ""


def _secrets(endpoint: Endpoint) -> Secrets:
    """Every text that must not be shown."""
    plain = (endpoint.api_key, *secrets_in(endpoint.headers), *secrets_in_url(endpoint.base_url))
    return Secrets(text.strip() for text in plain)

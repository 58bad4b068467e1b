"""What a server says about its failure, in whatever shape it says it. Pure.

JSON in the usual shapes (OpenAI, Anthropic, Gemini, Ollama, FastAPI, proxies), the title of a web page, or
plain text. What comes out is raw: not shortened, not cleaned, secrets and all; `llm/faults.py` does that.
"""

from __future__ import annotations

import html
import re

from acpserver import jsontext

_PAGE = 8_192  # characters of a web page that are looked at: the title stands at its beginning


def server_words(body: bytes) -> tuple[str, str]:
    """What a failed response says, and its codes: from JSON of any usual shape, HTML or plain text."""
    text = body.decode("utf-8", "replace").strip()
    text = text.removeprefix("data:").lstrip()  # a refusal in the form of a stream
    if text[:1] in ("{", "["):
        try:
            return error_words(jsontext.loads(text))
        except ValueError:
            return text, ""  # cut or broken JSON still says more than nothing
    if text[:1] == "<":
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1", text[:_PAGE], re.IGNORECASE | re.DOTALL)
        text = title.group(2) if title else re.sub(r"(?is)<(script|style).*?</\1>", " ", text[:_PAGE])
        return html.unescape(re.sub(r"<[^>]*>", " ", text)), ""
    return text, ""


def error_words(value: object) -> tuple[str, str]:
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
    words = words if isinstance(words, str) else _shown(words)
    behind, more = _behind(value)
    return f"{words}: {behind}" if behind else words, " ".join([*codes, more])


def _behind(error: dict[str, object]) -> tuple[str, str]:
    """What OpenRouter was told by the provider behind it: its own message says nothing then."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return server_words(raw.encode("utf-8", "replace")) if isinstance(raw, str) else ("", "")


def asked_wait(body: bytes) -> float | None:
    """Seconds that the body of a refusal asks to wait: where Gemini says it, instead of in a header."""
    found = re.search(rb'"retryDelay"\s*:\s*"([0-9]{1,9}(?:\.[0-9]{1,9})?)s"', body)
    return float(found.group(1)) if found else None


def _shown(value: object) -> str:
    try:
        return jsontext.dumps(value) if value else ""
    except ValueError:  # nested too deeply to be of any use to a reader
        return ""


def _codes(value: dict[str, object]) -> str:
    found = [value.get(key) for key in ("code", "type", "status", "status_code")]
    details = value.get("details")
    for detail in details if isinstance(details, list) else ():  # Gemini's
        found += [detail.get("reason")] if isinstance(detail, dict) else []
    return " ".join(str(item) for item in found if isinstance(item, (str, int)))

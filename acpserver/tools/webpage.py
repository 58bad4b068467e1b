"""One HTTP GET, bounded in size, time and redirects.

Runs on the daemon thread of `web.py`, which imports this room late because `requests` is slow to load.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import requests
from requests.models import PreparedRequest
from urllib3.exceptions import HTTPError

from acpserver.errors import ToolError
from acpserver.tools.webtext import html_to_text
from acpserver.version import __version__

_MAX_BYTES = 1024 * 1024
_MAX_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 15.0  # without a byte
_TEXT_KINDS = ("text/", "json", "xml", "javascript", "yaml", "toml", "x-sh")


@dataclass(frozen=True)
class Page:
    """What came: `text` decoded, `cut` if there was more of it."""

    url: str  # after redirects
    status: int
    kind: str  # media type, lower case, without parameters
    text: str
    cut: bool


def fetch(url: str, seconds: float, abandoned: threading.Event) -> Page:
    """GET the page. Gives up after `seconds`, or when `abandoned` is set. Raises `ToolError`."""
    deadline = time.monotonic() + seconds
    with requests.Session() as session:
        session.max_redirects = _MAX_REDIRECTS
        session.auth = _no_credentials
        session.headers["User-Agent"] = f"acpserver/{__version__}"
        timeout = (_CONNECT_SECONDS, _READ_SECONDS)
        try:
            with session.get(url, stream=True, timeout=timeout) as response:
                return _read(response, deadline, abandoned)
        except requests.exceptions.TooManyRedirects:
            raise ToolError(f"More than {_MAX_REDIRECTS} redirects.") from None
        except requests.exceptions.Timeout:
            raise ToolError("The server did not answer in time.") from None
        except (requests.exceptions.RequestException, HTTPError, ValueError, UnicodeError) as error:
            raise ToolError(
                f"The page could not be read: {type(error).__name__}: {str(error)[:300]}"
            ) from None


def _no_credentials(request: PreparedRequest) -> PreparedRequest:
    """Stands where `requests` would otherwise look into a .netrc file."""
    return request


def _read(response: requests.Response, deadline: float, abandoned: threading.Event) -> Page:
    kind = response.headers.get("Content-Type", "text/plain").split(";")[0].strip().lower()
    if not any(part in kind for part in _TEXT_KINDS):
        raise ToolError(f"The address leads to {kind[:100]}, not to text.")
    data = bytearray()
    while piece := response.raw.read1(16384, decode_content=True):  # what is there, however little
        data += piece
        if len(data) > _MAX_BYTES or abandoned.is_set():
            break
        if time.monotonic() > deadline:
            raise ToolError("The page did not come in time.")
    # Without a charset in the header `requests` guesses Latin-1 for text, where pages say UTF-8 today.
    declared = "charset" in response.headers.get("Content-Type", "").lower()
    text = _decode(bytes(data[:_MAX_BYTES]), response.encoding if declared else None)
    if "html" in kind:  # on this thread, because a badly made page can keep the parser busy
        text = html_to_text(text)
    return Page(response.url, response.status_code, kind, text, len(data) > _MAX_BYTES)


def _decode(data: bytes, encoding: str | None) -> str:
    try:
        return data.decode(encoding or "utf-8", "replace")
    except LookupError:  # a charset that Python does not know
        return data.decode("utf-8", "replace")

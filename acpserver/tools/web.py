"""The tool that reads a web page: web_fetch.

Prepared and awaited on the turn's thread; the request itself runs on a daemon thread, because looking up
and connecting cannot be woken. It only reads; it sends no credentials, not even those of a .netrc file.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acpserver.cancel import CancelFlag
from acpserver.errors import ToolError
from acpserver.tools.base import Action, ToolContext, ToolOutcome
from acpserver.tools.content import code_content, head_of, shorten

if TYPE_CHECKING:
    from acpserver.tools.webpage import Page

log = logging.getLogger(__name__)

_MAX_TEXT = 30_000  # characters
_TITLE_SIZE = 1000  # bytes of JSON
_SECONDS = 30.0
_SPARE_SECONDS = 5.0  # for a name look-up or a connection that does not keep to its time


class WebFetch:
    """web_fetch: one page as text."""

    name = "web_fetch"
    kind = "fetch"
    description = "Read a web page or a text file by http or https. HTML is returned as plain text."
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {
            "url": {"type": "string", "maxLength": 4000, "description": "http:// or https:// address"}
        },
        "required": ["url"],
        "additionalProperties": False,
    }

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """See `Tool.prepare`. Fails for everything but a plain http or https address."""
        url = str(arguments["url"]).strip()
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            usable = False
        if not usable:
            raise ToolError("url must be an http:// or https:// address without user name.")
        return Action(f"Fetch {shorten(url, _TITLE_SIZE)}", partial(_run, url, context.cancel))


def _run(url: str, cancel: CancelFlag) -> ToolOutcome:
    page = _fetch_awake(url, cancel)
    short = head_of(page.text, _MAX_TEXT)
    if len(short) < len(page.text) or page.cut:
        short += "\n[… the rest of the page is left out …]"
    where = f"{page.url}\n" if page.url != url else ""
    raw: dict[str, object] = {"status": page.status, "url": page.url, "contentType": page.kind}
    if page.status >= 400:
        return ToolOutcome(
            f"{where}HTTP status {page.status}\n{short}", [code_content(short)], raw, is_error=True
        )
    return ToolOutcome(f"{where}{short or '(The page is empty.)'}", [code_content(short)], raw)


def _fetch_awake(url: str, cancel: CancelFlag) -> Page:
    """Fetch on another thread and wait for it. Raises `ToolError`, and `Cancelled` at once when cancelled."""
    answers: queue.SimpleQueue[Page | ToolError | None] = queue.SimpleQueue()
    abandoned = threading.Event()
    thread = threading.Thread(
        target=_fetch_into, args=(answers, url, abandoned), name="web_fetch", daemon=True
    )
    with cancel.waking(partial(answers.put, None)):
        thread.start()
        try:
            answer = answers.get(timeout=_SECONDS + _SPARE_SECONDS)
        except queue.Empty:
            answer = None
        finally:
            abandoned.set()
    cancel.check()
    if answer is None:
        raise ToolError(f"No answer from {urlsplit(url).hostname} in time.")
    if isinstance(answer, ToolError):
        raise answer
    return answer


def _fetch_into(
    answers: queue.SimpleQueue[Page | ToolError | None], url: str, abandoned: threading.Event
) -> None:
    """The thread's work: one answer, whatever happens."""
    try:
        answers.put(_load_fetch()(url, _SECONDS, abandoned))
    except ToolError as error:
        answers.put(error)
    except Exception as error:  # the top of a thread
        log.exception("web_fetch failed")
        answers.put(ToolError(f"The page could not be read: {type(error).__name__}"))


def _load_fetch() -> Callable[[str, float, threading.Event], Page]:
    """The function that needs `requests`, loaded at the first fetch."""
    from acpserver.tools.webpage import fetch

    return fetch

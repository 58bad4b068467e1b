"""The body of one HTTP answer, read as it arrives: a block, the whole of it, its end, or what a refusal says.

Entered by the thread of the call that the answer belongs to. It never reads without a limit, and never knows
what a body means: that is the dialect's business.

Imports `requests`, which is slow to load: only `llm/calls.py`, itself loaded late, imports this room.
"""

from __future__ import annotations

import contextlib
import time

from requests.models import Response

from acpserver import jsontext
from acpserver.cancel import CancelFlag
from acpserver.llm.causes import FAILURES
from acpserver.llm.faults import Fault, Faults
from acpserver.llm.retry import retry_after

_READ = 65536  # bytes asked of the socket at once
_MAX_WHOLE = 64 * 1024 * 1024  # bytes of one answer in a single JSON body
_MAX_REFUSAL = 65536  # bytes read of the body of an error
_HURRY = 2.0  # seconds without a byte while the body of an error is read
_REST = 0.05  # seconds without a byte while the end of a complete answer is read


def read_block(response: Response, cancel: CancelFlag) -> bytes:
    """What has arrived, at least one byte; b"" at the end of the body. Raises `FAILURES` and `Cancelled`."""
    block: bytes = response.raw.read1(_READ, decode_content=True)
    cancel.check()  # a line that was cut looks like the end of the body
    return block


def read_whole(response: Response, block: bytes, faults: Faults, cancel: CancelFlag) -> bytes:
    """The whole body, whose first piece is `block`. Raises `ProviderError` for one that is too large."""
    pieces = [block]
    size = len(block)
    while block := read_block(response, cancel):
        pieces.append(block)
        size += len(block)
        if size > _MAX_WHOLE:
            raise faults.output(f"is larger than {_MAX_WHOLE} bytes")
    return b"".join(pieces)


def read_refusal(response: Response, faults: Faults) -> Fault:
    """The error that a response with a status other than 2xx stands for."""
    body = b""
    limit_wait(response, _HURRY)
    with contextlib.suppress(*FAILURES):  # the status alone says enough
        while len(body) < _MAX_REFUSAL and (block := response.raw.read1(_READ, decode_content=True)):
            body += block
    wait = retry_after(response.headers.get("Retry-After"), time.time())
    return faults.response(response.status_code, body[:_MAX_REFUSAL], wait)


def read_rest(response: Response) -> None:
    """Read the end of a complete answer, which makes its connection fit for the next call."""
    if limit_wait(response, _REST):
        with contextlib.suppress(*FAILURES):  # then the connection is closed instead
            for _ in range(8):
                if not response.raw.read1(_READ, decode_content=True):
                    break


def limit_wait(response: Response, seconds: float) -> bool:
    """Set the wait for bytes of this response; False when its connection is already given back."""
    connection = response.raw.connection if response.raw is not None else None
    sock = getattr(connection, "sock", None)
    if sock is None:
        return False
    sock.settimeout(seconds)
    return True


def is_whole(response: Response, block: bytes) -> bool:
    """Whether a body is one value and no stream. Its first byte is believed more than its label."""
    if "ndjson" in response.headers.get("Content-Type", ""):
        return False
    return block.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[", b"<")


def text_of(body: bytes) -> str:
    """A body as text, with a replacement where it is not UTF-8."""
    return body.decode("utf-8-sig", "replace")


def value_of(body: bytes, faults: Faults) -> object:
    """The JSON value of an answer that did not come as a stream. Raises `ProviderError`."""
    text = text_of(body).strip()
    if text.startswith("<"):
        raise faults.error("answered with a web page", "Check the base URL.", kind="request")
    try:
        return jsontext.loads(text)
    except ValueError:
        raise faults.stream("is not valid JSON") from None

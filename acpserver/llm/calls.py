"""Model calls over HTTP: send, read what has arrived, decode, parse; try again while nothing was shown.

Entered by the turns' threads, many at once; each call's state lives in its own generators. Cancelling wakes
every wait in here. It never looks into a body itself: that is the dialect's business.

Imports `requests` and `tenacity`, which are slow to load: only `llm/http.py` imports this room, late.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from requests.models import Response

from acpserver import jsontext
from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.causes import FAILURES, explain, explain_broken
from acpserver.llm.dialects import DIALECTS
from acpserver.llm.faults import Fault, Faults
from acpserver.llm.pool import Line, Pool
from acpserver.llm.retry import Policy, retry_after
from acpserver.llm.types import Endpoint, Event, ModelDetails, ModelRequest, Opaque, Waiting
from acpserver.llm.wire import Dialect, HttpRequest, Parser, join_url

Fact = TypeVar("Fact")

_READ = 65536  # bytes asked of the socket at once
_MAX_STREAM = 256 * 1024 * 1024  # bytes of one streamed answer
_MAX_WHOLE = 64 * 1024 * 1024  # bytes of one answer in a single JSON body
_MAX_REFUSAL = 65536  # bytes read of the body of an error
_HURRY = 2.0  # seconds without a byte while the body of an error is read
_LAST = 5.0  # seconds without a byte between the finish reason and what follows it (usage, end mark)
_REST = 0.05  # seconds without a byte while the end of a complete answer is read


class Caller:
    """Calls one endpoint. One object serves many threads."""

    def __init__(self, endpoint: Endpoint, policy: Policy | None = None):
        """Raises `ProviderError` for a dialect that nobody speaks and an unusable base URL."""
        join_url(endpoint.base_url, "/")
        self._endpoint = endpoint
        self._dialect = _dialect(endpoint.dialect)
        self._policy = policy or Policy.of(endpoint)
        self._faults = Faults(endpoint)
        self._pool = Pool(endpoint.base_url)

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """The events of one answer. Raises `ProviderError` and `Cancelled`."""
        cancel.check()
        prepared = self._dialect.chat(self._endpoint, request)
        batches: Iterator[list[Event]] = iter(())
        first: list[Event] = []
        failure = ""
        try:
            for attempt in self._policy.retrying(cancel):
                if (wait := attempt.retry_state.upcoming_sleep) > 0:
                    yield Waiting(wait, failure)
                    self._policy.sleep(cancel, wait)
                with attempt:
                    try:
                        batches = self._batches(prepared, request, cancel)
                        first = _visible(batches)  # once there is something to show, nothing is repeated
                    except Fault as error:
                        failure = error.brief
                        raise
            yield from first
            for batch in batches:
                yield from batch
        except ProviderError:
            cancel.check()  # a call that failed while it was being cancelled was cancelled
            raise

    def list_models(self, cancel: CancelFlag) -> dict[str, ModelDetails]:
        """The endpoint's models and what its list says of them, asked once.

        Raises `ProviderError` and `Cancelled`.
        """
        prepared = self._dialect.models(self._endpoint)
        return self._fact(prepared, "a list of models", self._dialect.listed, cancel)

    def model_details(self, model: str, cancel: CancelFlag) -> ModelDetails:
        """What the server says about a model, asked once. Raises `ProviderError` and `Cancelled`."""
        prepared = self._dialect.details(self._endpoint, model)

        def read(value: object) -> ModelDetails:
            return self._dialect.model_details(value, model)

        return self._fact(prepared, "facts about a model", read, cancel)

    def _fact(
        self, prepared: HttpRequest, expected: str, read: Callable[[object], Fact], cancel: CancelFlag
    ) -> Fact:
        with self._exchange(prepared, cancel) as response:
            body = self._body(response, b"", cancel)
        try:
            return read(jsontext.loads(_text(body)))
        except ValueError:
            raise self._faults.error(
                f"answered, but not with {expected}", "Check the base URL.", kind="request"
            ) from None

    def close(self) -> None:
        """End the kept connections."""
        self._pool.close()

    @contextlib.contextmanager
    def _exchange(self, prepared: HttpRequest, cancel: CancelFlag) -> Iterator[Response]:
        """The response to a request that succeeded. Failures before and after its headers are explained."""
        line = Line(cancel, self._endpoint.idle_timeout)
        has_answered = False
        try:
            with self._pool.send(prepared, line, self._endpoint.connect_timeout) as response:
                has_answered = True
                if not 200 <= response.status_code < 300:
                    raise self._refusal(response)
                yield response
        except FAILURES as error:
            cancel.check()
            if has_answered:
                raise explain_broken(error, self._faults, self._endpoint) from None
            raise explain(
                error, self._faults, self._endpoint, connected=line.connected, reused=line.reused
            ) from None

    def _batches(
        self, prepared: HttpRequest, request: ModelRequest, cancel: CancelFlag
    ) -> Iterator[list[Event]]:
        """The events of one attempt, those that arrived together in one list; no list is empty."""
        parser = self._dialect.parser(self._endpoint, request, self._faults)
        with self._exchange(prepared, cancel) as response:
            block = self._block(response, cancel)
            while block and not block.strip():
                block = self._block(response, cancel)
            if not self._dialect.streams_json and _is_whole(response, block):
                events = parser.whole(self._value(self._body(response, block, cancel)))
                if events:
                    yield events
            else:
                yield from self._streamed(response, block, parser, cancel)
            yield parser.end()
            _read_rest(response)

    def _streamed(
        self, response: Response, block: bytes, parser: Parser, cancel: CancelFlag
    ) -> Iterator[list[Event]]:
        """The events of a stream that begins with `block`, without those of its end."""
        decoder = self._dialect.decoder()
        size = 0
        while not parser.done:
            size += len(block)
            try:
                items = decoder.feed(block) if block else decoder.end()
            except ValueError as error:
                raise self._faults.output(f"cannot be read: {error}") from None
            events = parser.feed(items)
            if events:
                yield events
            if not block or parser.done:
                return
            if size > _MAX_STREAM:
                raise self._faults.output(f"is larger than {_MAX_STREAM} bytes")
            if parser.finished:
                _limit_wait(response, _LAST)
            try:
                block = self._block(response, cancel)
            except FAILURES:
                cancel.check()
                if not parser.finished:
                    raise
                return  # only usage and the end mark are lost

    def _block(self, response: Response, cancel: CancelFlag) -> bytes:
        """What has arrived, at least one byte; b"" at the end of the body."""
        block: bytes = response.raw.read1(_READ, decode_content=True)
        cancel.check()  # a line that was cut looks like the end of the body
        return block

    def _body(self, response: Response, block: bytes, cancel: CancelFlag) -> bytes:
        """The whole body, whose first piece is `block`."""
        pieces = [block]
        size = len(block)
        while block := self._block(response, cancel):
            pieces.append(block)
            size += len(block)
            if size > _MAX_WHOLE:
                raise self._faults.output(f"is larger than {_MAX_WHOLE} bytes")
        return b"".join(pieces)

    def _value(self, body: bytes) -> object:
        """The JSON value of an answer that did not come as a stream."""
        text = _text(body).strip()
        if text.startswith("<"):
            raise self._faults.error("answered with a web page", "Check the base URL.", kind="request")
        try:
            return jsontext.loads(text)
        except ValueError:
            raise self._faults.stream("is not valid JSON") from None

    def _refusal(self, response: Response) -> ProviderError:
        body = b""
        _limit_wait(response, _HURRY)
        with contextlib.suppress(*FAILURES):  # the status alone says enough
            while len(body) < _MAX_REFUSAL and (block := response.raw.read1(_READ, decode_content=True)):
                body += block
        wait = retry_after(response.headers.get("Retry-After"), time.time())
        return self._faults.response(response.status_code, body[:_MAX_REFUSAL], wait)


def _visible(batches: Iterator[list[Event]]) -> list[Event]:
    """The events up to the first that a user can see, or that ends the answer."""
    events: list[Event] = []
    while not events or all(isinstance(event, Opaque) for event in events):
        events += next(batches)
    return events


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise ProviderError(f"The dialect {name!r} is unknown. Known are: {known}.", kind="request")
    return DIALECTS[name]


def _is_whole(response: Response, block: bytes) -> bool:
    """Whether a body is one value and no stream. Its first byte is believed more than its label."""
    if "ndjson" in response.headers.get("Content-Type", ""):
        return False
    return block.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[", b"<")


def _text(body: bytes) -> str:
    return body.decode("utf-8-sig", "replace")


def _read_rest(response: Response) -> None:
    """Read the end of a complete answer, which makes its connection fit for the next call."""
    if _limit_wait(response, _REST):
        with contextlib.suppress(*FAILURES):  # then the connection is closed instead
            for _ in range(8):
                if not response.raw.read1(_READ, decode_content=True):
                    break


def _limit_wait(response: Response, seconds: float) -> bool:
    """Shorten the wait for bytes of this response; False when its connection is already given back."""
    connection = response.raw.connection if response.raw is not None else None
    sock = getattr(connection, "sock", None)
    if sock is None:
        return False
    sock.settimeout(seconds)
    return True

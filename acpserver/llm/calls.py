"""Model calls over HTTP: send, read what has arrived, decode, parse; try again while nothing was shown.

Entered by the turns' threads, many at once; each call's state lives in its own generators. Cancelling wakes
every wait in here. It never looks into a body itself: that is the dialect's business.

Imports `requests`, which is slow to load: only `llm/http.py` imports this room, late.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TypeVar

from requests.models import Response

from acpserver import jsontext
from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.body import (
    is_whole,
    limit_wait,
    read_block,
    read_refusal,
    read_rest,
    read_whole,
    text_of,
    value_of,
)
from acpserver.llm.causes import FAILURES, explain, explain_broken
from acpserver.llm.dialects import DIALECTS
from acpserver.llm.faults import Fault, Faults
from acpserver.llm.pool import Line, Pool
from acpserver.llm.retry import Policy
from acpserver.llm.types import Endpoint, Event, ModelDetails, ModelRequest, Opaque, Waiting
from acpserver.llm.verdicts import NO_REASONING
from acpserver.llm.wire import Dialect, HttpRequest, Parser, join_url

log = logging.getLogger(__name__)

Fact = TypeVar("Fact")
Batches = Iterator[list[Event]]  # events that arrived together are one list

_MAX_STREAM = 256 * 1024 * 1024  # bytes of one streamed answer
_LAST = 5.0  # seconds without a byte between the finish reason and what follows it (usage, end mark)
_LEAST_TRY = 0.1  # seconds that a further try may take, however late it begins


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
        self._learned: dict[str, frozenset[str]] = {}
        """By model: what its server has taught about the form of requests. Each write is one step."""

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """The events of one answer. Raises `ProviderError` and `Cancelled`."""
        cancel.check()
        request = request._replace(learned=self._learned.get(request.model, frozenset()))
        try:
            batches = yield from self._attempts(request, cancel)
            for batch in batches:
                yield from batch
        except ProviderError:
            cancel.check()  # a call that failed while it was being cancelled was cancelled
            raise

    def _attempts(self, request: ModelRequest, cancel: CancelFlag) -> Generator[Event, None, Batches]:
        """The batches of the first attempt that has something to show. The waits before it are the events."""
        began = self._policy.clock()
        try:
            return self._begin(self._endpoint, request, cancel)
        except Fault as error:
            failed = _logged(error, 1)
        for attempt in self._policy.retrying(failed, began, cancel):
            if (wait := attempt.retry_state.upcoming_sleep) > 0:
                yield Waiting(wait, failed.brief)
                self._policy.sleep(cancel, wait)
            with attempt:
                try:
                    return self._begin(self._hurried(began), request, cancel)
                except Fault as error:
                    failed = _logged(error, attempt.retry_state.attempt_number)
                    raise
        raise failed  # not reached: tenacity has raised it

    def _begin(self, endpoint: Endpoint, request: ModelRequest, cancel: CancelFlag) -> Batches:
        """The batches of an answer, once something is there to show; from then on nothing is repeated.

        What is refused for its form is asked at once in another form. The one that is taken is remembered for
        the model, since one gateway may stand before servers of several kinds; but not what only helps a
        conversation whose reasoning fits no more.
        """
        tried = [self._dialect.chat(endpoint, request)]
        while True:
            try:
                batches = _shown(self._batches(endpoint, tried[-1], request, cancel))
            except Fault as error:
                again = self._other_form(endpoint, tried, request, error)
                if again is None:
                    raise
                request = again
            else:
                if NO_REASONING not in request.learned:
                    self._learned[request.model] = request.learned
                return batches

    def _other_form(
        self, endpoint: Endpoint, tried: list[HttpRequest], request: ModelRequest, error: Fault
    ) -> ModelRequest | None:
        """The refused request in the next form that its refusal speaks for, it becomes the last of `tried`.

        None when all were tried. What was learned once may be wrong by now, so it is left out too.
        """
        for lesson in error.lessons:
            for learned in (request.learned | {lesson}, request.learned - {lesson}):
                other = request._replace(learned=learned)
                prepared = self._dialect.chat(endpoint, other)
                if prepared not in tried:
                    tried.append(prepared)
                    return other
        return None

    def _hurried(self, started: float) -> Endpoint:
        """The endpoint for a further try of a call: it may keep silent for as long as tries may be made."""
        left = max(_LEAST_TRY, round(self._policy.total - (self._policy.clock() - started), 1))
        return replace(
            self._endpoint,
            connect_timeout=min(self._endpoint.connect_timeout, left / 2),  # it holds for two addresses
            idle_timeout=min(self._endpoint.idle_timeout, left),
        )

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
        with self._exchange(self._endpoint, prepared, cancel) as response:
            body = read_whole(response, b"", self._faults, cancel)
        try:
            return read(jsontext.loads(text_of(body)))
        except ValueError:
            raise self._faults.error(
                f"answered, but not with {expected}", "Check the base URL.", kind="request"
            ) from None

    def close(self) -> None:
        """End the kept connections."""
        self._pool.close()

    @contextlib.contextmanager
    def _exchange(self, endpoint: Endpoint, prepared: HttpRequest, cancel: CancelFlag) -> Iterator[Response]:
        """The response to a request that succeeded. Failures before and after its headers are explained."""
        line = Line(cancel, endpoint.idle_timeout)
        has_answered = False
        try:
            with self._pool.send(prepared, line, endpoint.connect_timeout) as response:
                has_answered = True
                log.debug("%s %s answered HTTP %d", prepared.method, self._faults.place, response.status_code)
                if not 200 <= response.status_code < 300:
                    raise read_refusal(response, self._faults)
                yield response
        except FAILURES as error:
            cancel.check()
            if has_answered:
                raise explain_broken(error, self._faults, endpoint) from None
            raise explain(
                error, self._faults, endpoint, connected=line.connected, reused=line.reused
            ) from None

    def _batches(
        self, endpoint: Endpoint, prepared: HttpRequest, request: ModelRequest, cancel: CancelFlag
    ) -> Batches:
        """The events of one attempt; no list is empty."""
        parser = self._dialect.parser(self._endpoint, request, self._faults)
        with self._exchange(endpoint, prepared, cancel) as response:
            block = read_block(response, cancel)
            while block and not block.strip():
                block = read_block(response, cancel)
            if not self._dialect.streams_json and is_whole(response, block):
                events = parser.whole(
                    value_of(read_whole(response, block, self._faults, cancel), self._faults)
                )
                if events:
                    yield events
            else:
                yield from self._streamed(endpoint, response, block, parser, cancel)
            yield parser.end()
            read_rest(response)

    def _streamed(
        self, endpoint: Endpoint, response: Response, block: bytes, parser: Parser, cancel: CancelFlag
    ) -> Batches:
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
                if endpoint is not self._endpoint:  # a further try: now that it speaks, it need not hurry
                    endpoint = self._endpoint
                    limit_wait(response, endpoint.idle_timeout)
            if not block or parser.done:
                return
            if size > _MAX_STREAM:
                raise self._faults.output(f"is larger than {_MAX_STREAM} bytes")
            if parser.finished:
                limit_wait(response, _LAST)
            try:
                block = read_block(response, cancel)
            except FAILURES as error:
                cancel.check()
                if not parser.finished:
                    raise explain_broken(error, self._faults, endpoint) from None
                return  # only usage and the end mark are lost


def _logged(error: Fault, tried: int) -> Fault:
    log.debug("attempt %d failed: %s, HTTP status %d", tried, error.kind, error.status)
    return error


def _shown(batches: Batches) -> Batches:
    """The same batches, once an event is there that a user can see or that ends the answer."""
    events: list[Event] = []
    while not events or all(isinstance(event, Opaque) for event in events):
        events += next(batches)
    return itertools.chain([events], batches)


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise ProviderError(f"The dialect {name!r} is unknown. Known are: {known}.", kind="request")
    return DIALECTS[name]

"""A call from the peer, and the table of those in flight.

The reader adds calls and cancels them; whoever serves one answers it, from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from acpserver.cancel import CancelFlag
from acpserver.errors import INTERNAL_ERROR, RpcError
from acpserver.rpc.message import RequestId, id_key

log = logging.getLogger(__name__)


class Replier(Protocol):
    """What carries the answers of calls (a connection). Neither method waits."""

    def send_result(self, call: Call, result: object) -> None:
        """Send the result of a request."""

    def send_error(self, request_id: RequestId | None, error: RpcError) -> None:
        """Send an error answer."""


class Call:
    """One request or notification from the peer.

    A request is answered exactly once, by `answer` or `fail`; later answers are dropped. `cancel` is set
    when the peer sends `$/cancel_request` for it. For a notification both do nothing.
    """

    def __init__(
        self, table: CallTable, method: str, params: dict[str, object], request_id: RequestId | None
    ):
        self.method = method
        self.params = params
        self.id = request_id
        self.cancel = CancelFlag()
        self.answered = False  # since then nothing more may be told of a request
        self._table = table

    @property
    def is_request(self) -> bool:
        """Whether the peer waits for an answer."""
        return self.id is not None

    def answer(self, result: object) -> None:
        """Send the result. Never waits."""
        if self._table.settle(self):
            self._table.replier.send_result(self, result)

    def fail(self, error: RpcError) -> None:
        """Send an error. Never waits."""
        if self._table.settle(self):
            self._table.replier.send_error(self.id, error)


class CallTable:
    """The peer's requests that are not answered yet. A peer may use an id twice: both are served."""

    def __init__(self, replier: Replier):
        self.replier = replier
        self._calls_lock = threading.Lock()  # guards _calls
        self._calls: dict[str, list[Call]] = {}

    def add(self, call: Call) -> None:
        """Note a request as in flight; a notification is not noted."""
        if call.id is not None:
            with self._calls_lock:
                self._calls.setdefault(id_key(call.id), []).append(call)

    def cancel(self, request_id: RequestId) -> None:
        """Set the flag of every request with this id; unknown ids are ignored (rule C6)."""
        with self._calls_lock:
            calls = list(self._calls.get(id_key(request_id), ()))
        for call in calls:
            call.cancel.set("$/cancel_request")

    def settle(self, call: Call) -> bool:
        """Take a call off the table. False when it was answered before, or is a notification."""
        if call.id is None:
            return False
        key = id_key(call.id)
        with self._calls_lock:
            calls = self._calls.get(key, [])
            if call not in calls:
                return False
            calls.remove(call)
            if not calls:
                del self._calls[key]
        call.answered = True
        return True


Handler = Callable[[Call], None]


def run_handler(handler: Handler, call: Call) -> None:
    """Run a handler so that the peer gets an answer whatever happens to it."""
    try:
        handler(call)
    except RpcError as error:
        call.fail(error)
    except Exception as error:  # the handler's own fault
        log.exception("%s failed", call.method)
        call.fail(RpcError.with_details(INTERNAL_ERROR, f"{type(error).__name__} in {call.method}"))

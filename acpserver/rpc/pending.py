"""Requests of ours that wait for their answers.

Any thread adds one and waits; the reader resolves them. `rpc.call` has those of the peer.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable

from acpserver.errors import ConnectionClosed
from acpserver.rpc.message import Response, id_key

log = logging.getLogger(__name__)

FIRST_ID = 1_000_000
"""Our request ids count from here: editors count theirs from 0, and some mix the two up when they meet.
The end, 2**31, is what clients with 32-bit ids can keep."""

Late = Callable[[object], None]
"""Gets a result, unchecked, that came when nobody waited any more. On the reader thread: must not block."""


class Pending:
    """A request of ours that waits. `done` is set by its answer, and by the end of the link."""

    def __init__(self, request_id: int):
        self.id = request_id
        self.done = threading.Event()
        self.response: Response | None = None
        self.late: Late | None = None  # set when nobody waits any more
        self.closed = False


class PendingTable:
    """Our requests without an answer."""

    def __init__(self) -> None:
        self._ids = itertools.count(FIRST_ID)
        self._pending_lock = threading.Lock()  # guards what is below
        self._pending: dict[str, Pending] = {}
        self._closed = False

    def new_id(self) -> int:
        """An id that no request of ours has had."""
        return next(self._ids)

    def add(self, request_id: int, method: str) -> Pending:
        """Note a request, before it is sent. Raises `ConnectionClosed`."""
        pending = Pending(request_id)
        with self._pending_lock:
            if self._closed:
                raise ConnectionClosed(f"{method}: the other side is gone")
            self._pending[id_key(request_id)] = pending
        return pending

    def leave(self, pending: Pending, late: Late | None) -> Response | None:
        """The answer, if it has come. From now on nobody waits: a later one is dropped, or goes to `late`."""
        with self._pending_lock:
            if pending.response is None and late is not None:
                pending.late = late
            else:
                self._pending.pop(id_key(pending.id), None)
            return pending.response

    def resolve(self, response: Response, is_strict: bool) -> None:
        """Hand an answer to the thread that waits for it; unknown ones are dropped (rule J9). Unless
        `is_strict`, an id may come back as text."""
        if response.id is None:
            return
        with self._pending_lock:
            pending = self._pending.pop(id_key(response.id), None)
            if pending is None and isinstance(response.id, str) and not is_strict:
                pending = self._pending.pop(response.id, None)  # a number's key is its digits
            if pending is not None:
                pending.response = response
        if pending is None:
            log.debug("answer to an unknown request: %r", response.id)
        elif pending.late is None:
            pending.done.set()
        elif response.error is None:
            pending.late(response.result)

    def close(self) -> None:
        """Wake all that wait, and refuse new requests."""
        with self._pending_lock:
            self._closed = True
            waiting = list(self._pending.values())
            self._pending.clear()
        for pending in waiting:
            pending.closed = True
            pending.done.set()

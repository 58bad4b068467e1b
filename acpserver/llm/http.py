"""The provider that talks HTTP: the door to `llm/calls.py`, which is loaded at the first call.

Entered by the turns' threads, many at once, and by a thread that warms up. Importing it costs nothing:
`requests` takes 0.05 s to load, and the editor is waiting for `initialize` meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from acpserver.cancel import CancelFlag
from acpserver.llm.types import Endpoint, Event, ModelDetails, ModelRequest

if TYPE_CHECKING:
    from acpserver.llm.calls import Caller
    from acpserver.llm.retry import Policy


_loaded = threading.Event()
"""Whether what a call needs is there."""


def warm_up() -> type[Caller]:
    """Load what the first call needs, on any thread, as often as you like."""
    from acpserver.llm.calls import Caller  # measured: the import of requests, 50 ms

    _loaded.set()
    return Caller


def _load(cancel: CancelFlag) -> type[Caller]:
    """The same for a call that comes too early. Nothing can wake an import, so another thread does it."""
    if not _loaded.is_set():
        over = threading.Event()

        def load() -> None:
            try:
                warm_up()
            finally:
                over.set()

        threading.Thread(target=load, name="load", daemon=True).start()
        with cancel.waking(over.set):
            over.wait()
        cancel.check()
    return warm_up()


class HttpProvider:
    """A model behind an HTTP endpoint."""

    def __init__(self, endpoint: Endpoint, policy: Policy | None = None):
        self.endpoint = endpoint
        self._policy = policy
        self._caller_lock = threading.Lock()  # guards _caller
        self._caller: Caller | None = None

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """Ask the model and yield its events as they come; blocks between them.

        Raises `ProviderError`, and `Cancelled` soon after `cancel` is set. Closing the iterator early ends
        the connection.
        """
        return self._ready(cancel).stream(request, cancel)

    def list_models(self, cancel: CancelFlag) -> dict[str, ModelDetails]:
        """The models that the endpoint offers, by name, with what its list says of them.

        Raises `ProviderError` and `Cancelled`.
        """
        return self._ready(cancel).list_models(cancel)

    def model_details(self, model: str, cancel: CancelFlag) -> ModelDetails:
        """What the endpoint says about a model. Raises `ProviderError` and `Cancelled`."""
        return self._ready(cancel).model_details(model, cancel)

    def close(self) -> None:
        """End the kept connections. Calls that are under way go on."""
        with self._caller_lock:
            caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()

    def _ready(self, cancel: CancelFlag) -> Caller:
        caller_class = _load(cancel)
        with self._caller_lock:
            if self._caller is None:
                self._caller = caller_class(self.endpoint, self._policy)
            return self._caller

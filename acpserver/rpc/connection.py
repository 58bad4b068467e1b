"""One live link to one peer: the read loop, ids, checking, requests in both directions, and the end.

The thread that calls `serve` is the reader: it parses, checks, resolves answers and hands every call to
the handler, which must not block. `request`, `notify` and the answers may be used by any other thread.
The class is symmetric: it serves an agent towards an editor and a client towards an agent alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from acpserver.cancel import CancelFlag
from acpserver.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    AcpError,
    ConnectionClosed,
    RpcError,
)
from acpserver.rpc import message, schema
from acpserver.rpc.call import Call, CallTable, Handler, run_handler
from acpserver.rpc.message import Invalid, Notification, Request, RequestId, Response
from acpserver.rpc.pending import Late, Pending, PendingTable
from acpserver.rpc.rules import ACP, Rules
from acpserver.transports.stdio import Growing, LineWriter

log = logging.getLogger(__name__)

class OutgoingFault(AcpError):
    """A message of ours does not fit the schema: a bug here, raised in strict mode only."""


class Connection:
    """The link. `lines` are the peer's, `writer` carries ours, `handlers` maps method names to code.

    `admit`, when given, is asked before a call's parameters are looked at, and raises `RpcError` for a
    method that may not be called now. With `strict`, an outgoing message that does not fit the schema
    raises; otherwise it is logged and sent. `observe` sees each incoming line first (the trace).
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        writer: LineWriter,
        handlers: Mapping[str, Handler],
        *,
        admit: Callable[[str], None] | None = None,
        strict: bool = False,
        observe: Callable[[bytes], None] | None = None,
        rules: Rules = ACP,
    ):
        self._lines = lines
        self._writer = writer
        self._handlers = handlers
        self._admit = admit
        self._strict = strict
        self._observe = observe
        self._rules = rules
        self._calls = CallTable(self)
        self._pending = PendingTable()

    # The reader's side

    def serve(self) -> None:
        """Read and handle messages until the end of input; then fail every pending request."""
        try:
            for line in self._lines:
                if self._observe:
                    self._observe(line)
                self._receive(line)
        finally:
            self.close()

    def close(self) -> None:
        """Fail all pending requests with `ConnectionClosed`, and refuse new ones."""
        self._pending.close()

    def _receive(self, line: bytes) -> None:
        try:
            received = message.parse(line)
            if isinstance(received, Response):
                self._pending.resolve(received, self._rules.is_strict)
            elif isinstance(received, Request):
                self._accept(received.method, received.params, received.id)
            elif isinstance(received, Notification):
                self._accept(received.method, received.params, None)
            elif isinstance(received, Invalid) and self._rules.is_strict:
                self.send_error(received.id, received.error)
        except Exception:  # the reader goes on whatever one line did to it
            log.exception("a message could not be handled")

    def _accept(self, method: str, params: object, request_id: RequestId | None) -> None:
        """Check one call and hand it to its handler."""
        if method == self._rules.cancel_method:
            self._cancel_call(params)
            if request_id is None:
                return
        try:
            method, params = self._rules.canonical(method, params)
            if self._admit:
                self._admit(method)
            handler = self._handlers.get(method)
            if handler is None:
                raise RpcError.with_details(METHOD_NOT_FOUND, f"No method {method[:100]}")
            call = Call(self._calls, method, self._checked(method, params), request_id)
        except RpcError as error:
            if request_id is None:
                log.debug("%s ignored: %s", method, error.details)
            else:
                self.send_error(request_id, error)
            return
        self._calls.add(call)
        run_handler(handler, call)

    def _checked(self, method: str, params: object) -> dict[str, object]:
        """The parameters, mended where receivers are told to. Raises `RpcError` -32602."""
        params, forgiven = self._rules.forgive_params(method, params)
        _log_forgiven(method, forgiven)
        faults = self._rules.check_params(method, params)
        if faults:
            raise RpcError.with_details(INVALID_PARAMS, schema.describe(faults))
        if params is None:
            return {}
        if not isinstance(params, dict):
            raise RpcError.with_details(INVALID_PARAMS, "params: must be an object")
        return params

    def _cancel_call(self, params: object) -> None:
        request_id = message.usable_id(params.get("requestId")) if isinstance(params, dict) else None
        if request_id is not None:
            self._calls.cancel(request_id)

    # Requests of ours

    def request(
        self,
        method: str,
        params: dict[str, object],
        cancel: CancelFlag | None = None,
        timeout: float | None = None,
        late: Late | None = None,
    ) -> dict[str, object]:
        """Send a request and wait for its result.

        Raises `RpcError` for an error answer and for a result that does not fit the schema, `Cancelled`
        when `cancel` is set (the peer is told with `$/cancel_request`, a late result is dropped or goes to
        `late`), `ConnectionClosed` when the peer is gone, `TimeoutError` after `timeout` seconds.
        """
        flag = cancel or CancelFlag()
        flag.check()
        self._check_out(method, params)
        pending = self._send_request(method, params)
        with flag.waking(pending.done.set):
            answered = pending.done.wait(timeout)
        response = self._pending.leave(pending, late)
        if response is not None:
            return self._result_of(method, response)
        if pending.closed:
            raise ConnectionClosed(f"{method}: the other side is gone")
        self.notify(self._rules.cancel_method, {"requestId": pending.id})
        if not answered:
            raise TimeoutError(f"{method}: no answer within {timeout:g} s")
        flag.check()
        raise ConnectionClosed(method)

    def post(self, method: str, params: dict[str, object]) -> None:
        """Send a request whose answer does not matter. Never waits. Raises `ConnectionClosed`."""
        self._check_out(method, params)
        self._send_request(method, params)

    def notify(self, method: str, params: dict[str, object], checked: bool = False) -> None:
        """Send a notification; `checked` says that the caller knows that it fits. Never waits."""
        if not checked:
            self._check_out(method, params)
        self._writer.put(message.encode(message.notification(method, params)))

    def put_growing(self, line: Growing, method: str, params: dict[str, object]) -> None:
        """Queue a line that may grow while it waits; `params` is what it would say if it did not."""
        self._check_out(method, params)
        self._writer.put(line)

    def extend(self, line: Growing, text: str) -> bool:
        """Append text to a line put by `put_growing`; False when it has already gone out."""
        return self._writer.extend(line, text)

    def wait_for_room(self, cancel: CancelFlag) -> None:
        """Wait while the peer is far behind in reading; returns at once when `cancel` is set."""
        self._writer.wait_for_room(cancel)

    def _send_request(self, method: str, params: dict[str, object]) -> Pending:
        """Send a request. It becomes pending last: one that is no JSON leaves nothing behind."""
        request_id = self._pending.new_id()
        line = message.encode(message.request(request_id, method, params))
        pending = self._pending.add(request_id, method)
        self._writer.put(line)
        return pending

    def _result_of(self, method: str, response: Response) -> dict[str, object]:
        if response.error is not None:
            raise response.error
        result, forgiven = self._rules.forgive_result(method, response.result)
        _log_forgiven(method, forgiven)
        faults = self._rules.check_result(method, result)
        if faults or not isinstance(result, dict):
            details = f"{method}: the answer does not fit: {schema.describe(faults)}"
            raise RpcError.with_details(INTERNAL_ERROR, details)
        return result

    # Answers of ours

    def send_result(self, call: Call, result: object) -> None:
        """Send the result of a request of the peer. For `Call.answer`, which knows whether it may."""
        faults = self._rules.check_result(call.method, result)
        self._log_faults(faults, call.method)
        try:
            if faults and self._strict:
                raise ValueError(schema.describe(faults))
            line = message.encode(message.result(call.id, result))  # type: ignore[arg-type]
        except ValueError as error:
            log.error("%s: the result cannot be sent: %s", call.method, error)
            details = f"The result is not valid: {error}"
            self.send_error(call.id, RpcError.with_details(INTERNAL_ERROR, details))
        else:
            self._writer.put(line)

    def send_error(self, request_id: RequestId | None, error: RpcError) -> None:
        """Send an error answer. For `Call.fail` and for lines that are no call."""
        wire = message.error(request_id, error)
        self._log_faults(schema.check_error(wire["error"]), "error answer")
        self._writer.put(message.encode(wire))

    def _check_out(self, method: str, params: dict[str, object]) -> None:
        faults = self._rules.check_params(method, params)
        self._log_faults(faults, method)
        if faults and self._strict:
            raise OutgoingFault(f"{method}: {schema.describe(faults)}")

    def _log_faults(self, faults: list[schema.Fault], what: str) -> None:
        if faults:
            log.error("an outgoing message does not fit the schema: %s: %s", what, schema.describe(faults))


def _log_forgiven(method: str, forgiven: list[schema.Fault]) -> None:
    for fault in forgiven:
        log.debug("%s: forgiven: %s: %s", method, fault.path, fault.reason)

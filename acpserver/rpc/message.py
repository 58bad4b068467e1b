"""One line of text <-> one JSON-RPC 2.0 message. Pure functions, used by any thread.

`parse` never raises: what is not a message becomes `Invalid`, which knows how it must be answered.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from acpserver import jsontext
from acpserver.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, RpcError

RequestId: TypeAlias = "int | float | str"


class Request(NamedTuple):
    """A call that must be answered. `params` is None when the member is absent or null."""

    id: RequestId
    method: str
    params: object = None


class Notification(NamedTuple):
    """A call that must never be answered."""

    method: str
    params: object = None


class Response(NamedTuple):
    """An answer to a request of ours. `error` is None exactly when `result` counts.

    `id` is None when the message carries none that could be ours.
    """

    id: RequestId | None
    result: object = None
    error: RpcError | None = None


class Invalid(NamedTuple):
    """A line that is not a message. It is answered with `error` and `id`."""

    error: RpcError
    id: RequestId | None = None


Message: TypeAlias = "Request | Notification | Response | Invalid"


def parse(line: bytes) -> Message:
    """Read one line (JSON-RPC 2.0, sections 4 to 6; ACP has no batches)."""
    try:
        value = jsontext.loads(line.decode("utf-8-sig"))
    except ValueError as error:  # also UnicodeDecodeError
        return Invalid(RpcError.with_details(PARSE_ERROR, f"The line is not JSON: {_short(error)}"))
    if isinstance(value, list):
        return _invalid("Batches are not part of ACP; send one message per line")
    if not isinstance(value, dict):
        return _invalid("A message must be a JSON object")
    if "method" in value:
        return _parse_call(value)
    if "id" in value or "result" in value or "error" in value:
        return _parse_response(value)
    return _invalid("A message needs a method, a result or an error")


def _parse_call(value: dict[str, object]) -> Message:
    request_id = usable_id(value.get("id"))
    method = value["method"]
    params = value.get("params")
    if "id" in value and request_id is None:
        return _invalid("The id of a request must be a number or a string")
    if not isinstance(method, str):
        return _invalid("The method must be a string", request_id)
    if request_id is None:
        return Notification(method, params)
    if value.get("jsonrpc") != "2.0":
        return _invalid('A message needs "jsonrpc": "2.0"', request_id)
    return Request(request_id, method, params)


def _parse_response(value: dict[str, object]) -> Response:
    request_id = usable_id(value.get("id"))
    error = value.get("error")
    if error is None and "result" in value:
        return Response(request_id, value["result"])
    return Response(request_id, None, _parse_error(error))


def _parse_error(error: object) -> RpcError:
    """The error of an answer; one without the required members counts as an internal error."""
    if not isinstance(error, dict):
        return RpcError.with_details(INTERNAL_ERROR, "The answer has neither a result nor an error")
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    if not isinstance(code, int) or isinstance(code, bool):
        code = INTERNAL_ERROR
    return RpcError(
        code,
        message if isinstance(message, str) else None,
        data if isinstance(data, dict) else None,
    )


def usable_id(value: object) -> RequestId | None:
    """`value` if it can be the id of a request, else None. null is not: its answer could not be told
    from the answer to an unreadable line (JSON-RPC 2.0, section 4)."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    return None


def id_key(value: RequestId) -> str:
    """A dictionary key that keeps 1, 1.0 and "1" apart."""
    return jsontext.dumps(value)


def request(request_id: RequestId, method: str, params: object) -> dict[str, object]:
    """The wire form of a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: object) -> dict[str, object]:
    """The wire form of a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(request_id: RequestId, value: object) -> dict[str, object]:
    """The wire form of a successful answer."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: RequestId | None, fault: RpcError) -> dict[str, object]:
    """The wire form of an error answer; `data` is left out when there is none."""
    body: dict[str, object] = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        body["data"] = fault.data
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def encode(message: dict[str, object]) -> bytes:
    """One line, ended by a newline. Raises `ValueError` for what JSON cannot carry."""
    return jsontext.dumps(message).encode("ascii") + b"\n"


def _invalid(details: str, request_id: RequestId | None = None) -> Invalid:
    return Invalid(RpcError.with_details(INVALID_REQUEST, details), request_id)


def _short(error: Exception) -> str:
    """What was wrong, without quoting the input at length."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return str(error)[:200]

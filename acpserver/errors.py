"""The error families, and every JSON-RPC and ACP error code once.

A family says who catches it: `RpcError` becomes an error answer, `ProviderError` is retried or told to
the user, `ToolError` becomes a failed tool result that the model reads, `Cancelled` ends a turn.
No thread of its own; everything here is a value.
"""

from __future__ import annotations

# JSON-RPC 2.0, section 5.1.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# ACP schema, definition ErrorCode.
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
REQUEST_CANCELLED = -32800

MESSAGES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    AUTH_REQUIRED: "Authentication required",
    RESOURCE_NOT_FOUND: "Resource not found",
    REQUEST_CANCELLED: "Request cancelled",
}


class AcpError(Exception):
    """The root of all errors that this package raises on purpose."""


class RpcError(AcpError):
    """An error that goes to the peer as the `error` member of an answer, or came from it.

    `data`, when given, is a JSON object; for -32603 it holds exactly the one key `details`, because some
    editors show it only then.
    """

    def __init__(self, code: int, message: str | None = None, data: dict[str, object] | None = None):
        self.code = code
        self.message = message or MESSAGES.get(code, "Error")
        self.data = data
        super().__init__(f"{self.message} ({code})")

    @classmethod
    def with_details(cls, code: int, details: str) -> RpcError:
        """An error with the standard message of `code` and one sentence of explanation."""
        return cls(code, None, {"details": details})

    @property
    def details(self) -> str:
        """The explanation for a person: `data.details` where there is one, else the message."""
        if isinstance(self.data, dict) and isinstance(self.data.get("details"), str):
            return str(self.data["details"])
        return self.message


class ConnectionClosed(AcpError):
    """The peer is gone; a request to it can no longer be answered."""


class ProviderError(AcpError):
    """A model call failed. `str(error)` is one or two sentences that a user can act on.

    `status` is the HTTP status, 0 when there was none. `retryable` says whether the same request may
    succeed later; `retry_after` is the wait in seconds that the server asked for. `kind` names the fault.
    """

    most_attempts: int | None = None
    """How many are worth it where that is known to be few; None leaves it to the policy."""

    def __init__(
        self,
        text: str,
        *,
        kind: str,
        status: int = 0,
        retryable: bool = False,
        retry_after: float | None = None,
    ):
        super().__init__(text)
        self.kind = kind
        """One of "auth", "network", "rate_limit", "server", "request", "context", "stream", "output"."""
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after


class ToolError(AcpError):
    """A tool could not do what was asked; `str(error)` is the text that the model reads."""


class Cancelled(AcpError):
    """The work was cancelled: raised by a cancel flag and by every operation that it woke."""


class StoreError(RpcError):
    """A session file could not be read or changed; `details` says why, for a person."""

    def __init__(self, details: str, code: int = INTERNAL_ERROR):
        super().__init__(code, None, {"details": details})


class ConfigError(AcpError):
    """The configuration cannot be used; `str(error)` names the source, the key and what is wrong."""

"""What a connection must know of the protocol that it carries. Pure values; any thread.

`ACP` checks every message against the schema. MCP servers speak JSON-RPC too, with other methods; `MCP`
leaves the contents to whoever asked.
"""

from __future__ import annotations

from typing import Protocol

from acpserver.rpc import legacy, schema
from acpserver.rpc.schema import Fault


class Rules(Protocol):
    """The protocol's part of a connection."""

    cancel_method: str
    """The notification that withdraws a request."""
    is_strict: bool
    """Whether nonsense is answered, and an answer's id must have the type of the request's. Programs that
    speak MCP are known to print log lines to stdout, and to answer the id 7 with "7"."""

    def canonical(self, method: str, params: object) -> tuple[str, object]:
        """A call under today's names."""

    def forgive_params(self, method: str, params: object) -> tuple[object, list[Fault]]:
        """Incoming params as they were meant, and what was mended."""

    def check_params(self, method: str, params: object) -> list[Fault]:
        """What is wrong with params, in either direction."""

    def forgive_result(self, method: str, result: object) -> tuple[object, list[Fault]]:
        """An incoming result as it was meant, and what was mended."""

    def check_result(self, method: str, result: object) -> list[Fault]:
        """What is wrong with a result, in either direction."""


class _Acp:
    """The Agent Client Protocol, by its schema."""

    cancel_method = "$/cancel_request"
    is_strict = True
    canonical = staticmethod(legacy.canonical)
    forgive_params = staticmethod(schema.forgive_params)
    check_params = staticmethod(schema.check_params)
    forgive_result = staticmethod(schema.forgive_result)
    check_result = staticmethod(schema.check_result)


class _Mcp:
    """The Model Context Protocol: anything that is JSON-RPC."""

    cancel_method = "notifications/cancelled"
    is_strict = False

    def canonical(self, method: str, params: object) -> tuple[str, object]:
        return method, params

    def forgive_params(self, method: str, params: object) -> tuple[object, list[Fault]]:
        return params, []

    def check_params(self, method: str, params: object) -> list[Fault]:
        return []

    forgive_result = forgive_params
    check_result = check_params


ACP: Rules = _Acp()
MCP: Rules = _Mcp()

"""`acp-validate probe`: an active conformance run against any agent, many small scenarios."""

from __future__ import annotations

from acpserver.validate.probe.command import add_arguments, run

__all__ = ["add_arguments", "run"]

"""The way into `acp-validate`. An editor waits for what `run` starts, so `run` loads nothing but itself.

Runs on the main thread.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while this loads: the end, and no traceback

from acpserver import system  # noqa: E402
from acpserver.validate import proxy  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    system.stand_in_for_closed()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] != ["run"]:
        from acpserver.validate import command

        return command.main(given)
    parser = argparse.ArgumentParser(prog="acp-validate run", description=proxy.DESCRIPTION)
    proxy.add_arguments(parser)
    return proxy.run(parser.parse_args(given[1:]))

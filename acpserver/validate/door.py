"""The way into `acp-validate`. An editor waits for what `run` starts, so `run` loads nothing but itself.

Runs on the main thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from acpserver.validate import proxy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] != ["run"]:
        from acpserver.validate import command

        return command.main(given)
    parser = argparse.ArgumentParser(prog="acp-validate run", description=proxy.DESCRIPTION)
    proxy.add_arguments(parser)
    return proxy.run(parser.parse_args(given[1:]))

"""`python -m acpserver`, and the installed command: loads the program and runs it on the main thread."""

from __future__ import annotations

import gc
import signal

gc.disable()  # nothing of what is loaded becomes garbage; looking for some takes 8 ms, and an editor waits
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while this loads: the end, and no traceback

from acpserver import cli  # noqa: E402


def main() -> int:
    """Run the command line and return the exit status."""
    gc.freeze()  # nor will it later
    gc.enable()
    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())

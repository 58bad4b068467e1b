"""`python -m acpserver`: the same as the installed command. Runs on the main thread; owns nothing."""

from __future__ import annotations

from acpserver.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

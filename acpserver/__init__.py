"""acpserver: a small agent server for the Agent Client Protocol (ACP) over stdin and stdout.

Importing this package has no effect: no file is read, no thread is started, nothing is printed.
"""

from acpserver.version import __version__

__all__ = ["__version__"]

"""Reading the small files that a start depends on, whatever somebody has put in their place. Any thread that
may touch the disk enters here. It must never wait: whoever reads a pipe that nobody writes to waits for ever.
"""

from __future__ import annotations

import errno
import os
import stat

MOST_BYTES = 1 << 20
"""Of a configuration; a few hundred bytes are usual."""


def read(path: str, most: int = MOST_BYTES) -> bytes:
    """What a file holds. Raises `OSError`, also for what is no file or holds more than `most` bytes."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        with open(fd, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(fd)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB")
    return content

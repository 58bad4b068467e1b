"""Addresses of model servers: is it one, is it this machine's own, what of it may be shown. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_THIS_MACHINE = re.compile(r"localhost|127\.[0-9.]+|::1")


def is_address(base_url: str) -> bool:
    """Whether a base URL is one: http or https, a host, and a port that can be."""
    try:
        parts = urlsplit(base_url.strip())
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number, a broken IPv6 address
        return False


def is_on_this_machine(base_url: str) -> bool:
    """Whether an address is one of this machine's own."""
    return bool(is_address(base_url) and _THIS_MACHINE.fullmatch(urlsplit(base_url.strip()).hostname or ""))


def shown(base_url: str) -> str:
    """An address without user, password and query, which may be secret; "" for what is none."""
    if not is_address(base_url):
        return ""
    parts = urlsplit(base_url.strip())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"

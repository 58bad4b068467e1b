"""Names and ids in the form that a server accepts. Pure; shared by the dialects."""

from __future__ import annotations

import hashlib
import re


def fit_id(call_id: str, allowed: re.Pattern[str], length: int = 24) -> str:
    """`call_id` itself where a server accepts it, else one made from it: the same for a call and its result.

    Ids come from other servers too when the model is changed in mid-conversation, in all their forms.
    """
    if allowed.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:length]


def fit_name(name: str) -> str:
    """A tool name that every server accepts, also for a name that a model made up."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "unknown"
    return (name if name[0].isalpha() or name[0] == "_" else f"_{name}")[:64]  # so Gemini wants it

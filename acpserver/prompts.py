"""Prompt blocks -> the text of a user message. Pure functions."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote, urlsplit

from acpserver.llm.types import Message, Text


def user_message(prompt: list[dict[str, object]]) -> Message:
    """The user's message: every block becomes text that a text-only model can use (rule P1)."""
    return Message("user", tuple(Text(text) for text in map(_block_text, prompt) if text))


def _block_text(block: dict[str, object]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        name = block.get("title") or block.get("name") or ""
        return f"\n[resource: {name} at {_readable(str(block.get('uri', '')))}]\n"
    if kind == "resource":
        resource = block.get("resource")
        return _resource_text(resource if isinstance(resource, dict) else {})
    return f"[{kind}: {block.get('mimeType', 'unknown type')}]"


def _resource_text(resource: dict[str, object]) -> str:
    uri = _readable(str(resource.get("uri", "")))
    mime = str(resource.get("mimeType") or "")
    text = resource.get("text")
    if not isinstance(text, str):
        text = _decoded(str(resource.get("blob", "")), mime)
    if text is None:
        return f"\n[resource: {uri} ({mime or 'binary data'})]\n"
    return f'\n<resource uri="{uri}">\n{text}\n</resource>\n'


def _decoded(blob: str, mime: str) -> str | None:
    """The text in a base64 blob, or None when it holds none."""
    try:
        text = base64.b64decode(blob, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    is_text = mime.startswith("text/") or mime in ("", "application/json", "application/xml")
    return text if is_text and "\0" not in text else None


def _readable(uri: str) -> str:
    """A file URI as a path, anything else as it is."""
    return unquote(urlsplit(uri).path) if uri.startswith("file://") else uri

"""Prompt blocks -> the parts of a user message. Pure functions."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote, urlsplit

from acpserver.errors import INVALID_PARAMS, RpcError
from acpserver.llm.types import Image, Message, Part, Text

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types that every model with eyes takes."""
MAX_IMAGE = 5 * 1024 * 1024  # bytes of one image: the least of what the providers document
MAX_IMAGES = 20  # in one prompt


def user_message(prompt: list[dict[str, object]], images: bool = False) -> Message:
    """The user's message. Every block becomes text that a text-only model can use (rule P1), but with
    `images` those that models can take stay images."""
    parts: list[Part] = []
    for block in prompt:
        image = _image(block) if images else None
        if image is not None:
            parts.append(image)
        elif text := _block_text(block):
            parts.append(Text(text))
    return Message("user", tuple(parts))


def image_marker(mime: str) -> str:
    """What a model without eyes reads in place of an image."""
    return f"[image: {mime or 'unknown type'}]"


def check_images(prompt: list[dict[str, object]]) -> None:
    """Raise `RpcError` -32602, which says the limit, for images that no model would take."""
    sizes = [_size(block) for block in prompt if block.get("type") == "image"]
    details = ""
    if len(sizes) > MAX_IMAGES:
        details = f"params.prompt: holds {len(sizes)} images, and at most {MAX_IMAGES} can be sent"
    elif -1 in sizes:
        details = "params.prompt: an image's data is not base64"
    elif sizes and max(sizes) > MAX_IMAGE:
        details = (
            f"params.prompt: an image of {max(sizes) / 1024**2:.1f} MiB is too large, "
            f"the limit is {MAX_IMAGE // 1024**2} MiB"
        )
    if details:
        raise RpcError.with_details(INVALID_PARAMS, details)


def _size(block: dict[str, object]) -> int:
    """The bytes of an image block; -1 when its data is no base64."""
    data = block.get("data")
    try:
        return len(base64.b64decode(data, validate=True)) if isinstance(data, str) else -1
    except (binascii.Error, ValueError):
        return -1


def _image(block: dict[str, object]) -> Image | None:
    mime, data = block.get("mimeType"), block.get("data")
    if block.get("type") != "image" or mime not in IMAGE_TYPES or not isinstance(data, str) or not data:
        return None
    return Image(str(mime), data)


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
    if kind == "image":
        return image_marker(str(block.get("mimeType") or ""))
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

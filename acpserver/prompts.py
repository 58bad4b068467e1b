"""Prompt blocks -> the parts of a user message. Pure functions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Container
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from acpserver.errors import INVALID_PARAMS, RpcError
from acpserver.llm.types import Audio, Image, Message, Part, Text

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types that every model with eyes takes."""

AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/aiff": "aiff",
    "audio/x-aiff": "aiff",
    "audio/aac": "aac",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
}
"""The format behind each media type; `catalog.AUDIO_SENT` says which of them a dialect can send."""

MOST = 20  # images, and as many recordings, in one prompt


class _Kind(NamedTuple):
    """What may be attached to a prompt besides text. `limit` is in bytes of one piece."""

    noun: str
    part: type[Image] | type[Audio]
    types: Container[str]
    limit: int


_KINDS = {
    # Both limits are the least of what the providers document: 5 MB, and 10 MB of base64.
    "image": _Kind("image", Image, IMAGE_TYPES, 5 << 20),
    "audio": _Kind("audio clip", Audio, AUDIO_FORMATS, 7 << 20),
}


def user_message(prompt: list[dict[str, object]], attachments: bool = False) -> Message:
    """The user's message. Every block becomes text that a text-only model can use (rule P1), but with
    `attachments` images and recordings that some model can take stay what they are."""
    parts: list[Part] = []
    for block in prompt:
        part = _attachment(block) if attachments else None
        if part is not None and sum(type(one) is type(part) for one in parts) < MOST:
            parts.append(part)
        elif text := _block_text(block):
            parts.append(Text(text))
    return Message("user", tuple(parts))


def marker(kind: str, mime: str) -> str:
    """What a model reads in place of an image or of audio that it does not take."""
    return f"[{kind}: {mime or 'unknown type'}]"


def check_attachments(prompt: list[dict[str, object]], kind: str, types: Collection[str]) -> None:
    """Raise `RpcError` -32602, which says what is possible, unless a model that takes these media types can
    be sent all that is of the kind ("image" or "audio")."""
    noun, _, _, limit = _KINDS[kind]
    blocks = [block for block in prompt if block.get("type") == kind]
    sizes = list(map(_size, blocks))
    other = [mime for mime in map(_media_type, blocks) if mime not in types]
    details = ""
    if len(blocks) > MOST:
        details = f"holds {len(blocks)} {noun}s, and at most {MOST} can be sent"
    elif other:
        details = f"the model does not take {other[0] or 'an unknown type'}, but {', '.join(types)}"
    elif -1 in sizes:
        details = f"an {noun}'s data is not base64, or empty"
    elif sizes and max(sizes) > limit:
        size = max(sizes) / (1 << 20)
        details = f"an {noun} of {size:.1f} MiB is too large, the limit is {limit >> 20} MiB"
    if details:
        raise RpcError.with_details(INVALID_PARAMS, f"params.prompt: {details}")


def _size(block: dict[str, object]) -> int:
    """The bytes of an attachment; -1 when its data is no base64, or empty."""
    data = block.get("data")
    try:
        return (len(base64.b64decode(data, validate=True)) if isinstance(data, str) else 0) or -1
    except (binascii.Error, ValueError):
        return -1


def _media_type(block: dict[str, object]) -> str:
    """The media type without parameters, such as the codecs that browsers add."""
    return str(block.get("mimeType") or "").partition(";")[0].strip().lower()


def _attachment(block: dict[str, object]) -> Image | Audio | None:
    """The image or recording in a block; None when no model would take it: a server would refuse the whole
    history because of it, in this turn and in every later one."""
    kind, mime = _KINDS.get(str(block.get("type"))), _media_type(block)
    if kind is None or mime not in kind.types or not 0 < _size(block) <= kind.limit:
        return None
    return kind.part(mime, str(block["data"]))


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
    return marker(str(kind), str(block.get("mimeType") or ""))


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

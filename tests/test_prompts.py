"""Prompt blocks of every kind as the text that a model reads (rule P1)."""

from __future__ import annotations

import base64

import pytest

from acpserver.llm.types import Message, Text
from acpserver.prompts import user_message


def blob(data: bytes, mime: str | None, uri: str = "file:///w/a%20b") -> dict[str, object]:
    resource: dict[str, object] = {"uri": uri, "blob": base64.b64encode(data).decode()}
    if mime is not None:
        resource["mimeType"] = mime
    return {"type": "resource", "resource": resource}


BLOCKS = [
    ({"type": "text", "text": "hello"}, "hello"),
    ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "[image: image/png]"),
    ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "[audio: audio/wav]"),
    ({"type": "image"}, "[image: unknown type]"),
    (
        {"type": "resource_link", "uri": "file:///w/a%20b.py", "name": "a b.py"},
        "\n[resource: a b.py at /w/a b.py]\n",
    ),
    (
        {"type": "resource_link", "uri": "https://x/y%20z", "name": "y", "title": "The Y"},
        "\n[resource: The Y at https://x/y%20z]\n",
    ),
    (
        {"type": "resource", "resource": {"uri": "file:///w/a", "text": "one\ntwo"}},
        '\n<resource uri="/w/a">\none\ntwo\n</resource>\n',
    ),
    (
        {"type": "resource", "resource": {"uri": "zed:///s", "text": "", "mimeType": "text/x"}},
        '\n<resource uri="zed:///s">\n\n</resource>\n',
    ),
    (blob("\u00e4\n".encode(), "text/plain"), '\n<resource uri="/w/a b">\n\u00e4\n\n</resource>\n'),
    (blob(b"{}", "application/json"), '\n<resource uri="/w/a b">\n{}\n</resource>\n'),
    (blob(b"text", None), '\n<resource uri="/w/a b">\ntext\n</resource>\n'),
    (blob(b"%PDF", "application/pdf"), "\n[resource: /w/a b (application/pdf)]\n"),
    (blob(b"\xff\xfe", "text/plain"), "\n[resource: /w/a b (text/plain)]\n"),
    (blob(b"a\0b", "text/plain"), "\n[resource: /w/a b (text/plain)]\n"),
    (blob(b"\xff", None), "\n[resource: /w/a b (binary data)]\n"),
    (
        {"type": "resource", "resource": {"uri": "x:y", "blob": "not base64!"}},
        "\n[resource: x:y (binary data)]\n",
    ),
]


@pytest.mark.parametrize(("block", "text"), BLOCKS, ids=[str(text[:40]) for _, text in BLOCKS])
def test_a_block_becomes_text(block: dict[str, object], text: str) -> None:
    assert user_message([block]) == Message("user", (Text(text),))


def test_blocks_keep_their_order_and_empty_ones_are_left_out() -> None:
    message = user_message(
        [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]
    )
    assert message.parts == (Text("a"), Text("b"))


def test_a_damaged_resource_does_no_harm() -> None:
    assert user_message([{"type": "resource"}]).parts != ()

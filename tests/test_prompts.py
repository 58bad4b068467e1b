"""Prompt blocks of every kind as the text that a model reads (rule P1)."""

from __future__ import annotations

import base64

import pytest

from acpserver.errors import RpcError
from acpserver.llm.types import Image, Message, Text
from acpserver.prompts import check_images, user_message


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


def image(mime: str, data: bytes) -> dict[str, object]:
    return {"type": "image", "mimeType": mime, "data": base64.b64encode(data).decode()}


def test_images_stay_images_for_a_model_with_eyes() -> None:
    prompt = [
        {"type": "text", "text": "what?"},
        image("image/png", b"abc"),
        image("image/svg+xml", b"<svg/>"),
    ]
    parts = (Text("what?"), Image("image/png", "YWJj"), Text("[image: image/svg+xml]"))
    assert user_message(prompt, images=True).parts == parts
    assert user_message(prompt).parts[1] == Text("[image: image/png]")
    damaged = {"type": "image", "mimeType": "image/png", "data": 5}
    assert user_message([damaged], images=True).parts == (Text("[image: image/png]"),)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (
            [image("image/png", bytes(5 * 1024 * 1024 + 1))],
            "is too large, the limit is 5 MiB",
        ),
        ([image("image/png", b"x")] * 21, "holds 21 images, and at most 20 can be sent"),
        ([{"type": "image", "mimeType": "image/png", "data": "no base64!"}], "an image's data is not base64"),
        ([{"type": "image", "mimeType": "image/png"}], "an image's data is not base64"),
    ],
    ids=["large", "many", "no base64", "no data"],
)
def test_images_that_no_model_takes_are_told_with_the_limit(
    prompt: list[dict[str, object]], words: str
) -> None:
    with pytest.raises(RpcError) as caught:
        check_images(prompt)
    assert caught.value.code == -32602
    assert words in caught.value.details


def test_usual_images_pass() -> None:
    check_images([{"type": "text", "text": "x"}, image("image/png", bytes(5 * 1024 * 1024))])

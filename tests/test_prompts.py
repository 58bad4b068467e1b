"""Prompt blocks of every kind as the text that a model reads (rule P1)."""

from __future__ import annotations

import base64

import pytest

from acpserver.errors import RpcError
from acpserver.llm.types import Audio, Image, Message, Text
from acpserver.prompts import check_attachments, user_message


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


def attachment(kind: str, mime: str, data: bytes) -> dict[str, object]:
    return {"type": kind, "mimeType": mime, "data": base64.b64encode(data).decode()}


def image(data: bytes) -> dict[str, object]:
    return attachment("image", "image/png", data)


def audio(data: bytes) -> dict[str, object]:
    return attachment("audio", "audio/wav", data)


def test_attachments_stay_what_they_are_for_models_that_take_them() -> None:
    prompt = [
        {"type": "text", "text": "what?"},
        image(b"abc"),
        attachment("image", "image/svg+xml", b"<svg/>"),
        audio(b"abc"),
        attachment("audio", "Audio/MPEG; codecs=mp3", b"abc"),
        attachment("audio", "audio/webm", b"abc"),
    ]
    assert user_message(prompt, attachments=True).parts == (
        Text("what?"),
        Image("image/png", "YWJj"),
        Text("[image: image/svg+xml]"),
        Audio("audio/wav", "YWJj"),
        Audio("audio/mpeg", "YWJj"),
        Text("[audio: audio/webm]"),
    )
    assert user_message(prompt).parts[1] == Text("[image: image/png]")
    assert user_message(prompt).parts[3] == Text("[audio: audio/wav]")


@pytest.mark.parametrize(
    ("kind", "mime", "limit"),
    [("image", "image/png", 5 * 1024 * 1024), ("audio", "audio/wav", 7 * 1024 * 1024)],
)
def test_what_no_model_takes_becomes_text_for_every_later_one_too(kind: str, mime: str, limit: int) -> None:
    """It comes into a history by way of a model that takes no attachments."""
    damaged: list[dict[str, object]] = [
        {"type": kind, "mimeType": mime, "data": 5},
        {"type": kind, "mimeType": mime, "data": ""},
        {"type": kind, "mimeType": mime, "data": "no base64!"},
        attachment(kind, mime, bytes(limit + 1)),
    ]
    told = (Text(f"[{kind}: {mime}]"),)
    assert [user_message([block], attachments=True).parts for block in damaged] == [told] * 4
    many = user_message([attachment(kind, mime, b"x")] * 21, attachments=True).parts
    assert [type(part) is Text for part in many] == [False] * 20 + [True]


TYPES = {"image": ("image/png", "image/jpeg"), "audio": ("audio/wav", "audio/mp3")}


@pytest.mark.parametrize(
    ("kind", "prompt", "details"),
    [
        (
            "image",
            [image(bytes(6_000_000))],
            "an image of 5.7 MiB is too large, the limit is 5 MiB",
        ),
        (
            "audio",
            [audio(bytes(7 * 1024 * 1024 + 1))],
            "an audio clip of 7.0 MiB is too large, the limit is 7 MiB",
        ),
        ("image", [image(b"x")] * 21, "holds 21 images, and at most 20 can be sent"),
        ("audio", [audio(b"x")] * 21, "holds 21 audio clips, and at most 20 can be sent"),
        (
            "image",
            [{"type": "image", "mimeType": "image/png", "data": "no base64!"}],
            "an image's data is not base64, or empty",
        ),
        (
            "audio",
            [{"type": "audio", "mimeType": "audio/wav"}],
            "an audio clip's data is not base64, or empty",
        ),
        (
            "image",
            [attachment("image", "image/heic", b"x")],
            "the model does not take image/heic, but image/png, image/jpeg",
        ),
        (
            "audio",
            [audio(b"x"), attachment("audio", "audio/webm;codecs=opus", b"x")],
            "the model does not take audio/webm, but audio/wav, audio/mp3",
        ),
        ("audio", [{"type": "audio", "data": "eA=="}], "the model does not take an unknown type, but"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_model_cannot_be_sent_is_told_with_the_limit(
    kind: str, prompt: list[dict[str, object]], details: str
) -> None:
    with pytest.raises(RpcError) as caught:
        check_attachments(prompt, kind, TYPES[kind])
    assert caught.value.code == -32602
    assert caught.value.details.startswith(f"params.prompt: {details}")


def test_usual_attachments_pass() -> None:
    largest = [{"type": "text", "text": "x"}, image(bytes(5 * 1024 * 1024)), audio(bytes(7 * 1024 * 1024))]
    for kind, types in TYPES.items():
        check_attachments(largest, kind, types)


def test_one_kind_is_not_checked_for_the_other() -> None:
    check_attachments([{"type": "audio", "data": 5}] * 30, "image", TYPES["image"])

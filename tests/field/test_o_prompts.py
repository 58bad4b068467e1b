"""Content blocks, and text that looks like a command."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.e2e.moments import Stage
from tests.fakes.llm_answers import text

Block = dict[str, Any]

LINK = {"type": "resource_link", "name": "notes"}
BLOCKS: dict[str, tuple[Block, str]] = {
    "text": ({"type": "text", "text": "plain words"}, "plain words"),
    "link to a file": ({**LINK, "uri": "file:///tmp/my%20notes.md"}, "/tmp/my notes.md"),
    "link as a path": ({**LINK, "uri": "/tmp/notes.md"}, "/tmp/notes.md"),
    "link to a page": ({**LINK, "uri": "https://example.com/a%20b"}, "https://example.com/a%20b"),
    "text resource": (
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside a"}},
        "inside a",
    ),
    "text as bytes": (
        {
            "type": "resource",
            "resource": {
                "uri": "file:///b.txt",
                "mimeType": "text/plain",
                "blob": base64.b64encode("größe".encode()).decode(),
            },
        },
        "größe",
    ),
    "other bytes": (
        {
            "type": "resource",
            "resource": {"uri": "file:///c.bin", "mimeType": "application/zip", "blob": "UEsDBA=="},
        },
        "/c.bin",
    ),
    "broken bytes": (
        {"type": "resource", "resource": {"uri": "file:///d.bin", "blob": "no base64!"}},
        "/d.bin",
    ),
    "image": ({"type": "image", "mimeType": "image/png", "data": "AAAA"}, "image/png"),
    "audio": ({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}, "audio/wav"),
}


def heard(at: Stage) -> str:
    """What the user said last, as the model got it."""
    content = at.llm.requests[-1].messages[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] if part["type"] == "text" else json.dumps(part) for part in content)


@pytest.mark.parametrize(("block", "words"), BLOCKS.values(), ids=BLOCKS.keys())
def test_row_212_213_214_every_kind_of_block_reaches_the_model(at: Stage, block: Block, words: str) -> None:
    """A block was dropped, refused when it stood alone, or stopped the turn."""
    for blocks in ([block], [{"type": "text", "text": "look: "}, block]):
        at.llm.script(text("seen"))
        assert at.editor.prompt(at.session, blocks).wait() == "end_turn"
        assert words in heard(at)


def test_row_213_an_empty_prompt_is_refused(at: Stage) -> None:
    """A prompt of nothing hung, or went to the model."""
    reply = at.editor.request("session/prompt", {"sessionId": at.session, "prompt": []})
    assert reply.code == -32602
    assert "prompt" in reply.details


def test_row_212_a_block_of_an_unknown_kind_is_named(at: Stage) -> None:
    """A kind of a later version of the protocol crashed the agent."""
    block = {"type": "hologram", "data": "x"}
    reply = at.editor.request("session/prompt", {"sessionId": at.session, "prompt": [block]})
    assert reply.code == -32602
    assert "prompt" in reply.details and "type" in reply.details


SLASHES = ["/nope", "/", "//", "/path/to/file explain", " /help", "/help\n", "/HELP", "/exit", "/quit"]


@pytest.mark.parametrize("words", SLASHES)
def test_row_216_217_text_with_a_slash_is_answered(at: Stage, words: str) -> None:
    """A command that nobody knew ended the turn without a word, or the process."""
    at.llm.script(text("answered"))
    turn = at.editor.prompt(at.session, words)
    assert turn.wait() == "end_turn"
    assert turn.text
    assert at.editor.process.poll() is None

"""Authentication."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.editor import Editor

FLAGS = {"nothing configured": (), "offline": ("--model", "offline")}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
def test_row_194_197_every_method_has_an_id_and_a_name(flags: tuple[str, ...]) -> None:
    """A method of a kind that the client did not know broke the handshake."""
    with Editor(*flags) as editor:
        methods: list[dict[str, Any]] = editor.initialize()["authMethods"]  # type: ignore[assignment]
        assert methods
        for method in methods:
            assert method["id"] and method["name"]
            assert method.get("type", "agent") == "agent"


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
def test_row_196_198_the_first_method_works_at_once_and_twice(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """It took long, failed when it was not needed, or had no effect."""
    with Editor(*flags) as editor:
        method = editor.initialize()["authMethods"][0]["id"]  # type: ignore[index]
        start = time.monotonic()
        with editor.together():  # some clients do not wait for it before they open a session
            first = editor.send_request("authenticate", {"methodId": method})
            new = editor.send_request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
            second = editor.send_request("authenticate", {"methodId": method})
        assert first.wait_reply().result == {}
        assert second.wait_reply().result == {}
        session = str(new.wait_reply().result["sessionId"])
        assert time.monotonic() - start < 5.0
        assert editor.prompt(session, "say hello").wait() == "end_turn"

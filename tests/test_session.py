"""What a session knows: the options that hold before they are recorded, its servers, its notes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from acpserver import records
from acpserver.errors import StoreError
from acpserver.llm.types import Message
from acpserver.mcp import McpServers
from acpserver.processes import Children
from acpserver.session import Session
from acpserver.session_file import SessionFile


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    return Session("s", "/w", ("/w",), SessionFile(str(path), "s"), ["big", "offline"])


def test_an_option_holds_at_once_and_survives_in_the_file(session: Session) -> None:
    assert (session.mode, session.model) == ("default", "big")
    session.choose("mode", "bypass")
    assert session.mode == "bypass" and session.conversation.options == {}
    session.record_choice("mode", "bypass")
    again = Session("s", "/w", ("/w",), SessionFile(session.file.path, "s"), ["big", "offline"])
    assert (session.mode, again.mode, again.model) == ("bypass", "bypass", "big")


def test_the_choice_that_came_last_holds_at_every_moment(session: Session) -> None:
    for value in ("bypass", "read_only", "bypass"):
        session.choose("mode", value)
    for value in ("bypass", "read_only", "bypass"):
        assert session.mode == "bypass"
        session.record_choice("mode", value)
    assert session.mode == "bypass"


def test_a_choice_that_cannot_be_recorded_does_not_outlive_the_next(session: Session) -> None:
    Path(session.file.path).unlink()
    session.choose("mode", "bypass")
    with pytest.raises(StoreError):
        session.record_choice("mode", "bypass")
    Path(session.file.path).write_bytes(b"")
    assert session.mode == "default"
    session.choose("mode", "read_only")
    session.record_choice("mode", "read_only")
    session.note(records.option("mode", "accept_edits"))  # as another process would
    assert session.mode == "accept_edits"


def test_loads_at_once_leave_one_set_of_servers(session: Session, tmp_path: Path) -> None:
    children, barrier = Children(), threading.Barrier(8)
    specs: list[dict[str, object]] = [{"name": "s", "command": "s", "args": [], "env": []}]
    given = [McpServers(specs, children, str(tmp_path)) for _ in range(8)]
    unused: list[McpServers | None] = []

    def open_with(servers: McpServers) -> None:
        barrier.wait(5)
        unused.append(session.use_servers(servers))

    threads = [threading.Thread(target=open_with, args=(servers,)) for servers in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert unused.count(None) == 1
    assert {session.servers, *unused} == {None, *given}
    kept = session.servers
    assert session.use_servers(McpServers([], children, str(tmp_path))) is kept


def test_notes_are_in_the_conversation_and_in_the_file(session: Session) -> None:
    session.note(records.user("m", [{"type": "text", "text": "hello"}]))
    again = Session("s", "/w", ("/w",), SessionFile(session.file.path, "s"), ["big", "offline"])
    for one in (session, again):
        assert [message.text for message in one.conversation.messages] == ["hello"]
        assert isinstance(one.conversation.messages[0], Message) and one.conversation.title == "hello"

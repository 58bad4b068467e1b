"""A session's queue of turns, and the options that hold before they are recorded."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from acpserver import records
from acpserver.errors import StoreError
from acpserver.llm.types import Message
from acpserver.mcp import McpServers
from acpserver.processes import Children
from acpserver.rpc.call import Call, CallTable
from acpserver.session import Session, Turn
from acpserver.session_file import SessionFile


class Nobody:
    """Takes the answers."""

    def send_result(self, call: object, result: object) -> None: ...

    def send_error(self, request_id: object, error: object) -> None: ...


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    return Session("s", "/w", ("/w",), SessionFile(str(path), "s"), ["big", "offline"])


def turn(number: int, limit: float | None = None) -> Turn:
    return Turn(Call(CallTable(Nobody()), "session/prompt", {}, number), [], limit)


def test_turns_come_out_in_the_order_in_which_they_went_in(session: Session) -> None:
    turns = [turn(number) for number in range(3)]
    assert [session.add(one) for one in turns] == [True, False, False]
    assert session.busy
    assert [session.next_turn() for _ in range(4)] == [*turns, None]
    assert not session.busy
    assert session.add(turn(9)) is True


def test_one_worker_serves_a_session_whoever_adds(session: Session) -> None:
    starts, barrier = [], threading.Barrier(8)

    def add(number: int) -> None:
        barrier.wait(5)
        for _ in range(50):
            starts.append(session.add(turn(number)))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert starts.count(True) == 1
    assert sum(1 for _ in iter(session.next_turn, None)) == 400


def test_cancel_reaches_what_runs_and_what_waits_and_nothing_later(session: Session) -> None:
    turns = [turn(number) for number in range(3)]
    for one in turns[:2]:
        session.add(one)
    session.next_turn()
    session.cancel("session/cancel")
    session.cancel("again")
    session.add(turns[2])
    assert [one.cancel.is_set() for one in turns] == [True, True, False]
    assert turns[0].cancel.reason == "session/cancel"


def test_cancel_of_an_idle_session_does_nothing(session: Session) -> None:
    session.cancel("session/cancel")
    later = turn(1)
    session.add(later)
    assert not later.cancel.is_set()


def test_withdraw_takes_only_what_waits(session: Session) -> None:
    first, second, third = turn(1), turn(2), turn(3)
    for one in (first, second):
        session.add(one)
    session.next_turn()
    assert (session.withdraw(first), session.withdraw(second), session.withdraw(third)) == (
        False,
        True,
        False,
    )
    assert session.withdraw(second) is False
    assert session.next_turn() is None


def test_wait_idle(session: Session) -> None:
    assert session.wait_idle(0)
    session.add(turn(1))
    assert session.wait_idle(0.01) is False
    waited = threading.Event()

    def wait() -> None:
        if session.wait_idle(5):
            waited.set()

    thread = threading.Thread(target=wait)
    thread.start()
    session.next_turn()
    assert session.next_turn() is None
    assert waited.wait(5)
    thread.join(5)


def test_a_time_limit_counts_from_the_arrival_of_the_prompt() -> None:
    one = turn(1, 0.01)
    one.start_clock()
    assert one.cancel.event.wait(5)
    assert one.cancel.reason == "time limit"


def test_a_turn_that_ends_in_time_is_not_cancelled() -> None:
    one = turn(1, 0.05)
    one.start_clock()
    one.stop_clock()
    assert not one.cancel.event.wait(0.1)


def test_a_turn_without_a_limit_starts_no_timer() -> None:
    before = threading.active_count()
    one = turn(1)
    one.start_clock()
    assert threading.active_count() == before
    one.stop_clock()


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

"""Random sequences of requests against a model of what must be true.

One server at a time, in this process because that is faster, with the offline model, and a model of the
sessions in a dictionary: every answer of the server is compared with it, and after a restart everything that
it knew must still be there.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from acpserver.conversation import Conversation
from acpserver.session_file import parse_lines
from tests.fakes.editor import Editor, Turn
from tests.fakes.inside import Inside
from tests.story import story

MODES = ["default", "accept_edits", "read_only", "bypass"]
COMMANDS = ["say yes", "think hm\nsay so", "list .", "write a: b", "run echo out", "plan a; b", "read none"]


HANGING = {
    "say begun\nsleep 60": [("agent_message_chunk", "begun\n")],
    "think hm\nsay begun\nsleep 60": [("agent_thought_chunk", "hm\n"), ("agent_message_chunk", "begun\n")],
}
"""What a turn that hangs has told; all but the last of it has come to its end."""


@dataclass
class Known:
    """What must be true of one session. `story` is what a load must tell, without ids of messages; `begun` is
    the beginning of that for the turn that hangs."""

    story: list[Any] = field(default_factory=list)
    mode: str = "default"
    active: bool = True
    running: Turn | None = None
    begun: list[Any] = field(default_factory=list)
    turns: int = 0


def plain(told: list[Any]) -> list[Any]:
    """A story without what may differ between two processes: nothing but the ids of messages."""
    return [item if item[0] in ("call", "plan") else (item[0], item[2]) for item in told]


class SessionsMachine(RuleBasedStateMachine):
    """The rules; `sessions` are the ids that the client knows."""

    sessions = Bundle("sessions")

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.cwd = Path(self.folder.name) / "project"
        self.cwd.mkdir()
        self.home = str(Path(self.folder.name) / "home")
        self.known: dict[str, Known] = {}
        self.editor = self.open_editor()

    def open_editor(self) -> Editor:
        self.server = Inside(Path(self.home), model="offline")
        editor = Editor(run=self.server.run, permission="allow_once")
        editor.initialize()
        return editor

    def teardown(self) -> None:
        if hasattr(self, "editor"):
            self.editor.close()
            self.folder.cleanup()

    def params(self, session: str) -> dict[str, Any]:
        return {"sessionId": session, "cwd": str(self.cwd), "mcpServers": []}

    @rule(target=sessions)
    def new(self) -> str:
        session = self.editor.new_session(self.cwd)
        assert session not in self.known
        self.known[session] = Known()
        return session

    @rule(session=sessions, command=st.sampled_from(COMMANDS))
    def prompt(self, session: str, command: str) -> None:
        known = self.known[session]
        if not known.active or known.running:
            return
        turn = self.editor.prompt(session, command)
        assert turn.wait() == "end_turn"
        known.turns += 1
        known.story += [("user_message_chunk", command), *plain(story(turn.updates))]

    @rule(session=sessions)
    def prompt_twice(self, session: str) -> None:
        known = self.known[session]
        if known.active and not known.running:
            turns = [self.editor.prompt(session, f"say {number}") for number in range(2)]
            assert [turn.wait() for turn in turns] == ["end_turn"] * 2
            for number in range(2):
                said = [("user_message_chunk", f"say {number}"), ("agent_message_chunk", f"{number}\n")]
                known.story += said
            known.turns += 2

    @rule(session=sessions, command=st.sampled_from(list(HANGING)))
    def begin_a_turn_that_hangs(self, session: str, command: str) -> None:
        known = self.known[session]
        if known.active and not known.running:
            known.running = self.editor.prompt(session, command)
            known.running.until("agent_message_chunk")
            known.begun = [("user_message_chunk", command), *HANGING[command]]
            known.turns += 1

    @rule()
    def an_hour_passes(self) -> None:
        registry = self.server.server._sessions
        for session in registry.all():
            session.last_used -= 3_601
        registry.tidy()

    @rule(session=sessions)
    def cancel(self, session: str) -> None:
        self.editor.cancel(session)
        self.ended(session)

    def ended(self, session: str) -> None:
        """The turn that hung has been cancelled; what it said stays."""
        known = self.known[session]
        if known.running:
            assert known.running.wait() == "cancelled"
            known.story += known.begun
            known.running, known.begun = None, []

    @rule(session=sessions, mode=st.sampled_from(MODES))
    def set_mode(self, session: str, mode: str) -> None:
        known = self.known[session]
        if known.active:
            answer = self.editor.request("session/set_mode", {"sessionId": session, "modeId": mode})
            assert answer.result == {}
            known.mode = mode

    @rule(session=sessions)
    def load(self, session: str) -> None:
        known = self.known[session]
        before = len(self.editor.updates(session))
        result = self.editor.request("session/load", self.params(session)).result
        told = plain(story(self.editor.updates(session)[before:]))
        assert told == known.story + known.begun
        assert result["modes"]["currentModeId"] == known.mode
        known.active = True

    @rule(session=sessions)
    def resume(self, session: str) -> None:
        result = self.editor.request("session/resume", self.params(session)).result
        assert result["modes"]["currentModeId"] == self.known[session].mode
        self.known[session].active = True

    @rule(target=sessions, session=sessions)
    def fork(self, session: str) -> str:
        known = self.known[session]
        result = self.editor.request("session/fork", self.params(session)).result
        assert result["modes"]["currentModeId"] == known.mode
        fork = str(result["sessionId"])
        self.known[fork] = Known(known.story + known.begun[:-1], known.mode, turns=known.turns)
        return fork

    @rule(session=sessions)
    def close(self, session: str) -> None:
        known = self.known[session]
        reply = self.editor.request("session/close", {"sessionId": session})
        assert reply.result == {} if known.active else reply.code == -32002
        known.active = False
        self.ended(session)

    @rule(session=consumes(sessions))
    def delete(self, session: str) -> None:
        for _ in range(2):
            assert self.editor.request("session/delete", {"sessionId": session}).result == {}
        self.ended(session)
        del self.known[session]
        assert self.editor.request("session/load", self.params(session)).code == -32002

    @rule()
    def restart(self) -> None:
        for session in self.known:
            self.editor.cancel(session)
            self.ended(session)
        self.editor.close()
        self.editor = self.open_editor()
        for known in self.known.values():
            known.active = False

    @invariant()
    def the_list_is_right(self) -> None:
        if not hasattr(self, "editor"):
            return
        listed = self.editor.request("session/list", {"cwd": str(self.cwd)}).result
        wanted = {session for session, known in self.known.items() if known.turns}
        assert {entry["sessionId"] for entry in listed["sessions"]} == wanted

    @invariant()
    def every_file_is_valid(self) -> None:
        if not hasattr(self, "editor"):
            return
        paths = list((Path(self.home) / "state" / "sessions").glob("*/*.jsonl"))
        assert {path.stem for path in paths} == set(self.known)
        for path in paths:
            conversation = Conversation()
            for record in parse_lines(path.read_bytes().split(b"\n")):
                conversation.add(record)
            assert conversation.damaged == 0
            assert conversation.turns == self.known[path.stem].turns


SessionsMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestSessions = SessionsMachine.TestCase

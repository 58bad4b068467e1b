"""A session: what is known of a conversation while it is in memory.

A turn worker owns the conversation while a turn runs. The reader registers turns, and sets options in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from acpserver import records
from acpserver.config_file import Permissions
from acpserver.conversation import Conversation, add_up
from acpserver.mcp import McpServers
from acpserver.records import Record
from acpserver.session_file import SessionFile
from acpserver.turn_queue import TurnQueue


class Session:
    """One conversation, in memory and in its file.

    The conversation belongs to the turn that runs; only its options are set by other threads too, as
    single values that are read once where they count.
    """

    def __init__(
        self, session_id: str, cwd: str, roots: tuple[str, ...], file: SessionFile, models: Sequence[str]
    ):
        self.id = session_id
        """As the client knows it."""
        self.cwd = cwd
        self.roots = roots  # absolute; cwd is the first
        self.file = file
        self.turns = TurnQueue()
        self.servers: McpServers | None = None  # those of the last request that opened the session
        self._servers_lock = threading.Lock()  # guards the exchange of servers: loads may come at once
        self.permissions = Permissions()  # the user's, as the project in `cwd` tightens them
        self._told_permissions: Permissions | None = None  # those whose remarks the user has seen
        self.last_used = time.monotonic()
        self.story = threading.RLock()
        """Held while the file is used, while a record and the update that tells it go out together, and
        for a whole replay: so a replay in mid-turn tells each thing once. Never taken by the reader. A turn
        or a replay may wait under it for a slow client; who waits for it then waits for the same client."""
        self.unfinished: Callable[[], list[dict[str, object]]] | None = None
        """While a turn runs here: the updates that tell what it has shown and not recorded yet."""
        self.told_models: list[tuple[str, str]] | None = None
        """The models that the client was told of; None until the session is answered for."""
        self._models = models  # that can be chosen, the default first
        self._told_problem = ""
        self._told_lost_model = ""
        self._chosen_lock = threading.Lock()  # guards _chosen
        self._chosen: dict[str, tuple[str, ...]] = {}  # values, oldest first, that are not recorded yet
        self._conversation: Conversation | None = None
        self._kept_options: dict[str, str] | None = None  # of the conversation that was unloaded

    @property
    def conversation(self) -> Conversation:
        """What the records add up to; read from the file when it is not in memory. May block for the disk.

        Raises `StoreError` when the file cannot be read.
        """
        conversation = self._conversation
        if conversation is None:
            with self.story:
                self.records()
                conversation = self._conversation
        assert conversation is not None
        return conversation

    @property
    def knows_options(self) -> bool:
        """Whether `option` can be asked without the disk: always, once the session has been answered for."""
        return self._conversation is not None or self._kept_options is not None

    def records(self) -> list[Record | None]:
        """All records as they are now, None for each that is left out; the conversation follows them.

        Raises `StoreError` when the file cannot be read.
        """
        with self.story:
            self._conversation, found = add_up(self.file.read())
            return found

    def refresh(self) -> None:
        """Take in what another process has appended; called when a turn begins. Raises `StoreError`."""
        with self.story:
            if self.file.is_gone() and self._conversation is not None and not self._conversation.turns:
                # Another process has swept it away because it was never used; now it is.
                self.file.create(self._first_records(self._conversation))
            elif self._conversation is None or (self.file.has_news() and not self.file.problem):
                self.records()

    def _first_records(self, conversation: Conversation) -> list[Record]:
        options = [records.option(name, value) for name, value in conversation.options.items()]
        return [records.header(self.file.session_id, self.cwd), *options]

    def note(self, record: Record) -> None:
        """Write a record and add it to the conversation. Blocks for the disk."""
        with self.story:
            conversation = self.conversation  # before the record is in the file, or it would count twice
            self.file.append(record)
            conversation.add(record)

    def unload(self) -> None:
        """Drop the conversation from memory unless a turn runs; it is read again when it is needed."""
        if self.turns.busy:
            return
        with self.story:
            if self.file.stored and not self.file.problem and self._conversation is not None:
                self._kept_options = self._conversation.options
                self._conversation = None

    @property
    def mode(self) -> str:
        """The session's mode."""
        return self.option("mode", self.permissions.mode)

    @property
    def model(self) -> str:
        """The session's model; the default where this process no longer has what was chosen."""
        chosen = self.option("model", self._models[0])
        return chosen if chosen in self._models else self._models[0]

    def untold_lost_model(self) -> str:
        """The chosen model that this process does not have, each once; "" when there is nothing to tell. The
        choice stays recorded, so that it holds again when the model is back."""
        chosen = self.option("model", self._models[0])
        lost = "" if chosen in self._models else chosen
        told, self._told_lost_model = self._told_lost_model, lost
        return lost if lost != told else ""

    def option(self, option: str, default: str) -> str:
        """The value that was chosen for an option. Reads the file when nothing is known of it yet."""
        chosen = self._chosen.get(option)
        if chosen:
            return chosen[-1]
        conversation = self._conversation  # read once: another thread may unload it
        options = conversation.options if conversation else self._kept_options
        return (self.conversation.options if options is None else options).get(option, default)

    def choose(self, option: str, value: str) -> None:
        """Set an option in memory, from the next model or tool call on. Never blocks."""
        with self._chosen_lock:
            self._chosen = {**self._chosen, option: (*self._chosen.get(option, ()), value)}

    def record_choice(self, option: str, value: str) -> None:
        """Record an option that was set; called in the order of `choose`. Blocks for the disk.

        Raises `StoreError` when the file cannot be read; the choice is then taken back.
        """
        try:
            self.note(records.option(option, value))
        finally:
            with self._chosen_lock:
                self._chosen = {**self._chosen, option: self._chosen.get(option, ())[1:]}

    def unreported_damage(self) -> int:
        """How many damaged lines of the file the user has not been told of; they count as told now."""
        count = self.conversation.damaged - self.conversation.reported
        if count > 0:
            self.note(records.reported(count))
        return count

    def untold_remarks(self) -> tuple[str, ...]:
        """What the user should know about the project's file, each time the session is opened."""
        permissions = self.permissions  # another thread may replace them: what it sets must stand
        if permissions is self._told_permissions:
            return ()
        self._told_permissions = permissions
        return permissions.remarks

    def use_servers(self, servers: McpServers | None) -> McpServers | None:
        """Take the MCP servers of the request that opens the session, None when it ends. Returns those that
        are not in use afterwards: the ones before, or these when the ones before are the same."""
        with self._servers_lock:
            before = self.servers
            if before is not None and servers is not None and before.specs == servers.specs:
                return servers
            self.servers = servers
            return before

    def untold_problem(self) -> str:
        """Why the session cannot be saved, each reason once."""
        problem = self.file.problem
        if problem == self._told_problem:
            return ""
        self._told_problem = problem
        return problem

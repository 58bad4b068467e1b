"""The methods that set options, and the updates that keep every view of them true.

The reader sets an option in memory at once; one worker records the choices in order and answers. What
changes the offer of models (a list that has come, another configuration) may come from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from acpserver.agent import translate
from acpserver.client import Client
from acpserver.errors import StoreError
from acpserver.llm.providers import Models
from acpserver.options import config_options, valid_choice
from acpserver.rpc.call import Call, Handler, run_handler
from acpserver.session import Session
from acpserver.sessions import Sessions
from acpserver.workers import WorkerPool

log = logging.getLogger(__name__)


class OptionMethods:
    """One handler for each method. `editor` gives the client, once it has introduced itself."""

    def __init__(self, sessions: Sessions, models: Models, editor: Callable[[], Client]):
        self._sessions = sessions
        self._models = models
        self._editor = editor
        self._choices = WorkerPool("choice", 1)  # one thread: the choice that came last must hold
        self._told_lock = threading.Lock()  # guards what sessions were told

    def handlers(self) -> dict[str, Handler]:
        """The handlers, for the reader."""
        return {
            "session/set_mode": lambda call: self._apply(call, "mode", call.params.get("modeId"), {}),
            "session/set_model": lambda call: self._apply(call, "model", call.params.get("modelId"), {}),
            "session/set_config_option": lambda call: self._apply(
                call, str(call.params.get("configId")), call.params.get("value"), None
            ),
        }

    def opened(self, session: Session, shown: list[tuple[str, str]]) -> None:
        """A session was answered for, and the client told of these models; updates may follow from now on."""
        with self._told_lock:
            session.told_models = shown
        self.announce()

    def announce(self) -> None:
        """Tell every open session whose offer of models is not the one that its client knows (rule N1). Never
        waits."""
        self._choices.submit(self._announce)

    def _announce(self) -> None:
        names = self._models.names()
        sessions = self._sessions.all()
        with self._told_lock:
            stale = [one for one in sessions if one.told_models is not None and one.told_models != names]
            for session in stale:
                session.told_models = names
        for session in stale:
            try:
                options = config_options(session, self._models)
            except StoreError as error:  # its file cannot be read; the others are told all the same
                log.info("%s: %s", session.id, error)
            else:
                self._editor().update(session.id, translate.config_options(options))

    def wait_idle(self, timeout: float) -> bool:
        """Wait until every choice is recorded. False when `timeout` seconds were not enough."""
        return self._choices.wait_idle(timeout)

    def _apply(self, call: Call, option: str, value: object, result: dict[str, object] | None) -> None:
        """Set one option: at once in memory, then on disk; the answer after that, and the updates that make
        every view of it agree (rule N2)."""
        session = self._sessions.get(str(call.params.get("sessionId", "")))
        choice = valid_choice(session, self._models, option, value)
        session.choose(option, choice)

        def finish(call: Call) -> None:
            session.record_choice(option, choice)
            options = config_options(session, self._models)
            call.answer({"configOptions": options} if result is None else result)
            if option == "mode":
                self._editor().update(session.id, translate.current_mode(choice))
            if result is not None:
                self._editor().update(session.id, translate.config_options(options))

        self._choices.submit(lambda: run_handler(finish, call))

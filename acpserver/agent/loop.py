"""One turn, from the prompt to its stop reason: model call, tool calls, results back, again.

Runs on a turn worker, which owns the session's conversation meanwhile. Every finished thing is recorded
before the client is told, so the conversation can go on from whatever moment it is cut off at.
"""

from __future__ import annotations

import logging
import time
import uuid

from acpserver import records
from acpserver.agent import translate
from acpserver.agent.answer import Answer
from acpserver.agent.prompt import system_prompt
from acpserver.agent.replay import replay
from acpserver.agent.toolcalls import ToolRunner
from acpserver.client import Client, Update
from acpserver.config import Config
from acpserver.conversation import has_long_results
from acpserver.errors import Cancelled, ProviderError
from acpserver.llm.providers import Models
from acpserver.llm.types import Message, ModelRequest, ToolSpec, Usage
from acpserver.options import effort
from acpserver.prompts import check_attachments
from acpserver.session import Session
from acpserver.tools.ask import AskUser
from acpserver.tools.base import Tool
from acpserver.turn_queue import Turn

log = logging.getLogger(__name__)

REPEATED = "Stopped: the model made the same tool calls with the same results again and again."


class TurnLoop:
    """Runs one turn. `usage` is the sum over its model calls so far, None when no call told it; `cost` is in
    USD, None as soon as there was a call whose price is not known."""

    def __init__(
        self,
        session: Session,
        turn: Turn,
        client: Client,
        models: Models,
        tools: dict[str, Tool],
        config: Config,
    ):
        self.session = session
        self.turn = turn
        self.client = client
        self.models = models
        self.config = config
        self.usage: Usage | None = None
        self.cost: float | None = 0.0
        self._updates = client.updates(session.id, session.story, turn.call)
        self._answer: Answer | None = None  # of the model call that is under way
        self._runner = ToolRunner(session, turn, client, self._updates, tools)
        can_ask = client.can("elicitation", "form")
        offered = [tool for tool in tools.values() if can_ask or tool.name != AskUser.name]
        self._specs = tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in offered)

    def run(self) -> str:
        """The stop reason of the turn. Raises `ProviderError` when the model cannot be used."""
        try:
            self._begin()
            for _ in range(self.config.max_steps):
                stop = self._step()
                if stop:
                    return stop
            return "max_turn_requests"
        except Cancelled:
            return "cancelled"
        except ProviderError as error:
            if self._messages[-1].role == "user":
                # Nothing came of this prompt: sent again, it must not stand there twice.
                self.session.note(records.failed(str(error)))
            raise
        finally:
            self._tell_problem()
            self.session.unfinished = None

    @property
    def _messages(self) -> list[Message]:
        return self.session.conversation.messages

    def _begin(self) -> None:
        """Record the prompt; the first one gives the session its title. Raises `RpcError` for attachments
        that the model cannot be sent."""
        for kind, types in self.models.media_types(self.session.model).items():
            check_attachments(self.turn.prompt, kind, types)
        damaged = self.session.unreported_damage()
        if damaged:
            lines = "One damaged line" if damaged == 1 else f"{damaged} damaged lines"
            self._updates.remark(f"{lines} of the session file left out; nothing was removed from the file.")
        with self.session.story:
            self.session.note(records.user(str(uuid.uuid4()), self.turn.prompt))
            self.session.unfinished = self._unfinished
        conversation = self.session.conversation
        if conversation.turns == 1 and conversation.title:
            self._updates.send(translate.session_info(conversation.title, time.time()))

    def _step(self) -> str:
        """One model call and its tool calls. The stop reason, or "" when the model goes on."""
        answer = self._ask_model()
        if answer.finish == "refusal":
            self.session.note(records.refused())
            return "refusal"
        for call in answer.calls:
            self.turn.cancel.check()
            self._runner.run(call)
        if self._runner.repeats.is_endless:
            self._updates.remark(REPEATED)
            return "max_turn_requests"
        if answer.finish == "pause" or (answer.calls and answer.finish != "length"):
            return ""
        return "max_tokens" if answer.finish == "length" else "end_turn"

    def _ask_model(self) -> Answer:
        try:
            return self._stream()
        except ProviderError as error:
            came = self._messages[-1].role == "assistant"
            if error.kind != "context" or came or not has_long_results(self._messages):
                raise
        self.session.note(records.trimmed())
        self._updates.remark("The conversation no longer fits the model; older tool output was shortened.")
        return self._stream()

    def _stream(self) -> Answer:
        """One model call: send its updates, and record what came, also when it breaks off."""
        self.turn.cancel.check()
        model = self.session.model  # a choice that the user makes holds from the next model call on
        lost = self.session.untold_lost_model()
        if lost:
            self._updates.remark(
                f"The model {lost}, which was chosen for this session, is not available: {model} answers "
                "instead. The choice is kept, and holds again when the model is back."
            )
        provider = self.models.provider(model)
        self.models.learn(model, self.turn.cancel)
        request = self._request(model)
        self._answer = answer = Answer(self._updates, self.session.note)
        began, whole = time.monotonic(), False
        try:
            for event in provider.stream(request, self.turn.cancel):
                with self.session.story:
                    answer.take(event)
            whole = True
        finally:
            with self.session.story:
                self._answer = None
                cost = self._cost(model, answer.usage)
                answer.end(whole, cost)
        self._count(answer.usage, cost, request.context_window)
        took = time.monotonic() - began
        told = (self.session.id, model, answer.finish or "no reason", took, len(answer.calls), answer.usage)
        log.debug("%s: %s ended its answer (%s) after %.3f s: %d tool call(s), %s", *told)
        return answer

    def _request(self, model: str) -> ModelRequest:
        info = self.models.info(model)
        limits = [limit for limit in (self.config.max_tokens, info.output_limit) if limit is not None]
        must_limit = self.config.max_tokens is not None or self.models.dialect(model) == "anthropic"
        return ModelRequest(
            info.name,
            system_prompt(self.session.cwd, self.session.roots),
            tuple(self._messages),
            self._specs,
            min(limits) if limits and must_limit else None,
            effort(self.session, self.models),
            bool(info.images),
            info.context_window or self.config.context_window,
            audio=bool(info.audio),
        )

    def _cost(self, model: str, usage: Usage | None) -> float | None:
        """What a call has cost in USD, None when that is not known."""
        price = self.models.info(model).price
        if usage is None or price is None:
            return None
        return price.cost(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.written_tokens)

    def _unfinished(self) -> list[Update]:
        """What a replay in mid-turn tells behind the records. Called with the session's `story` held."""
        self._updates.break_text()
        if self._answer is not None:
            return list(replay([self._answer.unrecorded()], running=True))
        running, content = self.turn.running_call, self.turn.running_content
        if running is None:
            return []
        return [translate.tool_progress(running, content) if content else translate.tool_started(running)]

    def _count(self, usage: Usage | None, cost: float | None, window: int | None) -> None:
        if usage is None:
            return
        self.cost = self.cost + cost if self.cost is not None and cost is not None else None
        self.usage = self.usage.plus(usage) if self.usage else usage
        if window:
            self._updates.send(translate.usage_update(usage, window, self.session.conversation.cost))

    def _tell_problem(self) -> None:
        """Tell the user once that the session cannot be saved."""
        problem = self.session.untold_problem()
        if problem:
            self._updates.remark(f"{problem}. The conversation goes on in memory.")

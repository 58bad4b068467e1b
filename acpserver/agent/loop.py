"""One turn, from the prompt to its stop reason: model call, tool calls, results back, again.

Runs on a turn worker, which owns the session's history meanwhile. The history stays valid for the next
model call whatever happens: every tool call in it has exactly one result, in order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from acpserver.agent import translate
from acpserver.agent.prompt import system_prompt
from acpserver.agent.toolcalls import NOT_RUN, CutOff, ToolRunner
from acpserver.client import Client, TurnUpdates
from acpserver.config import Config
from acpserver.errors import Cancelled, ProviderError
from acpserver.llm.types import (
    Event,
    Finish,
    Message,
    ModelRequest,
    Part,
    Provider,
    Text,
    TextDelta,
    Thought,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    Waiting,
)
from acpserver.prompts import user_message
from acpserver.session import Session, Turn
from acpserver.tools.base import Tool

TRIMMED = 2_000  # characters of a tool result that stay when the context was too full
STOP_REASONS = {"length": "max_tokens", "refusal": "refusal"}


@dataclass
class Answer:
    """What one model call gave."""

    parts: list[Part] = field(default_factory=list)
    finish: str = ""
    usage: Usage | None = None

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall)]


class TurnLoop:
    """Runs one turn. `usage` is the sum over its model calls so far, None when no call told it."""

    def __init__(
        self,
        session: Session,
        turn: Turn,
        client: Client,
        provider: Provider,
        tools: dict[str, Tool],
        config: Config,
    ):
        self.session = session
        self.turn = turn
        self.client = client
        self.provider = provider
        self.config = config
        self.usage: Usage | None = None
        self._updates = client.updates(session.id, turn.cancel)
        self._runner = ToolRunner(session, turn, client, self._updates, tools)
        self._specs = tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools.values())

    def run(self) -> str:
        """The stop reason of the turn. Raises `ProviderError` when the model cannot be used."""
        history = self.session.history
        start = len(history)
        history.append(user_message(self.turn.prompt))
        try:
            for _ in range(self.config.max_steps):
                stop = self._step()
                if stop:
                    return stop
            return "max_turn_requests"
        except Cancelled:
            return "cancelled"
        except ProviderError:
            if len(history) == start + 1:
                history.pop()  # nothing came of this prompt: sent again, it must not stand there twice
            raise

    def _step(self) -> str:
        """One model call and its tool calls. The stop reason, or "" when the model goes on."""
        answer = self._ask_model()
        if answer.calls:
            self._run_calls(answer.calls)
            return "max_tokens" if answer.finish == "length" else ""
        return STOP_REASONS.get(answer.finish, "end_turn")

    def _ask_model(self) -> Answer:
        answer = Answer()
        try:
            self._stream(answer, self.session.history)
        except ProviderError as error:
            if error.kind != "context" or answer.parts or not _has_long_results(self.session.history):
                raise
            self.session.history[:] = trimmed(self.session.history)
            self._remark("The conversation no longer fits the model; older tool output was shortened.")
            self._stream(answer, self.session.history)
        return answer

    def _stream(self, answer: Answer, messages: list[Message]) -> None:
        """One model call: send its updates, and keep in the history what came, also when it breaks off."""
        self.turn.cancel.check()
        request = ModelRequest(
            self.session.model,
            system_prompt(self.session.cwd, self.session.roots),
            tuple(messages),
            self._specs,
            self.config.max_tokens,
        )
        sink = _Sink(answer, self._updates, self._remark)
        try:
            for event in self.provider.stream(request, self.turn.cancel):
                sink.take(event)
        except (ProviderError, Cancelled):
            # Calls of a broken answer were never shown and must not stand in the history unanswered.
            answer.parts = [part for part in answer.parts if not isinstance(part, ToolCall)]
            raise
        finally:
            sink.end_text()
            if any(not isinstance(part, Thought) for part in answer.parts):
                self.session.history.append(Message("assistant", tuple(answer.parts)))
        self._count(answer.usage)

    def _run_calls(self, calls: list[ToolCall]) -> None:
        """Run the calls in order; each gets a result in the history, also when the turn is cut off."""
        results: list[ToolResult] = []
        try:
            for call in calls:
                self.turn.cancel.check()
                results.append(self._runner.run(call))
        except CutOff as error:
            results.append(error.result)
            raise
        finally:
            results += [ToolResult(call.id, call.name, NOT_RUN, True) for call in calls[len(results) :]]
            self.session.history.append(Message("tool", tuple(results)))

    def _count(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self.usage = self.usage.plus(usage) if self.usage else usage
        if self.config.context_window:
            self._updates.send(translate.usage_update(usage, self.config.context_window))

    def _remark(self, text: str) -> None:
        """Tell the user something about the turn that is not the model's."""
        if self.client.can("session", "notices"):
            self._updates.send(translate.notice(text))
        else:
            self._updates.text("agent_thought_chunk", str(uuid.uuid4()), text)


class _Sink:
    """Turns the events of one model call into updates, sent at once, and parts of the answer."""

    def __init__(self, answer: Answer, updates: TurnUpdates, remark: Callable[[str], None]):
        self._answer = answer
        self._updates = updates
        self._remark = remark
        self._kind = ""
        self._message_id = ""
        self._pieces: list[str] = []

    def take(self, event: Event) -> None:
        """Handle one event."""
        if isinstance(event, TextDelta):
            self._text("agent_message_chunk", event.text)
        elif isinstance(event, ThoughtDelta):
            self._text("agent_thought_chunk", event.text)
        elif isinstance(event, ToolCall):
            self.end_text()
            self._answer.parts.append(event)
        elif isinstance(event, Usage):
            self._answer.usage = event
        elif isinstance(event, Finish):
            self._answer.finish = event.reason
        elif isinstance(event, Waiting):
            self._remark(f"Waiting {event.seconds:.1f} s: {event.reason}")

    def _text(self, kind: str, text: str) -> None:
        if kind != self._kind:  # another kind of text is another message (rule P4)
            self.end_text()
            self._kind, self._message_id = kind, str(uuid.uuid4())
        self._pieces.append(text)
        self._updates.text(kind, self._message_id, text)

    def end_text(self) -> None:
        """Make the text so far a part of the answer."""
        if self._pieces:
            text = "".join(self._pieces)
            part = Text(text) if self._kind == "agent_message_chunk" else Thought(text)
            self._answer.parts.append(part)
        self._pieces = []
        self._kind = ""


def _has_long_results(messages: list[Message]) -> bool:
    return any(isinstance(p, ToolResult) and len(p.text) > TRIMMED for m in messages for p in m.parts)


def trimmed(messages: list[Message]) -> list[Message]:
    """The same messages with long tool results cut to `TRIMMED` characters."""
    return [replace(message, parts=tuple(map(_trim, message.parts))) for message in messages]


def _trim(part: Part) -> Part:
    if not isinstance(part, ToolResult) or len(part.text) <= TRIMMED:
        return part
    head, tail = part.text[: TRIMMED // 2], part.text[-TRIMMED // 2 :]
    return replace(part, text=f"{head}\n[... shortened to fit the context ...]\n{tail}")

"""One tool call from the model's wish to its result: check, show, ask, run, report.

Runs on the turn's thread. Whatever happens, the client sees the call end and the model gets a result.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from acpserver import records
from acpserver.agent import translate
from acpserver.agent.repeats import Repeats
from acpserver.client import Client, TurnUpdates, Update
from acpserver.client_files import files_for
from acpserver.client_terminals import terminals_for
from acpserver.errors import Cancelled, ToolError
from acpserver.llm.types import ToolCall, ToolResult
from acpserver.permissions import ASK, DENY, decide, options, outcome
from acpserver.session import Session
from acpserver.tools.arguments import check_arguments
from acpserver.tools.base import Action, Content, Tool, ToolContext, ToolOutcome
from acpserver.turn_queue import Turn

log = logging.getLogger(__name__)

REJECTED = "Permission denied: the user did not allow this call. Do not repeat it; ask what to do instead."
READ_ONLY = "Permission denied: the session is in read-only mode, in which nothing is changed or run."
CUT_OFF = "Cancelled by the user before it ended."
BROKEN_OFF = "The call was broken off by a fault of the agent itself."


@dataclass(frozen=True)
class ToolRunner:
    """Runs the tool calls of one turn."""

    session: Session
    turn: Turn
    client: Client
    updates: TurnUpdates
    tools: dict[str, Tool]
    repeats: Repeats = field(default_factory=Repeats)

    def run(self, call: ToolCall) -> None:
        """Run one call and record its result. Whatever is raised, such as `Cancelled`, comes after that: a
        call that was begun is ended."""
        tool = self.tools.get(call.name)
        try:
            action = self._prepare(call, tool)
        except (ToolError, Cancelled) as error:
            cut_off = isinstance(error, Cancelled)
            self._begin(call, translate.call_shown(call, tool, None))
            self._end(call, ToolOutcome(CUT_OFF if cut_off else str(error), is_error=True))
            if cut_off:
                raise
            return
        report = self._begin(call, translate.call_shown(call, tool, action))
        outcome, before = ToolOutcome(BROKEN_OFF, is_error=True), []
        try:
            refusal = self._refusal(call, report, action)
            if refusal:
                outcome = ToolOutcome(refusal, is_error=True)
            else:
                self._start(call)
                outcome, before = self._perform(call, action), action.content
        except Cancelled:
            outcome = ToolOutcome(CUT_OFF, is_error=True)
            raise
        finally:
            self._end(call, outcome, before)
        self.turn.cancel.check()  # a command may tell of its cancel by a result

    def _begin(self, call: ToolCall, shown: Update) -> Update:
        report = translate.tool_call(call, shown)
        with self.session.story:
            self.session.note(records.call(call.id, shown))
            self.updates.send(report)
        return report

    def _start(self, call: ToolCall) -> None:
        with self.session.story:
            self.turn.running_call, self.turn.running_content = call, []
            self.updates.send(translate.tool_started(call))

    def _end(self, call: ToolCall, outcome: ToolOutcome, before: Sequence[Content] = ()) -> None:
        """Record the result, then show it. Where that fails it is shown as failed: no call may stay open."""
        outcome = self.repeats.noticed(call, outcome)
        log.debug("%s: %s: %s", self.session.id, call.name, "failed" if outcome.is_error else "completed")
        answer = ToolResult(call.id, call.name, outcome.text, outcome.is_error)
        shown = translate.result_shown(outcome, list(before))
        live = {**shown, "content": []} if outcome.keeps_content else shown
        told = False
        with self.session.story:
            self.turn.running_call = None
            try:
                self.session.note(records.result(answer, shown))
                self.updates.send(translate.tool_ended(answer, live))
                told = True
            finally:
                if not told:
                    broken = answer._replace(text=BROKEN_OFF, is_error=True)
                    self.updates.send(translate.tool_ended(broken, {}))

    def _prepare(self, call: ToolCall, tool: Tool | None) -> Action:
        if tool is None:
            raise ToolError(f"There is no tool {call.name!r}. The tools are: {', '.join(self.tools)}.")
        if call.arguments is None:
            raise ToolError(f"The arguments are not a JSON object: {call.raw[:200]!r}")
        try:
            check_arguments(tool, call.arguments)
            return tool.prepare(call.arguments, self._context(call))
        except (ToolError, Cancelled):
            raise
        except Exception as error:  # a fault in a tool must not end the turn with an open call
            log.exception("%s could not be prepared", call.name)
            raise ToolError(_told(error)) from error

    def _context(self, call: ToolCall) -> ToolContext:
        return ToolContext(
            session_id=self.session.id,
            cwd=self.session.cwd,
            roots=self.session.roots,
            cancel=self.turn.cancel,
            progress=partial(self._progress, call),
            plan=self._plan,
            ask=lambda question: self.client.ask(self.session.id, question, self.turn.cancel),
            files=files_for(self.client, self.session.id, self.turn.cancel),
            terminals=terminals_for(self.client, self.session.id, self.turn.cancel),
        )

    def _progress(self, call: ToolCall, content: list[Content]) -> None:
        with self.session.story:
            self.turn.running_content = content
            self.updates.send(translate.tool_progress(call, content))

    def _plan(self, entries: list[dict[str, object]]) -> None:
        with self.session.story:
            self.session.note(records.plan(entries))
            self.updates.send(translate.plan(entries))

    def _refusal(self, call: ToolCall, report: Update, action: Action) -> str:
        """Why the call may not run, for the model; "" when it may. Asks the user where needed."""
        decision = decide(self.session.mode, action.access, self.session.conversation.answers.get(call.name))
        if decision == ASK:
            chosen = self.client.request_permission(
                self.session.id, translate.permission_call(report), options(call.name), self.turn.cancel
            )
            decision, always = outcome(chosen)
            held = "for the session" if always else "this once"
            log.debug("%s: %s: the user says %s %s", self.session.id, call.name, decision, held)
            if always:
                self.session.note(records.permission(call.name, decision))
        if decision != DENY:
            return ""
        return READ_ONLY if self.session.mode == "read_only" else REJECTED

    def _perform(self, call: ToolCall, action: Action) -> ToolOutcome:
        try:
            self.turn.cancel.check()
            return action.run()
        except Cancelled:
            raise
        except ToolError as error:
            return ToolOutcome(str(error), is_error=True)
        except Exception as error:  # as above: the model is told, the conversation goes on
            log.exception("%s failed", call.name)
            return ToolOutcome(_told(error), is_error=True)


def _told(error: Exception) -> str:
    """What the model reads of a fault in a tool; some libraries put whole values into their messages."""
    return f"The tool failed: {type(error).__name__}: {str(error)[:500]}"

"""What the records of a session add up to, for the model and for the server.

The running server and a later load add up the same records with the same code. It alone judges what a record
is worth: what is left out here is told to nobody, and counted. One thread at a time may use a `Conversation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from acpserver.llm.types import Message, Opaque, Part, Text, Thought, ToolCall, ToolResult, Usage
from acpserver.prompts import user_message
from acpserver.records import Record, part_of, result_of, text_of, usage_of
from acpserver.rpc.schema import check_params

TITLE_LENGTH = 80  # characters
TRIMMED = 2_000  # characters of a tool result that stay when the context was too full


class Conversation:
    """What the records of a session add up to, for the model and for the server."""

    def __init__(self) -> None:
        self.cwd = ""
        self.created = 0.0  # seconds since 1970
        self.title = ""
        self.messages: list[Message] = []
        """The history for the model. Calls that were cut off have no result here; `llm.pairing` adds one."""
        self.options: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        """What the user said "always" to: tool name -> "allow" or "deny"."""
        self.usage = Usage()
        self.cost: float | None = 0.0
        """USD for all model calls; None as soon as there was one whose price is not known."""
        self.turns = 0
        self.damaged = 0
        """How many lines were left out: no record, a damaged or unknown one, or one out of place."""
        self.reported = 0
        """How many of these need no report (any more)."""
        self._call_ids: set[str] = set()
        self._shown: set[str] = set()  # calls that the client has seen
        self._open: set[str] = set()  # calls of the last answer that have no result yet
        self._pieces: tuple[Part, ...] = ()
        """Parts of an answer that goes on; the last message holds those that count if it does not."""

    def add(self, record: Record | None) -> bool:
        """Take one record in; None stands for a line that is none. False for what is damaged or out of place:
        it changes nothing."""
        taker = _TAKERS.get(str(record.get("type"))) if record else None
        try:
            if taker is None or record is None:
                raise ValueError("no record")
            taker(self, record)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.damaged += 1
            return False
        return True

    def _session(self, record: Record) -> None:
        self.cwd = text_of(record, "cwd")
        self.created = float(record["time"])  # type: ignore[arg-type]

    def _user(self, record: Record) -> None:
        message = user_message(record["prompt"], attachments=True)  # type: ignore[arg-type]
        self._pieces = ()
        self._open.clear()
        self.turns += 1
        self.title = self.title or title_of(message)
        self.messages.append(message)

    def _assistant(self, record: Record) -> None:
        parts = (*self._pieces, *map(part_of, record["parts"]))  # type: ignore[call-overload]
        more = bool(record.get("more"))
        # Calls of an answer without its end were never shown and must not stand here unanswered, nor what led
        # to them: servers refuse reasoning that nothing follows.
        said = tuple(part for part in parts if isinstance(part, (Text, Thought)))
        kept = said if more or record.get("cut") else parts
        used = usage_of(record)
        usage = self.usage.plus(used) if used else self.usage
        self._new_calls([part.id for part in kept if isinstance(part, ToolCall)])  # raises for the last time
        self.usage = usage
        if used:
            cost = record.get("cost")
            known = self.cost is not None and isinstance(cost, (int, float))
            self.cost = self.cost + cost if known else None  # type: ignore[operator]
        if any(isinstance(part, Text) for part in self._pieces):
            self.messages.pop()  # what was said so far
        if any(not isinstance(part, (Thought, Opaque)) for part in kept):
            self.messages.append(Message("assistant", kept))
        self._pieces = parts if more else ()

    def _new_calls(self, ids: list[str]) -> None:
        """Raise `ValueError` unless each id is one, and new in the session: no model takes a history else."""
        if "" in ids or len(set(ids)) < len(ids) or not self._call_ids.isdisjoint(ids):
            raise ValueError("call ids")
        self._call_ids.update(ids)
        self._open = set(ids)

    def _call(self, record: Record) -> None:
        call_id = text_of(record, "id")
        if call_id in self._shown or not isinstance(record["shown"], dict):
            raise ValueError("shown")
        self._shown.add(call_id)
        self._open.add(call_id)

    def _result(self, record: Record) -> None:
        answer = result_of(record)
        if answer.call_id not in self._open:
            raise ValueError("no such call")
        self._open.remove(answer.call_id)
        self._pieces = ()
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "tool":
            self.messages[-1] = Message("tool", (*last.parts, answer))
        else:
            self.messages.append(Message("tool", (answer,)))

    def _plan(self, record: Record) -> None:
        update = {"sessionUpdate": "plan", "entries": record["entries"]}
        if check_params("session/update", {"sessionId": "", "update": update}):
            raise ValueError("entries")

    def _option(self, record: Record) -> None:
        self.options[text_of(record, "option")] = text_of(record, "value")

    def _permission(self, record: Record) -> None:
        self.answers[text_of(record, "tool")] = text_of(record, "answer")

    def _failed(self, record: Record) -> None:
        if self.messages and self.messages[-1].role == "user":
            self.messages.pop()

    def _refused(self, record: Record) -> None:
        self._pieces = ()
        self._open.clear()
        while self.messages and self.messages.pop().role != "user":
            pass

    def _trimmed(self, record: Record) -> None:
        self.messages[:] = [
            message._replace(parts=tuple(map(_trim, message.parts))) for message in self.messages
        ]

    def _reported(self, record: Record) -> None:
        self.reported += int(record["count"])  # type: ignore[call-overload]


_TAKERS: Mapping[str, Callable[[Conversation, Record], None]] = {
    "session": Conversation._session,
    "user": Conversation._user,
    "assistant": Conversation._assistant,
    "call": Conversation._call,
    "result": Conversation._result,
    "plan": Conversation._plan,
    "option": Conversation._option,
    "permission": Conversation._permission,
    "failed": Conversation._failed,
    "refused": Conversation._refused,
    "trimmed": Conversation._trimmed,
    "reported": Conversation._reported,
}


def title_of(message: Message) -> str:
    """The first line of a prompt, shortened."""
    line = next((line.strip() for line in message.text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def add_up(found: Iterable[Record | None]) -> tuple[Conversation, list[Record | None]]:
    """The conversation that these records make, and the records with None for each that it left out."""
    conversation = Conversation()
    return conversation, [record if conversation.add(record) else None for record in found]


def has_long_results(messages: list[Message]) -> bool:
    """Whether a `trimmed` record would make the history shorter."""
    return any(_trim(part) is not part for message in messages for part in message.parts)


def _trim(part: Part) -> Part:
    if not isinstance(part, ToolResult) or len(part.text) <= TRIMMED + 100:
        return part
    head, tail = part.text[: TRIMMED // 2], part.text[-TRIMMED // 2 :]
    return part._replace(text=f"{head}\n[... shortened to fit the context ...]\n{tail}")

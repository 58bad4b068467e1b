"""What is remembered of requests, sessions, turns and tool calls, and how it is looked at.

One thread at a time (the validator's). Nothing here judges; the `state_*` rooms do, by the `world`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from acpserver import jsontext

Json = dict[str, object]

REMEMBERED = 20_000  # names of one kind (ended tool calls, message ids) that a session keeps


class Mark(NamedTuple):
    """Where something was said."""

    line: int
    time: float | None
    text: str
    """The beginning of the message, for an excerpt."""


class Breach(NamedTuple):
    """A broken rule before it is placed in the conversation."""

    rule: str
    side: str
    path: str
    text: str
    level: str = ""
    """"" means the rule's own level."""
    related: int | None = None
    at: Mark | None = None
    """The message that is wrong, when it is not the present one."""


@dataclass
class Call:
    """A request or a notification. `method` and `params` stand under today's names."""

    side: str
    mark: Mark
    id: object
    """None for a notification."""
    method: str
    params: Json
    faults: list[Breach] = field(default_factory=list)
    """What the schema finds wrong with it and no receiver forgives."""
    unknown: list[str] = field(default_factory=list)
    """Names of fields in it that the schema does not know."""
    is_damaged: bool = False
    """Whether anything in it does not fit, forgiven or not; it may mean more than can be read."""
    order: int = 0
    withdrawn: Mark | None = None
    """The `$/cancel_request` or `session/cancel` for it."""

    @property
    def is_request(self) -> bool:
        """Whether it must be answered."""
        return self.id is not None

    @property
    def session(self) -> str:
        """The session that it names, or ""."""
        return text(self.params, "sessionId")


@dataclass
class Answer:
    """The answer to `call`."""

    side: str
    mark: Mark
    call: Call
    result: object
    error: Json | None
    is_damaged: bool = False

    @property
    def fields(self) -> Json:
        """The result when it is an object, else an empty one."""
        return self.result if isinstance(self.result, dict) else {}

    @property
    def code(self) -> object:
        """The error's code, None without an error."""
        return None if self.error is None else self.error.get("code")


class Recent:
    """A set of names that forgets the oldest ones."""

    def __init__(self, limit: int = REMEMBERED):
        self._limit = limit
        self._names: OrderedDict[str, object] = OrderedDict()

    def add(self, name: str, value: object = None) -> None:
        """Remember `name`, with something about it."""
        self._names[name] = value
        if len(self._names) > self._limit:
            self._names.popitem(last=False)

    def get(self, name: str) -> object:
        """What was said about `name`."""
        return self._names.get(name)

    def discard(self, name: str) -> None:
        """Forget `name`."""
        self._names.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)


@dataclass
class ToolCall:
    """What was told of one tool call that has not ended."""

    mark: Mark
    status: str = "pending"
    kind: str = ""
    permission: str = ""
    """"", "open", "allowed" or "refused"."""
    asked: Mark | None = None
    has_input: bool = False
    has_diff: bool = False
    has_output: bool = False


@dataclass
class Turn:
    """A prompt that has not been answered."""

    call: Call
    cancelled: Mark | None = None
    refused: bool = False
    client_failed: Mark | None = None
    """An error answer of the client to one of the agent's file requests."""
    used: set[str] = field(default_factory=set)
    """Methods of the client that the agent called in this turn."""
    ended: Mark | None = None


@dataclass
class Session:
    """One session as far as this conversation tells it."""

    id: str
    cwd: str = ""
    is_open: bool = False
    is_closed: bool = False
    is_loaded: bool = False
    """Opened by `session/load`."""
    turns: list[Turn] = field(default_factory=list)
    loads: list[Call] = field(default_factory=list)
    resumes: list[Call] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    ended: Recent = field(default_factory=Recent)
    """Tool calls that have ended, with the status."""
    messages: Recent = field(default_factory=Recent)
    """Message ids, with (kind of chunk, number of the turn)."""
    turn_count: int = 0
    is_blurred: bool = False
    """A damaged message may have hidden one of its tool calls."""
    has_text: bool = False
    replayed: int = 0
    modes: set[str] = field(default_factory=set)
    options: dict[str, set[str] | None] = field(default_factory=dict)
    """Config options: their values, None for one that is no list of choices."""
    efforts: set[str] = field(default_factory=set)
    """Those of the category thought_level, which come and go with the model."""
    plan: dict[str, str] = field(default_factory=dict)
    """The last plan: status by content."""
    titled: bool = False
    metered: bool = False
    last_answer: Mark | None = None
    """The answer to the last prompt."""
    last_cancel: Mark | None = None
    stray_cancel: Mark | None = None
    """A `session/cancel` that came while no turn ran."""

    @property
    def turn(self) -> Turn | None:
        """The turn that runs now."""
        return self.turns[0] if self.turns else None

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs, or the session is being opened."""
        return bool(self.turns or self.loads or self.resumes)

    def turn_of(self, call: Call) -> Turn | None:
        """The turn that a prompt began."""
        return next((turn for turn in self.turns if turn.call is call), None)


def key(request_id: object) -> str:
    """A dictionary key that keeps 1, 1.0 and "1" apart."""
    return jsontext.dumps(request_id)


def text(value: object, name: str) -> str:
    """The text under `name`, or ""."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def object_of(value: object, name: str) -> Json:
    """The object under `name`, or an empty one."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def objects(value: object, name: str) -> list[Json]:
    """The objects of the list under `name`."""
    found = value.get(name) if isinstance(value, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def since(earlier: float | None, later: float | None) -> float | None:
    """Seconds between two times, None when one of them is unknown."""
    return None if earlier is None or later is None else later - earlier

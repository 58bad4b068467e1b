"""What a turn is made of, in terms that belong to no provider. Values only, used by any thread.

The history of a session is a list of `Message`. A provider is asked with a `ModelRequest` and yields
events; the agent loop turns events into updates for the client and into the next messages.

Named tuples are several times cheaper to make than frozen dataclasses, at start and for each event. But two
of one shape are equal whatever their classes, hence dataclasses for the texts, which must not be confused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from acpserver.cancel import CancelFlag


@dataclass(frozen=True)
class Text:
    """Visible text of a message."""

    text: str


@dataclass(frozen=True)
class Thought:
    """Reasoning text, for people to read: a model gets its reasoning back as `Opaque`, if at all."""

    text: str


class Image(NamedTuple):
    """A picture in a user's message: its media type and its bytes in base64."""

    mime: str
    data: str


class Audio(NamedTuple):
    """A recording in a user's message: its media type (see `prompts.AUDIO_FORMATS`) and bytes in base64."""

    mime: str
    data: str


class Opaque(NamedTuple):
    """What one model wants back unchanged, at this place, and nobody else understands: signed or encrypted
    reasoning. A part of an answer, and the event that brings it.

    `origin` names that model (`llm.wire.origin`); for another one the part is left out. `data` is the JSON
    object that the dialect made of it.
    """

    origin: str
    data: dict[str, object]


class ToolCall(NamedTuple):
    """The model asks for a tool.

    `arguments` is the parsed JSON object, or None when the model sent something else; `raw` is the text
    as it came, which the error result quotes. `id` is unique within the session.
    """

    id: str
    name: str
    arguments: dict[str, object] | None
    raw: str = ""


class ToolResult(NamedTuple):
    """What the model reads about one of its tool calls."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Part: TypeAlias = "Text | Thought | Image | Audio | Opaque | ToolCall | ToolResult"


class Message(NamedTuple):
    """One message of the history. Roles: "user", "assistant", "tool" (parts are ToolResults)."""

    role: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The visible text of the message, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of the message, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall)]


class ToolSpec(NamedTuple):
    """What a model is told about a tool: `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, object]


class ModelRequest(NamedTuple):
    """One model call."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None  # of the answer; None: the server's own limit, or one that the model allows
    effort: str = ""  # how much to think: "low", "medium", "high"; "" leaves it to the server
    images: bool = False  # the model takes images; else it reads that there was one
    context_window: int | None = None  # tokens, for servers that must be told (Ollama)
    learned: frozenset[str] = frozenset()  # what refusals have taught (`verdicts.lessons`)
    audio: bool = False  # as `images`, for recordings


class ModelDetails(NamedTuple):
    """What a server tells about one of its models; None where it says nothing."""

    context_window: int | None = None  # tokens
    images: bool | None = None
    tools: bool | None = None
    thinks: bool | None = None
    output_limit: int | None = None  # tokens of one answer
    created: int | None = None  # seconds since 1970
    audio: bool | None = None


@dataclass(frozen=True)
class TextDelta:
    """A piece of visible text: never empty, never with half a surrogate pair."""

    text: str


@dataclass(frozen=True)
class ThoughtDelta:
    """A piece of reasoning text, with the same promises as `TextDelta`."""

    text: str


class Usage(NamedTuple):
    """Token counts of one model call, as the provider gave them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # part of input_tokens
    thought_tokens: int = 0  # part of output_tokens
    written_tokens: int = 0  # part of input_tokens: what the provider has put into its cache

    @property
    def total_tokens(self) -> int:
        """Input and output together: what stands in the context after the call."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """The sum of both, for a whole turn."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.thought_tokens + other.thought_tokens,
            self.written_tokens + other.written_tokens,
        )


class Finish(NamedTuple):
    """The last event of an answer. `reason`: "stop", "tool_calls", "length", "refusal" or "pause" (ask again
    with what has come so far, and the model goes on)."""

    reason: str


class Waiting(NamedTuple):
    """The provider will try again: `seconds` until then, and why, for the user to see."""

    seconds: float
    reason: str


Event: TypeAlias = "TextDelta | ThoughtDelta | Opaque | ToolCall | Usage | Finish | Waiting"
"""What a provider yields, in the order of the model's stream. `Opaque` and `ToolCall` are yielded when they
are complete; `Finish` comes exactly once, last."""


class Provider(Protocol):
    """A model that can be asked. One object serves many threads at once."""

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """Ask the model and yield its events as they come.

        Blocks between events. Raises `ProviderError`, and `Cancelled` soon after `cancel` is set.
        """


@dataclass(frozen=True)
class Endpoint:
    """Where and how a model is reached over HTTP. `api_key` is secret: never printed, never logged."""

    base_url: str = field(repr=False)  # may hold a password or a key in its query
    dialect: str = "openai"
    api_key: str = field(default="", repr=False)
    api_key_source: str = ""  # for error texts and `doctor`: "environment variable OPENAI_API_KEY"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    connect_timeout: float = 10.0  # seconds
    idle_timeout: float = 120.0  # seconds without a byte
    retry_attempts: int = 6
    retry_seconds: float = 60.0  # all attempts and waits together
    server: str = ""  # its name in `openai_servers`, where the address does not tell which one it is

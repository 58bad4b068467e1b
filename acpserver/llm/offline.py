"""The built-in model that needs no network and no key: it follows simple commands, one a line.

Deterministic and without state: which command is next follows from the history alone. It yields the same
events as any other provider, so that every feature of the server can be tried and tested with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.types import (
    Event,
    Finish,
    Message,
    ModelRequest,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from acpserver.llm.verdicts import verdict

HELP = """\
Commands of the offline model, one a line:
  say TEXT                        answer with TEXT
  think TEXT                      think TEXT
  stream N                        answer in N small chunks
  sleep SECONDS                   wait and send nothing
  read PATH                       read a file
  list PATH                       list a folder
  find GLOB                       find files by name
  search REGEX                    search in files
  write PATH: TEXT                write a file (\\n in TEXT is a line break)
  replace OLD with NEW in PATH    change a file
  run COMMAND                     run a shell command
  fetch URL                       fetch a page
  plan A; B; C                    show a plan
  ask QUESTION                    ask you something
  fail STATUS                     fail as a model server with this HTTP status would
  stop REASON                     stop with end_turn, max_tokens, max_turn_requests or refusal
"""

NOT_A_MODEL = (
    """\
I am not a language model: this is the offline model of acpserver, which only follows simple commands.

{listing}

To use a real model, run `acpserver login`, or set the variable that holds the key of its provider, such as \
ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY. For an endpoint of your own, start acpserver with \
--model NAME and --base-url URL.

"""
    + HELP
)

LONGEST_SLEEP = 3_600.0  # seconds
MOST_CHUNKS = 1_000_000
LONGEST_QUOTE = 500  # characters of a line that is no command

TOOLS = {
    "read": ("read_file", r"(?P<path>.+)"),
    "list": ("list_files", r"(?P<path>.+)"),
    "find": ("glob", r"(?P<pattern>.+)"),
    "search": ("grep", r"(?P<pattern>.+)"),
    "write": ("write_file", r"(?P<path>[^:]+): ?(?P<content>.*)"),
    "replace": ("edit_file", ""),  # see `_replacement`
    "run": ("bash", r"(?P<command>.+)"),
    "fetch": ("web_fetch", r"(?P<url>.+)"),
    "plan": ("plan", r"(?P<entries>.+)"),
    "ask": ("ask_user", r"(?P<question>.+)"),
}
OTHERS = {
    "say": r"(?P<text>.+)",
    "think": r"(?P<text>.+)",
    "stream": r"(?P<count>\d{1,7})",
    "sleep": r"(?P<seconds>\d{1,6}(\.\d+)?)",
    "fail": r"(?P<status>[1-5]\d\d)",
    "stop": r"(?P<reason>end_turn|max_tokens|max_turn_requests|refusal)",
}
FINISH = {"end_turn": "stop", "max_tokens": "length", "refusal": "refusal"}


class Command(NamedTuple):
    """One line of the prompt. `tool` is "" for what the model does itself; `name` is "" for a line that is
    no command, and then `begins` says whether it begins like one."""

    name: str
    values: dict[str, str]
    tool: str = ""
    line: str = ""
    begins: bool = False


def parse_command(line: str) -> Command:
    """Read one line; never raises."""
    word, _, rest = line.strip().partition(" ")
    name = word.lower()
    tool, pattern = TOOLS.get(name, ("", OTHERS.get(name, "")))
    if name == "list" and not rest.strip():
        rest = "."
    match = re.fullmatch(pattern, rest.strip()) if pattern else None
    values = match.groupdict() if match else _replacement(rest.strip()) if name == "replace" else {}
    if not values:
        return Command("", {}, line=line.strip(), begins=name in TOOLS or name in OTHERS)
    return Command(name, values, tool, line)


def _replacement(text: str) -> dict[str, str]:
    """The parts of "OLD with NEW in PATH", empty when it is none: the first "with" and the last "in" count.

    Not by an expression, whose time would grow with the square of the line."""
    middle = text.find(" with ", 1)
    end = text.rfind(" in ", middle + len(" with "))
    if middle < 0 or end < 0:
        return {}
    new_text = text[middle + len(" with ") : end]
    return {"old_text": text[:middle], "new_text": new_text, "path": text[end + len(" in ") :]}


class OfflineModel:
    """The provider (see `llm.types.Provider`)."""

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """Follow the commands from where the history says the last call stopped."""
        turn = _turn(request.messages)
        commands = []
        for line in _lines(_prompt_text(turn[0])):
            cancel.check()
            if line.strip():
                commands.append(parse_command(line))
        written = 0
        finish = "stop"
        for event in _events(request, turn, commands, cancel):
            cancel.check()
            if isinstance(event, Finish):
                finish = event.reason
                continue
            if isinstance(event, (TextDelta, ThoughtDelta)):
                written += len(event.text)
            elif isinstance(event, ToolCall):
                finish = "tool_calls"
            yield event
        yield Usage(input_tokens=_size(request) // 4 + 1, output_tokens=written // 4 + 1)
        yield Finish(finish)


def _events(
    request: ModelRequest, turn: list[Message], commands: list[Command], cancel: CancelFlag
) -> Iterator[Event]:
    """The events of this call, up to the next tool call; `Finish` where a command decides the reason."""
    done = sum(len(message.tool_calls) for message in turn)
    call_id = f"call_{sum(len(message.tool_calls) for message in request.messages) + 1}"
    if not any(command.name or command.begins for command in commands):
        yield from _plain_question(turn, done, call_id)
        return
    for command in commands:
        if command.tool:
            done -= 1
            if done < 0:
                yield ToolCall(call_id, command.tool, _arguments(command), command.line)
                return
        elif command.name == "stop" and command.values["reason"] == "max_turn_requests":
            yield ToolCall(call_id, "list_files", {"path": "."})
            return
        elif done <= 0:
            yield from _own(command, cancel)
            if command.name == "stop":
                return
    yield from _closing(turn, commands)


def _own(command: Command, cancel: CancelFlag) -> Iterator[Event]:
    """What the model does without a tool. Raises `ProviderError` for `fail`."""
    values = command.values
    if command.name == "say":
        yield TextDelta(values["text"] + "\n")
    elif command.name == "think":
        yield ThoughtDelta(values["text"] + "\n")
    elif command.name == "stream":
        for number in range(1, min(int(values["count"]), MOST_CHUNKS) + 1):
            yield TextDelta(f"{number} ")
    elif command.name == "sleep":
        cancel.sleep(min(float(values["seconds"]), LONGEST_SLEEP))
    elif command.name == "fail":
        raise _failure(int(values["status"]))
    elif command.name == "stop":
        yield Finish(FINISH[values["reason"]])
    else:
        quoted = repr(command.line[:LONGEST_QUOTE])
        yield TextDelta(f"I do not understand {quoted}: I am no language model.\n\n{HELP}")


def _failure(status: int) -> ProviderError:
    """What a model server with this status comes to, except that nothing is tried again."""
    text = f"The offline model was told to fail with HTTP status {status}: leave that line out."
    return ProviderError(text, kind=verdict(status, "").kind, status=status)


def _plain_question(turn: list[Message], done: int, call_id: str) -> Iterator[Event]:
    """Look at the folder first, then say what this is."""
    if done == 0:
        yield ToolCall(call_id, "list_files", {"path": "."})
        return
    results = _results(turn)
    listing = results[0].text if results else "I could not look at the folder."
    yield TextDelta(NOT_A_MODEL.format(listing=f"The folder contains:\n{listing}"))


def _closing(turn: list[Message], commands: list[Command]) -> Iterator[Event]:
    """A last word where the commands themselves said nothing."""
    failed = [result.text.splitlines()[0] for result in _results(turn) if result.is_error and result.text]
    if failed:
        yield TextDelta("Not everything worked: " + "; ".join(failed) + "\n")
    elif not any(command.name in ("say", "stream") or not command.name for command in commands):
        yield TextDelta("Done.\n")


def _arguments(command: Command) -> dict[str, object]:
    values: dict[str, object] = dict(command.values)
    if command.name == "plan":
        steps = [step.strip() for step in command.values["entries"].split(";")]
        values["entries"] = [
            {"content": step, "priority": "medium", "status": "pending"} for step in steps if step
        ]
    for key in ("content", "old_text", "new_text"):
        if key in values:
            values[key] = str(values[key]).replace("\\n", "\n")
    return values


def _turn(messages: tuple[Message, ...]) -> list[Message]:
    """The last user message and what followed it."""
    start = max(number for number, message in enumerate(messages) if message.role == "user")
    return list(messages[start:])


def _prompt_text(message: Message) -> str:
    """What the user typed, without attached resources: their lines are no commands."""
    parts = [part.text for part in message.parts if isinstance(part, Text)]
    return "\n".join(text for text in parts if not text.startswith(("\n<resource", "\n[resource")))


def _lines(text: str) -> list[str]:
    """The lines of a prompt. Not `splitlines`, which also ends lines at U+2028 and the like."""
    return re.split(r"\r\n|\r|\n", text)


def _results(turn: list[Message]) -> list[ToolResult]:
    return [part for message in turn for part in message.parts if isinstance(part, ToolResult)]


def _size(request: ModelRequest) -> int:
    """Characters in the request, for a plausible token count."""
    return sum(len(getattr(part, "text", "")) for message in request.messages for part in message.parts)

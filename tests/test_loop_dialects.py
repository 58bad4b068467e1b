"""The same turns over every dialect: a real loop, a real socket, a server as strict as the real one.

The fake server checks each request by the rules of its API (`fakes/*_rules.py`, written after the vendors'
public documentation): calls and results in pairs, roles, ids, signatures unchanged. A request that breaks a
rule fails the test that made it.
"""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acpserver.cancel import CancelFlag
from acpserver.catalog import ModelInfo
from acpserver.errors import ToolError
from acpserver.llm.http import HttpProvider
from acpserver.llm.retry import Policy
from acpserver.llm.types import Endpoint, Event, ModelRequest
from acpserver.tools.base import ToolContext, ToolOutcome
from tests.fakes.anthropic_binding import Binding
from tests.fakes.editor import Editor
from tests.fakes.inside import FakeTool, Inside
from tests.fakes.llm_answers import Cut, Reply, Reset, Stall, redacted, text, thought, tool_call
from tests.fakes.llm_server import FakeLlm

MODELS = {
    "openai": "gpt-4o",
    "openai-responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "ollama": "gpt-oss:20b",
}
HEARS = {"openai": "wav mp3", "gemini": "wav mp3 aiff aac ogg flac", "ollama": "wav"}
"""The formats of audio that go to the dialects whose API takes some."""
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt ").decode()
OGG = base64.b64encode(b"OggS a recording").decode()
QUICK = Policy(attempts=3, total=5.0, first_wait=0.01, longest_wait=0.02)


class Thinking:
    """A provider that asks for thinking and sends images and audio, as the options of a session would."""

    def __init__(self, provider: HttpProvider):
        self._provider = provider

    def stream(self, request: ModelRequest, cancel: CancelFlag) -> Iterator[Event]:
        """See `llm.types.Provider`."""
        return self._provider.stream(request._replace(effort="high", images=True, audio=True), cancel)


WAIT = 9
"""The argument with which the tool waits in the middle of a turn."""
arrived, go_on = threading.Event(), threading.Event()


def _look(arguments: dict[str, object], context: ToolContext) -> ToolOutcome:
    if arguments.get("n") == 0:
        raise ToolError("nothing there")
    if arguments.get("n") == WAIT:
        arrived.set()
        assert go_on.wait(10)
    return ToolOutcome(f"found {arguments.get('n')}")


class Talk:
    """An editor in a session whose models are fake servers, one for each dialect."""

    def __init__(self, folder: Path, *dialects: str):
        self.folder = folder
        self.servers = {name: FakeLlm(dialect=name, api_key=f"key-of-{name}") for name in dialects}
        self.providers = {
            MODELS[name]: HttpProvider(Endpoint(server.base_url, name, f"key-of-{name}"), QUICK)
            for name, server in self.servers.items()
        }
        self.open()

    def open(self) -> None:
        """Start the agent, as after a restart."""
        models = list(self.providers)
        inside = Inside(self.folder, None, FakeTool("look", _look, access="read"), model=models[0])
        inside.server.models.ids[:] = models
        inside.server.models.info = lambda model: ModelInfo(model, images=True, thinking=True, audio=True)
        inside.server.models.dialect = {MODELS[name]: name for name in self.servers}.__getitem__
        inside.server.models.names = lambda: [(name, name) for name in models]  # type: ignore[method-assign]
        inside.server.models.provider = (  # type: ignore[method-assign]
            lambda model: Thinking(self.providers[model])
        )
        self.editor = Editor(run=inside.run)
        self.editor.__enter__()
        self.editor.initialize({})

    def new(self) -> Talk:
        self.session = self.editor.new_session(self.folder)
        return self

    def restart(self) -> None:
        """A new process that loads the session from its file."""
        self.editor.__exit__(None, None, None)
        self.open()
        params = {"sessionId": self.session, "cwd": str(self.folder), "mcpServers": []}
        assert self.editor.request("session/load", params).result is not None

    def choose(self, dialect: str) -> None:
        params = {"sessionId": self.session, "modelId": MODELS[dialect]}
        assert self.editor.request("session/set_model", params).result == {}

    def say(self, prompt: object, *answers: object, at: str = "") -> object:
        """Prompt, with these answers of the server of a dialect (the first by default)."""
        server = self.servers[at] if at else next(iter(self.servers.values()))
        server.script(*answers)  # type: ignore[arg-type]
        return self.editor.prompt(self.session, prompt)  # type: ignore[arg-type]

    def close(self) -> None:
        try:
            self.editor.__exit__(None, None, None)
        finally:
            for provider in self.providers.values():
                provider.close()
            for server in self.servers.values():
                server.close()
        assert [server.violations for server in self.servers.values()] == [[]] * len(self.servers)


@pytest.fixture(params=MODELS)
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Talk]:
    """A session over one dialect after the other."""
    one = Talk(tmp_path, request.param).new()
    yield one
    one.close()


def server_of(talk: Talk) -> FakeLlm:
    return next(iter(talk.servers.values()))


def dialect_of(talk: Talk) -> str:
    return next(iter(talk.servers))


CALLS = (
    thought("Let me ", "look.") + text("I look.") + tool_call("look", {"n": 1}) + tool_call("look", {"n": 2})
)


def test_text_and_thought_stream_and_the_next_prompt_has_them_in_its_history(talk: Talk) -> None:
    turn = talk.say("hi", thought("h", "m") + text("Hel", "lo 😀"))
    assert turn.wait() == "end_turn"
    assert (turn.text, turn.thoughts) == ("Hello 😀", "hm")
    turn = talk.say("more", text("yes"))
    assert turn.wait() == "end_turn"
    assert turn.text == "yes"
    body = server_of(talk).requests[-1].raw_body.decode()
    assert "Hello" in body and "more" in body


def test_calls_run_and_their_results_go_back(talk: Talk) -> None:
    turn = talk.say("look", CALLS, text("Two things."))
    assert turn.wait() == "end_turn"
    assert turn.text == "I look.Two things."
    assert [call["status"] for call in turn.of_kind("tool_call_update")][-1] == "completed"
    body = server_of(talk).requests[-1].raw_body.decode()
    assert "found 1" in body and "found 2" in body
    assert body.index("found 1") < body.index("found 2")


SEALS = {
    "anthropic": b'"signature":"sig/',
    "gemini": b'"thoughtSignature":"sig/',
    "openai-responses": b'"encrypted_content":"sig/',
    "ollama": b'"thinking":"Let me look."',
}


@pytest.mark.parametrize("talk", SEALS, indirect=True)
def test_reasoning_goes_back_unchanged_also_from_the_file(talk: Talk) -> None:
    turn = talk.say("look", CALLS, CALLS, text("Two things."))
    assert turn.wait() == "end_turn"
    seal = SEALS[dialect_of(talk)]
    first, second, third = (request.raw_body for request in server_of(talk).requests)
    assert (first.count(seal), second.count(seal), third.count(seal)) == (0, 1, 2)
    talk.restart()
    assert talk.say("again", text("yes")).wait() == "end_turn"
    kept = 0 if dialect_of(talk) == "ollama" else 2  # open reasoning is for the turn that goes on
    assert server_of(talk).requests[-1].raw_body.count(seal) == kept


@pytest.mark.parametrize("talk", ["anthropic"], indirect=True)
def test_nothing_changes_before_a_thought_that_is_bound_to_it(talk: Talk) -> None:
    """Failed and unknown calls, a cut answer, another mode, a restart: what was said stays as it was said."""
    binding = Binding()
    broken = thought("hm") + tool_call("look", {"n": 0}) + tool_call("no.such tool", {})
    answers = [binding(CALLS), binding(broken), binding(thought("so") + text("half").ends("length"))]
    assert talk.say("look", *answers).wait() == "max_tokens"
    mode = {"sessionId": talk.session, "modeId": "accept_edits"}
    assert talk.editor.request("session/set_mode", mode).result == {}
    assert talk.say("go on", binding(CALLS), binding(text("ok"))).wait() == "end_turn"
    talk.restart()
    assert talk.say("again", binding(CALLS), binding(text("ok"))).wait() == "end_turn"
    assert binding.refused == []
    assert server_of(talk).requests[-1].raw_body.count(SEALS["anthropic"]) == 5


@pytest.mark.parametrize("talk", ["anthropic"], indirect=True)
def test_hidden_reasoning_goes_back_at_its_place(talk: Talk) -> None:
    turn = talk.say("look", redacted() + tool_call("look", {"n": 1}), text("yes"))
    assert turn.wait() == "end_turn"
    content = server_of(talk).requests[-1].body["messages"][1]["content"]
    assert [block["type"] for block in content] == ["redacted_thinking", "tool_use"]


@pytest.mark.parametrize("talk", ["anthropic"], indirect=True)
def test_a_paused_answer_goes_on(talk: Talk) -> None:
    turn = talk.say("look", text("first ").ends("pause_turn"), text("second"))
    assert turn.wait() == "end_turn"
    assert turn.text == "first second"
    assert server_of(talk).requests[-1].body["messages"][-1]["content"][-1]["text"] == "first"


def test_a_failed_tool_and_an_unknown_one_are_told_to_the_model(talk: Talk) -> None:
    calls = tool_call("look", {"n": 0}) + tool_call("no.such tool", {"n": 1})
    turn = talk.say("look", calls, text("Sorry."))
    assert turn.wait() == "end_turn"
    body = server_of(talk).requests[-1].raw_body.decode()
    assert "nothing there" in body and "no_such_tool" in body


def test_one_call_again_and_again_keeps_its_ids_apart(talk: Talk) -> None:
    again = tool_call("look", {"n": 1})
    turn = talk.say("look", again, again + again, again, text("done"))
    assert turn.wait() == "end_turn"
    assert len(server_of(talk).requests) == 4


@pytest.mark.parametrize(("finish", "stop"), [("length", "max_tokens"), ("content_filter", "refusal")])
def test_how_an_answer_ends(talk: Talk, finish: str, stop: str) -> None:
    if dialect_of(talk) == "ollama" and finish == "content_filter":
        finish, stop = "stop", "end_turn"  # Ollama knows no refusal
    assert talk.say("hi", text("I").ends(finish)).wait() == stop
    assert talk.say("and now", text("yes")).wait() == "end_turn"


def test_the_context_and_what_of_it_was_cached_are_counted(talk: Talk) -> None:
    turn = talk.say("hi", text("yes").used(1200, 300, cached=1000, thought=100))
    usage = turn.wait_reply().result["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (1200, 300, 1500)
    if dialect_of(talk) != "ollama":
        assert usage["cachedReadTokens"] == 1000


def test_what_breaks_before_anything_was_shown_is_tried_again(talk: Talk) -> None:
    whole = server_of(talk).wire.stream(text("yes"))
    turn = talk.say("hi", whole.before_headers(Reset()), whole.first_pieces(0).then(Cut()), text("yes"))
    assert turn.wait() == "end_turn"
    assert turn.text == "yes"
    assert len(server_of(talk).requests) == 3


def test_what_breaks_later_is_told_and_the_conversation_goes_on(talk: Talk) -> None:
    whole = server_of(talk).wire.stream(text("half ", "and more"))
    told = next(at for at, piece in enumerate(whole.steps) if b"half" in piece) + 1
    reply = talk.say("hi", whole.first_pieces(told).then(Cut())).wait_reply()
    assert reply.code == -32603
    assert "broke off" in reply.details
    assert talk.say("go on", text("yes")).wait() == "end_turn"
    assert b"half" in server_of(talk).requests[-1].raw_body
    assert len(server_of(talk).requests) == 2


def test_an_answer_that_is_cancelled_leaves_a_history_that_the_server_takes(talk: Talk) -> None:
    stall = Stall()
    whole = server_of(talk).wire.stream(thought("hm") + text("half ") + tool_call("look", {"n": 1}))
    told = next(at for at, piece in enumerate(whole.steps) if b"half" in piece) + 1
    turn = talk.say("hi", whole.insert(told, stall))
    turn.until("agent_message_chunk")
    talk.editor.cancel(talk.session)
    assert turn.wait() == "cancelled"
    assert talk.say("go on", text("yes")).wait() == "end_turn"


def said(talk: Talk, at: str = "") -> str:
    """The last request to a dialect's server."""
    server = talk.servers[at] if at else server_of(talk)
    return server.requests[-1].raw_body.decode().replace("\\/", "/")


def test_an_image_reaches_the_model(talk: Talk) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    turn = talk.say([{"type": "text", "text": "what is it?"}, image], text("A picture."))
    assert turn.wait() == "end_turn"
    assert PNG in said(talk)


FORMATS = {"wav": "audio/x-wav", "mp3": "audio/mpeg", "aiff": "audio/aiff", "ogg": "audio/ogg"}


@pytest.mark.parametrize("name", [*FORMATS, "aac", "flac"])
def test_a_recording_reaches_the_models_whose_api_takes_its_format(talk: Talk, name: str) -> None:
    """Elsewhere the user is told the formats; an API that takes none tells its model that there was one."""
    mime = FORMATS.get(name, f"audio/{name}")
    formats = HEARS.get(dialect_of(talk), "").split()
    clip = {"type": "audio", "mimeType": mime, "data": WAV}
    turn = talk.say([clip], text("Somebody speaks.")) if name in formats or not formats else talk.say([clip])
    if name in formats:
        assert turn.wait() == "end_turn"
        assert WAV in said(talk) and "[audio" not in said(talk)
    elif not formats:
        assert turn.wait() == "end_turn"
        assert WAV not in said(talk) and f"[audio: {mime}]" in said(talk)
    else:
        reply = turn.wait_reply()
        assert reply.code == -32602
        assert f"the model does not take {mime}, but audio/wav" in reply.details
        assert server_of(talk).requests == []


@pytest.mark.parametrize("other", ["openai", "openai-responses", "anthropic", "ollama"])
def test_a_recording_stays_in_the_history_for_the_models_that_take_it(tmp_path: Path, other: str) -> None:
    """A model that does not take it reads that there was one, also after a restart."""
    talk = Talk(tmp_path, "gemini", other).new()
    try:
        clip = {"type": "audio", "mimeType": "audio/ogg", "data": OGG}
        assert talk.say([clip], text("ok")).wait() == "end_turn"
        assert OGG in said(talk, "gemini")
        talk.choose(other)
        assert talk.say("and now?", text("ok"), at=other).wait() == "end_turn"
        assert OGG not in said(talk, other) and "[audio: audio/ogg]" in said(talk, other)
        talk.restart()
        talk.choose("gemini")
        assert talk.say("again", text("ok"), at="gemini").wait() == "end_turn"
        assert OGG in said(talk, "gemini")
    finally:
        talk.close()


@pytest.mark.parametrize(
    ("block", "details"),
    [
        (
            {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(6_000_000)).decode()},
            "an image of 5.7 MiB is too large, the limit is 5 MiB",
        ),
        (
            {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(bytes(8_000_000)).decode()},
            "an audio clip of 7.6 MiB is too large, the limit is 7 MiB",
        ),
        (
            {"type": "audio", "mimeType": "audio/wav", "data": "no base64!"},
            "an audio clip's data is not base64",
        ),
    ],
    ids=["large image", "large audio", "no base64"],
)
def test_what_cannot_be_sent_is_told_and_nothing_is_sent(
    tmp_path: Path, block: dict[str, str], details: str
) -> None:
    talk = Talk(tmp_path, "openai").new()
    try:
        reply = talk.say([block]).wait_reply()
        assert reply.code == -32602
        assert details in reply.details
        assert talk.say("hi", text("yes")).wait() == "end_turn"
    finally:
        talk.close()
    assert len(server_of(talk).requests) == 1


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(MODELS, 2)))
def test_the_model_is_changed_in_mid_conversation(tmp_path: Path, first: str, second: str) -> None:
    """There and back: each server sees a history that it accepts, with its own signatures and no other's."""
    talk = Talk(tmp_path, first, second).new()
    try:
        for dialect in (first, second, first):
            talk.choose(dialect)
            turn = talk.say(f"look at {dialect}", CALLS, text("Two things."), at=dialect)
            assert turn.wait() == "end_turn", turn.wait_reply().message
            assert turn.text == "I look.Two things."
    finally:
        talk.close()
    mine = talk.servers[first].requests[-1].raw_body
    if first in SEALS:
        assert mine.count(SEALS[first]) == (1 if first == "ollama" else 2)
    others = {seal for name, seal in SEALS.items() if name != first and name != "ollama"}
    assert not [seal for seal in others if seal in mine]
    assert mine.count(b"found 1") == 3


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(MODELS, 2)))
def test_the_model_is_changed_in_mid_turn(tmp_path: Path, first: str, second: str) -> None:
    """The change holds from the next model call on, which continues what another model has begun."""
    arrived.clear()
    go_on.clear()
    talk = Talk(tmp_path, first, second).new()
    try:
        turn = talk.say("look", thought("hm") + tool_call("look", {"n": WAIT}), at=first)
        assert arrived.wait(10)
        talk.choose(second)
        talk.servers[second].script(CALLS, text("done"))
        go_on.set()
        assert turn.wait() == "end_turn", turn.wait_reply().message
        assert turn.text == "I look.done"
    finally:
        go_on.set()
        talk.close()
    assert [len(server.requests) for server in talk.servers.values()] == [1, 2]


def test_a_long_conversation_is_marked_for_the_cache_in_the_same_places(tmp_path: Path) -> None:
    talk = Talk(tmp_path, "anthropic").new()
    try:
        replies: list[Reply] = [text(f"answer {number}") for number in range(3)]
        for number, reply in enumerate(replies):
            assert talk.say(f"question {number}", reply).wait() == "end_turn"
    finally:
        talk.close()
    first, _, third = (request.body for request in server_of(talk).requests)
    assert third["system"] == first["system"]
    assert "cache_control" in third["system"][-1]
    marked = ["cache_control" in message["content"][-1] for message in third["messages"]]
    assert marked == [False, False, True, False, True]

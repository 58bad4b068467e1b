"""Every dialect and every fault: what comes of it, after how many requests and waits, what the user reads.

The errors that vendors document are in the second table: what they say, and what it is taken for.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from acpserver.cancel import CancelFlag
from acpserver.errors import ProviderError
from acpserver.llm.dialects import DIALECTS
from acpserver.llm.faults import Faults
from acpserver.llm.http import HttpProvider
from acpserver.llm.retry import Policy
from acpserver.llm.types import Endpoint, Event, Finish, Message, ModelRequest, Text, TextDelta, Waiting
from tests.fakes.llm_answers import Answer, Cut, Pause, Reset, Stall, error, raw, text
from tests.fakes.llm_server import FakeLlm
from tests.fakes.wires import WIRES, Wire

KEY = "sk-very/secret+key=0123456789"
FORMS = (KEY, quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode())
CERTIFICATE = Path(__file__).parent / "fakes" / "tls" / "localhost.pem"
ASKED = ModelRequest("fake", "be brief", (Message("user", (Text("hi"),)),))
HELLO = text("Hel", "lo")
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


class Outcome(NamedTuple):
    """What is expected: the kind of the error, how many requests, the seconds that are waited between them,
    words of the text; what was shown. `idle` is how long the server may be silent."""

    kind: str
    requests: int
    waited: float
    words: str
    shown: str = ""
    idle: float = 20.0


class Gate(Stall):
    """Holds a server until the client has shown something."""


def ask(
    endpoint: Endpoint, attempts: int = 3, gates: Sequence[Gate] = ()
) -> tuple[list[Event], ProviderError | None]:
    """The events of one call, and its error. The gates open when text has been shown.

    The policy is the usual one, without its chance; its clock moves by the waits alone, which take no time.
    """
    slept: list[float] = []
    policy = Policy(
        attempts,
        chance=lambda: 0.0,
        clock=lambda: sum(slept),
        sleep=lambda cancel, seconds: slept.append(seconds),
    )
    provider = HttpProvider(endpoint, policy)
    found: list[Event] = []
    try:
        for event in provider.stream(ASKED, CancelFlag()):
            found.append(event)
            if isinstance(event, TextDelta):
                for gate in gates:
                    gate.release()
    except ProviderError as failure:
        return found, failure
    finally:
        provider.close()
    return found, None


def waits(found: list[Event]) -> list[float]:
    return [event.seconds for event in found if isinstance(event, Waiting)]


def shown(found: list[Event]) -> str:
    return "".join(event.text for event in found if isinstance(event, TextDelta))


def status(code: int, words: str, headers: dict[str, str] | None = None) -> Callable[[Wire], Answer]:
    """A refusal in the words of the dialect."""
    return lambda wire: error(code, wire.error(code, words), headers)


def after_text(*steps: object) -> Callable[[Wire], Answer]:
    """These steps after the first visible piece."""

    def make(wire: Wire) -> Answer:
        whole = wire.stream(HELLO)
        visible = next(at for at, piece in enumerate(whole.steps) if b"Hel" in piece) + 1
        return whole.first_pieces(visible).then(Gate(), *steps)  # type: ignore[arg-type]

    return make


def before_text(*steps: object) -> Callable[[Wire], Answer]:
    """These steps instead of the whole body."""
    return lambda wire: replace(wire.stream(HELLO), steps=steps)


def half_a_chunk(wire: Wire) -> Answer:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return raw(head + b"40\r\ndata: {")


STATUSES: dict[str, tuple[Callable[[Wire], Answer], Outcome]] = {
    "400": (status(400, "unknown model"), Outcome("request", 1, 0.0, 'HTTP 400: "unknown model"')),
    "401": (status(401, "bad key"), Outcome("auth", 1, 0.0, "API key (environment variable THE_KEY)")),
    "403": (status(403, "not yours"), Outcome("auth", 1, 0.0, "API key (environment variable THE_KEY)")),
    "404": (status(404, "no such model"), Outcome("request", 1, 0.0, "base URL and the model name")),
    "408": (status(408, "too slow"), Outcome("server", 3, 1.5, "HTTP 408")),
    "413": (status(413, "too large"), Outcome("context", 1, 0.0, "too long for this model")),
    "429": (status(429, "slow down"), Outcome("rate_limit", 3, 1.5, "the rate limit is reached")),
    "429 wait": (
        status(429, "slow down", {"Retry-After": "4000"}),
        Outcome("rate_limit", 1, 0.0, "asks to wait 4000 s"),
    ),
    "429 soon": (
        status(429, "slow down", {"Retry-After": "7"}),
        Outcome("rate_limit", 3, 14.0, "asks to wait 7 s"),
    ),
    "500": (status(500, "oops"), Outcome("server", 3, 1.5, "The server has a problem")),
    "501": (status(501, "no such method"), Outcome("request", 1, 0.0, "base URL and the model name")),
    "502 page": (lambda wire: error(502, PAGE), Outcome("server", 3, 1.5, 'HTTP 502: "502 Bad Gateway"')),
    "503": (status(503, "starting"), Outcome("server", 3, 1.5, 'HTTP 503: "starting"')),
    "529": (status(529, "Overloaded"), Outcome("server", 3, 1.5, 'HTTP 529: "Overloaded"')),
}
BROKEN: dict[str, tuple[Callable[[Wire], Answer], Outcome]] = {
    "reset before headers": (
        lambda wire: HELLO.answer().before_headers(Reset()),
        Outcome("network", 3, 1.5, "closed the connection without an answer"),
    ),
    # The reset may overtake the headers, which are lost then.
    "reset after headers": (before_text(Reset()), Outcome("stream or network", 3, 1.5, "connection")),
    "reset after text": (after_text(Reset()), Outcome("stream", 1, 0.0, "the connection was lost", "Hel")),
    "cut in a chunk": (half_a_chunk, Outcome("stream", 3, 1.5, "the connection was lost")),
    "cut after text": (after_text(Cut()), Outcome("stream", 1, 0.0, "the connection was lost", "Hel")),
    "early end": (after_text(), Outcome("stream", 1, 0.0, "broke off before its end", "Hel")),
    "garbage": (before_text(b"data: \x00\xff{]\n\n"), Outcome("stream", 3, 1.5, "not JSON")),
    # On a busy machine the headers, too, may be late.
    "silence": (before_text(Stall()), Outcome("stream or network", 3, 1.5, "for 0.2 s", idle=0.2)),
    "silence after text": (
        after_text(Stall()),
        Outcome("stream", 1, 0.0, "nothing came for 0.6 s", "Hel", idle=0.6),
    ),
    "error in the stream": (
        lambda wire: before_text(wire.error_event(529, "Overloaded"))(wire),
        Outcome("server", 3, 1.5, '"Overloaded"'),
    ),
    "error after text": (
        lambda wire: after_text(wire.error_event(529, "Overloaded"))(wire),
        Outcome("server", 1, 0.0, '"Overloaded"', "Hel"),
    ),
}
ALL = {**STATUSES, **BROKEN}


@pytest.mark.parametrize(("dialect", "fault"), list(itertools.product(DIALECTS, ALL)))
def test_a_fault_ends_as_the_table_says(dialect: str, fault: str) -> None:
    make, expected = ALL[fault]
    gates: list[Gate] = []

    def answer(request: object) -> Answer:
        made = make(WIRES[dialect])
        gates.extend(step for step in made.steps if isinstance(step, Gate))
        return made

    with FakeLlm(dialect=dialect, default=answer) as llm:
        endpoint = Endpoint(
            llm.base_url, dialect, KEY, "environment variable THE_KEY", idle_timeout=expected.idle
        )
        found, failure = ask(endpoint, gates=gates)
        assert failure is not None
        assert failure.kind in expected.kind.split(" or ")
        assert len(llm.requests) == expected.requests
        assert shown(found) == expected.shown
        assert len(waits(found)) == expected.requests - 1 and sum(waits(found)) == expected.waited
        message = str(failure)
        assert expected.words in message
        assert message.startswith(llm.base_url)
        assert len(message) < 500 and message.isprintable() and KEY not in message
        assert llm.violations == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_server(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found, failure = ask(Endpoint(f"http://127.0.0.1:{port}/v1", dialect, KEY))
    assert failure is not None and failure.kind == "network"
    assert "connection refused" in str(failure) and waits(found) == [0.25, 0.25]

    def unknown(*args: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found, failure = ask(Endpoint("http://no-such-host.invalid/v1", dialect, KEY))
    assert failure is not None and failure.kind == "network"
    assert "its host name is unknown" in str(failure) and waits(found) == [0.5, 1.0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_trust(dialect: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with FakeLlm(dialect=dialect, tls=context) as llm:
        found, failure = ask(Endpoint(llm.base_url, dialect, KEY))
        assert failure is not None and (failure.kind, failure.retryable, found) == ("network", False, [])
        assert "cannot be trusted" in str(failure) and llm.requests == []
    with FakeLlm(dialect=dialect) as llm:
        found, failure = ask(Endpoint(llm.base_url.replace("http:", "https:"), dialect, KEY))
        assert failure is not None and "does not speak TLS" in str(failure) and found == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_slow_answer_is_no_fault_as_long_as_something_comes(dialect: str) -> None:
    whole = WIRES[dialect].stream(HELLO)
    body = b"".join(step for step in whole.steps if isinstance(step, bytes))
    slow = [step for at in range(150) for step in (Pause(0.005), body[at : at + 1])]
    with FakeLlm(dialect=dialect) as llm:
        llm.script(replace(whole, steps=(*slow, body[150:])))
        began = time.monotonic()
        found, failure = ask(Endpoint(llm.base_url, dialect, idle_timeout=0.6))
        assert time.monotonic() - began > 0.6
        assert failure is None and shown(found) == "Hello" and found[-1] == Finish("stop")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_line_of_ten_megabytes_arrives_and_one_without_an_end_is_given_up(dialect: str) -> None:
    wire = WIRES[dialect]
    with FakeLlm(dialect=dialect) as llm:
        llm.script(wire.stream(text("x" * 10_000_000)))
        found, failure = ask(Endpoint(llm.base_url, dialect))
        assert failure is None and len(shown(found)) == 10_000_000
        llm.script(before_text(b"data: ", *[b"x" * 2_000_000] * 9)(wire))
        found, failure = ask(Endpoint(llm.base_url, dialect))
        assert failure is not None and failure.kind == "output"
        assert "longer than 16777216 bytes" in str(failure) and found == []


# What vendors say, after their public documentation: (dialect, status, body, kind, retried, words).
# Status 0 is an error inside a stream.
SAID: list[tuple[str, int, object, str, bool, str]] = [
    *(
        ("openai", code, {"error": {"message": message}}, "request", False, "takes no images, or no audio")
        for code, message in (
            (500, "image input is not supported - hint: you may need to provide the mmproj"),  # llama.cpp
            (500, "audio input is not supported - hint: you may need to provide the mmproj"),
            (404, "No endpoints found that support image input"),  # OpenRouter
            (404, "No endpoints found that support input audio"),
            (400, "This model does not support audio input."),
        )
    ),
    (
        "openai",
        400,
        {"error": {"message": "This model's maximum context length is 8192 tokens.", "code": None}},
        "context",
        False,
        "larger context",
    ),
    (
        "openai",
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": json.dumps({"error": {"type": "x", "message": "prompt is too long: 210000"}}),
                    "provider_name": "Anthropic",
                },
            }
        },
        "context",
        False,
        '"Provider returned error: prompt is too long: 210000"',
    ),
    (
        "openai",
        502,
        {"error": {"message": "no", "metadata": {"raw": "<h1>Bad Gateway</h1>"}}},
        "server",
        True,
        "no: Bad",
    ),
    (
        "openai-responses",
        0,
        {"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window."}},
        "context",
        False,
        "larger context",
    ),
    (
        "anthropic",
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000"},
        },
        "context",
        False,
        "larger context",
    ),
    (
        "anthropic",
        400,
        {
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            }
        },
        "context",
        False,
        "larger context",
    ),
    (
        "gemini",
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed.",
                "status": "INVALID_ARGUMENT",
            }
        },
        "context",
        False,
        "larger context",
    ),
    (
        "ollama",
        400,
        {"error": "the prompt exceeds the available context size, try increasing it"},
        "context",
        False,
        "larger context",
    ),
    (
        "openai",
        400,
        {"error": {"message": "Range of input length should be [1, 98304]", "code": "invalid_parameter"}},
        "context",
        False,
        "larger context",
    ),
    (
        "openai",
        400,
        {"error": {"message": "Input token length too long", "type": "invalid_request_error"}},
        "context",
        False,
        "larger context",
    ),
    (
        "gemini",
        400,
        {
            "error": {
                "code": 400,
                "message": "API key not valid. Please pass a valid API key.",
                "status": "INVALID_ARGUMENT",
                "details": [{"reason": "API_KEY_INVALID"}],
            }
        },
        "auth",
        False,
        "Check the API key",
    ),
    (
        "anthropic",
        0,
        {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
        "auth",
        False,
        "Check the API key",
    ),
    (
        "anthropic",
        0,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "server",
        True,
        "later",
    ),
    (
        "anthropic",
        0,
        {"type": "error", "error": {"type": "api_error", "message": "Something went wrong"}},
        "server",
        True,
        "later",
    ),
    (
        "anthropic",
        400,
        {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access"}},
        "rate_limit",
        False,
        "credit",
    ),
    (
        "openai",
        429,
        {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}},
        "rate_limit",
        False,
        "credit",
    ),
    ("openai", 402, {"error": {"message": "Insufficient Balance"}}, "rate_limit", False, "credit"),
    (
        "gemini",
        429,
        {
            "error": {
                "code": 429,
                "message": "You exceeded your current quota, please check your plan",
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"@type": "RetryInfo", "retryDelay": "34.5s"}],
            }
        },
        "rate_limit",
        True,
        "asks to wait 35 s",
    ),
    (
        "gemini",
        0,
        {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}},
        "server",
        True,
        "later",
    ),
    (
        "openai-responses",
        0,
        {"code": "rate_limit_exceeded", "message": "Rate limit reached"},
        "rate_limit",
        True,
        "Wait a little",
    ),
    (
        "openai-responses",
        0,
        {"code": "server_error", "message": "The server had an error"},
        "server",
        True,
        "later",
    ),
    ("ollama", 404, {"error": "model 'x' not found"}, "request", False, "model 'x' not found"),
    ("ollama", 0, {"error": "an error was encountered while running the model"}, "server", False, "again"),
    ("openai", 0, {"error": {"code": 502, "message": "Provider returned error"}}, "server", True, "later"),
]


@pytest.mark.parametrize(("dialect", "code", "body", "kind", "retried", "words"), SAID)
def test_what_vendors_say(
    dialect: str, code: int, body: object, kind: str, retried: bool, words: str
) -> None:
    faults = Faults(Endpoint("https://host/v1", dialect, KEY, "environment variable THE_KEY"))
    raw_body = json.dumps(body).encode()
    found = faults.response(code, raw_body) if code else faults.in_answer(body)
    assert (found.kind, found.retryable) == (kind, retried)
    assert words in str(found)


# What servers say of a conversation that is too long: after their documentation and their users' reports.
TOO_LONG = {
    "vLLM": "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens",
    "vLLM, little room": "max_tokens must be at least 1, got -8",
    "vLLM, tokenized": "The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
    "vLLM, characters": "You passed 13439 input characters. However, the model's context length is only 4096",
    "SGLang": "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    "llama.cpp": "request (40030 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "llama.cpp, full": "Context size has been exceeded.",
    "LM Studio": "Trying to keep the first 10136 tokens. However, the model is loaded with context length of",
    "LM Studio, later": "The number of tokens to keep is greater than the context length.",
    "LM Studio, at the end": "Reached context length of 4096 tokens with model (arch: qwen3vlmoe)",
    "LM Studio, numbers": "Cannot truncate prompt with n_keep (18202) >= n_ctx (8192)",
    "Ollama": "the input length exceeds the context length",
    "Ollama, cloud": "prompt too long; exceeded max context length by 512 tokens",
    "OpenRouter": "This endpoint's maximum context length is 131072 tokens. However, you requested about 138",
    "DeepSeek": "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens",
    "Qwen": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    "Kimi": "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
    "Mistral": "Prompt contains 70000 tokens, too large for model with 32768 maximum context length",
    "Groq": "Please reduce the length of the messages or completion.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "MiniMax": "invalid params, context window exceeds limit",
    "GLM": "Prompt exceeds max length",
    "Bedrock": "Input is too long for requested model.",
    "Copilot": "prompt token count of 130000 exceeds the limit of 128000",
    "LiteLLM": "litellm.ContextWindowExceededError: litellm.BadRequestError: no more words",
}
OTHER_LIMITS = {
    "answer": "max_tokens is too large: 99999. This model supports at most 16384 completion tokens",
    "range": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "other word": "max_tokens exceeds what this model can answer",
    "name": "String should have at most 64 characters",
    "images": "Too many images: at most 100 per request",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("said", TOO_LONG)
@pytest.mark.parametrize("code", [400, 500, 0])
def test_a_conversation_that_is_too_long_is_told_as_such(dialect: str, said: str, code: int) -> None:
    """Some servers say it with 500, or inside an answer that has begun."""
    faults = Faults(Endpoint("https://host/v1", dialect, KEY))
    body = WIRES[dialect].error(code or 400, TOO_LONG[said])
    found = faults.response(code, json.dumps(body).encode()) if code else faults.in_answer(body)
    assert (found.kind, found.retryable) == ("context", False)
    assert "too long for this model" in str(found)


@pytest.mark.parametrize("said", OTHER_LIMITS)
def test_other_limits_are_not_taken_for_it(said: str) -> None:
    body = {"error": {"message": OTHER_LIMITS[said]}}
    assert Faults(Endpoint("https://host/v1")).response(400, json.dumps(body).encode()).kind == "request"


@pytest.mark.parametrize("said", ["unknown ", "max_tokens ", "<h1>", "<script>"])
def test_long_words_are_judged_in_no_time(said: str) -> None:
    """Nothing else runs meanwhile, not even a cancel."""
    faults = Faults(Endpoint("https://host/v1", api_key=KEY))
    began = time.thread_time()
    assert faults.response(400, (said * 16_384)[:65_536].encode()).kind == "request"
    assert faults.in_answer({"error": {"message": said * 16_384}}).kind == "server"
    assert time.thread_time() - began < 1.0


# Secrets


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", ["key", "header", "query"])
def test_no_key_leaves_the_process(dialect: str, form: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="acpserver")
    wire = WIRES[dialect]
    with FakeLlm(dialect=dialect) as llm:
        endpoint = {
            "key": Endpoint(llm.base_url, dialect, KEY),
            "header": Endpoint(llm.base_url, dialect, headers=(("Api-Key", KEY),)),
            "query": Endpoint(f"{llm.base_url}?api_key={quote(KEY, safe='')}", dialect),
        }[form]
        if form == "query":  # the fake is strict about paths
            llm.wire = wire = wire._replace(chat=re.compile(".*"))
        llm.script(error(400, f"the keys {' and '.join(FORMS)} are unknown"))
        llm.script(error(401, wire.error(401, f"Incorrect API key provided: {KEY}")))
        llm.script(wire.stream(HELLO).insert(0, wire.error_event(400, f"no such thing as {KEY}")))
        seen = [repr(endpoint), repr(DIALECTS[dialect].chat(endpoint, ASKED))]
        seen.append(repr(DIALECTS[dialect].models(endpoint)))
        for _ in range(3):
            found, failure = ask(endpoint, attempts=1)
            assert "[hidden]" in str(failure)
            seen += [repr(found), repr(failure), str(failure), repr(getattr(failure, "brief", ""))]
    everything = "\n".join([*seen, caplog.text])
    assert [secret for secret in (*FORMS, "secret") if secret in everything] == []

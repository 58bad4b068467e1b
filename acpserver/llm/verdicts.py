"""What a failed model call means: two tables for all servers, from what they say to what is done. Pure.

A rule looks at the status and at the facts: the server's codes and words, in whatever language of errors it
speaks. The first rule that fits holds. A lesson is another form of the same request that may be taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

KEY = "{key}"
"""Stands in an advice for what is known about the key."""
_CHECK = "Check the base URL and the model name."
_SETTINGS = "Check the model name and its settings."
_CREDIT = "Check the credit of the account."
_WAIT = "Wait a little, then send the prompt again."
_LATER = "The server has a problem: send the prompt again later."
_NO_SENSE = (
    "This model takes no images, or no audio: choose another one, or start a new session without what it "
    "cannot take."
)
_SHORTEN = (
    "The conversation is too long for this model: start a new session, shorten the prompt, or use a model "
    "with a larger context."
)


class Verdict(NamedTuple):
    """The kind of a `ProviderError`, whether the same request may succeed later, and what a user can do."""

    kind: str
    retryable: bool
    advice: str


_TOO_LONG = (
    r"context_length_exceeded|exceed_context_size|(?:context|sequence) (?:length|size|window|limit)"
    r"|(?:prompt|input) is too long|too many (?:input )?tokens|maximum (?:prompt|input) length"
    r"|model_max_prompt_tokens|prompt token count of"  # Copilot
    r"|input token count|\btokens? (?:count )?exceeds"  # Gemini; but not a limit such as max_tokens
    r"|token length too long|exceeded model token limit"  # Kimi
    r"|range of input length"  # Qwen
    r"|prompt exceeds max length"  # GLM
    r"|reduce the length of the (?:messages|prompt|input)"  # Groq, vLLM
    r"|maximum model length|max_tokens must be at least 1, got -"  # vLLM
    r"|exceeds the maximum allowed length"  # SGLang
    r"|n_keep \(\d+\) >= n_ctx"  # LM Studio
    r"|ContextWindowExceeded"  # LiteLLM
    r"|request_too_large"  # Anthropic
)
_BAD_KEY = (
    r"api_key_invalid|invalid_api_key|api key (?:not valid|expired|not found)|authentication_error"
    r"|permission_error|unauthenticated|permission_denied"
)
_NO_CREDIT = (
    r"insufficient_quota|billing_hard_limit|billing_error|credit balance is too low|insufficient balance"
    r"|exceeded_current_quota_error"
)
_SENSELESS = (
    r"(?:image|audio) input is not supported|(?:does not|doesn't) support (?:image|vision|audio)"
    r"|support image input|support input audio"  # OpenRouter
)
_QUOTA = r"exceeded your current quota"  # OpenAI: the credit is used up. Gemini: perhaps only this minute's
_LIMITED = r"rate.?limit|too many requests|resource_exhausted"
_PASSING = r"overload|unavailable|server_error|timeout|internal|api_error|deadline_exceeded"


class _Rule(NamedTuple):
    verdict: Verdict
    status: Callable[[int], bool]
    """0 is an error inside an answer that told no status."""
    facts: str = ""
    waits: bool = True
    """It holds also when the server says how long to wait."""


def _in(*statuses: int) -> Callable[[int], bool]:
    return lambda status: status in statuses


_PASSES = Verdict("server", True, _LATER)
RULES = (
    _Rule(Verdict("context", False, _SHORTEN), _in(413)),
    _Rule(Verdict("context", False, _SHORTEN), _in(0, 400, 422, 500), _TOO_LONG),
    _Rule(Verdict("request", False, _NO_SENSE), _in(0, 400, 404, 415, 422, 500), _SENSELESS),
    _Rule(Verdict("rate_limit", False, _CREDIT), _in(0, 400, 402, 403, 429), _NO_CREDIT),
    _Rule(Verdict("auth", False, KEY), _in(401, 403)),
    _Rule(Verdict("auth", False, KEY), _in(0, 400), _BAD_KEY),
    _Rule(Verdict("rate_limit", False, _CREDIT), _in(0, 429), _QUOTA, waits=False),
    _Rule(Verdict("rate_limit", True, _WAIT), _in(429)),
    _Rule(Verdict("rate_limit", True, _WAIT), _in(0), _LIMITED),
    _Rule(_PASSES, lambda status: status in (408, 409) or status >= 500 and status != 501),
    _Rule(_PASSES, _in(0), _PASSING),
    _Rule(Verdict("request", False, _SETTINGS), _in(400, 422)),
    _Rule(Verdict("request", False, _CREDIT), _in(402)),
    _Rule(Verdict("server", False, "Send the prompt again."), _in(0)),
    _Rule(Verdict("request", False, _CHECK), lambda status: True),
)


OTHER_LIMIT = "other limit"
"""The answer is limited by the other one of the members `max_tokens` and `max_completion_tokens`."""
DROP_UNBOUND = "drop unbound"
"""The server is asked to leave out signed thinking that no longer fits what stands before it."""
NO_REASONING = "no reasoning"
"""Nothing of the model's own reasoning goes back to it."""

_LIMITS = r"max_(?:completion_)?tokens"
_UNKNOWN = (
    r"unsupported parameter|not supported|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed"
    r"|forbidden|_tokens\W{1,3}instead"
)
_SEALED = r"invalid_encrypted_content|encrypted content|thought.?signature|signature\W+in\W+thinking"
_LESSONS = (
    ("openai", (_LIMITS, _UNKNOWN), (OTHER_LIMIT,)),
    # A gateway may take away or refuse what asks for the leaving out; then only the second lesson helps.
    (
        "anthropic",
        (
            r"signature\W+in\W+thinking|thinking\.signature|bound to a different|block_binding"
            r"|thinking-binding-controls",
        ),
        (DROP_UNBOUND, NO_REASONING),
    ),
    # Another key of the same vendor may not read what was sealed for the first.
    *((speaker, (_SEALED,), (NO_REASONING,)) for speaker in ("openai-responses", "gemini", "openai")),
)
"""Dialect, what the facts of a refusal all hold, and what is tried, one after the other."""


def lessons(dialect: str, status: int, facts: str) -> tuple[str, ...]:
    """The other forms in which a refused request may be taken; none for other failures."""
    if status not in (0, 400, 422):
        return ()
    found = (
        learned
        for speaker, words, learned in _LESSONS
        if speaker == dialect and all(re.search(word, facts, re.IGNORECASE) for word in words)
    )
    return next(found, ())


def verdict(status: int, facts: str, waits: bool = False) -> Verdict:
    """What holds for a failure with this status. `waits`: the server says after how long to try again."""
    return next(
        rule.verdict
        for rule in RULES
        if rule.status(status)
        and (rule.waits or not waits)
        and (not rule.facts or re.search(rule.facts, facts, re.IGNORECASE))
    )

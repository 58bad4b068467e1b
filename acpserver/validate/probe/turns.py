"""Scenarios: prompts of every kind, their order, and what goes on beside them."""

from __future__ import annotations

import os

from acpserver.validate.probe.framing import UNKNOWN
from acpserver.validate.probe.link import Answer, Json, Link, kinds
from acpserver.validate.probe.stage import Stage, offers, prompt, scenario
from acpserver.validate.probe.verdict import advise, demand, need

STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
BETWEEN = (
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _said(link: Link, session: str, start: int, end: int | None = None) -> str:
    """The agent's text between two marks."""
    pieces = []
    for update in link.updates(session, start, end):
        content = update.get("content")
        if update.get("sessionUpdate") == "agent_message_chunk" and isinstance(content, dict):
            pieces.append(str(content.get("text", "")))
    return "".join(pieces)


def _stopped(answer: Answer, *allowed: str) -> None:
    reason = (answer.result or {}).get("stopReason")
    demand(reason in (allowed or STOP_REASONS), f"the turn ended with stopReason {reason!r}")


@scenario("P2", "turns/hello")
def _hello(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    session, start = stage.session(link), link.mark()
    answer = stage.turn(link, session, text)
    _stopped(answer)
    demand(_said(link, session, start, answer.position), "no text came before the answer")
    link.listen(stage.options.moment)
    late = [kind for kind in kinds(link.updates(session, answer.position)) if kind not in BETWEEN]
    demand(not late, f"{', '.join(late[:3])} came after the answer")
    demand(not answer.extra, "the prompt was answered twice")


@scenario("P5", "turns/usage", advice=True)
def _usage(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    session, start = stage.session(link), link.mark()
    stage.turn(link, session, text)
    demand("usage_update" in kinds(link.updates(session, start)), "no usage_update came")


@scenario("L6", "turns/usage-in-the-answer", advice=True)
def _answer_usage(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    result = stage.turn(link, stage.session(link), text).result or {}
    demand(result.get("usage"), "the answer to the prompt has no usage")


@scenario("L5", "turns/time-limit", advice=True)
def _time_limit(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("slow")
    session = stage.session(link)
    params = {**prompt(session, text), "_meta": {"timeoutMs": 200}}
    turn = link.post("session/prompt", params)
    ended = link.settle(lambda: turn.message is not None, stage.options.patience)
    link.notify("session/cancel", {"sessionId": session})
    stage.finish(link, turn)
    need(ended, "_meta.timeoutMs is not observed")
    _stopped(turn, "cancelled")


@scenario("S12", "turns/title", advice=True)
def _title(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    session, start = stage.session(link), link.mark()
    stage.turn(link, session, text)
    link.settle(lambda: "session_info_update" in kinds(link.updates(session, start)), stage.options.moment)
    demand(
        "session_info_update" in kinds(link.updates(session, start)),
        "no session_info_update with a title came",
    )


@scenario("P4", "turns/message-ids", advice=True)
def _message_ids(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    session, start = stage.session(link), link.mark()
    stage.turn(link, session, text)
    chunks = [
        one for one in link.updates(session, start) if one.get("sessionUpdate") == "agent_message_chunk"
    ]
    demand(all(chunk.get("messageId") for chunk in chunks), "chunks come without messageId")


def _blocks(stage: Stage, *blocks: Json) -> Answer:
    """A turn with these blocks behind the hello prompt."""
    link = stage.shared()
    session = stage.session(link)
    params: Json = {"sessionId": session, "prompt": [{"type": "text", "text": stage.text("hello")}, *blocks]}
    return link.request("session/prompt", params, stage.options.start_timeout)


@scenario("P1", "turns/resource-link")
def _resource_link(stage: Stage) -> None:
    path = os.path.join(stage.folder(), "notes é.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("one\ntwo\n")
    answer = _blocks(stage, {"type": "resource_link", "name": "notes é.txt", "uri": "file://" + path})
    demand(answer.result is not None, f"a resource_link got {answer.told()}")


@scenario("P1", "turns/embedded-resource")
def _resource(stage: Stage) -> None:
    announced = offers(stage.shared(), "promptCapabilities", "embeddedContext")
    resource = {"uri": "file:///tmp/x.txt", "text": "one\ntwo\n", "mimeType": "text/plain"}
    answer = _blocks(stage, {"type": "resource", "resource": resource})
    _by_capability(answer, announced, "an embedded resource")


@scenario("P1", "turns/image")
def _image(stage: Stage) -> None:
    announced = offers(stage.shared(), "promptCapabilities", "image")
    _by_capability(
        _blocks(stage, {"type": "image", "data": PIXEL, "mimeType": "image/png"}), announced, "an image"
    )


@scenario("P1", "turns/audio")
def _audio(stage: Stage) -> None:
    announced = offers(stage.shared(), "promptCapabilities", "audio")
    _by_capability(
        _blocks(stage, {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}), announced, "audio"
    )


def _by_capability(answer: Answer, announced: bool, what: str) -> None:
    """What is announced must work; what is not may be refused, as long as it is said properly."""
    if announced:
        demand(answer.result is not None, f"{what} is announced, but got {answer.told()}")
    else:
        demand(
            answer.result is not None or answer.code in (-32602, -32600),
            f"{what}, which is not announced, got {answer.told()}",
        )


@scenario("J7", "turns/empty-prompt")
def _empty(stage: Stage) -> None:
    link = stage.shared()
    answer = link.request("session/prompt", {"sessionId": stage.session(link), "prompt": []})
    advise(answer.result is not None or answer.code == -32602, f"an empty prompt got {answer.told()}")


@scenario("J7", "turns/prompt-of-unknown-kind")
def _unknown_block(stage: Stage) -> None:
    link = stage.shared()
    params = {"sessionId": stage.session(link), "prompt": [{"type": "smell", "data": "rose"}]}
    answer = link.request("session/prompt", params, stage.options.start_timeout)
    demand(answer.code == -32602, f"an unknown kind of content got {answer.told()}, not error -32602")


@scenario("P7", "turns/unknown-command")
def _slash(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    answer = stage.turn(link, stage.session(link), "/no-such-command-9f " + text)
    _stopped(answer)


def _odd_prompt(stage: Stage, more: str) -> None:
    link, text = stage.shared(), stage.text("hello")
    session = stage.session(link)
    answer = link.request("session/prompt", prompt(session, text, more), stage.options.start_timeout)
    demand(answer.result is not None, f"got {answer.told()}")
    stage.turn(link, session, text)


@scenario("P1", "turns/one-megabyte")
def _large(stage: Stage) -> None:
    _odd_prompt(stage, "word " * 200_000)


@scenario("P1", "turns/odd-characters")
def _odd(stage: Stage) -> None:
    _odd_prompt(stage, "\x00 \x1b[31m \u202e \u2028 \ufeff \U0001f600 e\u0301 \ud83d")


@scenario("P6", "turns/two-at-once-in-one-session")
def _two(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    session = stage.session(link)
    first, second = stage.prompt(link, session, text), stage.prompt(link, session, text)
    link.finish(first, stage.options.start_timeout)
    link.finish(second, stage.options.start_timeout)
    demand(first.result is not None, f"the first of two prompts got {first.told()}")
    demand(second.result is not None, f"a prompt that came while another one ran got {second.told()}")
    demand(first.position < second.position, "the second prompt was answered first")


@scenario("P6", "turns/two-sessions-at-once")
def _side_by_side(stage: Stage) -> None:
    slow, text = stage.text("slow"), stage.text("hello")
    link = stage.fresh()
    busy, other = stage.session(link), stage.session(link)
    long_one = stage.prompt(link, busy, slow)
    stage.turn(link, other, text)
    advise(long_one.message is None, "the slow prompt was answered before the other session's")
    link.notify("session/cancel", {"sessionId": busy})
    stage.finish(link, long_one)


@scenario("T3", "turns/requests-during-a-turn")
def _meanwhile(stage: Stage) -> None:
    slow = stage.text("slow")
    link = stage.fresh()
    session = stage.session(link)
    turn = stage.prompt(link, session, slow)
    demand(link.request(UNKNOWN, {}).code == -32601, "an unknown method was not refused during a turn")
    answer = stage.new(link)
    demand(answer.result is not None, f"session/new during a turn got {answer.told()}")
    need(turn.message is None, "the slow prompt was over too early to say anything")
    link.notify("session/cancel", {"sessionId": session})
    stage.finish(link, turn)


@scenario("P8", "turns/plan")
def _plan(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("plan")
    session, start = stage.session(link), link.mark()
    _stopped(stage.turn(link, session, text))
    plans = [one for one in link.updates(session, start) if one.get("sessionUpdate") == "plan"]
    demand(plans, "no plan came")
    demand(all(isinstance(one.get("entries"), list) for one in plans), "a plan has no entries")


@scenario("T6", "turns/many-sessions")
def _many(stage: Stage) -> None:
    link, text = stage.shared(), stage.text("hello")
    sessions = [stage.session(link) for _ in range(8)]
    start = link.mark()
    turns = [stage.prompt(link, session, text) for session in sessions]
    for turn in turns:
        stage.finish(link, turn)
    silent = [session for session in sessions if not _said(link, session, start)]
    demand(not silent, f"{len(silent)} of {len(sessions)} turns that ran at once said nothing")

"""Scenarios: sessions from new to delete, and their options. What is not announced is skipped."""

from __future__ import annotations

import os

from acpserver.validate.probe.link import Answer, Json, Link, kinds
from acpserver.validate.probe.stage import Stage, offers, prompt, scenario
from acpserver.validate.probe.verdict import advise, demand, need

BROKEN_SERVER: Json = {"name": "broken", "command": "/no/such/mcp-server", "args": [], "env": []}
NO_SESSION = "no-such-session-8c1f"
REPLAYED = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "plan")


@scenario("S1", "sessions/new")
def _new(stage: Stage) -> None:
    link = stage.shared()
    ids = []
    for _ in range(2):
        answer = stage.new(link)
        demand(answer.result is not None, f"session/new got {answer.told()}")
        ids.append((answer.result or {}).get("sessionId"))
    demand(all(isinstance(one, str) and one for one in ids), f"the ids are {ids!r}")
    demand(ids[0] != ids[1], f"two sessions share the id {ids[0]!r}")


@scenario("S1", "sessions/odd-folder-name")
def _odd_folder(stage: Stage) -> None:
    stage.session(stage.shared())
    answer = stage.new(stage.shared(), cwd=stage.folder("a b'c é☃ %20 $HOME"))
    demand(answer.result is not None, f"session/new in an oddly named folder got {answer.told()}")


def _bad_new(stage: Stage, what: str, params: Json | list[object] | None) -> None:
    link = stage.shared()
    stage.session(link)  # skips where sessions do not work at all
    answer = link.request("session/new", params, stage.options.start_timeout)
    demand(answer.code is not None, f"session/new with {what} succeeded")
    demand(answer.code == -32602, f"session/new with {what} got {answer.told()}, not error -32602")


@scenario("S1", "sessions/relative-folder")
def _relative(stage: Stage) -> None:
    _bad_new(stage, "a relative cwd", {"cwd": "some/folder", "mcpServers": []})


@scenario("J7", "sessions/no-folder")
def _no_folder(stage: Stage) -> None:
    _bad_new(stage, "no cwd", {"mcpServers": []})


@scenario("J7", "sessions/folder-of-wrong-type")
def _wrong_type(stage: Stage) -> None:
    _bad_new(stage, "a number as cwd", {"cwd": 5, "mcpServers": []})


@scenario("J7", "sessions/no-params")
def _no_params(stage: Stage) -> None:
    _bad_new(stage, "params null", None)


@scenario("J7", "sessions/params-an-array")
def _array(stage: Stage) -> None:
    _bad_new(stage, "an array as params", [])


@scenario("J12", "sessions/unknown-fields")
def _unknown_fields(stage: Stage) -> None:
    stage.session(stage.shared())
    answer = stage.new(stage.shared(), _meta={"x": {"y": None}}, fromTheFuture=True)
    demand(answer.result is not None, f"unknown fields in session/new got {answer.told()}")


@scenario("S11", "sessions/broken-mcp-server")
def _broken_server(stage: Stage) -> None:
    stage.session(stage.shared())
    answer = stage.new(stage.shared(), mcpServers=[BROKEN_SERVER])
    demand(
        answer.result is not None,
        f"an MCP server that cannot start made session/new end with {answer.told()}",
    )


@scenario("S8", "sessions/relative-additional-folder")
def _relative_more(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "additionalDirectories"), "additionalDirectories is not announced")
    _bad_new(
        stage,
        "a relative additional folder",
        {"cwd": stage.folder(), "mcpServers": [], "additionalDirectories": ["some/folder"]},
    )


def _unknown_session(stage: Stage, method: str, params: Json) -> None:
    link = stage.shared()
    stage.session(link)
    answer = link.request(method, {"sessionId": NO_SESSION, **params})
    demand(answer.code is not None, f"{method} in an unknown session succeeded")
    advise(answer.code == -32002, f"{method} in an unknown session got {answer.told()}, not -32002")


@scenario("S4", "sessions/prompt-in-unknown-session")
def _unknown_prompt(stage: Stage) -> None:
    _unknown_session(stage, "session/prompt", prompt(NO_SESSION, "hello"))


@scenario("S4", "sessions/load-unknown-session")
def _unknown_load(stage: Stage) -> None:
    need(offers(stage.shared(), "loadSession"), "loadSession is not announced")
    _unknown_session(stage, "session/load", {"cwd": stage.folder(), "mcpServers": []})


@scenario("S4", "sessions/resume-unknown-session")
def _unknown_resume(stage: Stage) -> None:
    need(_session_offers(stage.shared(), "resume"), "resume is not announced")
    _unknown_session(stage, "session/resume", {"cwd": stage.folder(), "mcpServers": []})


def _session_offers(link: Link, name: str) -> bool:
    return offers(link, "sessionCapabilities", name)


def _listed(stage: Stage, link: Link, **params: object) -> list[Json]:
    """The sessions of one page."""
    answer = link.request("session/list", dict(params))
    demand(answer.result is not None, f"session/list got {answer.told()}")
    sessions = (answer.result or {}).get("sessions")
    demand(isinstance(sessions, list), f"session/list answered with sessions {sessions!r}")
    return [entry for entry in sessions if isinstance(entry, dict)] if isinstance(sessions, list) else []


@scenario("S7", "sessions/list")
def _list(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "list"), "list is not announced")
    stage.session(link)
    demand(_listed(stage, link, cwd=stage.folder()) == [], "a new folder has sessions in the list")
    _listed(stage, link)
    cwd = stage.folder()
    session = stage.session(link, cwd=cwd)
    others = [entry for entry in _listed(stage, link, cwd=cwd) if entry.get("sessionId") != session]
    demand(not others, f"the list for one folder holds a session of {others[0].get('cwd') if others else ''}")


@scenario("S7", "sessions/list-with-invalid-cursor")
def _cursor(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "list"), "list is not announced")
    stage.session(link)
    answer = link.request("session/list", {"cursor": "no such cursor"})
    demand(answer.code is not None, "an invalid cursor was accepted")
    demand(answer.code == -32602, f"an invalid cursor got {answer.told()}, not error -32602")


@scenario("S7", "sessions/list-after-a-turn")
def _list_after_turn(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "list"), "list is not announced")
    cwd = stage.folder()
    session = stage.session(link, cwd=cwd)
    stage.turn(link, session, stage.text("hello"))
    found = [entry for entry in _listed(stage, link, cwd=cwd) if entry.get("sessionId") == session]
    demand(len(found) == 1, f"a session with a turn is {len(found)} times in the list of its folder")


def _after_hello(stage: Stage, link: Link) -> tuple[str, str, str]:
    """A session with one turn, its folder, and the prompt's text."""
    cwd, text = stage.folder(), stage.text("hello")
    session = stage.session(link, cwd=cwd)
    stage.turn(link, session, text)
    return session, cwd, text


def _open(stage: Stage, link: Link, method: str, session: str, cwd: str) -> tuple[Answer, list[Json]]:
    """The answer to load, resume or fork, and the updates that came before it."""
    start = link.mark()
    params = {"sessionId": session, "cwd": cwd, "mcpServers": []}
    answer = link.request(method, params, stage.options.start_timeout)
    return answer, link.updates(session, start, answer.position)


def _reopened(stage: Stage, first: Link, method: str) -> tuple[str, str, Link, Answer, list[Json]]:
    """A session that was prompted in `first`, opened by `method` in a new process after that one has ended:
    its id, the prompt, the new process, the answer, and the updates before it."""
    session, cwd, text = _after_hello(stage, first)
    first.process.close_input()
    first.settle(lambda: first.process.status() is not None, stage.options.timeout)
    link = stage.fresh()
    answer, updates = _open(stage, link, method, session, cwd)
    return session, text, link, answer, updates


@scenario("S2", "sessions/load")
def _load(stage: Stage) -> None:
    first = stage.fresh()
    need(offers(first, "loadSession"), "loadSession is not announced")
    session, text, link, answer, updates = _reopened(stage, first, "session/load")
    demand(
        answer.message is not None and answer.code is None,
        f"session/load in a new process got {answer.told()}",
    )
    demand("user_message_chunk" in kinds(updates), "nothing of the user was replayed before the answer")
    demand("agent_message_chunk" in kinds(updates), "nothing of the agent was replayed before the answer")
    said = "".join(_text(update) for update in updates if update.get("sessionUpdate") == "user_message_chunk")
    demand(text.strip() in said, f"the user's prompt was replayed as {said[:80]!r}")
    stage.turn(link, session, text)


def _text(update: Json) -> str:
    content = update.get("content")
    return str(content.get("text", "")) if isinstance(content, dict) else ""


@scenario("S9", "sessions/load-in-another-folder")
def _load_elsewhere(stage: Stage) -> None:
    link = stage.shared()
    need(offers(link, "loadSession"), "loadSession is not announced")
    session, _, _ = _after_hello(stage, link)
    answer, _ = _open(stage, link, "session/load", session, stage.folder())
    advise(answer.code == -32602, f"session/load with another cwd got {answer.told()}, not error -32602")


@scenario("S3", "sessions/resume")
def _resume(stage: Stage) -> None:
    first = stage.fresh()
    need(_session_offers(first, "resume"), "resume is not announced")
    session, text, link, answer, updates = _reopened(stage, first, "session/resume")
    demand(answer.message is not None and answer.code is None, f"session/resume got {answer.told()}")
    replayed = [kind for kind in kinds(updates) if kind in REPLAYED]
    demand(not replayed, f"session/resume replayed {', '.join(replayed[:3])}")
    stage.turn(link, session, text)


@scenario("S10", "sessions/fork")
def _fork(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "fork"), "fork is not announced")
    session, cwd, text = _after_hello(stage, link)
    answer, _ = _open(stage, link, "session/fork", session, cwd)
    other = (answer.result or {}).get("sessionId")
    demand(isinstance(other, str) and other != session, f"session/fork got {answer.told()}, id {other!r}")
    start = link.mark()
    stage.turn(link, str(other), text)
    demand(not link.updates(session, start), "a turn of the fork sent updates to the first session")
    stage.turn(link, session, text)


@scenario("S6", "sessions/delete")
def _delete(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "delete"), "delete is not announced")
    cwd = stage.folder()
    session = stage.session(link, cwd=cwd)
    for what in ("session/delete", "deleting it again"):
        answer = link.request("session/delete", {"sessionId": session})
        demand(answer.message is not None and answer.code is None, f"{what} got {answer.told()}")
    if _session_offers(link, "list"):
        left = [entry for entry in _listed(stage, link, cwd=cwd) if entry.get("sessionId") == session]
        demand(not left, "a deleted session is still in the list")


@scenario("S5", "sessions/close")
def _close(stage: Stage) -> None:
    link = stage.shared()
    need(_session_offers(link, "close"), "close is not announced")
    session = stage.session(link)
    answer = link.request("session/close", {"sessionId": session})
    demand(answer.message is not None and answer.code is None, f"session/close got {answer.told()}")
    late = link.request("session/prompt", prompt(session, "hello"), stage.options.start_timeout)
    demand(late.code is not None, "a prompt in a closed session was worked on")


@scenario("S13", "sessions/nothing-before-the-answer")
def _nothing_before(stage: Stage) -> None:
    link = stage.shared()
    start = link.mark()
    answer = stage.new(link, cwd=os.path.realpath(stage.folder()))
    session = (answer.result or {}).get("sessionId")
    need(isinstance(session, str), f"session/new does not work: {answer.told()}")
    early = kinds(link.updates(str(session), start, answer.position))
    demand(not early, f"{', '.join(early)} came before the answer that tells the session's id")

"""A small agent that keeps every rule which `acp-validate probe` tries, except the one named by `--fault`.

The prompts are words: hello, slow, tool, plan, permission PATH, read PATH, write PATH, terminal COMMAND. One
thread: a turn is a generator that yields requests to the client and is sent their answers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Generator
from pathlib import Path

FAULT = sys.argv[sys.argv.index("--fault") + 1] if "--fault" in sys.argv else ""
OPTIONS = [
    {"optionId": f"o-{kind}", "name": kind, "kind": kind}
    for kind in ("allow_once", "allow_always", "reject_once", "reject_always")
]
ANNOUNCED = {
    "loadSession": True,
    "promptCapabilities": {"embeddedContext": True},
    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}, "fork": {}},
    "auth": {"logout": {}},
}
MODES = ["ask", "code"]
CALLER = {"title": "Act", "rawInput": {}}

Json = dict
Steps = Generator  # of (method, params) or None, sent the answers


class Refused(Exception):
    def __init__(self, code: int, text: str = "no"):
        super().__init__(text)
        self.code = code


class Session:
    def __init__(self, folder: str):
        self.id = "session-1" if FAULT == "same-id" else f"session-{uuid.uuid4().hex[:12]}"
        self.folder = folder
        self.story: list[Json] = []
        self.turns: list[Turn] = []
        self.always = ""
        self.mode = MODES[0]

    def save(self) -> None:
        Path(self.folder, f".{self.id}").write_text(json.dumps(self.story))


class Turn:
    def __init__(self, session: Session, request_id: object, text: str):
        self.session, self.id, self.text = session, request_id, text
        self.steps: Steps = act(self)
        self.asked: object = None
        self.call = ""


sessions: dict[str, Session] = {}
closed: dict[str, Session] = {}
waiting: dict[int, Turn] = {}
state: Json = {"initialized": False, "authenticated": True, "capabilities": {}, "next": 1_000_000}


def send(message: Json) -> None:
    data = (json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def update(session: Session, **fields: object) -> None:
    if fields["sessionUpdate"] in ("agent_message_chunk", "user_message_chunk", "plan"):
        session.story.append(fields)
    send({"method": "session/update", "params": {"sessionId": session.id, "update": fields}})


def chunk(session: Session, kind: str, text: str, name: str = "") -> None:
    content = {"type": "text", "text": text}
    update(session, sessionUpdate=kind, messageId=name or uuid.uuid4().hex, content=content)


def answer(request_id: object, result: object) -> None:
    send({"id": request_id, "result": result})


def fail(request_id: object, code: int, text: str = "no") -> None:
    if FAULT == "id-as-text" and isinstance(request_id, int):
        request_id = str(request_id)
    send({"id": request_id, "error": {"code": code, "message": text}})


def can(*path: str) -> bool:
    value = state["capabilities"]
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return bool(value)


# Turns


def act(turn: Turn) -> Steps:
    """What a prompt makes the agent do."""
    session, (word, _, rest) = turn.session, turn.text.partition(" ")
    if word == "slow":
        yield None
    elif word == "plan":
        update(
            session, sessionUpdate="plan", entries=[{"content": "a", "priority": "low", "status": "pending"}]
        )
    elif word == "tool":
        call(turn, "read", "completed")
    elif word == "permission":
        yield from permission(turn, rest)
    elif word == "read":
        yield from read(turn, rest)
    elif word == "write":
        yield from write(turn, rest)
    elif word == "terminal":
        yield from terminal(turn, rest)
    if FAULT != "says-nothing":
        chunk(session, "agent_message_chunk", "hello")
    update(session, sessionUpdate="usage_update", used=10, size=1000)
    update(session, sessionUpdate="session_info_update", title=turn.text[:30])
    return "end_turn"


def call(turn: Turn, kind: str, status: str = "pending") -> str:
    turn.call = f"call-{uuid.uuid4().hex[:6]}"
    fields = {"toolCallId": turn.call, "kind": kind, **CALLER}
    update(turn.session, sessionUpdate="tool_call", **fields, status="pending")
    if status != "pending":
        ended(turn, status)
    return turn.call


def ended(turn: Turn, status: str) -> None:
    if FAULT != "open-calls":
        told: Json = {"toolCallId": turn.call, "status": status, "rawOutput": {"done": True}}
        if turn.text.startswith(("permission", "write")):
            told["content"] = [{"type": "diff", "path": turn.text.partition(" ")[2], "newText": "x"}]
        update(turn.session, sessionUpdate="tool_call_update", **told)
    turn.call = ""


def permission(turn: Turn, path: str) -> Steps:
    session = turn.session
    name = f"call-{uuid.uuid4().hex[:6]}"
    if FAULT != "asks-first":
        name = call(turn, "edit")
    verdict = session.always if FAULT != "asks-again" else ""
    if not verdict:
        about = {"toolCallId": name, "kind": "edit", "status": "pending", **CALLER}
        params = {"sessionId": session.id, "toolCall": about, "options": OPTIONS}
        reply = yield "session/request_permission", params
        outcome = (reply.get("result") or {}).get("outcome")
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        verdict = str(chosen)
        if FAULT == "anything-is-yes" and verdict != "o-reject_once":
            verdict = "o-allow_once"
    if FAULT == "asks-first":
        call(turn, "edit")
    session.always = verdict if verdict.endswith("_always") else session.always
    allowed = verdict.startswith("o-allow")
    if allowed:
        Path(path).write_text("done")
    ended(turn, "completed" if allowed else "failed")


def read(turn: Turn, path: str) -> Steps:
    call(turn, "read")
    if (can("fs", "readTextFile") and FAULT != "own-reads") or FAULT == "uninvited":
        reply = yield "fs/read_text_file", {"sessionId": turn.session.id, "path": path}
        ended(turn, "completed" if "result" in reply else "failed")
    else:
        ended(turn, "completed" if os.path.exists(path) else "failed")


def write(turn: Turn, path: str) -> Steps:
    call(turn, "edit")
    text = "probe-text-82"
    if can("fs", "writeTextFile") and FAULT != "own-writes":
        params = {"sessionId": turn.session.id, "path": path, "content": text}
        reply = yield "fs/write_text_file", params
        if "error" in reply and FAULT == "error-ends-turn":
            raise Refused(-32603)
        ended(turn, "completed" if "result" in reply else "failed")
    else:
        Path(path).write_text(text)
        ended(turn, "completed")


def terminal(turn: Turn, command: str) -> Steps:
    call(turn, "execute")
    if not can("terminal"):
        yield from local(turn, command)
        return
    about = {"sessionId": turn.session.id}
    made = yield "terminal/create", {**about, "command": "sh", "args": ["-c", command]}
    about["terminalId"] = made["result"]["terminalId"]
    shown = [{"type": "terminal", "terminalId": about["terminalId"]}]
    update(turn.session, sessionUpdate="tool_call_update", toolCallId=turn.call, content=shown)
    try:
        reply = yield "terminal/wait_for_exit", about
        yield "terminal/output", about
    except GeneratorExit:
        if FAULT != "keeps-terminal":
            state["next"] += 1
            send({"id": state["next"], "method": "terminal/release", "params": about})
        raise
    if FAULT != "keeps-terminal":
        yield "terminal/release", about
    ended(turn, "completed" if reply["result"].get("exitCode") == 0 else "failed")


def local(turn: Turn, command: str) -> Steps:
    """Runs the command in the background of this process; only a sleep is waited for."""
    child = subprocess.Popen(["sh", "-c", f"exec {command}"], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    children.append(child)
    if command.startswith("sleep"):
        try:
            yield None
        except GeneratorExit:
            if FAULT != "leaves-command":
                child.kill()
            raise
    child.wait()
    ended(turn, "completed")


children: list[subprocess.Popen] = []


def advance(turn: Turn, value: object = None) -> None:
    """Go on with a turn up to its next request, or answer it."""
    try:
        wanted = turn.steps.send(value)
    except StopIteration as stop:
        finish(turn, str(stop.value))
    except Refused as refused:
        turn.session.turns.remove(turn)
        fail(turn.id, refused.code)
        proceed(turn.session)
    else:
        if wanted is not None:
            state["next"] += 1
            waiting[state["next"]] = turn
            send({"id": state["next"], "method": wanted[0], "params": wanted[1]})


def finish(turn: Turn, reason: str) -> None:
    session = turn.session
    session.turns.remove(turn)
    session.save()
    if FAULT == "cancel-is-error" and reason == "cancelled":
        fail(turn.id, -32603)
    else:
        answer(
            turn.id, {"stopReason": reason, "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}
        )
    if FAULT == "late-update":
        chunk(session, "agent_message_chunk", "late")
    if FAULT == "answers-twice":
        answer(turn.id, {"stopReason": reason})
    proceed(session)


def proceed(session: Session) -> None:
    if session.turns:
        advance(session.turns[0])


def cancel(turns: list[Turn]) -> None:
    if FAULT == "deaf-to-cancel":
        return
    for turn in list(turns):
        turn.steps.close()
        for number in [number for number, other in waiting.items() if other is turn]:
            del waiting[number]
            send({"method": "$/cancel_request", "params": {"requestId": number}})
        if turn.call:
            ended(turn, "failed")
        turn.session.turns.remove(turn)
        if FAULT == "cancel-is-error":
            fail(turn.id, -32603)
        else:
            answer(turn.id, {"stopReason": "cancelled"})


# Methods


def session_of(params: Json) -> Session:
    found = sessions.get(params.get("sessionId", ""))
    if found is None:
        raise Refused(-32002, f"Session not found: {params.get('sessionId')}")
    return found


def folder_of(params: Json) -> str:
    folder = params.get("cwd")
    if not isinstance(folder, str) or (not folder.startswith("/") and FAULT != "relative-folder"):
        raise Refused(-32602, "cwd")
    return folder


def initialize(request_id: object, params: Json) -> None:
    if FAULT == "strict-info" and not isinstance(params.get("clientInfo"), dict):
        raise Refused(-32602)
    state["initialized"], state["capabilities"] = True, params.get("clientCapabilities") or {}
    version = params["protocolVersion"] if FAULT == "any-version" else 1
    result: Json = {"protocolVersion": version, "agentCapabilities": ANNOUNCED}
    result["authMethods"] = [{"id": "key", "name": "Key"}]
    if FAULT != "no-info":
        result["agentInfo"] = {"name": "probed", "version": "1"}
    answer(request_id, result)


def opened(session: Session) -> Json:
    modes = {"currentModeId": session.mode, "availableModes": [{"id": one, "name": one} for one in MODES]}
    return {"modes": modes, "configOptions": options(session)}


def options(session: Session) -> list[Json]:
    values = [{"value": one, "name": one} for one in MODES]
    mode = {"id": "mode", "name": "Mode", "category": "mode", "type": "select"}
    other = {**mode, "id": "tone", "category": "_tone", "currentValue": "ask", "options": values}
    first = {**mode, "currentValue": session.mode, "options": values}
    is_part = FAULT in ("part-of-options", "option-goes") and session.mode != MODES[0]
    return [first] if is_part else [first, other]


def new(request_id: object, params: Json) -> None:
    if not state["authenticated"]:
        raise Refused(-32000)
    session = Session(folder_of(params))
    if FAULT == "early-update":
        update(session, sessionUpdate="session_info_update", title="early")
    sessions[session.id] = session
    answer(request_id, {"sessionId": session.id, **opened(session)})


def reopen(request_id: object, params: Json, replays: bool) -> None:
    folder, name = folder_of(params), str(params.get("sessionId"))
    session = sessions.get(name) or closed.pop(name, None)
    if session is None:
        path = Path(folder, f".{name}")
        if not path.exists():
            raise Refused(-32002, f"Session not found: {params.get('sessionId')}")
        session = Session(folder)
        session.id, session.story = name, json.loads(path.read_text())
    if session.folder != folder:
        raise Refused(-32602, "cwd")
    sessions[name] = session
    if replays:
        for fields in list(session.story):
            send({"method": "session/update", "params": {"sessionId": name, "update": fields}})
    answer(request_id, opened(session))


def load(request_id: object, params: Json) -> None:
    reopen(request_id, params, replays=FAULT != "no-replay")


def resume(request_id: object, params: Json) -> None:
    reopen(request_id, params, replays=FAULT == "resume-replays")


def fork(request_id: object, params: Json) -> None:
    origin = session_of(params)
    session = Session(folder_of(params))
    if FAULT == "fork-is-same":
        session = origin
    session.story = list(origin.story)
    sessions[session.id] = session
    answer(request_id, {"sessionId": session.id, **opened(session)})


def list_sessions(request_id: object, params: Json) -> None:
    if params.get("cursor"):
        raise Refused(-32602, "cursor")
    found = [one for one in {**sessions, **closed}.values() if params.get("cwd") in (None, one.folder)]
    if FAULT == "list-of-all":
        found = list(sessions.values())
    answer(request_id, {"sessions": [{"sessionId": one.id, "cwd": one.folder} for one in found]})


def close(request_id: object, params: Json) -> None:
    session = session_of(params)
    cancel(session.turns)
    if FAULT != "close-does-nothing":
        closed[session.id] = sessions.pop(session.id)
    answer(request_id, {})


def delete(request_id: object, params: Json) -> None:
    name = params["sessionId"]
    if FAULT == "delete-once" and name not in sessions:
        raise Refused(-32002)
    sessions.pop(name, None)
    closed.pop(name, None)
    answer(request_id, {})


def prompt(request_id: object, params: Json) -> None:
    blocks = params.get("prompt")
    known = ("text", "resource_link", "resource", "image", "audio")
    if not blocks or any(block["type"] not in known for block in blocks):
        raise Refused(-32602)
    session = session_of(params)
    text = re.sub(r"^/\S+ ", "", blocks[0]["text"])
    session.story.append(
        {"sessionUpdate": "user_message_chunk", "messageId": uuid.uuid4().hex, "content": blocks[0]}
    )
    session.turns.append(Turn(session, request_id, text))
    if len(session.turns) == 1:
        advance(session.turns[0])


def set_mode(request_id: object, params: Json) -> None:
    session = session_of(params)
    if params["modeId"] not in MODES:
        raise Refused(-32602)
    session.mode = params["modeId"]
    answer(request_id, {})
    update(session, sessionUpdate="current_mode_update", currentModeId=session.mode)
    update(session, sessionUpdate="config_option_update", configOptions=options(session))


def set_option(request_id: object, params: Json) -> None:
    session = session_of(params)
    is_gone = FAULT == "option-goes" and session.mode != MODES[0] and params["configId"] == "tone"
    if params["configId"] not in ("mode", "tone") or params["value"] not in MODES or is_gone:
        raise Refused(-32602)
    changed = params["configId"] == "mode" and session.mode != params["value"]
    session.mode = params["value"] if params["configId"] == "mode" else session.mode
    answer(request_id, {"configOptions": options(session)})
    if changed:
        update(session, sessionUpdate="current_mode_update", currentModeId=session.mode)


def authenticate(request_id: object, params: Json) -> None:
    if params.get("methodId") != "key":
        raise Refused(-32602)
    state["authenticated"] = True
    answer(request_id, {})


def logout(request_id: object, params: Json) -> None:
    state["authenticated"] = FAULT == "logout-does-nothing"
    answer(request_id, {})


METHODS = {
    "initialize": initialize,
    "authenticate": authenticate,
    "logout": logout,
    "session/new": new,
    "session/load": load,
    "session/resume": resume,
    "session/fork": fork,
    "session/list": list_sessions,
    "session/close": close,
    "session/delete": delete,
    "session/prompt": prompt,
    "session/set_mode": set_mode,
    "session/set_config_option": set_option,
}


def handle(line: bytes) -> None:
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=lambda text: int(text))
    except (ValueError, RecursionError) as error:
        if FAULT == "dies-of-bytes" and isinstance(error, UnicodeDecodeError):
            os._exit(1)
        if FAULT != "silent-about-rubbish":
            fail(None, -32700)
        return
    if isinstance(message, list) and FAULT == "runs-batches":
        for one in message:
            handle(json.dumps(one).encode())
        return
    if not isinstance(message, dict):
        fail(None, -32600)
        return
    request_id = message.get("id")
    usable = isinstance(request_id, (int, str))
    if "method" not in message and "id" in message:
        turn = waiting.pop(request_id, None) if isinstance(request_id, int) else None
        if turn:
            advance(turn, message)
        return
    if not isinstance(message.get("method"), str) or ("id" in message and not usable):
        fail(request_id if usable else None, -32600)
        return
    called(message, request_id)


def called(message: Json, request_id: object) -> None:
    method, params = message["method"], message.get("params")
    if "id" not in message:
        notified(method, params if isinstance(params, dict) else {})
        return
    handler = METHODS.get(method)
    try:
        if message.get("jsonrpc") != "2.0" or (not state["initialized"] and method != "initialize"):
            raise Refused(-32600)
        if handler is None:
            raise Refused(-32603 if FAULT == "wrong-code" else -32601)
        if not isinstance(params, dict):
            raise Refused(-32602)
        handler(request_id, params)
    except Refused as refused:
        fail(request_id, refused.code, str(refused))


def notified(method: str, params: Json) -> None:
    if method == "session/cancel":
        session = sessions.get(str(params.get("sessionId")))
        cancel(session.turns if session else [])
        if FAULT == "cancels-everything":
            for other in sessions.values():
                cancel(other.turns)
    elif method == "$/cancel_request":
        for session in sessions.values():
            cancel([turn for turn in session.turns if turn.id == params.get("requestId")])
    elif FAULT == "answers-notifications":
        fail(None, -32601)


def main() -> None:
    if FAULT == "chatty":
        os.write(1, b"Starting up...\n")
    pending = bytearray()
    while block := os.read(0, 1 << 16):
        pending += block
        if b"\n" not in block:
            continue
        *lines, pending = pending.split(b"\n")
        for line in map(bytes, lines):
            if FAULT == "short-lines" and len(line) > 65_536:
                fail(None, -32700)
            elif line.strip() or FAULT == "blank-is-error":
                handle(line)
    if FAULT != "leaves-command":
        for child in children:
            child.kill()
    while FAULT == "stays":
        time.sleep(1)
    sys.exit(3 if FAULT == "bad-status" else 0)


main()

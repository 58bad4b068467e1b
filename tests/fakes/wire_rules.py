"""What an agent must keep to on the wire, as a machine that is fed with both directions of a conversation.

Pure: no thread, no input or output; the caller serialises the calls. `sent` is told what the client is
about to write, `received` what the agent wrote; both in the order of the wire. The first broken rule raises
`RuleBroken`. The rules are those of the protocol and of the clients that are stricter than it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from acpserver.rpc import legacy, schema

Json = dict[str, Any]

LONGEST_LINE = 65_535  # bytes, without the line's end: the limit of some clients' readers
FIRST_OWN_ID, LAST_OWN_ID = 1_000_000, 2**31 - 1
ERROR_CODES = {-32700, -32600, -32601, -32602, -32603, -32000, -32002, -32800}
ENDED = ("completed", "failed")

IN_TURN = {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "notice"}
IN_LOAD = {
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "plan",
    "tool_call_update",
}
ANY_TIME = {
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
}
CAPABILITY = {
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    "terminal/": ("terminal",),
    "elicitation/": ("elicitation",),
}


class RuleBroken(AssertionError):
    """The agent wrote something that it must not write."""


@dataclass
class Asked:
    """A request of ours that has not been answered. `method` is "" for one that can only be an error."""

    key: str  # the JSON text of the id
    method: str
    params: Json
    number: int  # in the order of sending
    cancelled: bool = False  # by $/cancel_request


@dataclass
class ToolCall:
    """What was told of one tool call."""

    prompt: Asked | None
    status: str = "pending"
    permission: str = ""  # "", "open", "allowed", "refused" or "withdrawn"


@dataclass
class Session:
    """What was told of one session. `prompts` and `loads` are the open requests, in order."""

    prompts: list[Asked] = field(default_factory=list)
    loads: list[Asked] = field(default_factory=list)
    opened: bool = False  # answered for: what may come at any time may come now
    calls: dict[str, ToolCall] = field(default_factory=dict)
    message_kinds: dict[str, str] = field(default_factory=dict)
    closed_messages: set[str] = field(default_factory=set)
    replayed: set[str] = field(default_factory=set)  # calls that the last load has told


class WireRules:
    """The state of one conversation, from the client's side."""

    def __init__(self, longest_line: int = LONGEST_LINE):
        self.longest_line = longest_line
        self.asked: dict[str, list[Asked]] = {}
        """Our open requests, by the JSON text of their id, so that 1 and "1" differ."""
        self.anonymous = 0
        """Answers with `id: null` that are due: one for each line that no id could be read from."""
        self.own: dict[str, Json] = {}
        """Open requests of the agent, by the JSON text of their id."""
        self.settled: Asked | None = None
        """The request of ours that the last answer was for."""
        self.sessions: dict[str, Session] = {}
        self.input_ended = False
        self.terminals: dict[str, str] = {}
        """The terminals that were made for the agent and not released, with what it last asked of each."""
        self._own_ids: set[int] = set()
        self._capabilities: Json = {}
        self._opening: str | None = None  # the id of an initialize request that was sent first
        self._requests = 0
        self._sent_any = False
        self._received_any = False

    # What the client writes

    def sent(self, line: bytes) -> None:
        """Take note of one line that is about to be written."""
        if not line.strip():
            return
        try:
            message = json.loads(line.decode("utf-8-sig"), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._sent_message(message)
        else:
            self.anonymous += 1
        self._sent_any = True

    def _sent_message(self, message: Json) -> None:
        method, params = message.get("method"), message.get("params")
        usable = isinstance(message.get("id"), (int, float, str)) and not isinstance(message.get("id"), bool)
        if "method" not in message:
            if usable:
                self._sent_answer(message)
            elif not {"id", "result", "error"} & set(message):
                self.anonymous += 1
            return
        if not isinstance(method, str) or ("id" in message and not usable):
            if not usable:
                self.anonymous += 1
                return
            method = ""
        if usable:
            self._sent_request(message["id"], method, params if isinstance(params, dict) else {})
        elif method in ("session/cancel", "$/cancel_request") and isinstance(params, dict):
            for asked in self.asked.get(_key(params.get("requestId")), ()):
                asked.cancelled = True

    def _sent_request(self, request_id: object, method: str, params: Json) -> None:
        self._requests += 1
        key = _key(request_id)
        asked = Asked(key, legacy.METHODS.get(method, method), params, self._requests)
        self.asked.setdefault(key, []).append(asked)
        if not self._sent_any and method == "initialize":
            self._opening = key
        if method == "initialize" and isinstance(params.get("clientCapabilities"), dict):
            self._capabilities = params["clientCapabilities"]
        session_id = params.get("sessionId", params.get("session_id"))
        if asked.method == "session/load":
            session = self.sessions.setdefault(str(session_id), Session())
            session.loads.append(asked)
            session.replayed.clear()
            session.message_kinds.clear()
            session.closed_messages.clear()
        elif method == "session/prompt" and session_id in self.sessions:
            self.sessions[str(session_id)].prompts.append(asked)

    def _sent_answer(self, message: Json) -> None:
        request = self.own.pop(_key(message["id"]), None)
        if request is not None and request["method"] == "terminal/create":
            name = _object(message.get("result")).get("terminalId")
            if isinstance(name, str):
                self.terminals[name] = "create"
        if request is None or request["method"] != "session/request_permission":
            return
        params = _object(request["params"])
        call = self.sessions[str(params["sessionId"])].calls[str(_object(params["toolCall"])["toolCallId"])]
        outcome = _object(_object(message.get("result")).get("outcome"))
        allowed = {
            option["optionId"] for option in _objects(params["options"]) if "allow" in str(option["kind"])
        }
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        call.permission = "allowed" if isinstance(chosen, str) and chosen in allowed else "refused"

    # What the agent writes

    def received(self, line: bytes) -> Json:
        """Check one line without its `\\n`, and return the message."""
        message = parse_line(line, self.longest_line)
        first = not self._received_any
        self._received_any = True
        if first and self._opening is not None:
            need(_key(message.get("id")) == self._opening, "the first line is not the answer to initialize")
        check_values(message)
        if "method" not in message:
            self._received_answer(message)
        elif "id" in message:
            self._received_request(message)
        else:
            self._received_notification(message)
        return message

    def _received_answer(self, message: Json) -> None:
        need(
            set(message) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}),
            "not the shape of an answer",
        )
        if "error" in message:
            check_error(message["error"])
        if message["id"] is None:
            need(self.anonymous > 0, "an answer with id null to nothing")
            need("error" in message, "a result with id null")
            self.anonymous -= 1
            return
        waiting = self.asked.get(_key(message["id"]), [])
        need(waiting, f"an answer to no open request: id {message['id']!r}")
        asked = waiting[0]
        if "result" in message:
            fitting = [one for one in waiting if not _faults(one.method, message["result"])]
            need(
                fitting,
                f"{asked.method}: the result does not fit: {_faults(asked.method, message['result'])}",
            )
            asked = fitting[0]
        waiting.remove(asked)
        if not waiting:
            del self.asked[asked.key]
        self.settled = asked
        self._follow(asked, message)

    def _follow(self, asked: Asked, message: Json) -> None:
        """Follow what an answer means for the sessions."""
        result = _object(message.get("result"))
        session_id = str(asked.params.get("sessionId", asked.params.get("session_id")))
        session = self.sessions.get(session_id)
        if asked.method in ("session/new", "session/fork") and "result" in message:
            new_id = str(result["sessionId"])
            need(new_id not in self.sessions, f"session id {new_id} was given before")
            self.sessions[new_id] = Session(opened=True)
        elif asked.method == "session/resume" and "result" in message:
            self.sessions.setdefault(session_id, Session(opened=True))
        elif session is None:
            return
        elif asked.method == "session/prompt" and asked in session.prompts:
            self._turn_ended(session, asked, "result" in message)
        elif asked in session.loads:
            session.loads.remove(asked)
            session.replayed.clear()  # another load that waits tells everything again
            self._no_open_call(session, None)
            session.opened = session.opened or "result" in message
            if not session.opened and not session.loads:
                del self.sessions[session_id]
        elif asked.method in ("session/close", "session/delete") and "result" in message:
            left = [prompt for prompt in session.prompts if prompt.number < asked.number]
            need(not left or asked.method == "session/delete", "session/close before the prompt's answer")
            del self.sessions[session_id]

    def _turn_ended(self, session: Session, asked: Asked, succeeded: bool) -> None:
        timed = "timeoutMs" in _object(asked.params.get("_meta"))
        if succeeded and not asked.cancelled and not timed:
            need(session.prompts[0] is asked, "prompts of one session are answered out of order")
        self._no_open_call(session, asked)
        session.prompts.remove(asked)
        session.closed_messages.update(session.message_kinds)

    def _no_open_call(self, session: Session, prompt: Asked | None) -> None:
        left = [
            key for key, call in session.calls.items() if call.prompt is prompt and call.status not in ENDED
        ]
        need(not left, f"tool calls not ended before the answer: {left}")

    def _received_request(self, message: Json) -> None:
        need(set(message) == {"jsonrpc", "id", "method", "params"}, "not the shape of a request")
        request_id, method, params = message["id"], str(message["method"]), _object(message["params"])
        need(isinstance(request_id, int) and not isinstance(request_id, bool), "our ids are plain integers")
        assert isinstance(request_id, int)
        need(
            FIRST_OWN_ID <= request_id <= LAST_OWN_ID, f"request id {request_id} is outside [1000000, 2**31)"
        )
        need(request_id not in self._own_ids, f"request id {request_id} was used before")
        self._own_ids.add(request_id)
        self._check_call(method, params, is_request=True)
        if "sessionId" in params:
            need(str(params["sessionId"]) in self.sessions, f"{method} for an unknown session")
        self.own[_key(request_id)] = message
        if method == "session/request_permission":
            self._permission_asked(params)
        elif method.startswith(("fs/", "terminal/")):
            self._client_asked(method, params)

    def _client_asked(self, method: str, params: Json) -> None:
        for name in ("path", "cwd"):
            need(os.path.isabs(str(params.get(name, "/"))), f"{method}: {name} is not absolute")
        terminal, action = params.get("terminalId"), method.rpartition("/")[2]
        if terminal is None:
            return
        need(terminal in self.terminals, f"{method}: terminal {terminal!r} is not there, or was released")
        if action == "release":
            need(self.terminals[terminal] != "kill", f"terminal {terminal!r} was killed and never looked at")
            del self.terminals[terminal]
        else:
            self.terminals[terminal] = action

    def _check_call(self, method: str, params: Json, is_request: bool) -> None:
        known = schema.method(method)
        need(known is not None and known.receiver != "agent", f"{method} is not a method of clients")
        assert known is not None
        need(known.is_request == is_request, f"{method}: request and notification mixed up")
        faults = schema.check_params(method, params)
        need(not faults, f"{method} does not fit the schema: {faults}")
        for name, path in CAPABILITY.items():
            if method.startswith(name):
                need(self._can(*path), f"{method} without the client's capability")

    def _can(self, *path: str) -> bool:
        value: object = self._capabilities
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value is not None and value is not False

    def _permission_asked(self, params: Json) -> None:
        told = _object(params["toolCall"])
        call = self.sessions[str(params["sessionId"])].calls.get(str(told["toolCallId"]))
        need(call is not None, "permission for a tool call that was not reported")
        assert call is not None
        need(call.status == "pending", f"permission for a tool call that is {call.status}")
        need(call.permission == "", "permission asked twice for one tool call")
        need(
            {"toolCallId", "title", "kind", "status", "rawInput"} <= set(told),
            f"permission tells only {set(told)}",
        )
        need(told["status"] == "pending", "permission with a status other than pending")
        options = _objects(params["options"])
        kinds = [option["kind"] for option in options]
        need(len({option["optionId"] for option in options}) == len(options), "option ids are not unique")
        need(len(set(kinds)) == len(kinds), "two options of one kind")
        need({"allow_once", "allow_always", "reject_once"} <= set(kinds), f"options missing: {kinds}")
        call.permission = "open"

    def _received_notification(self, message: Json) -> None:
        need(set(message) == {"jsonrpc", "method", "params"}, "not the shape of a notification")
        method, params = str(message["method"]), _object(message["params"])
        self._check_call(method, params, is_request=False)
        if method == "session/update":
            self._updated(params)
        elif method == "$/cancel_request":
            self._withdrawn(params)

    def _withdrawn(self, params: Json) -> None:
        key = _key(params["requestId"])
        need(params["requestId"] in self._own_ids, "$/cancel_request for a request that the agent never sent")
        request = self.own.get(key)
        if request is not None and request["method"] == "session/request_permission":
            told = _object(request["params"])
            call = self.sessions[str(told["sessionId"])].calls[str(_object(told["toolCall"])["toolCallId"])]
            call.permission = "withdrawn"

    def _updated(self, params: Json) -> None:
        update = _object(params["update"])
        kind = str(update["sessionUpdate"])
        session = self.sessions.get(str(params["sessionId"]))
        need(session is not None, f"{kind} for a session that is not open")
        assert session is not None
        allowed = set(ANY_TIME)
        if session.prompts:
            allowed |= IN_TURN
        if session.loads:
            allowed |= IN_LOAD
        if kind.startswith("compaction_"):
            need(self._can("session", "compaction"), f"{kind} without the client's capability")
        else:
            need(kind in allowed, f"{kind} while no prompt is open")
        if kind == "available_commands_update":
            need(session.opened, f"{kind} before the session is answered for")
        if kind == "notice":
            need(self._can("session", "notices"), "notice without the client's capability")
        if kind.endswith("_chunk"):
            self._chunk(session, kind, update)
        elif kind == "tool_call":
            self._call_begun(session, update)
        elif kind == "tool_call_update":
            self._call_changed(session, update)
        elif kind == "config_option_update":
            self._options_shown(update)

    def _chunk(self, session: Session, kind: str, update: Json) -> None:
        content = _object(update["content"])
        need(content.get("type") != "text" or content["text"] != "", "an empty text chunk")
        message_id = update.get("messageId")
        if not isinstance(message_id, str):
            return
        if not session.loads:
            need(message_id not in session.closed_messages, f"message {message_id} goes on after it was over")
        known = session.message_kinds.setdefault(message_id, kind)
        need(known == kind, f"message {message_id} is {known} and {kind}")

    def _call_begun(self, session: Session, update: Json) -> None:
        call_id = str(update["toolCallId"])
        told = session.replayed if session.loads else session.calls
        need(call_id not in told, f"tool call {call_id} reported twice")
        need({"title", "kind", "status"} <= set(update), f"tool_call tells only {set(update)}")
        need(update["title"] != "", "tool_call with an empty title")
        if not session.loads:
            need(update["status"] == "pending", f"tool_call begins as {update['status']}")
        if session.loads:
            session.replayed.add(call_id)
        prompt = session.prompts[0] if session.prompts else None
        session.calls[call_id] = ToolCall(prompt, str(update["status"]))
        session.closed_messages.update(session.message_kinds)

    def _call_changed(self, session: Session, update: Json) -> None:
        call_id = str(update["toolCallId"])
        call = session.calls.get(call_id)
        need(call is not None, f"tool_call_update before tool_call: {call_id}")
        assert call is not None
        need(call.status not in ENDED, f"tool call {call_id} changed after it was {call.status}")
        if not self.input_ended:
            need(call.permission != "open", f"tool call {call_id} changed while its permission is open")
        for content in update.get("content") or ():
            if content["type"] == "terminal" and not session.loads:
                name = content["terminalId"]
                need(name in self.terminals, f"tool call {call_id} shows terminal {name!r}; it is not there")
        status = str(update.get("status", call.status))
        steps = {"pending": ["pending", "in_progress", "failed"], "in_progress": ["in_progress", *ENDED]}
        if session.loads:
            steps["pending"].append("completed")  # a replay tells the end of a call, not its course
        need(status in steps[call.status], f"tool call {call_id} went from {call.status} to {status}")
        if status == "in_progress":
            need(call.permission in ("", "allowed"), f"tool call {call_id} runs though it was not allowed")
        call.status = status

    def _options_shown(self, update: Json) -> None:
        for option in _objects(update["configOptions"]):
            boolean = option["type"] == "boolean"
            need(
                not boolean or self._can("session", "configOptions", "boolean"),
                "a boolean option not asked for",
            )

    def finish(self) -> None:
        """Check, at the end of an orderly conversation, that nothing is left open."""
        left = [f"{one.method} (id {key})" for key, waiting in self.asked.items() for one in waiting]
        need(not left, f"never answered: {', '.join(left)}")
        need(self.anonymous == 0, f"{self.anonymous} unreadable lines were never answered")
        need(not self.terminals, f"terminals never released: {', '.join(self.terminals)}")


def need(condition: object, otherwise: str) -> None:
    """Raise `RuleBroken` unless the condition holds."""
    if not condition:
        raise RuleBroken(otherwise)


def parse_line(line: bytes, longest: int = LONGEST_LINE) -> Json:
    """One line of the agent as a message: strict JSON, ASCII, an object of JSON-RPC 2.0."""
    need(len(line) <= longest, f"a line of {len(line)} bytes; the limit is {longest}")
    need(line.isascii(), "a line that is not ASCII")
    need(line == line.strip(), "white space around a line")
    try:
        message = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(message, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise RuleBroken(f"a line that is not strict JSON: {error}") from None
    need(isinstance(message, dict), "a line that is not one JSON object")
    need(message.get("jsonrpc") == "2.0", 'a message without "jsonrpc": "2.0"')
    need(isinstance(message.get("method", ""), str), "the method is not a string")
    return message  # type: ignore[no-any-return]


def check_values(message: Json) -> None:
    """No null where absence is meant, paths absolute, lines counted from 1, raw values objects."""
    for path, key, value, holder in _walk(message, ""):
        if value is None:
            old = key == "oldText" and holder.get("type") == "diff"
            old = old or (key == "current" and "providerId" in holder)  # a provider that is not in use
            need(old or (path == ".id" and "error" in message), f"null at {path}")
        elif key in ("rawInput", "rawOutput"):
            need(isinstance(value, dict), f"{path} is not an object")
        elif key == "path" and (holder.get("type") == "diff" or ".locations" in path):
            need(os.path.isabs(str(value)), f"{path} is not absolute: {value!r}")
        elif key == "line" and ".locations" in path:
            need(isinstance(value, int) and value >= 1, f"{path} counts from 1, not {value!r}")


def check_error(error: object) -> None:
    """The shape of an `error` member."""
    faults = schema.check_error(error)
    need(not faults, f"the error does not fit: {faults}")
    body = _object(error)
    need(body["code"] in ERROR_CODES, f"error code {body['code']} is none of the protocol's")
    text = str(body["message"])
    need(text and "\n" not in text and len(text) < 500, f"an error message that is no line: {text[:80]!r}")
    if "data" in body:
        data = _object(body["data"])
        need(isinstance(data.get("details"), str), "error.data without details")
        need(body["code"] != -32603 or set(data) == {"details"}, f"-32603 with data {set(data)}")
        need("Traceback" not in str(data["details"]), "a traceback on the wire")


def _walk(value: object, path: str) -> Iterator[tuple[str, str, object, Json]]:
    """(path, key, value, object that holds it) of every member, but for what we do not own."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}", key, item, value
            if key not in ("rawInput", "rawOutput", "_meta"):
                yield from _walk(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            need(item is not None, f"null at {path}[{number}]")
            yield from _walk(item, f"{path}[{number}]")


def _key(request_id: object) -> str:
    return json.dumps(request_id)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return [_object(item) for item in value] if isinstance(value, list) else []


def _faults(method: str, result: object) -> object:
    known = schema.method(method)
    if known is None or known.receiver == "client":
        return "no such method: only an error may answer it"
    return schema.check_result(method, result)


def _unique(pairs: list[tuple[str, object]]) -> Json:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")

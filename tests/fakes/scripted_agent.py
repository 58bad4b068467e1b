"""An ACP agent that does what its prompt says, for tests of the terminal client. Bytes in, bytes out.

Stricter than a real agent: it ends with status 70 and a word on stderr when the client breaks a rule. It
appends its process id to the file named by $AGENT_PIDS, so that a test can see that it has ended.
"""

from __future__ import annotations

import json
import os
import sys

SESSION = "session-1"
needs_login = "--needs-login" in sys.argv
pending: dict[int, str] = {}
questions: set[int] = set()
next_id = 1_000_000


def send(message: dict[str, object]) -> None:
    data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def update(**fields: object) -> None:
    send({"method": "session/update", "params": {"sessionId": SESSION, "update": fields}})


def say(text: str, message: str = "m1") -> None:
    update(
        sessionUpdate="agent_message_chunk", messageId=message, content={"type": "text", "text": text}
    )


def demand(condition: object, what: str) -> None:
    if not condition:
        sys.stderr.write(f"client: {what}\n")
        os._exit(70)


def text_content(text: str) -> list[dict[str, object]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def edit(call: str, status: str) -> dict[str, object]:
    diff = {"type": "diff", "path": "/w/a.txt", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    return {"toolCallId": call, "title": "Edit a.txt", "kind": "edit", "status": status, "content": [diff]}


def ask(call: str) -> None:
    global next_id
    update(sessionUpdate="tool_call", **edit(call, "pending"))
    options = [
        {"optionId": f"opt-{kind}", "name": kind.replace("_", " "), "kind": kind}
        for kind in ("allow_once", "allow_always", "reject_once", "reject_always")
    ]
    pending[next_id] = call
    params = {"sessionId": SESSION, "toolCall": edit(call, "pending"), "options": options}
    send({"id": next_id, "method": "session/request_permission", "params": params})
    next_id += 1


def question(kind: str) -> None:
    """Ask by a form with one text, with two, or with something else than a text."""
    global next_id
    texts = {"colour": {"type": "string", "title": "Colour"}, "size": {"type": "string"}}
    fields = {"one": {"colour": texts["colour"]}, "two": texts, "other": {"n": {"type": "integer"}}}[kind]
    schema = {"type": "object", "properties": fields}
    questions.add(next_id)
    params = {"sessionId": SESSION, "mode": "form", "message": "Which one?", "requestedSchema": schema}
    send({"id": next_id, "method": "elicitation/create", "params": params})
    next_id += 1


def remarks() -> None:
    for number in (1, 2):
        text = {"type": "text", "text": f"thought {number}"}
        for part in ({**text, "text": "a "}, text):
            update(sessionUpdate="agent_thought_chunk", messageId=f"t{number}", content=part)
    for number in (1, 2):
        update(sessionUpdate="notice", severity="info", title=f"notice {number}")
    update(sessionUpdate="notice", severity="warning", title="notice 3", description="more of it")
    say("done")


def show_everything() -> None:
    update(
        sessionUpdate="agent_thought_chunk", messageId="t1", content={"type": "text", "text": "let me see"}
    )
    entries = [
        {"content": "look", "priority": "high", "status": "completed"},
        {"content": "act", "priority": "low", "status": "in_progress"},
    ]
    update(sessionUpdate="plan", entries=entries)
    update(sessionUpdate="tool_call", toolCallId="c1", title="Run ls", kind="execute", status="pending")
    update(sessionUpdate="tool_call_update", toolCallId="c1", status="in_progress")
    for text in ("a.txt\nb.t", "a.txt\nb.txt\nc", "a.txt\nb.txt\nc.txt"):
        update(sessionUpdate="tool_call_update", toolCallId="c1", content=text_content(text))
    update(sessionUpdate="tool_call_update", toolCallId="c1", status="completed")
    update(sessionUpdate="tool_call", **edit("c2", "pending"))
    update(sessionUpdate="tool_call_update", toolCallId="c2", status="failed")
    say("Three files.", "m2")


def prompt(request_id: object, text: str) -> None:
    """Do what the prompt says; `wait` and `ask` leave it open."""
    global open_prompt
    demand(open_prompt is None, "two prompts at once in one session")
    word, _, rest = text.partition(" ")
    reason = "end_turn"
    if word == "say":
        for letter in rest:
            say(letter)
    elif word == "everything":
        show_everything()
    elif word == "remarks":
        remarks()
    elif word == "flood":
        for number in range(int(rest)):
            say(f"{number}\n")
    elif word == "raw":
        say("a\x1b[2Jb\x07")
    elif word == "stop":
        reason = rest
    elif word == "die":
        os._exit(9)
    elif word == "fail":
        send({"id": request_id, "error": {"code": -32603, "message": "Internal", "data": {"details": rest}}})
        return
    elif word in ("wait", "ask", "question"):
        open_prompt = request_id
        if word == "question":
            question(rest)
        elif word == "ask":
            ask("c9")
        else:
            say("waiting\n")
        return
    send({"id": request_id, "result": {"stopReason": reason}})


def permission_answer(message: dict[str, object]) -> None:
    """Say what was chosen, and end the turn."""
    global open_prompt
    pending.pop(message["id"])  # type: ignore[arg-type]
    demand("result" in message, "a permission request was answered with an error")
    outcome = message["result"]["outcome"]  # type: ignore[index]
    say(f"chosen: {outcome.get('optionId', outcome['outcome'])}\n")
    if open_prompt is not None and outcome["outcome"] == "selected":
        send({"id": open_prompt, "result": {"stopReason": "end_turn"}})
        open_prompt = None


def question_answer(message: dict[str, object]) -> None:
    """Say what was answered, and end the turn."""
    global open_prompt
    questions.remove(message["id"])  # type: ignore[arg-type]
    demand("result" in message, "a question was answered with an error")
    say(f"answer: {json.dumps(message['result'], sort_keys=True)}\n")
    if open_prompt is not None and message["result"]["action"] != "cancel":  # type: ignore[index]
        send({"id": open_prompt, "result": {"stopReason": "end_turn"}})
        open_prompt = None


def handle(message: dict[str, object]) -> None:
    global needs_login, open_prompt
    method, params, request_id = message.get("method"), message.get("params"), message.get("id")
    demand(message.get("jsonrpc") == "2.0", "no jsonrpc member")
    if method is None:
        demand(request_id in pending or request_id in questions, "an answer to nothing")
        (permission_answer if request_id in pending else question_answer)(message)
        return
    assert isinstance(params, dict)
    if method == "initialize":
        demand(params["protocolVersion"] == 1, "protocol version")
        announced = dict(params["clientCapabilities"])
        demand(announced.pop("elicitation", {"form": {}}) == {"form": {}}, "elicitation")
        demand(announced == {"session": {"notices": {}}}, "capabilities")
        methods = [{"id": "offline", "name": "Offline model"}] if needs_login else []
        send({"id": request_id, "result": {"protocolVersion": 1, "authMethods": methods}})
    elif method == "authenticate":
        demand(params["methodId"] == "offline", "auth method")
        needs_login = False
        send({"id": request_id, "result": {}})
    elif method == "session/new" and needs_login:
        error = {"code": -32000, "message": "Login", "data": {"details": "No model is configured"}}
        send({"id": request_id, "error": error})
    elif method == "session/new":
        demand(os.path.isabs(params["cwd"]), "cwd")
        send({"id": request_id, "result": {"sessionId": SESSION}})
    elif method == "session/prompt":
        prompt(request_id, params["prompt"][0]["text"])
    elif method == "session/cancel":
        demand(request_id is None, "session/cancel is a notification")
        if open_prompt is not None and "--deaf" not in sys.argv:
            send({"id": open_prompt, "result": {"stopReason": "cancelled"}})
            open_prompt = None
    else:
        demand(False, f"unexpected {method}")


open_prompt: object = None
if os.environ.get("AGENT_PIDS"):
    with open(os.environ["AGENT_PIDS"], "a") as file:
        file.write(f"{os.getpid()}\n")
for line in sys.stdin.buffer:
    handle(json.loads(line))

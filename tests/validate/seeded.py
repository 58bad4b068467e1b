"""The table of seeded faults, in the order of the rules."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.validate.faults import (
    FAILED,
    GONE,
    NOT_FIT,
    UNKNOWN,
    Fault,
    asked_by_url,
    asked_user,
    batch,
    beside,
    broken_line,
    cancelled,
    chosen,
    forked,
    killed,
    late_cancel,
    listed,
    loaded,
    logged_out,
    lost,
    misfit,
    no_message,
    prompted,
    rejected,
    resumed,
    slash,
    strange_method,
    stray_answer,
    two_prompts,
    with_server,
    withdrawn,
    without,
)
from tests.validate.talk import AGENT_CAN, CLIENT_CAN, Talk, handshake, opened, text, turn

Spoil = Callable[[Talk], object]
C = "client"
CLOSED = {"code": -32002, "message": "Session not found: s-1"}
REFUSED = {"code": -32000, "message": "Authentication required"}


def more(after: str, part: Talk) -> Spoil:
    """Spoil by more steps behind one."""
    return lambda talk: talk.after(after, copy.deepcopy(part))


def put(step: str, path: str, value: object) -> Spoil:
    """Spoil by one value."""
    return lambda talk: talk.set(step, path, copy.deepcopy(value))


def failing(step: str, error: object) -> Spoil:
    """Spoil by an error in place of a result."""
    return lambda talk: (talk.unset(step, "result"), talk.set(step, "error", copy.deepcopy(error)))


def succeeding(step: str, result: object) -> Spoil:
    """Spoil by a result in place of an error."""
    return lambda talk: (talk.unset(step, "error"), talk.set(step, "result", copy.deepcopy(result)))


def notice() -> Talk:
    """A notice, and a compaction, for clients that know them."""
    talk = prompted()
    part = Talk().update("notice", "notice", severity="info", title="n")
    part.update("compaction", "compaction_update", compactionId="c", status="completed")
    return talk.after("chunk", part)


def blocks(kind: str) -> Talk:
    """A prompt with an image, a sound or a file."""
    content = {
        "image": {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        "audio": {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        "resource": {"type": "resource", "resource": {"uri": "file:///p/a", "text": "a"}},
    }
    return prompted([content[kind]])


def unannounce(*path: str, side: str = "agent") -> Spoil:
    """Spoil by a capability that is missing."""
    if side == "agent":
        return put("initialize!", "result.agentCapabilities", without(AGENT_CAN, *path))
    return put("initialize", "params.clientCapabilities", without(CLIENT_CAN, *path))


def call(method: str, params: dict[str, object], result: object = None) -> Talk:
    """A request of the client in an open session."""
    return opened().ask("call", 5, method, params, result)


def deleted() -> Talk:
    """A session is deleted, and the others are listed."""
    return call("session/delete", {"sessionId": "s-1"}).ask("list", 6, "session/list", {}, {"sessions": []})


def second_session() -> Talk:
    """Two sessions."""
    return opened().ask("second", 5, "session/new", {"cwd": "/q", "mcpServers": []}, {"sessionId": "s-2"})


def with_folder() -> Talk:
    """A session with another folder."""
    return opened().set("new", "params.additionalDirectories", ["/lib"])


def cursored() -> Talk:
    """Two pages of a list."""
    talk = listed()
    talk.set("list!", "result.nextCursor", "page-2")
    return talk.ask("page", 6, "session/list", {"cursor": "page-2"}, {"sessions": []})


def wrong_cursor() -> Talk:
    """A cursor that is none, refused."""
    return opened().ask("page", 6, "session/list", {"cursor": "nonsense"}, error=NOT_FIT)


def relative() -> Talk:
    """A relative cwd, refused."""
    return opened().ask("bad", 5, "session/new", {"cwd": "p", "mcpServers": []}, error=NOT_FIT)


def wrong_auth() -> Talk:
    """An auth method that does not exist, refused."""
    return opened().ask("auth", 5, "authenticate", {"methodId": "nonsense"}, error=NOT_FIT)


def wrong_mode() -> Talk:
    """A mode that does not exist, refused."""
    return opened().ask("bad", 5, "session/set_mode", {"sessionId": "s-1", "modeId": "x"}, error=NOT_FIT)


def odd_client() -> Talk:
    """A malformed optional field of initialize."""
    return handshake().set("initialize", "params.clientInfo", 7)


def early() -> Talk:
    """A request before initialize, refused."""
    refused = {"code": -32600, "message": "Invalid request"}
    talk = Talk().ask("early", 9, "session/list", {}, error=refused)
    talk.steps += opened().steps
    return talk


def plain_fields() -> Talk:
    """A request with a field of the client's own."""
    return opened().ask("list", 6, "session/list", {"traceparent": "00-1"}, {"sessions": []})


UPDATE = "params.update"
NEW = {"cwd": "/p", "mcpServers": []}
PROMPT = {"sessionId": "s-1", "prompt": text()}
SECOND_TURN = Talk().ask("again", 7, "session/prompt", PROMPT, {"stopReason": "end_turn"})
TERMINAL = [{"id": "none", "name": "None"}, {"id": "login", "name": "Log in", "type": "terminal"}]
TRACE = {**FAILED, "data": {"details": 'Traceback (most recent call last):\n  File "a.py", line 1'}}


def refused_auth() -> Talk:
    """An authentication that fails."""
    return opened().ask("auth", 5, "authenticate", {"methodId": "none"}, error=REFUSED)


def refused_session() -> Talk:
    """A session that could not be made."""
    return handshake().ask("new", 1, "session/new", NEW, error=NOT_FIT)


def withdrawn_late() -> Talk:
    """A list that is withdrawn, and answered nevertheless."""
    return withdrawn().unset("list!", "error").set("list!", "result", {"sessions": []})


def failed_list() -> Talk:
    """A list that fails."""
    return opened().ask("list", 5, "session/list", {}, error=FAILED)


def cancelled_by_close() -> Talk:
    """A session that is closed while its prompt runs."""
    talk = prompted().client("close", id=3, method="session/close", params={"sessionId": "s-1"})
    talk.move("close", "chunk").set("prompt!", "result.stopReason", "cancelled")
    return talk.agent("close!", id=3, result={})


def prompted_call() -> Talk:
    """A turn with one call that thinks, reported and ended."""
    talk = prompted()
    fields = {
        "toolCallId": "t-2",
        "title": "Think",
        "kind": "think",
        "status": "in_progress",
        "rawInput": {"a": 1},
    }
    part = Talk().update("call2", "tool_call", **fields)
    part.update("end2", "tool_call_update", toolCallId="t-2", status="completed", rawOutput={"a": 1})
    return talk.after("chunk", part)


def plain_edit() -> Talk:
    """An edit of a client that serves no files."""
    talk = turn(client=without(CLIENT_CAN, "fs"))
    talk.drop("read", "read!", "write", "write!").unset("ask", "params.toolCall.content")
    return talk


def asked_alone() -> Talk:
    """A permission that is refused, and nothing else."""
    talk = rejected()
    for step in talk.steps[talk.index("call2") : talk.index("last")]:
        talk.drop(step.name)
    return talk


def handshake_and_mode() -> Talk:
    """A mode that could not be set."""
    return opened().ask("bad", 5, "session/set_mode", {"sessionId": "s-1", "modeId": "code"}, error=NOT_FIT)


def refused_option() -> Talk:
    """An option that could not be set."""
    params = {"sessionId": "s-1", "configId": "mode", "value": "code"}
    return opened().ask("option", 5, "session/set_config_option", params, error=NOT_FIT)


FAULTS = [
    # Transport
    Fault(
        "T1", "a line that is no JSON", turn, lambda t: t.raw("x", '{"jsonrpc":"2.0",', "agent", "chunk"), "x"
    ),
    Fault("T2", "a log line on stdout", turn, lambda t: t.raw("x", "INFO starting", "agent", "chunk"), "x"),
    Fault("T3", "a list waits for the turn", beside, lambda t: t.move("list!", "prompt!"), "list!"),
    Fault(
        "T5",
        "a long line is not read",
        lambda: prompted(text("x" * 70_000)),
        lambda t: (
            t.drop("chunk"),
            t.unset("prompt!", "result"),
            t.set("prompt!", "id", None),
            t.set("prompt!", "error", {"code": -32700, "message": "Parse error"}),
        ),
        "prompt!",
    ),
    Fault(
        "T6",
        "a second session is refused",
        second_session,
        failing("second!", {"code": -32603, "message": "only one session at a time"}),
        "second!",
        "error",
    ),
    # JSON-RPC
    *(
        Fault(
            "J1", f"no jsonrpc: {step}", turn, lambda t, s=step: t.unset(s, "jsonrpc"), step, "jsonrpc", side
        )
        for step, side in (("initialize", C), ("initialize!", "agent"), ("chunk", "agent"), ("ask!", C))
    ),
    Fault("J1", "jsonrpc 1.0", turn, put("new!", "jsonrpc", "1.0"), "new!", "jsonrpc"),
    Fault(
        "J2",
        "answered twice",
        turn,
        more("new!", Talk().agent("x", id=1, result={"sessionId": "s-3"})),
        "x",
        "id",
    ),
    Fault("J2", "an id of another type", turn, put("new!", "id", "1"), "new!", "id"),
    Fault("J2", "an id of another type, by the client", turn, put("ask!", "id", "1000"), "ask!", "id", C),
    Fault("J2", "an unknown id", turn, more("chunk", Talk().agent("x", id=99, result={})), "x", "id"),
    Fault("J2", "a result and an error", turn, put("new!", "error", FAILED), "new!", "error"),
    Fault(
        "J2",
        "neither a result nor an error",
        turn,
        lambda t: t.unset("release!", "result"),
        "release!",
        "",
        C,
    ),
    Fault("J2", "never answered", deleted, lambda t: t.drop("call!"), "call"),
    Fault("J2", "never answered by the client", turn, lambda t: t.drop("output!"), "output", "", C),
    Fault(
        "J3",
        "a notification is answered",
        late_cancel,
        more("cancel", Talk().agent("x", id=None, error={"code": -32600, "message": "Invalid request"})),
        "x",
        "id",
    ),
    Fault(
        "J4",
        "an unreadable line is not answered",
        broken_line,
        lambda t: t.drop("told"),
        "broken",
        given=("T1",),
    ),
    Fault(
        "J4",
        "an unreadable line gets -32600",
        broken_line,
        put("told", "error.code", -32600),
        "told",
        "error.code",
        given=("T1",),
    ),
    Fault(
        "J4",
        "-32700 for nothing",
        turn,
        more("chunk", Talk().agent("x", id=None, error={"code": -32700, "message": "Parse error"})),
        "x",
        "id",
    ),
    Fault("J5", "no message is not answered", no_message, lambda t: t.drop("told"), "nothing", given=("J5",)),
    Fault(
        "J5",
        "no message gets -32700",
        no_message,
        put("told", "error.code", -32700),
        "told",
        "error.code",
        given=("J5",),
    ),
    Fault("J5", "an id that is none", turn, put("chunk", "id", {}), "chunk", "id"),
    Fault("J5", "an id null", turn, put("chunk", "id", None), "chunk", "id"),
    Fault("J5", "a method that is none", turn, put("chunk", "method", 7), "chunk", "method"),
    Fault(
        "J6",
        "an unknown method fails otherwise",
        strange_method,
        put("strange!", "error.code", -32603),
        "strange!",
        "error.code",
    ),
    Fault(
        "J7",
        "params that do not fit fail otherwise",
        misfit,
        put("bad!", "error.code", -32603),
        "bad!",
        "error.code",
        given=("schema",),
    ),
    Fault(
        "J8",
        "a traceback",
        misfit,
        put("bad!", "error", {**TRACE, "code": -32602}),
        "bad!",
        "error",
        given=("schema",),
    ),
    Fault(
        "J9",
        "an answer is answered",
        stray_answer,
        more("stray", Talk().agent("x", id=77, error={"code": -32600, "message": "Invalid request"})),
        "x",
        "id",
        given=("J2",),
    ),
    Fault(
        "J10", "a batch", turn, lambda t: t.steps.__setitem__(slice(4, 4), batch().steps[-2:]), "batch", "", C
    ),
    Fault("J10", "a batch is not answered", batch, lambda t: t.drop("told"), "batch", given=("J10",)),
    Fault(
        "J11",
        "an id is used twice",
        two_prompts,
        lambda t: (t.set("second", "id", 2), t.set("second!", "id", 2)),
        "second",
        "id",
        C,
    ),
    Fault(
        "J12",
        "an unknown field is refused",
        plain_fields,
        failing("list!", {**NOT_FIT, "data": {"details": 'unknown field "traceparent"'}}),
        "list!",
        "error",
    ),
    # Initialize
    Fault(
        "I1",
        "initialize is not first",
        opened,
        lambda t: (
            t.steps.insert(0, Talk().client("x", id=9, method="session/list").steps[0]),
            t.after("x", Talk().agent("x!", id=9, error={"code": -32600, "message": "Invalid request"})),
        ),
        "x",
        "method",
        C,
    ),
    Fault(
        "I1",
        "initialize twice",
        opened,
        more(
            "new!",
            Talk().ask(
                "x",
                9,
                "initialize",
                {"protocolVersion": 1},
                {
                    "protocolVersion": 1,
                    "agentCapabilities": AGENT_CAN,
                    "agentInfo": {"name": "a", "version": "1"},
                },
            ),
        ),
        "x",
        "method",
        C,
    ),
    Fault(
        "I1",
        "an answer before initialize",
        early,
        succeeding("early!", {"sessions": []}),
        "early!",
        given=("I1",),
    ),
    Fault(
        "I2",
        "another version",
        turn,
        put("initialize!", "result.protocolVersion", 2),
        "initialize!",
        "result.protocolVersion",
    ),
    *(
        Fault("I3", f"{'.'.join(path)} was not announced", make, unannounce(*path), step, place, C)
        for path, make, step, place in (
            (("loadSession",), loaded, "load", "method"),
            (("sessionCapabilities", "list"), listed, "list", "method"),
            (("sessionCapabilities", "delete"), deleted, "call", "method"),
            (("sessionCapabilities", "resume"), resumed, "resume", "method"),
            (("sessionCapabilities", "fork"), forked, "fork", "method"),
            (("auth", "logout"), logged_out, "logout", "method"),
            (
                ("sessionCapabilities", "additionalDirectories"),
                with_folder,
                "new",
                "params.additionalDirectories",
            ),
            (("mcpCapabilities", "http"), with_server, "new", "params.mcpServers[0].type"),
        )
    ),
    Fault(
        "I3",
        "close was not announced",
        lambda: call("session/close", {"sessionId": "s-1"}),
        unannounce("sessionCapabilities", "close"),
        "call",
        "method",
        C,
    ),
    Fault(
        "I3",
        "fs.readTextFile was not announced",
        turn,
        unannounce("fs", "readTextFile", side=C),
        "read",
        "method",
    ),
    Fault(
        "I3",
        "fs.writeTextFile was not announced",
        turn,
        unannounce("fs", "writeTextFile", side=C),
        "write",
        "method",
    ),
    Fault(
        "E1",
        "form was not announced",
        asked_user,
        unannounce("elicitation", "form", side=C),
        "form",
        "params.mode",
    ),
    Fault(
        "I3",
        "notices were not announced",
        notice,
        unannounce("session", "notices", side=C),
        "notice",
        f"{UPDATE}.sessionUpdate",
    ),
    Fault(
        "I3",
        "compaction was not announced",
        notice,
        unannounce("session", "compaction", side=C),
        "compaction",
        f"{UPDATE}.sessionUpdate",
    ),
    Fault(
        "I3",
        "boolean options were not announced",
        opened,
        unannounce("session", "configOptions", side=C),
        "new!",
        "result.configOptions[1].type",
    ),
    Fault(
        "I4",
        "load does not work",
        loaded,
        lambda t: (t.drop("again", "said"), failing("load!", UNKNOWN)(t)),
        "load!",
        "error.code",
    ),
    Fault(
        "I5",
        "no agentInfo",
        turn,
        lambda t: t.unset("initialize!", "result.agentInfo"),
        "initialize!",
        "result",
    ),
    Fault(
        "I6",
        "the handshake fails",
        odd_client,
        failing("initialize!", NOT_FIT),
        "initialize!",
        "error",
        given=("forgiven",),
    ),
    # Authentication
    Fault(
        "A1",
        "no way to authenticate",
        lambda: logged_out().drop("logout", "logout!"),
        put("initialize!", "result.authMethods", []),
        "refused!",
        "error.code",
    ),
    Fault(
        "A2",
        "a terminal method for all",
        turn,
        lambda t: (unannounce("auth", side=C)(t), t.set("initialize!", "result.authMethods", TERMINAL)),
        "initialize!",
        "result.authMethods[1].type",
    ),
    Fault(
        "A3",
        "an auth method that does not exist",
        refused_auth,
        put("auth", "params.methodId", "x"),
        "auth",
        "params.methodId",
        C,
    ),
    Fault("A3", "a wrong method succeeds", wrong_auth, succeeding("auth!", {}), "auth!", given=("A3",)),
    Fault(
        "A4", "a session after logout", logged_out, succeeding("refused!", {"sessionId": "s-2"}), "refused!"
    ),
    Fault(
        "A5",
        "a header in an update",
        with_server,
        put("chunk", f"{UPDATE}.content.text", "using Bearer abcdef123456"),
        "chunk",
    ),
    Fault(
        "A5",
        "a key in an error",
        misfit,
        put("bad!", "error.message", "bad key sk-abcdefghijklmnopqrstuvwx"),
        "bad!",
        "error",
        given=("schema",),
    ),
    # Sessions
    Fault("S1", "a relative cwd", refused_session, put("new", "params.cwd", "p"), "new", "params.cwd", C),
    Fault(
        "S1",
        "a relative cwd is accepted",
        relative,
        succeeding("bad!", {"sessionId": "s-2"}),
        "bad!",
        given=("S1",),
    ),
    Fault(
        "S1",
        "an id twice",
        second_session,
        put("second!", "result.sessionId", "s-1"),
        "second!",
        "result.sessionId",
    ),
    Fault("S2", "nothing is replayed", loaded, lambda t: t.drop("again", "said"), "load!"),
    Fault(
        "S2",
        "replayed after the answer",
        loaded,
        lambda t: t.move("said", "load!"),
        "said",
        f"{UPDATE}.sessionUpdate",
    ),
    Fault("S3", "resume replays", resumed, more("resume", Talk().chunk("x")), "x", f"{UPDATE}.sessionUpdate"),
    Fault(
        "S4",
        "an unknown session fails otherwise",
        lost,
        put("lost!", "error.code", -32603),
        "lost!",
        "",
        given=("S4",),
    ),
    Fault(
        "S4",
        "an unknown session of the client",
        prompted,
        lambda t: (t.drop("chunk"), t.set("prompt", "params.sessionId", "s-9"), failing("prompt!", GONE)(t)),
        "prompt",
        "params.sessionId",
        C,
    ),
    Fault(
        "S4",
        "an update for no session",
        prompted,
        put("chunk", "params.sessionId", "s-9"),
        "chunk",
        "params.sessionId",
    ),
    Fault(
        "S5",
        "close before the prompt's answer",
        cancelled_by_close,
        lambda t: t.move("prompt!", "close!"),
        "close!",
    ),
    Fault("S5", "an update after close", loaded, more("close!", Talk().chunk("x")), "x", "params.sessionId"),
    Fault(
        "S5",
        "a prompt after close",
        resumed,
        lambda t: (
            t.drop("resume", "resume!"),
            t.after("close!", Talk().ask("x", 7, "session/prompt", PROMPT, error=CLOSED)),
        ),
        "x",
        "params.sessionId",
        C,
    ),
    Fault("S6", "deleting fails", deleted, failing("call!", FAILED), "call!", "error"),
    Fault(
        "S6",
        "listed after it was deleted",
        deleted,
        put("list!", "result.sessions", [{"sessionId": "s-1", "cwd": "/p"}]),
        "list!",
        "result.sessions[0].sessionId",
    ),
    Fault(
        "S7",
        "another cwd",
        listed,
        put("list!", "result.sessions[1].cwd", "/q"),
        "list!",
        "result.sessions[1].cwd",
    ),
    Fault(
        "S7",
        "a relative cwd in the list",
        cursored,
        put("list!", "result.sessions[1].cwd", "p"),
        "list!",
        "result.sessions[1].cwd",
    ),
    Fault(
        "S7",
        "a time without a zone",
        listed,
        put("list!", "result.sessions[0].updatedAt", "2026-11-30 10:00"),
        "list!",
        "result.sessions[0].updatedAt",
    ),
    Fault(
        "S7",
        "oldest first",
        listed,
        put("list!", "result.sessions[1].updatedAt", "2026-11-30T11:00:00Z"),
        "list!",
        "result.sessions[1].updatedAt",
    ),
    Fault("S7", "a strange cursor is taken", wrong_cursor, succeeding("page!", {"sessions": []}), "page!"),
    Fault(
        "S8",
        "a relative folder",
        with_folder,
        put("new", "params.additionalDirectories", ["lib"]),
        "new",
        "params.additionalDirectories[0]",
        C,
    ),
    Fault("S9", "another cwd is loaded", loaded, put("load", "params.cwd", "/q"), "load!"),
    Fault(
        "S10",
        "a fork with the same id",
        forked,
        put("fork!", "result.sessionId", "s-1"),
        "fork!",
        "result.sessionId",
    ),
    Fault(
        "S11",
        "an MCP server fails the session",
        lambda: with_server().drop("prompt", "chunk", "prompt!"),
        failing("new!", {"code": -32603, "message": "MCP server m failed"}),
        "new!",
        "error",
    ),
    Fault("S12", "no title", turn, lambda t: t.drop("title"), "prompt!"),
    Fault(
        "S13",
        "commands before the answer",
        loaded,
        more("said", Talk().update("x", "available_commands_update", availableCommands=[])),
        "x",
        f"{UPDATE}.sessionUpdate",
    ),
    Fault(
        "S13",
        "an update before session/new is answered",
        opened,
        more("new", Talk().chunk("x")),
        "x",
        "params.sessionId",
    ),
    # Prompts
    *(
        Fault(
            "P1",
            f"{kind} was not announced",
            lambda k=kind: blocks(k),
            unannounce("promptCapabilities", needed),
            "prompt",
            "params.prompt[0].type",
            C,
        )
        for kind, needed in (("image", "image"), ("audio", "audio"), ("resource", "embeddedContext"))
    ),
    Fault(
        "P1",
        "text is refused",
        prompted,
        lambda t: (t.drop("chunk"), failing("prompt!", NOT_FIT)(t)),
        "prompt!",
        "error",
    ),
    Fault(
        "P2",
        "a chunk after the answer",
        turn,
        lambda t: t.move("last", "prompt!"),
        "last",
        f"{UPDATE}.sessionUpdate",
    ),
    Fault(
        "P3",
        "a stop reason that does not exist",
        turn,
        put("prompt!", "result.stopReason", "stop"),
        "prompt!",
        "result.stopReason",
    ),
    Fault(
        "P3",
        "cancelled by nobody",
        lambda: prompted().ask("list", 6, "session/list", {}, {"sessions": []}),
        put("prompt!", "result.stopReason", "cancelled"),
        "prompt!",
        "result.stopReason",
    ),
    Fault(
        "P4",
        "a message id for two messages",
        turn,
        put("last", f"{UPDATE}.messageId", "m-1"),
        "last",
        f"{UPDATE}.messageId",
    ),
    Fault(
        "P4",
        "a message id in two turns",
        turn,
        lambda t: (
            t.after("prompt!", copy.deepcopy(SECOND_TURN)),
            t.after("again", Talk().chunk("x", messageId="m-2")),
        ),
        "x",
        f"{UPDATE}.messageId",
    ),
    Fault("P5", "no usage", turn, lambda t: t.drop("usage"), "prompt!"),
    Fault("P6", "out of order", two_prompts, lambda t: t.move("prompt!", "second!"), "second!"),
    Fault(
        "P7",
        "a slash command is refused",
        slash,
        lambda t: (t.drop("chunk"), failing("prompt!", NOT_FIT)(t)),
        "prompt!",
        "error",
    ),
    Fault(
        "P8",
        "half a plan",
        turn,
        more(
            "plan",
            Talk().update(
                "x", "plan", entries=[{"content": "change", "priority": "high", "status": "in_progress"}]
            ),
        ),
        "x",
        f"{UPDATE}.entries",
    ),
    # Cancelling
    Fault("C1", "an error", cancelled, failing("prompt!", FAILED), "prompt!", "error"),
    Fault(
        "C1",
        "end_turn",
        cancelled,
        put("prompt!", "result.stopReason", "end_turn"),
        "prompt!",
        "result.stopReason",
    ),
    Fault("C1", "no answer", cancelled, lambda t: (t.drop("prompt!"), t.wait("cut", 20.0)), "prompt"),
    Fault(
        "C2",
        "a new call",
        cancelled,
        more("cut", Talk().update("x", "tool_call", toolCallId="t-9", title="New", status="failed")),
        "x",
    ),
    Fault(
        "C2",
        "a file is written",
        cancelled,
        more(
            "cut",
            Talk().call("x", 1010, "fs/write_text_file", {"sessionId": "s-1", "path": "/p/a", "content": ""}),
        ),
        "x",
    ),
    Fault("C3", "a call is left open", cancelled, lambda t: t.drop("cut"), "prompt!"),
    Fault("C4", "a permission is left open", cancelled, lambda t: t.move("ask!", "prompt!"), "prompt!"),
    Fault(
        "C5",
        "a later turn is cancelled",
        late_cancel,
        put("second!", "result.stopReason", "cancelled"),
        "second!",
        "result.stopReason",
    ),
    Fault(
        "C6",
        "a withdrawn request fails otherwise",
        withdrawn,
        put("list!", "error.code", -32603),
        "list!",
        "error.code",
    ),
    Fault(
        "C6",
        "no such request",
        withdrawn_late,
        put("withdraw", "params.requestId", 55),
        "withdraw",
        "params.requestId",
        C,
    ),
    Fault(
        "C8",
        "allowed after cancel",
        cancelled,
        put("ask!", "result", {"outcome": {"outcome": "selected", "optionId": "yes"}}),
        "ask!",
        "result.outcome",
        C,
    ),
    # Tool calls
    Fault(
        "K1",
        "an update before the call",
        prompted_call,
        lambda t: t.drop("call2"),
        "end2",
        f"{UPDATE}.toolCallId",
    ),
    Fault(
        "K1",
        "reported twice",
        turn,
        more("start", Talk().update("x", "tool_call", toolCallId="t-1", title="Again", status="pending")),
        "x",
        f"{UPDATE}.toolCallId",
    ),
    Fault("K2", "left open", turn, lambda t: t.drop("end2"), "prompt!"),
    Fault(
        "K2",
        "goes on after its end",
        turn,
        more("end", Talk().update("x", "tool_call_update", toolCallId="t-1", status="in_progress")),
        "x",
        f"{UPDATE}.status",
    ),
    Fault(
        "K2",
        "goes back",
        turn,
        more("start2", Talk().update("x", "tool_call_update", toolCallId="t-2", status="pending")),
        "x",
        f"{UPDATE}.status",
    ),
    Fault(
        "K3",
        "a relative location",
        turn,
        put("call", f"{UPDATE}.locations[0].path", "a.txt"),
        "call",
        f"{UPDATE}.locations[0].path",
    ),
    Fault(
        "K3",
        "line 0",
        turn,
        put("call", f"{UPDATE}.locations[0].line", 0),
        "call",
        f"{UPDATE}.locations[0].line",
    ),
    Fault(
        "K3",
        "a relative diff",
        turn,
        put("end", f"{UPDATE}.content[0].path", "a.txt"),
        "end",
        f"{UPDATE}.content[0].path",
    ),
    Fault("K3", "a relative file", turn, put("read", "params.path", "a.txt"), "read", "params.path"),
    Fault("K3", "line 0 of a file", turn, put("read", "params.line", 0), "read", "params.line"),
    Fault(
        "K3", "a relative cwd of a command", turn, put("create", "params.cwd", "p"), "create", "params.cwd"
    ),
    Fault("K4", "an empty title", turn, put("call2", f"{UPDATE}.title", ""), "call2", f"{UPDATE}.title"),
    Fault("K4", "no input", turn, lambda t: t.unset("call2", f"{UPDATE}.rawInput"), "call2"),
    Fault("K4", "no output", prompted_call, lambda t: t.unset("end2", f"{UPDATE}.rawOutput"), "call2"),
    Fault(
        "K4",
        "an edit without a diff",
        plain_edit,
        lambda t: t.unset("end", f"{UPDATE}.content"),
        "call",
    ),
    # Permissions
    Fault(
        "M1",
        "not reported before",
        asked_alone,
        lambda t: t.drop("call"),
        "ask",
        "params.toolCall.toolCallId",
    ),
    Fault(
        "M1",
        "running while it asks",
        turn,
        lambda t: t.move("start", "call"),
        "ask",
        "params.toolCall.toolCallId",
    ),
    Fault(
        "M1", "starts before the answer", turn, lambda t: t.move("start", "ask"), "start", f"{UPDATE}.status"
    ),
    Fault(
        "M2",
        "two options with one id",
        turn,
        put("ask", "params.options[1].optionId", "yes"),
        "ask",
        "params.options[1].optionId",
    ),
    Fault(
        "M2", "no way to reject", turn, lambda t: t.unset("ask", "params.options[2]"), "ask", "params.options"
    ),
    Fault(
        "M3",
        "an option that was not offered",
        rejected,
        put("ask!", "result.outcome.optionId", "x"),
        "ask!",
        "result.outcome.optionId",
        C,
    ),
    Fault(
        "M3",
        "runs though it was rejected",
        rejected,
        more("ask!", Talk().update("x", "tool_call_update", toolCallId="t-1", status="in_progress")),
        "x",
        f"{UPDATE}.status",
    ),
    Fault("M4", "a rejected call is left open", rejected, lambda t: t.drop("end"), "prompt!"),
    Fault("M4", "the turn fails", rejected, failing("prompt!", FAILED), "prompt!", "error"),
    # Client files, terminals, questions
    Fault("F1", "past the client's files", turn, lambda t: t.drop("write", "write!"), "call"),
    Fault(
        "F2",
        "the turn fails with a file",
        turn,
        lambda t: (failing("read!", FAILED)(t), failing("prompt!", FAILED)(t)),
        "prompt!",
        "error",
    ),
    Fault("X1", "never released", turn, lambda t: t.drop("release", "release!"), "create"),
    Fault(
        "X1",
        "a terminal that does not exist",
        turn,
        put("output", "params.terminalId", "x-9"),
        "output",
        "params.terminalId",
    ),
    Fault(
        "X1",
        "used after release",
        turn,
        lambda t: (t.move("release", "exit!"), t.move("release!", "release")),
        "output",
        "params.terminalId",
    ),
    Fault("X1", "never shown", turn, lambda t: t.drop("shown"), "release", "params.terminalId"),
    Fault(
        "X1",
        "past the client's terminal",
        turn,
        lambda t: t.drop(
            "create", "create!", "shown", "exit", "exit!", "output", "output!", "release", "release!"
        ),
        "call2",
    ),
    Fault(
        "X2",
        "no look at the output",
        killed,
        lambda t: t.drop("exit", "exit!", "output", "output!"),
        "release",
        "method",
    ),
    Fault(
        "E1",
        "a form for a password",
        asked_user,
        lambda t: (
            t.set("form", "params.requestedSchema.properties", {"password": {"type": "string"}}),
            t.set("form", "params.requestedSchema.required", []),
            t.set("form!", "result.content", {"password": "x"}),
        ),
        "form",
        "params.requestedSchema.properties.password",
    ),
    Fault(
        "E1",
        "an answer that does not fit the form",
        asked_user,
        put("form!", "result.content", {}),
        "form!",
        "result.content.name",
        C,
    ),
    Fault(
        "E1",
        "url was not announced",
        asked_by_url,
        unannounce("elicitation", "url", side=C),
        "url",
        "params.mode",
    ),
    Fault(
        "E1",
        "no such elicitation",
        asked_by_url,
        put("complete", "params.elicitationId", "e-9"),
        "complete",
        "params.elicitationId",
    ),
    # Options, old names
    Fault(
        "N1",
        "not all options",
        chosen,
        lambda t: t.unset("option!", "result.configOptions[0]"),
        "option!",
        "result.configOptions",
    ),
    Fault(
        "N1",
        "the old value",
        chosen,
        put("option!", "result.configOptions[1].currentValue", False),
        "option!",
        "result.configOptions[1].currentValue",
    ),
    Fault(
        "N1",
        "an update with half the options",
        chosen,
        lambda t: t.unset("told", f"{UPDATE}.configOptions[1]"),
        "told",
        f"{UPDATE}.configOptions",
    ),
    Fault(
        "N2",
        "two modes",
        opened,
        put("new!", "result.configOptions[0].currentValue", "code"),
        "new!",
        "result.configOptions[0].currentValue",
    ),
    Fault(
        "N2", "a mode is not told", chosen, lambda t: t.drop("moded", "told", "option", "option!"), "mode!"
    ),
    Fault(
        "N3",
        "a mode that does not exist",
        handshake_and_mode,
        put("bad", "params.modeId", "x"),
        "bad",
        "params.modeId",
        C,
    ),
    Fault(
        "N3",
        "an option that does not exist",
        refused_option,
        put("option", "params.configId", "x"),
        "option",
        "params.configId",
        C,
    ),
    Fault("N3", "a wrong mode is set", wrong_mode, succeeding("bad!", {}), "bad!", given=("N3",)),
    Fault(
        "N3",
        "a wrong mode fails otherwise",
        wrong_mode,
        put("bad!", "error.code", -32603),
        "bad!",
        given=("N3",),
    ),
    Fault(
        "N3",
        "a mode that was not offered",
        chosen,
        put("moded", f"{UPDATE}.currentModeId", "x"),
        "moded",
        f"{UPDATE}.currentModeId",
    ),
    Fault(
        "N3",
        "a value that was not offered",
        chosen,
        put("told", f"{UPDATE}.configOptions[0].currentValue", "x"),
        "told",
        f"{UPDATE}.configOptions[0].currentValue",
    ),
    Fault("L1", "an old method", listed, put("list", "method", "sessions/list"), "list", "method", C),
    Fault(
        "L2",
        "an old parameter",
        prompted,
        lambda t: (t.unset("prompt", "params.sessionId"), t.set("prompt", "params.session_id", "s-1")),
        "prompt",
        "params.session_id",
        C,
    ),
    Fault(
        "L2",
        "another old parameter",
        prompted,
        lambda t: (t.unset("prompt", "params.prompt"), t.set("prompt", "params.content", text())),
        "prompt",
        "params.content",
        C,
    ),
    Fault(
        "L4", "data of another kind", failed_list, put("list!", "error.data", "boom"), "list!", "error.data"
    ),
    Fault(
        "L4",
        "the session is not named",
        lost,
        lambda t: t.unset("lost!", "error.data"),
        "lost!",
        "error",
        given=("S4",),
    ),
    # What is no rule of its own
    Fault(
        "schema",
        "a field in snake_case",
        turn,
        lambda t: (
            t.unset("call", f"{UPDATE}.toolCallId"),
            t.set("call", f"{UPDATE}.tool_call_id", "t-1"),
            t.drop("end"),
        ),
        "call",
        f"{UPDATE}.toolCallId",
    ),
    Fault(
        "method",
        "a request without an id",
        prompted,
        lambda t: (t.unset("prompt", "id"), t.drop("chunk", "prompt!")),
        "prompt",
        "id",
        C,
    ),
    Fault(
        "method",
        "a notification with an id",
        late_cancel,
        lambda t: (t.set("cancel", "id", 44), t.after("cancel", Talk().agent("y", id=44, result={}))),
        "cancel",
        "id",
        C,
    ),
    Fault(
        "method",
        "a method of the other side",
        prompted,
        more("prompt", Talk().client("x", method="session/update", params={})),
        "x",
        "method",
        C,
    ),
    Fault(
        "method",
        "a method that does not exist",
        prompted,
        more("chunk", Talk().agent("x", method="session/delta", params={})),
        "x",
        "method",
    ),
    Fault("unstable", "an experimental method", forked, lambda t: t, "fork", "method", C),
    Fault(
        "error",
        "an error that is text",
        misfit,
        put("bad!", "error", "boom"),
        "bad!",
        "error",
        given=("schema",),
    ),
    Fault(
        "unknown",
        "a known field misspelt",
        turn,
        lambda t: (t.unset("end2", f"{UPDATE}.rawOutput"), t.set("end2", f"{UPDATE}.raw_output", {})),
        "end2",
        f"{UPDATE}.raw_output",
    ),
    Fault(
        "forgiven",
        "a kind that does not exist",
        turn,
        put("call2", f"{UPDATE}.kind", "shell"),
        "call2",
        f"{UPDATE}.kind",
    ),
]

"""MCP servers of a session: start one, list its tools, call one (Model Context Protocol over stdio).

Each server has a reader thread of its own, the same `Connection` class as towards the editor. They connect
on a thread in the background, since the editor waits for session/new; a turn waits until that is over.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
from collections import deque
from functools import partial

from acpserver.cancel import CancelFlag
from acpserver.errors import AcpError, ConnectionClosed, RpcError, ToolError
from acpserver.jsontext import encoded_size
from acpserver.processes import Child, Children
from acpserver.rpc.call import Call
from acpserver.rpc.connection import Connection
from acpserver.rpc.rules import MCP
from acpserver.tools.base import EXECUTE, Action, Content, ForeignSchema, Tool, ToolContext, ToolOutcome
from acpserver.tools.content import SHOWN, shorten, text_content
from acpserver.transports.stdio import LineReader, LineWriter
from acpserver.version import __version__
from acpserver.workers import NO_THREAD, start_thread

log = logging.getLogger(__name__)

PROTOCOL_VERSION = "2025-06-18"
CONNECT_SECONDS = 30.0  # for the handshake and the list of tools
END_SECONDS = 0.5  # between the end of its input and the first signal
MOST_PAGES = 50  # of one list of tools
LONGEST_NAME = 64  # characters; what model servers accept as the name of a tool
LONGEST_RESULT = 30_000  # characters of a result that the model reads
BLOCK_SIZE = 80  # bytes of JSON around the text of one block


class McpServer:
    """One running server. `start` blocks; the other methods may be used by any thread after it."""

    def __init__(self, spec: dict[str, object], children: Children, cwd: str):
        self.name = str(spec.get("name", ""))
        self._spec = spec
        self._children = children
        self._cwd = cwd
        self._child: Child | None = None
        self._threads: list[threading.Thread] = []
        self._ending = ""
        self._ending_taken = False
        self._complaints: deque[bytes] = deque(maxlen=20)  # the last lines of its stderr

    def start(self, cancel: CancelFlag) -> list[Tool]:
        """Start the program, shake hands, and return its tools.

        Raises `ToolError`, whose text says what is wrong for a person; also when `cancel` is set.
        """
        if self._spec.get("type") in ("http", "sse"):
            raise ToolError(f"{self._spec['type']} is not supported, only servers that are started here")
        child = self._spawn()
        assert child.popen.stdin and child.popen.stdout and child.popen.stderr
        self._writer = LineWriter(child.popen.stdin.fileno())
        self._child = child  # from here on `close`, on another thread, has something to end
        self._writer.start()
        lines = LineReader(child.popen.stdout.fileno())
        self._connection = Connection(lines, self._writer, {"ping": _ping}, rules=MCP)
        for target in (self._connection.serve, self._drain):
            thread = threading.Thread(target=target, name="mcp reader", daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            return self._shake_hands(cancel)
        except (TimeoutError, AcpError) as error:
            raise ToolError(f"{error}{self._last_words()}") from error

    def call(self, tool: str, arguments: dict[str, object], cancel: CancelFlag) -> dict[str, object]:
        """The result of a tool (MCP CallToolResult). Raises `ToolError` and `Cancelled`."""
        try:
            return self._connection.request("tools/call", {"name": tool, "arguments": arguments}, cancel)
        except RpcError as error:
            raise ToolError(f"The MCP server {self.name} answered: {error.details}") from error
        except ConnectionClosed as error:
            self._ending = self._ending or f"The MCP server {self.name} has ended{self._how_it_ended()}"
            raise ToolError(self._ending) from error

    def take_ending(self) -> str:
        """How the server ended, for the user, once a call has come upon it; "" the next time."""
        ending = "" if self._ending_taken else self._ending
        self._ending_taken = bool(self._ending)
        return ending

    def close(self) -> None:
        """End the server: close its input, wait a moment, then end its processes. Blocks for that."""
        child = self._child
        if child is None or child.popen.stdin is None:
            return
        # While the writer is at it, its descriptor stays open: the number could become another file's.
        if self._writer.close(END_SECONDS):
            child.popen.stdin.close()
            child.wait(END_SECONDS)
        child.end(END_SECONDS)
        for thread in self._threads:
            thread.join(END_SECONDS)
        for stream in (child.popen.stdin, child.popen.stdout, child.popen.stderr):
            if stream is not None:
                stream.close()

    def _spawn(self) -> Child:
        args, env = self._spec.get("args"), self._spec.get("env")
        command = [str(self._spec.get("command", "")), *(map(str, args) if isinstance(args, list) else ())]
        pairs = [pair for pair in env if isinstance(pair, dict)] if isinstance(env, list) else []
        return self._children.start(
            command,
            self._cwd,
            env={str(pair.get("name")): str(pair.get("value")) for pair in pairs},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _shake_hands(self, cancel: CancelFlag) -> list[Tool]:
        hello: dict[str, object] = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "acpserver", "version": __version__},
        }
        self._connection.request("initialize", hello, cancel, CONNECT_SECONDS)
        self._connection.notify("notifications/initialized", {})
        tools: list[Tool] = []
        cursor: object = None
        for _ in range(MOST_PAGES):
            params: dict[str, object] = {"cursor": cursor} if cursor else {}
            page = self._connection.request("tools/list", params, cancel, CONNECT_SECONDS)
            listed = page.get("tools")
            for tool in listed if isinstance(listed, list) else []:
                tools.append(McpTool(self, tool))
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return tools

    def _drain(self) -> None:
        """Read stderr, so that the server never waits for someone to do so."""
        assert self._child and self._child.popen.stderr
        for line in LineReader(self._child.popen.stderr.fileno(), max_line=1 << 16):
            self._complaints.append(line)

    def _last_words(self) -> str:
        self._threads[-1].join(0.2)  # what a dying server says may come after its end of output
        words = b" / ".join(list(self._complaints)[-3:]).decode("utf-8", "replace")
        return f" (it said: {words[-300:]})" if words else ""

    def _how_it_ended(self) -> str:
        status = self._child.wait(0.2) if self._child else None  # its output ends before it does
        how = (
            ""
            if status is None
            else f" with exit status {status}"
            if status >= 0
            else f" by signal {-status}"
        )
        return how + self._last_words()


def _ping(call: Call) -> None:
    call.answer({})


class McpTool:
    """A tool of an MCP server, under a name that no other server's tool has."""

    kind = "other"

    def __init__(self, server: McpServer, listed: object):
        """`listed` is one entry of the server's list (MCP Tool). Raises `ToolError` if it is none."""
        if not isinstance(listed, dict):
            raise ToolError("its list of tools holds something else")
        self._server = server
        self._tool = str(listed.get("name", ""))
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{server.name}__{self._tool}")[:LONGEST_NAME]
        self.description = str(listed.get("description") or listed.get("title") or self._tool)
        schema = listed.get("inputSchema")
        given = schema if isinstance(schema, dict) else {"type": "object"}
        self.parameters: dict[str, object] = ForeignSchema(given)

    def prepare(self, arguments: dict[str, object], context: ToolContext) -> Action:
        """What the tool does is unknown here, so the user is always asked."""
        return Action(
            f"{self._server.name}: {self._tool}", lambda: self._run(arguments, context.cancel), access=EXECUTE
        )

    def _run(self, arguments: dict[str, object], cancel: CancelFlag) -> ToolOutcome:
        result = self._server.call(self._tool, arguments, cancel)
        blocks = result.get("content")
        texts: list[str] = []
        content: list[Content] = []
        room = SHOWN
        for block in blocks if isinstance(blocks, list) else []:
            text = _block(block)
            texts.append(text)
            if room > 0:
                content.append(text_content(shorten(text, room)))
                room -= encoded_size(text) + BLOCK_SIZE
        if len(content) < len(texts):
            content.append(text_content(f"[… {len(texts) - len(content)} more blocks left out …]"))
        text = "\n".join(texts) or "The tool gave no content."
        if len(text) > LONGEST_RESULT:
            text = f"{text[:LONGEST_RESULT]}\n[... {len(text) - LONGEST_RESULT} characters left out]"
        return ToolOutcome(text, content or None, is_error=bool(result.get("isError")))


def _block(block: object) -> str:
    """The text of one MCP content block, for the model and for the client."""
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict) and kind == "text":
        text = str(block.get("text", ""))
    elif isinstance(block, dict) and kind == "resource" and isinstance(block.get("resource"), dict):
        resource = block["resource"]
        text = str(resource.get("text") or f"[resource: {resource.get('uri')}]")
    elif isinstance(block, dict) and kind == "resource_link":
        text = f"[resource: {block.get('name')} at {block.get('uri')}]"
    else:
        text = f"[{kind}: {block.get('mimeType') if isinstance(block, dict) else 'unknown'}]"
    return text


class McpServers:
    """The servers of one session."""

    def __init__(self, specs: list[dict[str, object]], children: Children, cwd: str):
        self.specs = specs
        self._servers = [McpServer(spec, children, cwd) for spec in specs]
        self._tools: dict[str, Tool] = {}
        self._failures: list[str] = []
        self._cancel = CancelFlag()
        self._connected = not specs
        self._changed = threading.Condition()  # guards _connected; what stands above is whole before it

    def connect(self) -> None:
        """Start all servers, side by side, on threads of their own. Returns at once."""
        if self.specs and start_thread(self._connect_all, "mcp connect") is None:
            self._connect_all()  # there is no thread for any: they fail, and no turn waits for them

    def tools(self, cancel: CancelFlag) -> dict[str, Tool]:
        """The tools by name, once every server has answered or failed. Raises `Cancelled`."""
        with cancel.waking(self._wake), self._changed:
            self._changed.wait_for(lambda: self._connected or cancel.is_set())
        cancel.check()
        return self._tools

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take_failures(self) -> list[str]:
        """What went wrong since the last time, for the user: each once."""
        failures, self._failures = self._failures, []
        return failures + [ending for server in self._servers if (ending := server.take_ending())]

    def close(self) -> None:
        """End all servers. Blocks for a moment."""
        self._cancel.set("session ended")
        for server in self._servers:
            server.close()

    def _connect_all(self) -> None:
        found: list[list[Tool]] = [[] for _ in self._servers]
        pairs = zip(self._servers, found, strict=True)
        threads = [start_thread(partial(self._connect, *pair), "mcp start") for pair in pairs]
        for thread, server in zip(threads, self._servers, strict=True):
            if thread is None:
                self._failures.append(f"The MCP server {server.name} cannot be used: {NO_THREAD}")
            else:
                thread.join()
        for tool in (tool for tools in found for tool in tools):
            tool.name = _free_name(tool.name, self._tools)
            self._tools[tool.name] = tool
        with self._changed:
            self._connected = True
            self._changed.notify_all()

    def _connect(self, server: McpServer, tools: list[Tool]) -> None:
        try:
            tools += server.start(self._cancel)
            return
        except (AcpError, RuntimeError) as error:  # of the latter kind: no thread is left
            self._failures.append(f"The MCP server {server.name} cannot be used: {error}")
        except Exception as error:  # the top of a thread: the other servers and the session go on
            log.exception("mcp %s", server.name)
            self._failures.append(f"The MCP server {server.name} cannot be used: {type(error).__name__}")
        server.close()


def _free_name(name: str, taken: dict[str, Tool]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: LONGEST_NAME - 4]}_{number}"
    return free

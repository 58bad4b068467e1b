"""`acpserver chat`: the terminal client as a command. Runs on the main thread, whose signals it takes.

Whatever ends it, the server that it started ends with it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from acpserver.chat.conversation import ERROR, INTERRUPTED, USAGE, Quit, Talk, words
from acpserver.chat.process import ServerProcess, server_command
from acpserver.chat.render import Renderer
from acpserver.config import Config
from acpserver.errors import AcpError, ConnectionClosed


def run(
    config: Config,
    flags: Mapping[str, object],
    prompt: str | None = None,
    allow: bool | None = None,
    command: Sequence[str] | None = None,
    resume: str = "",
) -> int:
    """Run the client and return the exit status.

    `flags` are the settings from the command line, handed on to the server; `prompt` None reads prompts
    from stdin, one a line; `allow` answers all permission requests; `command` starts another server;
    `resume` is how the id of a stored session begins, "" for a new one.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    renderer = Renderer(sys.stdout, sys.stderr)
    conversation = Talk(renderer, allow)
    try:
        with _signals(conversation):
            server = ServerProcess(command or server_command(flags), conversation.handlers)
            try:
                return conversation.converse(server, config, prompt, resume)
            except ConnectionClosed:
                status = server.close()
                if status == USAGE:
                    return USAGE  # what it had to say about that stands on stderr, which it shares with us
                raise AcpError(f"the server has ended (exit status {status})") from None
            finally:
                conversation.leave()
                server.close()
    except (Quit, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has left
        return ERROR
    except (AcpError, OSError, TimeoutError) as error:
        renderer.end()
        renderer.line(f"acpserver: {words(error)}")
        return ERROR


@contextmanager
def _signals(conversation: Talk) -> Iterator[None]:
    """While the block runs, Ctrl-C goes to the chat, and a request to end unwinds it so that the server
    is not left behind."""

    enders = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

    def end(number: int, frame: FrameType | None) -> None:
        for each in enders:
            signal.signal(each, signal.SIG_IGN)  # a second one must not break off the unwinding
        raise SystemExit(128 + number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        conversation.interrupt()

    before = {number: signal.signal(number, end) for number in enders}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""The command line: flags, logging, the descriptors, and the exit status.

Everything that ties the rooms to a process is here; `main` runs on the main thread, which becomes the
reader when it serves.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from acpserver import config, logs, system
from acpserver.config import Config, Loader
from acpserver.errors import ConfigError
from acpserver.model_lists import load_with_model
from acpserver.redaction import Secrets
from acpserver.rpc.connection import Connection
from acpserver.server import Server
from acpserver.settings import SETTINGS
from acpserver.transports.stdio import LineReader, LineWriter
from acpserver.transports.trace import Trace
from acpserver.version import __version__

DRAIN_SECONDS = 0.4  # how long the end waits for a client that still reads

PEOPLE = ("chat", "doctor", "login", "logout", "sessions")  # what people call: see `commands`

HINT = """\
acpserver speaks the Agent Client Protocol on stdin and stdout: an editor starts it.
Try it here:   acpserver chat
Give it a key: acpserver login
What is used:  acpserver doctor
All flags:     acpserver --help
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.command in PEOPLE or getattr(options, "then", "") == "login":
            return _run_command(options)
        settings = load_with_model(vars(options), os.environ)
        secrets = Secrets(settings.secrets)
        if sys.stdin is not None and sys.stdin.isatty() and options.command is None:
            _complain(HINT)
            return 2
        return serve(settings, secrets, lambda: config.load(vars(options), os.environ))
    except BrokenPipeError:  # whoever read our output has seen enough
        return 1
    except (ConfigError, OSError, UnicodeError) as error:
        _complain(f"acpserver: {error}\n")
        return 2


def _run_command(options: argparse.Namespace) -> int:
    from acpserver import commands  # measured: 7 ms, for what an editor never calls

    system.stand_in_for_closed()
    try:
        status = commands.run(options)
    finally:
        unwritten = system.finish_stdout()
    if unwritten is not None and status == 0:
        raise unwritten
    return status


def _complain(text: str) -> None:
    """Write to stderr, if there is one."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "replace"))


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    root = argparse.ArgumentParser(prog="acpserver", description="An agent server for ACP.")
    root.add_argument("--version", action="version", version=f"acpserver {__version__}")
    root.add_argument("--acp", action="store_true", help=argparse.SUPPRESS)  # what some editors pass
    _add_settings(root, default=None)
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    acp = commands.add_parser("acp", help="serve ACP on stdin and stdout, as without a command")
    # Clients that log in run what they were told to run, `acpserver acp`, with `login` behind it.
    acp.add_argument("then", nargs="?", choices=("", "login"), default="", help=argparse.SUPPRESS)
    talk = commands.add_parser("chat", help="talk to the agent in this terminal")
    talk.add_argument("prompt", nargs="?", metavar="PROMPT", help="without it, prompts are read from stdin")
    talk.add_argument("--resume", metavar="ID", default="", help="go on with this stored session")
    answers = talk.add_mutually_exclusive_group()
    for flag, allow, text in (("--yes", True, "allow every tool call"), ("--no", False, "reject every one")):
        answers.add_argument(flag, dest="allow", action="store_const", const=allow, help=text)
    check = commands.add_parser("doctor", help="say what would be used and what is wrong with it")
    enter = commands.add_parser("login", help="store the key of a provider of models")
    leave = commands.add_parser("logout", help="remove stored keys")
    for command, text in ((enter, "without it, you are asked"), (leave, "without it, all of them")):
        command.add_argument("provider", nargs="?", default="", metavar="PROVIDER", help=text)
    stored = commands.add_parser("sessions", help="list, show, export or delete stored sessions")
    _add_sessions(stored)
    for command in (acp, talk, check):
        # SUPPRESS: a flag that is not given after the command must not undo the one before it.
        _add_settings(command, default=argparse.SUPPRESS)
    # A login takes all of them too: editors run it with the flags that the server was given.
    _add_settings(enter, default=argparse.SUPPRESS, shown=("log_file", "log_level"))
    return root


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    """The subcommands of `sessions` and their arguments."""
    parser.set_defaults(session="", format="markdown")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="all sessions, the latest first")
    for name, text in (
        ("show", "what is known of a session, and its conversation"),
        ("export", "a session as a document on stdout"),
        ("delete", "remove a session for good"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("session", metavar="ID", help="the id of a session, or how it begins")
        if name == "export":
            action.add_argument("--format", choices=("markdown", "json"), default="markdown")


def _add_settings(
    target: argparse.ArgumentParser, default: object, shown: Sequence[str] | None = None
) -> None:
    """A flag for each setting; the help tells those in `shown`, or all."""
    for setting in SETTINGS:
        if not setting.flag:
            continue
        flag = "--" + setting.name.replace("_", "-")
        among = f"; one of {', '.join(setting.choices)}" if setting.choices else ""
        text = setting.help + among if shown is None or setting.name in shown else argparse.SUPPRESS
        if setting.kind == "switch":
            target.add_argument(flag, action="store_const", const="true", default=default, help=text)
        else:
            target.add_argument(flag, metavar=setting.name.upper(), default=default, help=text)


def serve(settings: Config, secrets: Secrets, load: Loader) -> int:
    """Serve ACP until the end of input (status 0) or a signal (143)."""
    input_fd, output_fd = system.take_stdio()
    logs.set_up(settings.log_level, settings.log_file, secrets)  # now /dev/stdout is not the protocol's
    system.ignore_broken_pipes()
    trace = Trace(settings.trace, secrets) if settings.trace else None
    server = Server(settings, load, secrets)
    stop = system.Stop()
    writer = LineWriter(output_fd, tap=trace.outgoing if trace else None, on_broken=stop.request)
    connection = Connection(
        LineReader(input_fd, stop_fd=stop.fd),
        writer,
        server.handlers(),
        admit=server.admit,
        strict=settings.strict,
        observe=trace.incoming if trace else None,
    )
    server.connect(connection)
    writer.start()
    with contextlib.suppress(KeyboardInterrupt):  # Windows only, see `Stop`
        connection.serve()
    status = 143 if stop.signal else 0
    server.stop(stop.signal or "end of input")
    writer.close(DRAIN_SECONDS)
    _leave(status)
    return status


def _leave(status: int) -> None:
    """End the process now: a thread that cannot be woken must not keep it, nor be caught half torn down."""
    os._exit(status)

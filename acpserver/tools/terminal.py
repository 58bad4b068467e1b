"""One command in a terminal of the editor: waited for, read, and always released.

Runs on the turn's thread. The user watches the command in the tool call; the model gets the output at its
end, also after a timeout and a cancel. An editor that no longer answers must not hold up a cancel.
"""

from __future__ import annotations

from acpserver.errors import Cancelled, ToolError
from acpserver.tools.base import Ended, Terminals, ToolContext, ToolOutcome
from acpserver.tools.content import code_content
from acpserver.tools.output import Output

_KEPT = 256 * 1024  # bytes of output that the editor is asked to keep
_KILL_SECONDS = 2.0  # for the editor to say that the command is killed
_OUTPUT_SECONDS = 10.0
_LAST_OUTPUT_SECONDS = 0.08  # after a cancel, whose answer the user waits for

_LOST = "\n[… the output before this is not kept by the editor …]\n"


def run_in_terminal(
    argv: list[str], timeout: float, terminals: Terminals, context: ToolContext
) -> ToolOutcome:
    """Run a command for at most `timeout` seconds. Raises `ToolError` and `Cancelled`."""
    terminal = terminals.create(argv[0], argv[1:], context.cwd, _KEPT)
    try:
        context.progress([terminal.content])
        ended = terminal.wait(timeout)
        if ended is None:
            terminal.kill(_KILL_SECONDS)
        said, truncated = terminal.output(_OUTPUT_SECONDS)
        status, raw, is_error = _told(ended, timeout)
    except Cancelled:
        terminal.kill(0)
        try:
            said, truncated = terminal.output(_LAST_OUTPUT_SECONDS, after_cancel=True)
        except ToolError as error:
            raise Cancelled("the output of the command is not known") from error
        status, raw, is_error = "cancelled by the user, and ended", {}, True
    finally:
        terminal.release()
    return _outcome(said, truncated, status, raw, is_error)


def _told(ended: Ended | None, timeout: float) -> tuple[str, dict[str, object], bool]:
    """How a command ended: in words, as raw output, and whether that is a failure."""
    if ended is None:
        return f"not finished after {timeout:g} seconds, and ended", {"timedOut": True}, True
    if ended.signal:
        return f"ended by signal {ended.signal}", {"signal": ended.signal}, True
    if ended.code is None:
        return "ended; the editor does not say how", {}, False
    return f"exit code {ended.code}", {"exitCode": ended.code}, ended.code != 0


def _outcome(said: str, truncated: bool, status: str, raw: dict[str, object], is_error: bool) -> ToolOutcome:
    """The output, then one line that says how the command ended. The client keeps showing the terminal."""
    output = Output()
    output.add((_LOST * truncated + said).encode("utf-8", "replace"))
    if truncated or output.cut:
        raw = {**raw, "truncated": True}
    text = output.text().rstrip("\n")
    text = f"{text}\n[{status}]" if text else f"[{status}, no output]"
    return ToolOutcome(text, [code_content(text)], raw, is_error, keeps_content=True)

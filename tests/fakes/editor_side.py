"""What an editor offers to an agent: its text buffers and its terminals, for `Editor(answers=...)`.

Scripted: no process runs and no file is touched. Answers are given on the fake editor's reader thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

READS: Json = {"fs": {"readTextFile": True, "writeTextFile": False}}
WRITES: Json = {"fs": {"readTextFile": False, "writeTextFile": True}}
FILES: Json = {"fs": {"readTextFile": True, "writeTextFile": True}}
TERMINAL: Json = {"terminal": True}


def failure(message: str, code: int = -32603) -> Json:
    """An error answer."""
    return {"error": {"code": code, "message": message}}


@dataclass
class Buffers:
    """The texts that the editor has, by absolute path; everything else it does not know.

    `refuses` is the answer to every request when it is set.
    """

    texts: dict[str, str] = field(default_factory=dict)
    refuses: Json | None = None
    asked: list[Json] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)

    @property
    def answers(self) -> dict[str, Any]:
        """For `Editor`."""
        return {"fs/read_text_file": self.read, "fs/write_text_file": self.write}

    def read(self, params: Json) -> Json:
        """Answer fs/read_text_file."""
        self.asked.append(params)
        if self.refuses:
            return self.refuses
        if params["path"] not in self.texts:
            return failure("Resource not found", -32002)
        return {"content": self.texts[params["path"]]}

    def write(self, params: Json) -> Json:
        """Answer fs/write_text_file."""
        if self.refuses:
            return self.refuses
        self.texts[params["path"]] = params["content"]
        self.written.append((params["path"], params["content"]))
        return {}


@dataclass
class Screens:
    """Terminals in which every command does the same: it says `output` and ends as `exit` says, never if
    that is None. An answer of `changes`, by the last part of the method's name, replaces the usual one."""

    output: str = ""
    exit: Json | None = field(default_factory=lambda: {"exitCode": 0})
    changes: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Json]] = field(default_factory=list)

    @property
    def answers(self) -> dict[str, Any]:
        """For `Editor`."""
        usual = {
            "create": lambda params: {"terminalId": f"t{len(self.created)}"},
            "wait_for_exit": self.exit,
            "output": {"output": self.output, "truncated": False},
            "kill": {},
            "release": {},
        }
        return {f"terminal/{name}": self._noted(name, answer) for name, answer in usual.items()}

    def _noted(self, name: str, usual: Any) -> Any:
        def answer(params: Json) -> Any:
            self.asked.append((name, params))
            chosen = self.changes.get(name, usual)
            return chosen(params) if callable(chosen) else chosen

        return answer

    @property
    def created(self) -> list[Json]:
        """The params of every terminal/create."""
        return [params for name, params in self.asked if name == "create"]

    @property
    def story(self) -> list[str]:
        """What was asked, in order, by the last part of the method's name."""
        return [name for name, _ in self.asked]

"""`acpserver sessions`, the command for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acpserver import cli, records
from acpserver.llm.types import Text, Thought, ToolCall, ToolResult, Usage
from acpserver.records import Record
from acpserver.rpc import schema
from acpserver.store import Store

CALL = ToolCall("c1", "bash", {"command": "ls"}, "")
EDIT = ToolCall("c2", "edit_file", {"path": "a"}, "")
TURN: list[Record] = [
    records.user("u", [
        {"type": "text", "text": "Fix \x1b[31mit"}, {"type": "resource_link", "name": "a", "uri": "b"}]),
    records.assistant([Thought("hm"), Text("I **look**."), CALL, EDIT], ["t", "a"], Usage(10, 5), True),
    records.call("c1", {"title": "Run ls", "kind": "execute"}),
    records.result(ToolResult("c1", "bash", "one\ntwo"), {}),
    records.call("c2", {"title": "Edit a", "kind": "edit", "content": [
        {"type": "diff", "path": "/w/a", "oldText": "old\n", "newText": "new\n"}]}),
    records.result(ToolResult("c2", "edit_file", "done"), {"content": []}),
    records.plan([{"content": "first", "priority": "low", "status": "completed"},
                  {"content": "then", "priority": "low", "status": "pending"}]),
    records.option("mode", "bypass"),
    records.permission("bash", "allow"),
    records.assistant([Text("Done.")], ["b"], Usage(20, 5), True),
]  # fmt: skip


@pytest.fixture
def store() -> Store:
    return Store(os.path.join(os.environ["ACPSERVER_HOME"], "state"))


def add(store: Store, number: int, *found: Record) -> str:
    """A stored session with an id of its own beginning."""
    session_id = f"sess_{number:08x}" + "0" * 24
    file = store.create(session_id, "/work", [records.header(session_id, "/work"), *found])
    os.utime(file.path, (1_700_000_000 + number, 1_700_000_000 + number))
    return session_id


def test_list(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sessions", "list"]) == 0
    assert "No sessions are stored" in capsys.readouterr().out
    for number in range(60):
        add(store, number, records.user("u", [{"type": "text", "text": f"title {number}"}]))
    add(store, 99)
    assert cli.main(["sessions", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("title ")[1] for line in lines] == [f"{n}  [/work]" for n in reversed(range(60))]
    assert lines[0].startswith("sess_0000003b  2023-11-1")


def test_show(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session_id = add(store, 1, *TURN)
    assert cli.main(["sessions", "show", session_id[:13]]) == 0
    shown = capsys.readouterr().out
    tokens = "turns     1 (30 tokens read, 10 written)"
    for words in (session_id, "/work", tokens, "mode: bypass", "allow bash"):
        assert words in shown
    assert "Fix \N{REPLACEMENT CHARACTER}[31mit" in shown and "\x1b" not in shown


MARKDOWN = """\
# Fix ?[31mit[a](b)

## User

Fix ?[31mit

[a](b)

## Agent

> hm

I **look**.

**Run ls** (completed)

````
one
two
````

**Edit a** (completed)

````
/w/a
-old
+new
````

## Plan

- [x] first
- [ ] then

## Agent

Done.

"""


def test_export_markdown(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    add(store, 1, *TURN)
    assert cli.main(["sessions", "export", "00000001"]) == 0
    printed = capsys.readouterr().out.replace("\N{REPLACEMENT CHARACTER}", "?")
    assert printed.splitlines()[1:] == MARKDOWN.splitlines()[1:]


def test_export_json(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session_id = add(store, 1, *TURN)
    assert cli.main(["sessions", "export", session_id, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["sessionId"], document["cwd"]) == (session_id, "/work")
    assert document["options"] == {"mode": "bypass"}
    assert document["updatedAt"] == "2023-11-14T22:13:21.000Z" and document["usage"]["totalTokens"] == 40
    for update in document["updates"]:
        assert schema.check_params("session/update", {"sessionId": "s", "update": update}) == []
    assert len(document["updates"]) == 10


def test_delete(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session_id, other = add(store, 1, *TURN), add(store, 2, *TURN)
    assert cli.main(["sessions", "delete", session_id]) == 0
    assert session_id in capsys.readouterr().out
    assert store.find(session_id) is None and store.find(other) is not None
    assert cli.main(["sessions", "delete", session_id]) == 1


@pytest.mark.parametrize("action", ["show", "export", "delete"])
@pytest.mark.parametrize("name", ["sess_ffff", "../x", "sess_", "000", "sess_00000", "\0"])
def test_an_unknown_or_ambiguous_id(
    store: Store, capsys: pytest.CaptureFixture[str], action: str, name: str
) -> None:
    kept = [add(store, 1, *TURN), add(store, 2, *TURN)]
    assert cli.main(["sessions", action, name]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("acpserver: ")
    assert ("More than one" in printed.err) == (name == "sess_00000")
    assert all(store.find(session_id) for session_id in kept)


def test_damage_is_shown_and_hides_nothing_else(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session_id = add(store, 1, *TURN)
    file = store.find(session_id)
    assert file is not None
    with open(file.path, "ab") as end:
        end.write(b"garbage\n" + b'{"type":"call","id":"c9","shown":{"title":"cut","kind":"other"}}\n')
    assert cli.main(["sessions", "show", session_id]) == 0
    shown = capsys.readouterr().out
    assert "damaged   lines of the file: 1" in shown and "**cut** (failed)" in shown


def test_an_action_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["sessions"])
    assert caught.value.code == 2 and "ACTION" in capsys.readouterr().err


def test_a_reader_that_leaves(store: Store) -> None:
    session_id = add(store, 1, records.user("u", [{"type": "text", "text": "x" * 3_000_000}]))
    read_fd, write_fd = os.pipe()
    command = [sys.executable, "-m", "acpserver", "sessions", "export", session_id]
    checkout = Path(__file__).resolve().parent.parent
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=write_fd, stderr=subprocess.PIPE, cwd=checkout
    )
    os.close(write_fd)
    assert os.read(read_fd, 10)
    os.close(read_fd)
    assert process.communicate(timeout=20) == (None, b"") and process.returncode == 0

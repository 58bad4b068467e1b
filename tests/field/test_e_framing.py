"""Lines, sizes and encodings."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.e2e.moments import Stage, bash
from tests.fakes.editor import Editor, Json
from tests.fakes.llm_answers import Answer, text, tool_call

PROMPT = "session/prompt"


def as_line(message: Json) -> bytes:
    """A message as UTF-8, nothing escaped that JSON does not demand."""
    return json.dumps(message, ensure_ascii=False).encode()


def heard(at: Stage) -> str:
    """What the user said last, as the model got it."""
    content = at.llm.requests[-1].messages[-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def sent(at: Stage) -> list[bytes]:
    """Every line of this session's updates, as bytes."""
    return [json.dumps(update).encode() for update in at.editor.updates(at.session)]


def test_row_068_a_line_of_ten_megabytes_is_read(at: Stage) -> None:
    """A pasted image made the line longer than the reader could take."""
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(7_500_000)).decode()}
    at.llm.script(text("seen"))
    reply = at.editor.prompt(at.session, [{"type": "text", "text": "What is this?"}, image]).wait_reply()
    if "error" in reply.message:  # too large for every model, and said so: row 72
        assert reply.code == -32602
        assert "image" in reply.details and "MiB" in reply.details
        at.llm._script.clear()
    else:
        assert "image/png" in heard(at)  # the model is told that there was one
        assert len(heard(at)) < 1_000
    assert at.prompt(text("fine")).wait() == "end_turn"


@pytest.mark.parametrize("character", ["x", "é", "😀", "\\"])
def test_row_069_no_line_of_ours_is_longer_than_64_kib(at: Stage, tmp_path: Path, character: str) -> None:
    """A long line of the agent was fatal to clients that read with a limit. (The editor measures each.)"""
    (tmp_path / "large").write_text(character * 300_000 + "\n")
    at.llm.script(bash("cat large large large"), tool_call("read_file", {"path": "large"}))
    large = {"path": "other", "content": character * 100_000}
    at.llm.script(tool_call("write_file", large), text(character * 100_000))
    turn = at.editor.prompt(at.session, "go")
    assert turn.wait() == "end_turn"
    assert turn.text == character * 100_000


def test_row_070_growing_output_is_not_sent_again_and_again(at: Stage) -> None:
    """Every update repeated all output so far, hundreds of megabytes in the end."""
    script = "i=0; while [ $i -lt 7 ]; do seq 5000; i=$((i+1)); sleep 0.1; done"
    turn = at.prompt(bash(script), text("end"))
    assert turn.wait() == "end_turn"
    updates = turn.of_kind("tool_call_update")
    assert sum(map(len, sent(at))) < 3 * 30_000
    assert len(updates) < 15


ODD_SPACES = "a\u2028b\u2029c\u0085d\x0be\x0cf\u00a0g"


def test_row_073_separators_of_other_alphabets_are_no_line_ends(at: Stage) -> None:
    """Characters that some languages count as line ends broke a message in two."""
    at.llm.script(text(ODD_SPACES))
    message = {
        "jsonrpc": "2.0",
        "id": "odd",
        "method": PROMPT,
        "params": {"sessionId": at.session, "prompt": [{"type": "text", "text": ODD_SPACES}]},
    }
    # JSON lets all of them stand as they are, but for the two control characters.
    at.editor.send_raw(as_line(message) + b"\n")
    at.editor.wait_for(lambda: any(m.get("id") == "odd" for m in at.editor.received), "the answer")
    assert heard(at) == ODD_SPACES
    said = "".join(str(u["content"]["text"]) for u in at.editor.updates(at.session) if "content" in u)  # type: ignore[index]
    assert said == ODD_SPACES


def test_row_073_the_offline_model_keeps_them_too(offline: Stage) -> None:
    """The same for the words of a command."""
    turn = offline.editor.prompt(offline.session, f"say {ODD_SPACES}")
    assert turn.wait() == "end_turn"
    assert turn.text == ODD_SPACES + "\n"


def test_row_074_separators_survive_the_session_file(at: Stage, tmp_path: Path) -> None:
    """The stored conversation was read line by line, and broke at the same characters."""
    at.llm.script(text(ODD_SPACES))
    assert at.editor.prompt(at.session, ODD_SPACES).wait() == "end_turn"
    assert at.editor.request("session/close", {"sessionId": at.session}).result == {}
    before = len(at.editor.updates(at.session))
    params = {"sessionId": at.session, "cwd": str(tmp_path), "mcpServers": []}
    assert "result" in at.editor.request("session/load", params).message
    told = at.editor.updates(at.session)[before:]
    chunks = [update for update in told if str(update["sessionUpdate"]).endswith("message_chunk")]
    assert "".join(str(chunk["content"]["text"]) for chunk in chunks) == ODD_SPACES * 2  # type: ignore[index]


FAMILY = "👩\u200d👩\u200d👧"


def test_row_076_a_cut_does_not_split_a_character(at: Stage, tmp_path: Path) -> None:
    """Output was cut inside a character, and what was left could not be written."""
    (tmp_path / "large").write_text("😀" * 50_000 + FAMILY * 3_000 + "e\u0301" * 20_000)
    turn = at.prompt(bash("cat large"), tool_call("read_file", {"path": "large"}), text("end"))
    assert turn.wait() == "end_turn"


@pytest.mark.parametrize("shift", range(4))
def test_row_076_text_is_split_between_characters(at: Stage, shift: int) -> None:
    """The same for a long text of the model."""
    whole = "x" * shift + FAMILY * 4_000
    turn = at.prompt(text(whole))
    assert turn.wait() == "end_turn"
    assert turn.text == whole
    for update in turn.of_kind("agent_message_chunk"):
        piece = str(update["content"]["text"])  # type: ignore[index]
        assert not piece.startswith("\u200d")
        assert not piece.endswith("\u200d")


def test_row_076_halves_of_a_character_are_joined(at: Stage) -> None:
    """A model sent the two halves of a character in two pieces."""
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    turn = at.prompt(Answer((chunk % b"a\\ud83d", chunk % b"\\ude00b", chunk % b"\\ud800c", end)))
    assert turn.wait() == "end_turn"
    assert turn.text == "a😀b\ufffdc"


def test_row_076_half_a_character_from_the_client_does_no_harm(at: Stage) -> None:
    """The client sent half a character, and the request to the model could not be encoded."""
    at.llm.script(text("fine"))
    params = {"sessionId": at.session, "prompt": "HERE"}
    message = as_line({"jsonrpc": "2.0", "id": "half", "method": PROMPT, "params": params})
    at.editor.send_raw(message.replace(b'"HERE"', b'[{"type":"text","text":"a\\ud83d b"}]') + b"\n")
    at.editor.wait_for(lambda: any(m.get("id") == "half" for m in at.editor.received), "the answer")
    assert heard(at) == "a\ufffd b"


def test_row_077_blank_lines_and_other_line_ends_are_accepted(at: Stage) -> None:
    """Blank lines between messages were taken for broken messages."""
    ping = b'{"jsonrpc":"2.0","id":"%d","method":"_ping"}'
    before = len(at.editor.received)
    lines = [b"", b"", ping % 1 + b"\r", b"  ", b"\t\r", b"\xef\xbb\xbf" + ping % 2, b" " + ping % 3 + b" "]
    at.editor.send_raw(b"\n".join(lines) + b"\n\n")
    at.editor.ping()
    answers = at.editor.received[before:]
    assert [message["id"] for message in answers[:-1]] == ["1", "2", "3"]


LIST = b'{"jsonrpc":"2.0","id":21,"method":"session/list"}'


TWO = b"[" + LIST + b"," + LIST + b"]"
BATCHES = {"empty": b"[]", "1": b"[1]", "two": TWO, "nested": b"[" + TWO + b"]"}


@pytest.mark.parametrize("line", BATCHES.values(), ids=BATCHES.keys())
def test_row_078_a_batch_is_refused_as_a_whole(at: Stage, line: bytes) -> None:
    """An array of messages crashed the agent or was half carried out."""
    before = len(at.editor.received)
    at.editor.send_raw(line + b"\n")
    at.editor.ping()
    (answer, _) = at.editor.received[before:]
    assert answer["id"] is None
    assert answer["error"]["code"] == -32600  # type: ignore[index]


@pytest.mark.parametrize("line", [b"1", b'"text"', b"true", b"null", b"{}"])
def test_row_080_a_value_that_is_no_message_is_an_invalid_request(at: Stage, line: bytes) -> None:
    """It was called unparsable."""
    before = len(at.editor.received)
    at.editor.send_raw(line + b"\n")
    at.editor.ping()
    (answer, _) = at.editor.received[before:]
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)  # type: ignore[index]


@pytest.mark.parametrize("params", [None, [], "text", 1])
def test_row_080_initialize_needs_an_object(params: object) -> None:
    """Missing parameters looked like an unsupported version."""
    with Editor() as editor:
        assert editor.request("initialize", params).code == -32602
        editor.initialize()


LATIN = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
LOCALES = {
    "C": {"LANG": "C", **LATIN},
    "none": {"LANG": None, "LC_ALL": None, "LC_CTYPE": None, **LATIN},
    "unknown": {"LANG": "de_DE.ISO-8859-1", **LATIN},
}


@pytest.mark.parametrize("env", LOCALES.values(), ids=LOCALES.keys())
def test_row_082_utf8_whatever_the_locale_says(tmp_path: Path, env: dict[str, str | None]) -> None:
    """Input was read in the encoding of the system, and accented letters were lost."""
    (tmp_path / "grüße").write_text("äöü €", encoding="utf-8")
    with Editor("--model", "offline", env=env) as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        lines = "say ÄÖÜ 😀\nwrite neu ß: Größe ☃\nread grüße\nlist .\nrun cat 'neu ß'"
        turn = editor.prompt(session, lines)
        assert turn.wait() == "end_turn"
        assert turn.text == "ÄÖÜ 😀\n"
        assert (tmp_path / "neu ß").read_bytes() == "Größe ☃".encode()
        shown = json.dumps(turn.calls, ensure_ascii=False)
        assert "äöü €" in shown and "grüße" in shown
        assert [call["status"] for call in turn.calls] == ["completed"] * 4


def test_row_082_utf8_even_where_files_cannot_have_such_names(tmp_path: Path) -> None:
    """The same where Python has been told to use nothing but ASCII: contents are not concerned."""
    (tmp_path / "plain").write_text("äöü €", encoding="utf-8")
    with Editor("--model", "offline", env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", **LATIN}) as editor:
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "say ÄÖÜ 😀\nread plain\nrun cat plain")
        assert turn.wait() == "end_turn"
        assert turn.text == "ÄÖÜ 😀\n"
        assert json.dumps(turn.calls, ensure_ascii=False).count("äöü €") >= 2


FILES = {
    "CRLF": b"one\r\ntwo\r\nthree\r\n",
    "LF": b"one\ntwo\nthree\n",
    "no last line end": b"one\ntwo\nthree",
    "byte order mark": b"\xef\xbb\xbfone\r\ntwo\r\n",
    "mixed": b"one\r\ntwo\nthree\r\n",
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_row_085_an_edit_changes_only_what_it_names(at: Stage, tmp_path: Path, content: bytes) -> None:
    """After an edit every line end of the file was another one."""
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    edit = {"path": "file.txt", "old_text": "two", "new_text": "2"}
    turn = at.prompt(tool_call("edit_file", edit), text("end"))
    assert turn.wait() == "end_turn"
    assert turn.calls[0]["status"] == "completed"
    assert path.read_bytes() == content.replace(b"two", b"2")


def test_row_085_several_lines_keep_the_line_ends_of_the_file(at: Stage, tmp_path: Path) -> None:
    """The model writes plain line ends, whatever the file has."""
    path = tmp_path / "file.txt"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    edit = {"path": "file.txt", "old_text": "one\ntwo", "new_text": "1\n2\n2b"}
    assert at.prompt(tool_call("edit_file", edit), text("end")).wait() == "end_turn"
    assert path.read_bytes() == b"1\r\n2\r\n2b\r\nthree\r\n"


def test_row_085_a_file_in_another_encoding_is_not_spoiled(at: Stage, tmp_path: Path) -> None:
    """What was no UTF-8 came back as question marks."""
    path = tmp_path / "file.txt"
    path.write_bytes(b"caf\xe9 one\n")
    edit = {"path": "file.txt", "old_text": "one", "new_text": "two"}
    turn = at.prompt(tool_call("edit_file", edit), text("end"))
    assert turn.wait() == "end_turn"
    kept = path.read_bytes()
    assert kept in (b"caf\xe9 one\n", b"caf\xe9 two\n")
    assert (turn.calls[0]["status"] == "completed") is (b"two" in kept)

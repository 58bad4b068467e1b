"""The command line of `acp-validate`: what it prints, and the exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest

from acpserver.validate import check_trace
from acpserver.validate.command import main
from acpserver.validate.report_text import Style, print_report
from acpserver.validate.rules import RULES
from tests.official_schema import CACHE, STABLE
from tests.validate.talk import Talk, opened, turn

ROOT = Path(__file__).parent.parent


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return recorded(tmp_path / "clean.jsonl", turn())


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    talk = turn().set("prompt!", "result.stopReason", "stop").set("call2", "params.update.kind", "shell")
    return recorded(tmp_path / "faulty.jsonl", talk)


def recorded(path: Path, talk: Talk) -> Path:
    """A conversation as a file."""
    path.write_bytes(b"".join(talk.lines()))
    return path


def test_a_clean_recording_exits_0_and_says_one_line(clean: Path, capsys: Any) -> None:
    assert main([str(clean)]) == 0
    assert capsys.readouterr().out == f"{clean}: 33 messages, 0 errors, 0 warnings\n"


def test_a_fault_is_shown_with_its_place_and_exits_1(faulty: Path, capsys: Any) -> None:
    assert main([str(faulty)]) == 1
    out = capsys.readouterr().out
    assert f"{faulty}:33: " in out
    assert "error P3 agent: " in out
    assert "    at result.stopReason\n" in out
    lines = out.splitlines()
    marked = next(index for index, line in enumerate(lines) if '"stopReason"' in line)
    start = lines[marked].index('"stopReason"')
    assert lines[marked + 1] == " " * start + "^" * 12
    assert lines[-1].endswith("33 messages, 1 error, 1 warning; wrong: agent")
    assert "\033" not in out


def test_the_summary_tells_who_is_wrong_and_who_perhaps_is(tmp_path: Path, capsys: Any) -> None:
    talk = opened().ask("old", 9, "sessions/list", {}, {"sessions": []})
    path = str(recorded(tmp_path / "x.jsonl", talk))
    assert main([path, "--quiet"]) == 1
    assert capsys.readouterr().out.endswith(" 0 errors, 1 warning; perhaps: client\n")
    path = str(recorded(tmp_path / "x.jsonl", talk.unset("initialize!", "result.protocolVersion")))
    assert main([path, "--quiet"]) == 1
    assert capsys.readouterr().out.endswith(" 1 error, 1 warning; wrong: agent; perhaps: client\n")


def test_quiet_and_max(faulty: Path, capsys: Any) -> None:
    assert main(["--quiet", str(faulty)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["--max", "1", str(faulty)]) == 1
    out = capsys.readouterr().out
    assert out.count("    at ") == 1
    assert "1 more are not shown" in out


def test_several_files_and_stdin(clean: Path, faulty: Path) -> None:
    command = [sys.executable, "-m", "acpserver.validate.command", "--quiet", str(clean), "-"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with faulty.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, env=env, timeout=30)
    assert done.returncode == 1, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [str(clean), "-"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["/no/such/file"], "No such file"),
        (["--schema", "/no/such/file", "CLEAN"], "--schema /no/such/file"),
        (["--schema", "CLEAN", "CLEAN"], "not a JSON Schema"),
        (["--format", "zed", "CLEAN"], "not a recording: there is no JSON-RPC message in it"),
        (["--html", "x.html", "CLEAN", "CLEAN"], "one FILE"),
        (["rules", "Q9"], "no rule Q9"),
        (["message", "session/nonsense", "CLEAN"], "no method"),
    ],
)
def test_what_cannot_run_exits_2(arguments: list[str], told: str, clean: Path, capsys: Any) -> None:
    assert main([str(clean) if one == "CLEAN" else one for one in arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("acp-validate: ")
    assert told in err


def test_colours_only_where_wanted(faulty: Path) -> None:
    report, stream = check_trace(faulty), io.StringIO()
    print_report(stream, "x", report, Style(colour=True))
    assert "\033[31merror\033[0m" in stream.getvalue()
    assert '\033[4m"stopReason"\033[0m' in stream.getvalue()


def test_repeated_findings_are_counted(capsys: Any, tmp_path: Path) -> None:
    talk = turn()
    for number in range(8):
        talk.after("chunk", Talk().update(f"x{number}", "agent_thought_chunk", content={"type": "txt"}))
    assert main([str(recorded(tmp_path / "x.jsonl", talk))]) == 1
    out = capsys.readouterr().out
    assert out.count("    at params.update.content.type") == 3
    assert "and 5 more like this" in out
    assert "8 errors" in out


def test_json(faulty: Path, clean: Path, capsys: Any) -> None:
    assert main(["--output", "json", str(faulty), str(clean)]) == 1
    first, second = json.loads(capsys.readouterr().out)["files"]
    assert (first["errors"], first["warnings"], second["findings"]) == (1, 1, [])
    found = next(one for one in first["findings"] if one["rule"] == "P3")
    assert (found["line"], found["side"], found["path"]) == (33, "agent", "result.stopReason")


def test_sarif(faulty: Path, capsys: Any) -> None:
    assert main(["--output", "sarif", str(faulty)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == {
        one["ruleId"] for one in run["results"]
    }
    place = run["results"][-1]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": str(faulty)}, "region": {"startLine": 33}}


def test_junit(faulty: Path, capsys: Any) -> None:
    assert main(["--output", "junit", str(faulty)]) == 1
    (suite,) = xml.fromstring(capsys.readouterr().out)
    assert suite.get("failures") == "2"
    failed = [case.get("name", "").split()[0] for case in suite if len(case)]
    assert failed == ["forgiven", "P3"]
    assert int(suite.get("tests", 0)) == len(list(suite)) > 50


def test_stats(clean: Path, capsys: Any) -> None:
    assert main(["--stats", str(clean)]) == 0
    out = capsys.readouterr().out
    for told in (
        "session/prompt",
        "agent_message_chunk",
        "first chunk after ms",
        "longest silence",
        "chunks in a second",
    ):
        assert told in out


def test_the_page_is_written(faulty: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["--quiet", "--html", str(page), str(faulty)]) == 1
    assert "stopReason" in page.read_text()


def test_rules_are_listed_and_explained(capsys: Any) -> None:
    assert main(["rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RULES)
    assert main(["rules", "k1", "T4"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("K1 (MUST; agent)")
    assert "\n  right: " in first and "\n  wrong: " in first
    assert "No recording can show this" in second


def test_a_must_is_an_error_a_should_a_warning_and_what_is_no_fault_a_remark() -> None:
    levels = {
        level: {one.id for one in RULES.values() if one.level == level} for level in ("warning", "remark")
    }
    should = {"T5", "I5", "S12", "S13", "P4", "P5", "C3", "C4", "K4", "L3", "L5", "L6"}
    assert levels["warning"] == should | {"forgiven", "L1", "L2"}
    assert levels["remark"] == {"unknown", "unstable", "L4"}
    assert {one.level for one in RULES.values()} == {"error", "warning", "remark"}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_every_rule_that_can_be_seen_has_examples(rule: Any) -> None:
    assert rule.text.endswith((".", "cancelled."))
    if rule.seen and rule.id != "unstable":
        assert rule.right and rule.wrong


@pytest.mark.parametrize(
    ("method", "part", "value", "status"),
    [
        ("session/new", "params", {"cwd": "/p", "mcpServers": []}, 0),
        ("session/new", "params", {"cwd": "/p"}, 1),
        ("session/new", "result", {"sessionId": 7}, 1),
        ("session/prompt", "result", {"stopReason": "end_turn"}, 0),
        ("session/prompt", "error", {"code": "x"}, 1),
    ],
)
def test_one_message(method: str, part: str, value: Any, status: int, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "message.json"
    file.write_text(json.dumps(value, indent=2))
    assert main(["message", method, f"--{part}", str(file)]) == status
    assert (
        capsys.readouterr().out.splitlines()[-1].endswith(f"{'does not fit' if status else 'fits'} {method}")
    )


def test_pedantic_and_unstable(tmp_path: Path, capsys: Any) -> None:
    talk = opened().set("new", "params.mine", 1)
    talk.ask("fork", 5, "session/fork", {"sessionId": "s-1", "cwd": "/p"}, {"sessionId": "s-2"})
    path = str(recorded(tmp_path / "x.jsonl", talk))
    for flags, remarks in (([], 1), (["--unstable"], 0), (["--unstable", "--pedantic"], 1)):
        assert main([*flags, "--output", "json", path]) == 0
        assert json.loads(capsys.readouterr().out)["files"][0]["remarks"] == remarks, flags


def test_an_official_schema_file(faulty: Path, capsys: Any) -> None:
    if not (CACHE / STABLE).is_file():
        pytest.skip("the official schema has not been fetched (tests/test_schema_official.py does that)")
    assert main(["--schema", str(CACHE / STABLE), "--output", "json", str(faulty)]) == 1
    findings = json.loads(capsys.readouterr().out)["files"][0]["findings"]
    told = {(one["rule"], one["path"]) for one in findings if one["level"] != "remark"}
    assert told == {("P3", "result.stopReason"), ("forgiven", "params.update.kind")}


SECRET = "Bearer abcdef123456"


@pytest.mark.parametrize(
    "headers", [[{"name": "Authorization", "value": SECRET}], {"Authorization": SECRET}, [SECRET]]
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_secrets_are_not_quoted(headers: Any, output: str, tmp_path: Path, capsys: Any) -> None:
    talk = opened().set("new", "params.cwd", "p")
    server = {"type": "http", "name": "m", "url": "https://m.invalid/", "headers": headers}
    talk.set("new", "params.mcpServers", [server])
    talk.update("leak", "agent_message_chunk", content={"type": "text", "text": SECRET})
    if not (isinstance(headers, list) and isinstance(headers[0], dict)):
        talk.drop("leak")  # of what does not fit nobody knows what is secret
    assert main(["--output", output, str(recorded(tmp_path / "x.jsonl", talk))]) == 1
    out = capsys.readouterr().out
    assert "mcpServers" in out and "abcdef" not in out


def test_what_a_terminal_would_obey_is_not_printed(tmp_path: Path) -> None:
    talk = opened().client("x", id=7, method="a\x1b[31m\nb\ud800", params={})
    path = recorded(tmp_path / "x.jsonl", talk)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "acpserver.validate.command", "--stats", str(path)]
    done = subprocess.run(command, capture_output=True, env=env, timeout=30)
    assert done.returncode == 1, done.stderr
    assert b"a?[31m?b? (id 7) was never answered" in done.stdout
    assert b"\x1b" not in done.stdout


def test_json_with_figures(clean: Path, capsys: Any) -> None:
    assert main(["--output", "json", "--stats", str(clean)]) == 0
    stats = json.loads(capsys.readouterr().out)["files"][0]["stats"]
    assert (stats["messages"], stats["updates"]["tool_call"]) == (33, 2)
    assert {"side": "client", "method": "session/new", "count": 1} in stats["sent"]
    assert stats["latencies"]["session/prompt"]["count"] == 1
    assert stats["firstChunk"]["max"] == pytest.approx(0.02, abs=1e-3)


def test_the_page_does_not_replace_the_recording(clean: Path, capsys: Any) -> None:
    before = clean.read_bytes()
    assert main(["--html", str(clean), str(clean)]) == 2
    assert clean.read_bytes() == before


def test_sarif_names_files_by_address(tmp_path: Path, capsys: Any) -> None:
    path = recorded(tmp_path / "a b#.jsonl", turn().set("prompt!", "result.stopReason", "stop"))
    assert main(["--output", "sarif", str(path)]) == 1
    assert "/a%20b%23.jsonl" in capsys.readouterr().out


def test_a_whole_message_is_taken_out_of_its_envelope(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "message.json"
    message = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": 7, "mcpServers": []}}
    file.write_text("\ufeff" + json.dumps(message), encoding="utf-8")
    assert main(["message", "session/new", str(file)]) == 1
    out = capsys.readouterr().out
    assert out.count("    at ") == 1 and "    at params.cwd\n" in out
    assert main(["message", "session/new", "--result", str(file)]) == 2
    assert main(["message", "session/cancel", "--result", str(file)]) == 2
    assert main(["message", "sessions/list", str(file)]) == 2
    assert "an old name of session/list" in capsys.readouterr().err


MCP_KEY = "abcdef-123456-xyz"


def test_the_page_shows_no_secret_that_was_found(tmp_path: Path, capsys: Any) -> None:
    server = {"name": "m", "command": "/m", "args": [], "env": [{"name": "API_KEY", "value": MCP_KEY}]}
    talk = turn().set("new", "params.mcpServers", [server])
    talk.set("chunk", "params.update.content.text", f"the key is {MCP_KEY}")
    talk.set("title", "params.update.title", MCP_KEY)
    talk.set("last", "params.update.content.text", "x" * 70_000)
    talk.set("last", "params.update._meta", {"z": MCP_KEY})
    talk.set("prompt!", "result", {"stopReason": MCP_KEY})
    page = tmp_path / "page.html"
    assert main(["--html", str(page), str(recorded(tmp_path / "talk.jsonl", talk))]) == 1
    out = capsys.readouterr().out
    assert out.count("error A5 agent") == 3 and "and 1 more like this" in out
    assert MCP_KEY not in out
    shown = page.read_text()
    assert MCP_KEY not in shown and "the key is ***" in shown


def test_the_page_shows_no_key_that_stands_in_an_error(tmp_path: Path) -> None:
    key = "sk-abcdefghijklmnopqrstuvwx"
    talk = opened().ask("list", 9, "session/list", {}, None, {"code": -32603, "message": f"bad key {key}"})
    page = tmp_path / "page.html"
    assert main(["--html", str(page), str(recorded(tmp_path / "talk.jsonl", talk))]) == 1
    assert key not in page.read_text() and "bad key ***" in page.read_text()

"""Rule A5: a key stands in no output, whatever went wrong, in whatever form it could have come there."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver import credentials
from acpserver.catalog import DIALECTS
from acpserver.redaction import Secrets
from acpserver.transports.trace import Trace
from tests.fakes.editor import Editor
from tests.fakes.llm_answers import Cut, Reset, error, text
from tests.fakes.llm_server import FakeLlm, Request

KEY = 'sk-S3cret/+"key=0123456789'
"""With characters that every encoding writes in another way."""

TOKEN = "t0ken-of-a-header-98765"


def forms(secret: str) -> set[str]:
    """The ways in which a secret could be written down, shortened where what follows plays a part."""
    data = secret.encode()
    found = {secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret), data.hex()}
    for lead in ("", "a", "ab", "me:", "x:"):
        encoded = base64.b64encode((lead + secret).encode()).decode()
        inner = encoded[len(base64.b64encode(lead.encode()).decode()) : -4]
        found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) > 8}


def leaks(output: str, *secrets: str) -> list[str]:
    """The forms of the secrets that stand in `output`."""
    return [form for secret in secrets for form in forms(secret) if form in output]


def test_this_test_would_see_a_leak() -> None:
    for form in forms(KEY):
        assert leaks(f"... {form} ...", KEY)
    assert leaks(base64.b64encode(f"me:{KEY}".encode()).decode(), KEY)
    assert leaks(json.dumps({"a": KEY}), KEY) and not leaks("nothing of the kind", KEY, TOKEN)


# -- A whole run --


def written(secret: str) -> list[str]:
    """A secret as it may come by, alone and among other things."""
    found = [secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret), secret.encode().hex()]
    for lead in ("", "u:", "a", "abcd"):
        for tail in ("", " and more"):
            data = f"{lead}{secret}{tail}".encode()
            found += [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]
    return found


def echo(status: int) -> Any:
    """A refusal in which the server repeats everything that it was given, in every form."""

    def answer(request: Request) -> Any:
        given = [*request.headers.values(), *written(KEY), *written(TOKEN)]
        return error(status, {"error": {"message": " ".join(given)}})

    return answer


def everything_in(folder: Path) -> str:
    """All files below a folder but the one that holds the keys."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != credentials.FILE_NAME]
    return "\n".join(f"{path}\n{path.read_text(errors='replace')}" for path in files)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


def configure(home: Path, base_url: str, dialect: str = "openai") -> None:
    provider = {
        "baseUrl": base_url,
        "dialect": dialect,
        "apiKeyEnv": "WORK_KEY",
        "headers": {"X-Gateway-Token": TOKEN},
        "models": {"fake": {"thinking": True}},
    }
    content = {"providers": {"work": provider}, "retrySeconds": 1, "logLevel": "debug"}
    (home / "config.json").write_text(json.dumps(content))


@pytest.fixture(params=["environment", "stored"])
def keeper(request: pytest.FixtureRequest, home: Path) -> dict[str, str]:
    """Where the key is: the variables of the process, or the file of `acpserver login`."""
    if request.param == "environment":
        return {"WORK_KEY": KEY}
    credentials.store_key(str(home / credentials.FILE_NAME), "work", KEY)
    return {}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_run_tells_no_key(home: Path, tmp_path: Path, keeper: dict[str, str], dialect: str) -> None:
    """Every header form, answers, refusals that echo the key, trace, log, session file, tools, options."""
    files = {"ACPSERVER_TRACE": str(tmp_path / "trace"), "ACPSERVER_LOG_FILE": str(tmp_path / "log")}
    with FakeLlm(dialect=dialect, api_key="" if dialect == "ollama" else KEY) as llm:
        configure(home, llm.base_url, dialect)
        with Editor(env={"ACPSERVER_HOME": str(home), **files, **keeper}) as editor:
            editor.initialize({"auth": {"terminal": True}})
            session = editor.new_session(tmp_path)
            llm.script(text("fine"), *[echo(status) for status in (400, 401, 403, 404, 413)])
            assert editor.prompt(session, "x").wait() == "end_turn"
            for _ in range(5):
                assert editor.prompt(session, "x").wait_reply().error
            option = {"sessionId": session, "configId": "thought_level", "value": "high"}
            assert editor.request("session/set_config_option", option).result
            for params in ({**option, "value": KEY}, {**option, "configId": KEY}):
                assert editor.request("session/set_config_option", params).code == -32602
            assert editor.request("providers/list").result["providers"]
            assert editor.request("authenticate", {"methodId": "configured"}).result == {}
            assert editor.request("session/list").result["sessions"]
            assert editor.request("logout").result == {}
        sent = json.dumps([request.headers for request in llm.requests])
    assert TOKEN in sent and (json.dumps(KEY)[1:-1] in sent), "the key was not even used"
    told = json.dumps([entry.message for entry in editor.entries if entry.direction == "in"])
    own = [KEY, json.dumps(KEY)[1:-1]]  # what we sent ourselves as a wrong option may be repeated
    for form in own:
        told = told.replace(json.dumps(form)[1:-1], "")
    assert leaks(told, TOKEN) == []
    assert leaks(told, KEY) == []
    assert leaks(everything_in(tmp_path), KEY) == []
    written = everything_in(tmp_path).replace((home / "config.json").read_text(), "")
    assert leaks(written, TOKEN) == []


TROUBLE = {
    "rate limit": [echo(429)] * 9,
    "server error": [echo(500)] * 9,
    "broken stream": [text("half ", "an answer").answer().insert(2, Cut())] * 9,
    "no answer": [text("never").answer().before_headers(Reset())] * 9,
}


@pytest.mark.parametrize("answers", TROUBLE.values(), ids=TROUBLE.keys())
def test_a_server_in_trouble_tells_no_key_in_its_log(home: Path, tmp_path: Path, answers: list[Any]) -> None:
    """Retries and broken answers; the log goes to stderr at debug."""
    with FakeLlm(api_key=KEY) as llm:
        configure(home, llm.base_url)
        llm.script(*answers)
        with Editor(env={"ACPSERVER_HOME": str(home), "WORK_KEY": KEY}, stderr_ok=True) as editor:
            editor.initialize()
            assert editor.prompt(editor.new_session(tmp_path), "x").wait_reply(20)
        told = json.dumps([entry.message for entry in editor.entries]) + editor.stderr()
    assert leaks(told, KEY, TOKEN) == []


@pytest.mark.parametrize("command", [["doctor"], ["chat", "hello"], ["login", "work"], ["logout"]])
def test_commands_tell_no_key(home: Path, keeper: dict[str, str], command: list[str]) -> None:
    with FakeLlm(api_key="another") as llm:
        configure(home, llm.base_url)
        llm.script(*[echo(401)] * 20)
        done = subprocess.run(
            [sys.executable, "-m", "acpserver", *command],
            input=KEY + "\n",
            capture_output=True,
            text=True,
            env={**os.environ, "ACPSERVER_HOME": str(home), **keeper},
            timeout=30,
        )
    assert done.stdout + done.stderr
    assert leaks(done.stdout + done.stderr, KEY, TOKEN) == []


def test_no_program_that_the_agent_runs_sees_a_key(tmp_path: Path, home: Path) -> None:
    names = ("WORK_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "MISTRAL_API_KEY")
    configure(home, "http://127.0.0.1:9")
    environ = {"ACPSERVER_HOME": str(home), "ACPSERVER_MODEL": "offline", **dict.fromkeys(names, KEY)}
    with Editor(env=environ, stderr_ok=True) as editor:  # the log says all that it can
        editor.initialize()
        turn = editor.prompt(editor.new_session(tmp_path), "run env")
        assert turn.wait() == "end_turn" and "PATH=" in json.dumps(turn.updates)
        assert leaks(json.dumps(turn.updates) + editor.stderr(), KEY) == []


def test_keys_in_addresses_stand_nowhere(home: Path, tmp_path: Path) -> None:
    """Neither those of the configuration nor those that the client sets, in a good address or a bad one."""
    files = {"ACPSERVER_TRACE": str(tmp_path / "trace"), "ACPSERVER_LOG_FILE": str(tmp_path / "log")}
    with FakeLlm() as llm:
        address = llm.base_url.replace("http://", f"http://me:{TOKEN}@") + f"?api_key={TOKEN}"
        configure(home, address)
        llm.script(text("fine"), error(401, {"error": {"message": f"not {TOKEN}"}}))
        with Editor(env={"ACPSERVER_HOME": str(home), "WORK_KEY": KEY, **files}) as editor:
            editor.initialize()
            session = editor.new_session(tmp_path)
            assert editor.prompt(session, "x").wait() == "end_turn"
            assert editor.prompt(session, "x").wait_reply().error
            wanted = {"providerId": "work", "apiType": "openai", "baseUrl": address}
            assert editor.request("providers/set", wanted).result == {}
            for bad in (address.replace("http:", "ftp:"), f"http://[::1?key={TOKEN}"):
                assert editor.request("providers/set", {**wanted, "baseUrl": bad}).code == -32602
        told = json.dumps([entry.message for entry in editor.entries if entry.direction == "in"])
    written = everything_in(tmp_path).replace((home / "config.json").read_text(), "")
    assert leaks(told + written, TOKEN) == []


def test_many_threads_may_add_secrets() -> None:
    """None is lost to another thread that adds one in the same moment."""
    secrets = Secrets()
    keys = [f"key-number-{number:03}-of-many" for number in range(200)]
    threads = [threading.Thread(target=secrets.add, args=(keys[part::4],)) for part in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert [key for key in keys if key in secrets.hide(key)] == []


# -- The filter --


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=12, max_size=60))
def test_every_form_of_a_secret_is_hidden(secret: str) -> None:
    secrets = Secrets([secret])
    for output in written(secret):
        hidden = secrets.hide(output)
        assert hidden != output and secret not in hidden
        assert secrets.hide_bytes(output.encode()) == hidden.encode()


def test_a_secret_that_comes_later_is_hidden_by_who_writes_already(tmp_path: Path) -> None:
    secrets = Secrets()
    trace = Trace(str(tmp_path / "trace"), secrets)
    secrets.add([KEY, "", "ab"])
    trace.outgoing(json.dumps({"jsonrpc": "2.0", "x": f"{KEY} ab"}).encode() + b"\n")
    trace.close()
    written = (tmp_path / "trace").read_text()
    assert leaks(written, KEY) == [] and "ab" in written

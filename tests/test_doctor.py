"""`acpserver doctor`: says what would be used, finds what is wrong, and keeps secrets."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from acpserver import config, credentials, doctor

KEY = "sk-very-secret"


class Models(BaseHTTPRequestHandler):
    """Answers GET /v1/models as `server.answer` (status, body) says."""

    def do_GET(self) -> None:
        status, body = self.server.answer  # type: ignore[attr-defined]
        self.server.asked.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """An endpoint with two models."""
    with HTTPServer(("127.0.0.1", 0), Models) as server:
        server.answer = (200, {"object": "list", "data": [{"id": "small"}, {"id": "large"}]})  # type: ignore[attr-defined]
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def report(capsys: pytest.CaptureFixture[str], *, status: int, **environ: str) -> list[str]:
    """The lines of the report with these variables; the exit status must be the one named."""
    environ.setdefault("ACPSERVER_HOME", os.environ["ACPSERVER_HOME"])
    assert doctor.run(config.load({}, environ), environ) == status
    return capsys.readouterr().out.splitlines()


def url(server: HTTPServer) -> str:
    """The base URL of the fake endpoint."""
    return f"http://127.0.0.1:{server.server_port}/v1"


def test_a_working_endpoint_is_fine(server: HTTPServer, capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(
        capsys, status=0, ACPSERVER_MODEL="small", ACPSERVER_BASE_URL=url(server), OPENAI_API_KEY=KEY
    )
    assert "model        small (from environment variable ACPSERVER_MODEL)" in lines
    assert f"setting      baseUrl {url(server)} (from environment variable ACPSERVER_BASE_URL)" in lines
    key = "key from the environment variable OPENAI_API_KEY"
    assert f"provider     your endpoint at {url(server)}, dialect openai, {key}" in lines
    assert lines[-2:] == ["note: your endpoint answers; models offered: 2", "everything is fine"]
    assert server.asked == [("/v1/models", f"Bearer {KEY}")]  # type: ignore[attr-defined]
    assert KEY not in "\n".join(lines)


def test_no_model_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, status=1)
    assert "model        none (from the default)" in lines
    assert [line for line in lines if line.startswith("problem: No model is configured")]
    assert lines[-1] == "problems: 1"


def test_a_missing_key_is_a_problem_that_names_the_variable(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, status=1, ACPSERVER_MODEL="m", ACPSERVER_API_KEY_ENV="MY_KEY")
    assert not [line for line in lines if line.startswith("provider")]
    assert [line for line in lines if line.startswith("problem: ") and "MY_KEY" in line]


def test_a_model_that_the_endpoint_does_not_have_is_a_problem(
    server: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = report(capsys, status=1, ACPSERVER_MODEL="huge", ACPSERVER_BASE_URL=url(server))
    assert "problem: your endpoint does not offer the model 'huge', but small, large." in lines


@pytest.mark.parametrize("listed", ["claude-opus-4-5-20251101", "claude-opus-4-5:latest"])
def test_a_model_may_be_listed_with_its_date_or_its_tag(
    server: HTTPServer, capsys: pytest.CaptureFixture[str], listed: str
) -> None:
    server.answer = (200, {"data": [{"id": listed}]})  # type: ignore[attr-defined]
    report(capsys, status=0, ACPSERVER_MODEL="claude-opus-4-5", ACPSERVER_BASE_URL=url(server))


def test_an_endpoint_without_a_list_is_noted(server: HTTPServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer = (404, {"error": "nothing here"})  # type: ignore[attr-defined]
    lines = report(capsys, status=0, ACPSERVER_MODEL="m", ACPSERVER_BASE_URL=url(server))
    assert [line for line in lines if line.startswith("note: ") and "no list of models" in line]


def test_a_refused_key_is_a_problem_and_stays_secret(
    server: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})  # type: ignore[attr-defined]
    lines = report(capsys, status=1, ACPSERVER_MODEL="m", ACPSERVER_BASE_URL=url(server), OPENAI_API_KEY=KEY)
    (problem,) = [line for line in lines if line.startswith("problem: ")]
    assert "401" in problem
    assert KEY not in "\n".join(lines)


def test_an_endpoint_that_does_not_answer_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    with HTTPServer(("127.0.0.1", 0), Models) as closed:
        nowhere = url(closed)
    lines = report(capsys, status=1, ACPSERVER_MODEL="m", ACPSERVER_BASE_URL=nowhere)
    (problem,) = [line for line in lines if line.startswith("problem: ")]
    assert problem.startswith(f"problem: {nowhere} cannot be reached: connection refused. Start the server")


def test_the_offline_model_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, status=0, ACPSERVER_MODEL="offline")
    assert not [line for line in lines if line.startswith(("provider", "stored", "problem", "note"))]


def test_each_usable_provider_is_named_and_tried(
    server: HTTPServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    providers = {
        "work": {"baseUrl": url(server), "apiKeyEnv": "WORK_KEY", "models": {"small": {}}},
        "home": {"baseUrl": url(server).replace("http://", "http://me:pw@")},
        "away": {"baseUrl": url(server), "apiKeyEnv": "AWAY_KEY"},
    }
    content = {"providers": providers, "permissions": {"deny": ["bash"]}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    lines = report(capsys, status=0, ACPSERVER_HOME=str(tmp_path), WORK_KEY=KEY)
    assert "model        work/small (from the default)" in lines
    key = "key from the environment variable WORK_KEY"
    assert f"provider     work at {url(server)}, dialect openai, {key}" in lines
    assert f"provider     home at {url(server)}, dialect openai, no key" in lines
    assert "permissions  mode default, denied tools: bash" in lines
    assert [line for line in lines if line.startswith("note: ")] == [
        "note: work answers; models offered: 2",
        "note: home answers; models offered: 2",
    ]
    assert not [line for line in lines if "away" in line or "pw" in line or KEY in line]


def test_stored_keys_are_named_and_must_be_private(
    server: HTTPServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    providers = {"work": {"baseUrl": url(server), "apiKeyEnv": "WORK_KEY", "models": {"small": {}}}}
    (tmp_path / "config.json").write_text(json.dumps({"providers": providers}))
    credentials.store_key(str(tmp_path / "credentials.json"), "work", KEY)
    lines = report(capsys, status=0, ACPSERVER_HOME=str(tmp_path))
    assert f"stored keys  work in {tmp_path / 'credentials.json'}" in lines
    key = "key stored by 'acpserver login work'"
    assert f"provider     work at {url(server)}, dialect openai, {key}" in lines
    assert server.asked == [("/v1/models", f"Bearer {KEY}")]  # type: ignore[attr-defined]
    (tmp_path / "credentials.json").chmod(0o644)
    lines = report(capsys, status=1, ACPSERVER_HOME=str(tmp_path))
    problem = f"problem: {tmp_path / 'credentials.json'} can be read by others. "
    assert [line for line in lines if line.startswith(problem)] and KEY not in "".join(lines)


def test_proxies_are_named_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, status=0, ACPSERVER_MODEL="offline", https_proxy="http://me:secret@proxy.example")
    assert "network      these variables are set: HTTPS_PROXY" in lines


def test_the_config_file_is_named_whether_it_exists_or_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    assert f"config file  {path} (does not exist)" in report(capsys, status=1, ACPSERVER_HOME=str(tmp_path))
    path.write_text('{"model": "offline"}')
    lines = report(capsys, status=0, ACPSERVER_HOME=str(tmp_path))
    assert f"config file  {path}" in lines
    assert f"model        offline (from {path})" in lines


def test_a_state_folder_that_cannot_be_made_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    lines = report(capsys, status=1, ACPSERVER_MODEL="offline", ACPSERVER_HOME=str(tmp_path))
    assert f"state folder {tmp_path / 'state'}" in lines
    assert [line for line in lines if line.startswith("problem: sessions cannot be saved")]


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    assert doctor.without_secrets("https://me:pw@host:1/v1?key=1#x") == "https://host:1/v1"
    assert doctor.without_secrets("nonsense") == "(not a URL)"
    assert doctor.without_secrets("http://[") == "(not a URL)"


@pytest.mark.parametrize(
    ("content", "told", "problem"),
    [
        (
            '{"permissions": {"mode": "read_only", "deny": ["bash", "plan"]}}',
            "sets the mode to read_only and denies plan",
            "",
        ),
        ('{"permissions": {"deny": ["bash"]}}', "tightens nothing", ""),
        (
            '{"model": "x"}',
            "tightens nothing",
            "may only tighten permissions (a stricter mode, denied tools). Left out: model.",
        ),
        ("{", "tightens nothing", "is left out: "),
    ],
)
def test_the_projects_own_file_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    told: str,
    problem: str,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model": "offline", "permissions": {"deny": ["bash"]}}))
    file = tmp_path / "project" / ".acpserver" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    monkeypatch.chdir(tmp_path / "project")
    lines = report(capsys, status=1 if problem else 0, ACPSERVER_HOME=str(tmp_path))
    assert f"this project {file} {told}" in lines
    problems = [line for line in lines if line.startswith("problem: ")]
    assert len(problems) == bool(problem) and problem in "".join(problems)

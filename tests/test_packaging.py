"""What a user gets: the wheel, the declared dependencies, and the scripts of the checkout."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import acpserver
from acpserver import config
from acpserver.llm import offline
from acpserver.permissions import MODES
from acpserver.processes import Children
from acpserver.server import Server
from acpserver.settings import SETTINGS, Setting
from acpserver.tools.builtin import builtin_tools

ROOT = Path(__file__).parent.parent
SCRIPTS = ("bin/acpserver", "bin/environment", "bin/quickstart", "bin/test")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, with variables added to the environment."""
    return subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, **environment},
    )


def copy_checkout(target: Path) -> Path:
    """Copy the files that make the package, without environments and caches."""
    target.mkdir()
    for name in ("setup.cfg", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    for name in ("acpserver", "schema", "bin"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_runtime_dependencies_are_the_four_and_the_one_that_comes_with_them() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split("\n")
    names = {re.split("[<>=]", line)[0] for line in lines if line and not line.startswith("#")}
    assert names == {"requests", "jsonschema", "tenacity", "filelock", "urllib3"}


def test_the_wheel_holds_package_and_schema_and_nothing_else(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "a checkout")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = run(*command, "--wheel-dir", tmp_path / "out", checkout)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    # Compared with the copy: in the checkout somebody may be at work.
    package = [path for path in (checkout / "acpserver").rglob("*") if path.is_file()]
    expected = {path.relative_to(checkout).as_posix() for path in package}
    expected |= {f"acpserver/schema/{path.name}" for path in (checkout / "schema").glob("*.*")}
    info = {name for name in names if name.startswith(f"acpserver-{acpserver.__version__}.dist-info/")}
    assert names - info == expected


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_and_plain_sh(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/bin/sh\n")
    assert run("sh", "-n", path).returncode == 0


def test_a_python_that_is_too_old_or_broken_is_named(tmp_path: Path) -> None:
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run(ROOT / "bin" / "environment", PYTHON=str(old))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"PYTHON={old} is not a Python 3.10 or newer that runs." in done.stderr


def test_a_machine_without_python_is_told_so(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "env"):
        (tools / name).symlink_to(shutil.which(name) or name)
    done = run(checkout / "bin" / "test", PATH=str(tools))
    assert done.returncode == 1
    assert "no Python 3.10 or newer was found on PATH" in done.stderr


def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path) -> None:
    crippled = tmp_path / "python without venv"
    crippled.write_text(
        f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"\n'
    )
    crippled.chmod(0o755)
    done = run(ROOT / "bin" / "environment", PYTHON=str(crippled))
    assert (done.returncode, done.stdout) == (1, "")
    assert "python3-venv" in done.stderr


def test_a_run_that_waits_for_another_one_says_so(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout / ".cache").mkdir()
    with open(checkout / ".cache" / "environment.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, checkout / "bin" / "environment.py"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as waiting:
            assert waiting.stderr
            shown, _, _ = select.select([waiting.stderr], [], [], 20)
            said = waiting.stderr.readline() if shown else b""
            waiting.kill()
    assert said == b"acpserver: waiting for another run that makes the environment ...\n"


def test_the_checkout_runs_from_any_folder_and_through_a_link(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "a checkout")
    link = tmp_path / "link"
    link.symlink_to(checkout / "bin" / "acpserver")
    # A module of the folder we are in must not be taken for one of ours.
    (tmp_path / "argparse.py").write_text("raise SystemExit('shadowed')\n")
    done = subprocess.run(
        [str(link), "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert acpserver.__version__ in done.stdout


def readme() -> str:
    """The text of the README."""
    return (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_readme_names_every_setting_in_its_three_forms(setting: Setting) -> None:
    (row,) = [line for line in readme().splitlines() if f"`{setting.variable}`" in line]
    flag = f"`--{setting.name.replace('_', '-')}`"
    assert row.startswith(f"| {flag if setting.flag else ''} |".replace("  ", " "))
    assert f"`{setting.key}`" in row


def test_the_readme_explains_every_command_of_the_offline_model() -> None:
    text = readme()
    commands = [re.split(r"\s{2,}", line.strip())[0] for line in offline.HELP.splitlines()[1:]]
    assert len(commands) > 10
    assert [command for command in commands if f"| `{command}` |" not in text] == []


def test_the_readme_lists_the_methods_and_the_tools_there_are() -> None:
    text = readme()
    methods = Server(config.Config(model="offline")).handlers()
    named = [*methods, *builtin_tools(Children()), *(mode.id for mode in MODES)]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_the_readme_s_json_is_json_and_its_links_lead_somewhere() -> None:
    text = readme()
    snippets = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert len(snippets) >= 4
    for snippet in snippets:
        json.loads(snippet)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert [link for link in re.findall(r"\]\(#([^)]+)\)", text) if link not in anchors] == []
    files = [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (ROOT / link).exists()]
    assert files == []

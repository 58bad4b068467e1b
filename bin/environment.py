"""Make or refresh the checkout's virtual environment, then print the path of its Python.

Started by bin/environment. Standard library only. Two runs at once are safe: the second waits on a file
lock, which ends with its process, and then finds everything done.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
QUIET_SECONDS = 1.0
UNREACHABLE = (
    "NewConnectionError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Max retries exceeded",
    "Network is unreachable",
    "Could not find a version that satisfies",
)


def main(arguments: list[str]) -> int:
    """Serve one call; the path of the environment's Python is the only line on stdout."""
    extra = arguments[0] if arguments else ""
    name = f".venv-{sys.version_info[0]}.{sys.version_info[1]}" if os.environ.get("PYTHON") else ".venv"
    folder = ROOT / name
    python = folder / "bin" / "python"
    (ROOT / ".cache").mkdir(exist_ok=True)
    with open(ROOT / ".cache" / "environment.lock", "w") as lock:
        take(lock)
        if not runs(python):
            make(folder)
        if not is_current(folder, python, extra):
            install(folder, python, extra)
    print(python)
    return 0


def take(lock: IO[str]) -> None:
    """Wait for the lock. A run that only looks has it for a moment, of which nobody need hear."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        timer = threading.Timer(QUIET_SECONDS, say, ("waiting for another run that makes the environment",))
        timer.start()
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer.cancel()


def runs(python: Path) -> bool:
    """Whether the environment's Python starts; it does not once the Python it was made from is gone."""
    try:
        done = subprocess.run(
            [python, "-c", "import sys, pip; sys.exit(sys.version_info < (3, 10))"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return False
    return done.returncode == 0


def make(folder: Path) -> None:
    """Make an empty environment in place of whatever stands there."""
    say(f"making the environment {folder}")
    # Run from inside an environment the venv module would copy that one's paths; take its base instead.
    base = getattr(sys, "_base_executable", sys.executable)
    done = run([base, "-m", "venv", "--clear", str(folder)])
    if done.returncode != 0:
        fail(
            f"Python could not make a virtual environment in {folder} (its words are above). On Debian and"
            " Ubuntu the package python3-venv may be missing."
        )


def fingerprint(python: Path) -> str:
    """What an installation depends on: the package's declaration, the place, the Python."""
    digest = hashlib.sha256()
    for name in ("setup.cfg", "setup.py"):
        digest.update((ROOT / name).read_bytes())
    digest.update(f"{ROOT}\n{python.resolve()}".encode())
    return digest.hexdigest()


def is_current(folder: Path, python: Path, extra: str) -> bool:
    """Whether the package is installed as it is declared now. An extra brings the plain package too."""
    stamps = [stamp(folder, extra)] if extra else sorted(folder.glob("acpserver-*.stamp"))
    wanted = fingerprint(python)
    return any(path.is_file() and path.read_text() == wanted for path in stamps)


def stamp(folder: Path, extra: str) -> Path:
    """The file that says what was installed; it goes away with the environment."""
    return folder / f"acpserver-{extra or 'plain'}.stamp"


def install(folder: Path, python: Path, extra: str) -> None:
    """Install the checkout in editable form, with one extra."""
    say(f"installing acpserver{f' with the extra {extra!r}' if extra else ''} into {folder}")
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-e", target]
    done = run(command)
    if done.returncode == 0:
        stamp(folder, extra).write_text(fingerprint(python))
    elif any(sign in done.stderr for sign in UNREACHABLE):
        fail(
            "pip could not get the packages (its words are above). Is there a network? Behind a proxy set"
            " HTTPS_PROXY; with a mirror set PIP_INDEX_URL."
        )
    else:
        fail("pip could not install the package; its words are above.")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command, its output shown on stderr once it has failed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
    return done


def say(text: str) -> None:
    """Tell the user what takes the time."""
    print(f"acpserver: {text} ...", file=sys.stderr, flush=True)


def fail(text: str) -> None:
    """Say what is missing and give up."""
    print(f"acpserver: {text}", file=sys.stderr)
    raise SystemExit(1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The official schema of the protocol, fetched from the npm registry once and kept in `.cache/`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VERSION = "2.4.0"
PACKAGE = f"@agentclientprotocol/sdk@{VERSION}"
CACHE = Path(__file__).parent.parent / ".cache" / f"official-schema-{VERSION}"
STABLE = "schema.json"
UNSTABLE = "schema.unstable.json"  # the same with the experimental parts
_INSIDE = "package/schema/v1"
_SECONDS = 25


class Unreachable(Exception):
    """The schema cannot be had here; the text says why."""


def definitions(file: str) -> dict[str, Any]:
    """The definitions of one of the two files. Raises `Unreachable`."""
    if not (CACHE / UNSTABLE).is_file():
        _fetch()
    found: dict[str, Any] = json.loads((CACHE / file).read_text(encoding="utf-8"))["$defs"]
    return found


def _fetch() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable("npm is not installed")
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        command = [npm, "pack", PACKAGE, "--fetch-retries=0", "--pack-destination", folder]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"npm pack {PACKAGE} took longer than {_SECONDS} s") from None
        if done.returncode != 0:
            raise Unreachable(f"npm pack {PACKAGE} failed: {' '.join(done.stderr.split())[:200]}")
        CACHE.mkdir(exist_ok=True)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            for file in (STABLE, UNSTABLE):  # the one that is looked for comes last
                member = archive.extractfile(f"{_INSIDE}/{file}")
                assert member, f"{PACKAGE} has no {file}"
                unpacked = Path(folder, file)
                unpacked.write_bytes(member.read())
                os.replace(unpacked, CACHE / file)

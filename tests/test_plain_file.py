"""Small files that a start depends on: read, or refused, but never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acpserver import config_file, credentials, plain_file
from acpserver.errors import ConfigError


def test_what_a_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345678")
    assert plain_file.read(str(file), 8) == b"12345678"
    with pytest.raises(OSError, match="larger than 0 MiB"):
        plain_file.read(str(file), 7)
    with pytest.raises(FileNotFoundError):
        plain_file.read(str(tmp_path / "missing"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused_and_leaves_no_descriptor(kind: str, tmp_path: Path) -> None:
    """A pipe would be waited for, a device never ends: the server would be silent, or out of memory."""
    path = tmp_path / "config.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="it is no file"):
        plain_file.read(str(path))
    with pytest.raises(ConfigError, match="config.json: it is no file"):
        config_file.read(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        credentials.stored_keys(str(path))
    assert config_file.with_project(config_file.Permissions(), str(tmp_path)).remarks == ()
    assert len(os.listdir("/dev/fd")) == before

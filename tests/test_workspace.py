"""Which paths are let in, and how they are spelled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpserver.errors import RpcError, ToolError
from acpserver.workspace import display, explain, resolve, shorten, validate_cwd


@pytest.mark.parametrize(
    ("cwd", "reason"),
    [
        ("", "empty"),
        ("/a\0b", "NUL"),
        ("relative/folder", "absolute"),
        (".", "absolute"),
        ("~", "~"),
        ("~/project", "~"),
        ("file:///tmp", "URI"),
        ("C:\\Users\\x", "Windows"),
        ("c:/Users/x", "Windows"),
        ("\\\\?\\C:\\x", "Windows"),
        ("\\\\wsl$\\Ubuntu\\home", "Windows"),
        ("/no/such/folder", "not exist"),
        ("/" + "x" * 5000, "cannot be used|not exist"),
        ("/\ud800", "cannot be used|not exist"),
    ],
)
def test_a_cwd_that_cannot_be_used_is_minus_32602_with_the_reason(cwd: str, reason: str) -> None:
    with pytest.raises(RpcError) as caught:
        validate_cwd(cwd)
    assert caught.value.code == -32602
    assert caught.value.data is not None and set(caught.value.data) == {"details"}
    assert any(word in caught.value.details for word in reason.split("|"))
    assert len(caught.value.details) < 1000


def test_a_file_as_cwd_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(RpcError, match="-32602"):
        validate_cwd(str(file))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with pytest.raises(RpcError) as caught:
        validate_cwd(str(closed))
    assert caught.value.code == -32602


def test_a_linked_cwd_keeps_its_spelling_and_so_do_the_paths_in_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    cwd = validate_cwd(str(link))
    assert cwd == str(link)
    assert resolve("a/b.txt", cwd, [cwd]) == str(link / "a/b.txt")
    assert resolve(str(tmp_path / "real" / "b"), cwd, [cwd]) == str(link / "b")
    assert resolve(".", cwd, [cwd]) == cwd


@pytest.fixture
def cwd(tmp_path: Path) -> str:
    """A root with a neighbour that must stay out of reach, and links that lead there."""
    root = tmp_path / "root"
    root.mkdir()
    outside = tmp_path / "root-neighbour"
    outside.mkdir()
    (outside / "secret").write_text("x")
    (root / "out").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere")
    (root / "dangling-out").symlink_to(outside / "new")
    (root / "inner").mkdir()
    (root / "in").symlink_to("inner")
    return str(root)


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("a.txt", "a.txt"),
        ("./a//b/../c.txt", "a/c.txt"),
        ("inner/../a.txt", "a.txt"),
        ("in/x", "inner/x"),
        ("new/deep/file", "new/deep/file"),
        ("dangling", "nowhere"),
        ("a b%20c", "a b%20c"),
        ("...", "..."),
        ("~user", "~user"),
    ],
)
def test_paths_inside_become_absolute_with_links_followed(cwd: str, path: str, inside: str) -> None:
    assert resolve(path, cwd, [cwd]) == os.path.join(cwd, inside)


def test_uris_are_decoded(cwd: str) -> None:
    assert resolve(f"file://{cwd}/a%20b%C3%A4", cwd, [cwd]) == os.path.join(cwd, "a bä")
    assert resolve(f"file://localhost{cwd}/a", cwd, [cwd]) == os.path.join(cwd, "a")


@pytest.mark.parametrize(
    "path",
    [
        "..", "../root-neighbour/secret", "/etc/passwd", "out/secret", "out", "dangling-out", "inner/../../x",
        "file:///etc/passwd", "file:///etc/%70asswd", "file://server/share", "/", "", "a\0b", "file:///a%00",
        "~", "~/x", "\ud800",
    ],
)  # fmt: skip
def test_paths_that_lead_out_or_nowhere_are_refused(cwd: str, path: str) -> None:
    with pytest.raises(ToolError):
        resolve(path, cwd, [cwd])


def test_the_refusal_names_the_roots_and_where_a_link_leads(cwd: str) -> None:
    with pytest.raises(ToolError, match="outside") as caught:
        resolve("out/secret", cwd, [cwd, "/second"])
    assert cwd in str(caught.value) and "/second" in str(caught.value)
    assert "root-neighbour/secret" in str(caught.value)


def test_every_root_counts_and_the_root_of_all_contains_everything(cwd: str) -> None:
    neighbour = cwd + "-neighbour"
    assert resolve("out/secret", cwd, [cwd, neighbour]) == f"{neighbour}/secret"
    assert resolve("/etc", cwd, ["/"]) == os.path.realpath("/etc")


def test_a_loop_of_links_is_bounded(cwd: str) -> None:
    try:
        path = resolve("loop/x", cwd, [cwd])
    except ToolError:
        return
    assert path.startswith(cwd)


@given(st.lists(st.sampled_from(["..", ".", "a", "/", "//", "out", "in", "loop", "b/..", "~"]), max_size=8))
def test_no_combination_leads_out(parts: list[str]) -> None:
    cwd = "/usr/lib"
    try:
        path = resolve("/".join(parts), cwd, [cwd])
    except ToolError:
        return
    assert os.path.realpath(path) == os.path.realpath(cwd) or os.path.realpath(path).startswith(
        os.path.realpath(cwd) + "/"
    )


def test_short_forms_for_people() -> None:
    assert display("/a/b/c", "/a/b") == "c"
    assert display("/a/b", "/a/b") == "."
    assert display("/a/bc", "/a/b") == "/a/bc"
    assert display("/a", "/") == "a"
    assert len(shorten("x" * 5000)) < 300
    assert (
        str(explain(FileNotFoundError(2, "No such file or directory"), "/x"))
        == "/x: No such file or directory"
    )

"""The folder of session files: find, list by page, sweep."""

from __future__ import annotations

import itertools
import os
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

from acpserver import records
from acpserver.errors import RpcError
from acpserver.sessions import Sessions, new_id
from acpserver.store import ID, Entry, Store, folder_of, read_head, same_folder

_clock = itertools.count(1_700_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "state"))


def add(store: Store, cwd: object, prompted: bool = True, at: int | None = None) -> str:
    """Store a session whose last record has its own second."""
    session_id = new_id()
    file = store.create(session_id, str(cwd), [records.header(session_id, str(cwd))])
    if prompted:
        file.append(records.user("m", [{"type": "text", "text": f"title of {session_id}"}]))
    stamp = next(_clock) if at is None else at
    os.utime(file.path, (stamp, stamp))
    return session_id


def everything(entry: Entry) -> bool:
    return True


def walk(store: Store, cwd: str | None = None) -> list[list[str]]:
    """The ids of each page."""
    pages, cursor = [], None
    while cursor != "":
        page, cursor = store.page(cwd, cursor, everything)
        pages.append([entry.session_id for entry in page])
    return pages


def test_ids_are_random_and_safe_in_a_file_name() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100 and all(ID.fullmatch(each) for each in ids)
    assert len(next(iter(ids))) == len("sess_") + 32


def test_find(store: Store, tmp_path: Path) -> None:
    assert store.find(new_id()) is None
    mine = [add(store, tmp_path), add(store, "/")]
    for session_id in mine:
        file = store.find(session_id)
        assert file is not None and file.session_id == session_id and os.path.isfile(file.path)
    assert store.find(new_id()) is None


NO_IDS = ["", ".", "../x", "sess_", "sess_" + "0" * 31, "x" * 10_000, "sess_\0" + "0" * 31]


@pytest.mark.parametrize("name", NO_IDS)
def test_a_name_that_is_no_id_touches_no_path(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    add(store, tmp_path)

    def touched(*_: object) -> None:
        raise AssertionError("a path was looked at")

    for function in ("scandir", "open", "stat", "lstat", "unlink"):
        monkeypatch.setattr(os, function, touched)
    monkeypatch.setattr(os.path, "isfile", touched)
    assert store.find(name) is None
    assert store.find_by_prefix(name + "*") == []


def test_find_by_prefix(store: Store, tmp_path: Path) -> None:
    session_id = add(store, tmp_path)
    assert store.find_by_prefix(session_id[:12]) == store.find_by_prefix(session_id) == [session_id]
    assert store.find_by_prefix(session_id[:8]) == [], "four characters are not enough to be meant"
    other = session_id[:20] + ("0" if session_id[20] != "0" else "1") + session_id[21:]
    store.create(other, str(tmp_path), [records.header(other, str(tmp_path))])
    assert set(store.find_by_prefix(session_id[:12])) == {session_id, other}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_what_is_no_file_is_not_listed_and_not_waited_for(store: Store, tmp_path: Path) -> None:
    session_id = add(store, tmp_path)
    found = store.find(session_id)
    assert found is not None
    folder = Path(found.path).parent
    os.mkfifo(folder / f"{new_id()}.jsonl")
    (folder / f"{new_id()}.jsonl").mkdir()
    assert walk(store) == [[session_id]]


def test_pages_are_newest_first_and_stay_right_while_sessions_are_added(store: Store, tmp_path: Path) -> None:
    made = [add(store, tmp_path / str(number % 3)) for number in range(120)]
    assert [len(page) for page in walk(store)] == [50, 50, 20]
    assert list(itertools.chain(*walk(store))) == made[::-1]
    first, cursor = store.page(None, None, everything)
    later = [add(store, tmp_path) for _ in range(10)]
    second, cursor = store.page(None, cursor, everything)
    removed = made.pop(0)
    found = store.find(removed)
    assert found is not None
    found.delete()
    third, cursor = store.page(None, cursor, everything)
    assert cursor == ""
    assert [entry.session_id for entry in [*first, *second, *third]] == made[::-1]
    assert walk(store)[0][:10] == later[::-1]


def test_sessions_of_the_same_moment_are_each_listed_once(store: Store, tmp_path: Path) -> None:
    made = [add(store, tmp_path, at=1_600_000_000) for _ in range(101)]
    listed = list(itertools.chain(*walk(store)))
    assert sorted(listed) == sorted(made)


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100])
def test_the_last_page_has_no_cursor(store: Store, tmp_path: Path, count: int) -> None:
    for _ in range(count):
        add(store, tmp_path)
    pages = walk(store)
    assert sum(map(len, pages)) == count and len(pages) == max(1, -(-count // 50))


def test_a_folder_is_filtered_before_paging(store: Store, tmp_path: Path) -> None:
    mine = []
    for _ in range(60):
        mine.append(add(store, tmp_path / "a"))
        add(store, tmp_path / "b")
    assert list(itertools.chain(*walk(store, str(tmp_path / "a")))) == mine[::-1]
    assert walk(store, str(tmp_path / "c")) == [[]]


@pytest.mark.parametrize("cursor", ["x", "é", "MTp4", "=", "-_", "\0", "x" * 5_000])
def test_a_foreign_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(RpcError) as caught:
        store.page(None, cursor, everything)
    assert caught.value.code == -32602


def test_the_list_shows_what_was_prompted_with_its_title(store: Store, tmp_path: Path) -> None:
    sessions = Sessions(store, ["big"])
    used, unused = add(store, tmp_path), add(store, tmp_path, prompted=False)
    ((entry, head),), cursor = sessions.page(None, None)
    assert (entry.session_id, head.title, head.cwd, cursor) == (used, f"title of {used}", str(tmp_path), "")
    assert unused != used


def test_the_head_of_a_file_is_enough_for_a_list(store: Store, tmp_path: Path) -> None:
    session_id = add(store, tmp_path)
    file = store.find(session_id)
    assert file is not None
    with open(file.path, "ab") as end:
        end.write(b"x" * 100_000)
    found = list(read_head(file.path))
    assert [record["type"] for record in found if record] == ["session", "user"]


def test_the_sweep_takes_old_unused_sessions_and_leftovers(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = 1_600_000_000
    kept = [add(store, tmp_path, at=old), add(store, tmp_path, prompted=False, at=None)]
    os.utime(store.find(kept[1]).path)  # type: ignore[union-attr]
    sessions = Sessions(store, ["big"])
    mine = sessions.create(str(tmp_path), (str(tmp_path),))
    os.utime(mine.file.path, (old, old))
    gone = add(store, tmp_path, prompted=False, at=old)
    folder = Path(mine.file.path).parent
    leftovers = ["sess_1.jsonl.new", "sess_2.jsonl.lock", f"{gone}.jsonl.lock"]
    stay = ["sess_3.jsonl.lock", f"{kept[0]}.jsonl.lock", "notes.txt"]
    for name in (*leftovers, *stay):
        (folder / name).write_text("")
        os.utime(folder / name, (old, old))
    os.utime(folder / "sess_3.jsonl.lock")
    now = iter([1_000.0, 1_001.0, 2_800.0, 4_599.0, 4_600.0])
    monkeypatch.setattr("acpserver.sessions.time", SimpleNamespace(monotonic=lambda: next(now)))
    sessions.sweep()
    left = {f"{each}.jsonl" for each in (*kept, mine.id)} | set(stay)
    assert {path.name for path in folder.iterdir()} == left
    late = add(store, tmp_path, prompted=False, at=old)
    for _ in range(3):
        sessions.sweep()
        assert store.find(late) is not None, "the next look comes an hour later"
    sessions.sweep()
    assert store.find(late) is None, "looks in between do not put it off"


def test_spellings_of_one_folder(tmp_path: Path) -> None:
    real = tmp_path / "grün"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    spellings = [f"{real}/", f"{link}", f"{tmp_path}/./grün", f"{real}/../grün", f"{tmp_path}//grün"]
    decomposed = unicodedata.normalize("NFD", str(real))
    for spelling in [*spellings, unicodedata.normalize("NFC", str(real)), decomposed]:
        assert same_folder(spelling, str(real))
    assert not same_folder(str(real), str(tmp_path))


@pytest.mark.parametrize("cwd", ["/a\0b", "/\ud800", "/\udcff", "/" + "x" * 5_000, "/" + "x/" * 3_000])
def test_names_that_no_file_system_holds_have_a_folder_all_the_same(cwd: str) -> None:
    assert len(folder_of(cwd)) == 24


def test_without_a_home_nothing_is_stored_and_nothing_breaks(tmp_path: Path) -> None:
    store = Store("")
    session_id = add_nowhere(store, tmp_path)
    assert store.find(session_id) is None and store.page(None, None, everything) == ([], "")
    store.sweep(everything)


def add_nowhere(store: Store, cwd: Path) -> str:
    """A session that cannot be stored."""
    session_id = new_id()
    file = store.create(session_id, str(cwd), [records.header(session_id, str(cwd))])
    assert not file.stored and file.problem
    return session_id

"""Who may run what: the whole table of modes, access and answers."""

from __future__ import annotations

import pytest

from acpserver.permissions import MODES, decide, options, outcome

TABLE = {
    # mode: (read, write, execute)
    "default": ("allow", "ask", "ask"),
    "accept_edits": ("allow", "allow", "ask"),
    "read_only": ("allow", "deny", "deny"),
    "bypass": ("allow", "allow", "allow"),
}


def test_the_table_holds_every_mode() -> None:
    assert [mode.id for mode in MODES] == list(TABLE)


@pytest.mark.parametrize("mode", TABLE)
def test_decide(mode: str) -> None:
    assert tuple(decide(mode, access, None) for access in ("read", "write", "execute")) == TABLE[mode]


@pytest.mark.parametrize("mode", TABLE)
@pytest.mark.parametrize("access", ["write", "execute"])
@pytest.mark.parametrize("remembered", ["allow", "deny"])
def test_an_always_answer_decides_except_in_read_only_mode(mode: str, access: str, remembered: str) -> None:
    expected = "deny" if mode == "read_only" else remembered
    assert decide(mode, access, remembered) == expected


@pytest.mark.parametrize("mode", TABLE)
def test_reading_is_never_refused(mode: str) -> None:
    assert decide(mode, "read", "deny") == "allow"


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("allow_once", ("allow", False)),
        ("allow_always", ("allow", True)),
        ("reject_once", ("deny", False)),
        ("reject_always", ("deny", True)),
        (None, ("deny", False)),
        ("", ("deny", False)),
        ("allow", ("deny", False)),
        ("ALLOW_ONCE", ("deny", False)),
    ],
)
def test_outcome(option: str | None, expected: tuple[str, bool]) -> None:
    assert outcome(option) == expected


def test_options_have_one_of_each_kind_and_name_the_tool() -> None:
    found = options("bash")
    assert [(option["optionId"], option["kind"]) for option in found] == [
        ("allow_once", "allow_once"),
        ("allow_always", "allow_always"),
        ("reject_once", "reject_once"),
        ("reject_always", "reject_always"),
    ]
    assert found[1]["name"] == "Always allow bash in this session"

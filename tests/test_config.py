"""Where each setting comes from, and what is said about one that does not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from acpserver import config
from acpserver.config import SETTINGS, Config, load
from acpserver.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def write(home: Path, content: object) -> Path:
    file = home / "config.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def loaded(home: Path, flags: dict[str, object] | None = None, **environ: str) -> Config:
    return load(flags or {}, {"ACPSERVER_HOME": str(home), **environ})


def test_nothing_set_gives_the_defaults(home: Path) -> None:
    found = loaded(home)
    assert found == Config(config_file=str(home / "config.json"), state_dir=str(home / "state"))
    assert (found.model, found.max_steps, found.log_level, found.strict) == ("", 50, "warning", False)
    assert (found.connect_timeout, found.idle_timeout) == (10.0, 120.0)
    assert found.missing.startswith("No model is configured")


VALUES = {
    "text": (["a", "b", "c"], ["a", "b", "c"]),
    "count": (["1", "2", 3], [1, 2, 3]),
    "seconds": (["0.5", "2", 3], [0.5, 2.0, 3.0]),
    "switch": (["true", "0", True], [True, False, True]),
}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_flag_wins_over_variable_and_variable_over_file(home: Path, setting: config.Setting) -> None:
    given, expected = VALUES[setting.kind]
    if setting.choices:
        given = expected = [setting.choices[0], setting.choices[-1], setting.choices[0]]
    file = write(home, {setting.key: given[2]})
    variable = f"ACPSERVER_{setting.name.upper()}"
    flag = f"--{setting.name.replace('_', '-')}"

    def value(found: Config) -> tuple[object, str]:
        return getattr(found, setting.name), found.sources[setting.name]

    assert value(loaded(home)) == (expected[2], str(file))
    second = loaded(home, **{variable: str(given[1])})
    assert value(second) == (expected[1], f"environment variable {variable}")
    first = loaded(home, {setting.name: given[0]}, **{variable: str(given[1])})
    assert value(first) == (expected[0], flag)


def test_the_table_names_the_fields_of_the_configuration() -> None:
    fields = {field.name for field in dataclasses.fields(Config)}
    assert {setting.name for setting in SETTINGS} <= fields
    assert [(s.variable, s.key) for s in SETTINGS if s.name == "api_key_env"] == [
        ("ACPSERVER_API_KEY_ENV", "apiKeyEnv")
    ]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("maxSteps", 0, "maxSteps must be a whole number above 0, not 0"),
        ("maxSteps", -1, "maxSteps must be a whole number above 0, not -1"),
        ("maxSteps", "many", "maxSteps must be a whole number above 0, not 'many'"),
        ("maxSteps", True, "maxSteps must be a whole number above 0, not True"),
        ("maxSteps", [1], "maxSteps must be a whole number above 0, not [1]"),
        ("maxSteps", 1.5, "maxSteps must be a whole number above 0, not 1.5"),
        ("maxTokens", 10**12, "maxTokens must be a whole number above 0, not 1000000000000"),
        ("idleTimeout", 0, "idleTimeout must be a number of seconds above 0, not 0"),
        ("idleTimeout", "nan", "idleTimeout must be a number of seconds above 0, not 'nan'"),
        ("idleTimeout", "inf", "idleTimeout must be a number of seconds above 0, not 'inf'"),
        ("strict", "maybe", "strict must be true or false, not 'maybe'"),
        ("strict", 2, "strict must be true or false, not 2"),
        ("dialect", "klingon", "dialect must be one of openai"),
        ("logLevel", "LOUD", "logLevel must be one of debug, info, warning, error, not 'LOUD'"),
        ("model", 7, "model must be text, not 7"),
        ("model", "a\0b", "model must be text, not 'a\\x00b'"),
        ("modell", "x", "unknown setting 'modell'"),
        ("max_steps", 5, "unknown setting 'max_steps'"),
    ],
)
def test_a_bad_value_in_the_file_names_the_file_and_the_key(
    home: Path, key: str, value: object, reason: str
) -> None:
    file = write(home, {key: value})
    with pytest.raises(ConfigError) as caught:
        loaded(home)
    assert str(caught.value).startswith(f"{file}: {reason}")


@pytest.mark.parametrize(
    ("flags", "environ", "reason"),
    [
        ({"max_steps": "0"}, {}, "--max-steps: maxSteps must be a whole number above 0, not '0'"),
        ({"log_level": "x"}, {}, "--log-level: logLevel must be one of"),
        ({}, {"ACPSERVER_MAX_STEPS": "x"}, "environment variable ACPSERVER_MAX_STEPS: maxSteps must be"),
        (
            {},
            {"ACPSERVER_STRICT": "7"},
            "environment variable ACPSERVER_STRICT: strict must be true or false",
        ),
    ],
)
def test_a_bad_flag_or_variable_is_named(
    home: Path, flags: dict[str, object], environ: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(home, flags, **environ)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '"x"', "[" * 100_000, "\0"])
def test_a_file_that_is_no_json_object_is_named(home: Path, content: str) -> None:
    file = write(home, content)
    with pytest.raises(ConfigError, match="config.json: ") as caught:
        loaded(home)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_file_that_is_not_utf8_is_named(home: Path) -> None:
    (home / "config.json").write_bytes(b'{"model": "\xff"}')
    with pytest.raises(ConfigError, match="config.json: "):
        loaded(home)


def test_a_file_with_a_byte_order_mark_is_read(home: Path) -> None:
    write(home, '\ufeff{"model": "m"}')
    assert loaded(home).model == "m"


def test_empty_variables_count_as_absent(home: Path) -> None:
    assert loaded(home, ACPSERVER_MODEL="", ACPSERVER_MAX_STEPS="", OPENAI_BASE_URL="").sources == {}


@pytest.mark.parametrize("word", ["1", "true", "YES", "On"])
def test_words_that_switch_on(home: Path, word: str) -> None:
    assert loaded(home, ACPSERVER_STRICT=word).strict is True


def test_the_key_comes_from_the_variable_that_is_named(home: Path) -> None:
    found = loaded(home, {"api_key_env": "MY_KEY"}, MY_KEY=" k3y\n", OPENAI_API_KEY="other")
    assert found.api_key == "k3y"
    assert "k3y" not in repr(found)


def test_base_url(home: Path) -> None:
    assert loaded(home).base_url == "https://api.openai.com/v1"
    found = loaded(home, OPENAI_BASE_URL="http://127.0.0.1:1/v1/")
    assert found.base_url == "http://127.0.0.1:1/v1"
    assert found.sources["base_url"] == "environment variable OPENAI_BASE_URL"
    assert loaded(home, {"base_url": "http://a/"}, OPENAI_BASE_URL="http://b").base_url == "http://a"


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, "No model is configured"),
        ({"ACPSERVER_MODEL": "offline"}, ""),
        ({"ACPSERVER_MODEL": "gpt"}, "https://api.openai.com/v1 needs a key, and the environment variable"),
        ({"ACPSERVER_MODEL": "gpt", "OPENAI_API_KEY": "k"}, ""),
        ({"ACPSERVER_MODEL": "local", "ACPSERVER_BASE_URL": "http://127.0.0.1:1/v1"}, ""),
    ],
)
def test_missing(home: Path, environ: dict[str, str], missing: str) -> None:
    found = loaded(home, **environ).missing
    assert found.startswith(missing) if missing else found == ""


@pytest.mark.parametrize(
    ("environ", "file", "state"),
    [
        ({"HOME": "/h"}, "/h/.config/acpserver/config.json", "/h/.local/state/acpserver"),
        (
            {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"},
            "/c/acpserver/config.json",
            "/s/acpserver",
        ),
        (
            {"HOME": "/h", "XDG_CONFIG_HOME": "relative", "XDG_STATE_HOME": ""},
            "/h/.config/acpserver/config.json",
            "/h/.local/state/acpserver",
        ),
        ({"HOME": "/h", "ACPSERVER_HOME": "/a"}, "/a/config.json", "/a/state"),
    ],
)
def test_folders(environ: dict[str, str], file: str, state: str) -> None:
    found = load({}, environ)
    assert (found.config_file, found.state_dir) == (file, state)


def test_without_any_home_there_are_no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    found = load({"model": "offline"}, {})
    assert (found.config_file, found.state_dir, found.missing) == ("", "", "")


@pytest.mark.parametrize("home", ["/dev/null", "/proc/1/root/nobody"])
def test_a_home_that_cannot_be_used_is_no_reason_not_to_start(home: str) -> None:
    assert load({}, {"ACPSERVER_HOME": home}).sources == {}

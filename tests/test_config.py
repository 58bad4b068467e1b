"""Where each setting comes from, and what is said about one that does not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from acpserver import config_file, permissions, provider_setup
from acpserver.catalog import DIALECTS, KNOWN, SERVERS
from acpserver.config import Config, load
from acpserver.errors import ConfigError
from acpserver.llm import dialects, openai_servers
from acpserver.rpc import definitions
from acpserver.settings import SETTINGS, Setting


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
    known = provider_setup.set_up({}, {}, {}, ())
    folders = {"config_file": str(home / "config.json"), "state_dir": str(home / "state")}
    assert found == Config(others=known, **folders) and found.main is None
    assert (found.model, found.max_steps, found.log_level, found.strict) == ("", 50, "warning", False)
    assert (found.connect_timeout, found.idle_timeout) == (10.0, 120.0)
    assert found.missing.startswith("No model is configured")


VALUES: dict[str, tuple[list[object], list[object]]] = {
    "text": (["a", "b", "c"], ["a", "b", "c"]),
    "count": (["1", "2", 3], [1, 2, 3]),
    "seconds": (["0.5", "2", 3], [0.5, 2.0, 3.0]),
    "switch": (["true", "0", True], [True, False, True]),
}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_flag_wins_over_variable_and_variable_over_file(home: Path, setting: Setting) -> None:
    given, expected = VALUES[setting.kind]
    if setting.choices:
        given = expected = [setting.choices[0], setting.choices[-1], setting.choices[0]]
    if setting.name == "base_url":
        given = expected = ["http://a", "https://b/v1", "http://127.0.0.1:8080/v1"]
    file = write(home, {"model": "m", setting.key: given[2]})  # an endpoint needs a model
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
    assert {setting.name for setting in SETTINGS} <= set(Config._fields)
    assert [(s.variable, s.key) for s in SETTINGS if s.name == "api_key_env"] == [
        ("ACPSERVER_API_KEY_ENV", "apiKeyEnv")
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"maxSteps": 0}, "maxSteps: 0 is less than the minimum of 1"),
        ({"maxSteps": -1}, "maxSteps: -1 is less than the minimum of 1"),
        ({"maxSteps": "many"}, "maxSteps: expected integer, found string"),
        ({"maxSteps": True}, "maxSteps: expected integer, found boolean"),
        ({"maxSteps": [1]}, "maxSteps: expected integer, found array"),
        ({"maxSteps": 1.5}, "maxSteps: expected integer, found number"),
        ({"maxTokens": 10**12}, "maxTokens: 1000000000000 is greater than the maximum of 999999999"),
        ({"idleTimeout": 0}, "idleTimeout: 0 is less than the minimum of 0.001"),
        ({"idleTimeout": "nan"}, "idleTimeout: expected number, found string"),
        ({"strict": "maybe"}, "strict: expected boolean, found string"),
        ({"strict": 2}, "strict: expected boolean, found integer"),
        ({"dialect": "klingon"}, 'dialect: "klingon" is not one of openai, openai-responses, anthropic'),
        ({"logLevel": "LOUD"}, 'logLevel: "LOUD" is not one of debug, info, warning, error'),
        ({"model": 7}, "model: expected string, found integer"),
        ({"model": "a\0b"}, "model must be text, not 'a\\x00b'"),
        ({"modell": "x"}, "modell: unknown, known are $schema, model, providers, permissions, baseUrl"),
        ({"max_steps": 5}, "max_steps: unknown, known are "),
        ({"strict": 2, "maxSteps": 0}, "maxSteps: 0 is less than the minimum of 1; strict: expected"),
        ({"providers": []}, "providers: expected object, found array"),
        ({"providers": {"x": 1}}, "providers.x: expected object, found integer"),
        ({"providers": {"x": {}}}, "providers.x.baseUrl: required but missing"),
        ({"providers": {"x": {"baseUrl": "host/v1"}}}, "providers.x.baseUrl must look like https://host/v1"),
        ({"baseUrl": "http://a:b", "model": "m"}, "baseUrl must look like https://host/v1"),
        ({"providers": {"x": {"baseUrl": ""}}}, "providers.x.baseUrl: '' should be non-empty"),
        ({"providers": {"x": {"url": "http://a"}}}, "providers.x.url: unknown, known are title, dialect"),
        ({"providers": {"x": {"headers": {"A": 1}}}}, "providers.x.headers.A: expected string, found"),
        ({"providers": {"openai": {"dialect": "x"}}}, 'providers.openai.dialect: "x" is not one of openai'),
        ({"providers": {"openai": {"apiKey": "k"}}}, "providers.openai.apiKey: unknown, known are"),
        (
            {"providers": {"openai": {"models": {"m": {"price": {"input": 1}}}}}},
            "providers.openai.models.m.price.output: required but missing",
        ),
        (
            {"providers": {"openai": {"models": {"m": {"price": {"input": -1, "output": 1}}}}}},
            "providers.openai.models.m.price.input: -1 is less than the minimum of 0",
        ),
        (
            {"providers": {"openai": {"models": {"m": {"contextWindow": "big"}}}}},
            "providers.openai.models.m.contextWindow: expected integer, found string",
        ),
        ({"providers": {"main": {"baseUrl": "http://a"}}}, "providers: the names main and offline are taken"),
        ({"providers": {"a/b": {"baseUrl": "http://a"}}}, "providers: a name is not empty and has no slash"),
        (
            {"providers": {"x": {"baseUrl": "http://a", "apiKeyEnv": "sk-ant-1"}}},
            "providers.x.apiKeyEnv: must be the name of an environment variable, and never a key itself",
        ),
        ({"apiKeyEnv": "sk-ant-1"}, "apiKeyEnv: must be the name of an environment variable"),
        ({"permissions": {"mode": "yolo"}}, 'permissions.mode: "yolo" is not one of default, accept_edits'),
        ({"permissions": {"deny": "bash"}}, "permissions.deny: expected array, found string"),
        ({"permissions": {"allow": []}}, "permissions.allow: unknown, known are mode, deny"),
    ],
)
def test_what_does_not_fit_in_the_file_is_named_with_its_place(
    home: Path, content: dict[str, object], reason: str
) -> None:
    file = write(home, content)
    with pytest.raises(ConfigError) as caught:
        loaded(home)
    assert str(caught.value).startswith(f"{file}: {reason}")


def test_no_value_is_repeated_since_it_may_be_a_key(home: Path) -> None:
    provider = {"apiKey": "sk-secret", "headers": {"A": ["sk-secret"]}}
    write(home, {"apiKeyEnv": 7, "providers": {"x": provider}})
    with pytest.raises(ConfigError) as caught:
        loaded(home)
    assert "sk-secret" not in str(caught.value)


def test_the_schema_lists_the_settings() -> None:
    properties = definitions.config_file()["properties"]
    assert properties.keys() == {s.key for s in SETTINGS} | {"$schema", "providers", "permissions"}
    for setting in SETTINGS:
        kind = {"text": "string", "count": "integer", "seconds": "number", "switch": "boolean"}[setting.kind]
        assert properties[setting.key]["type"] == kind
        assert tuple(properties[setting.key].get("enum", ())) == setting.choices
    provider = properties["providers"]["additionalProperties"]["properties"]
    assert tuple(provider["dialect"]["enum"]) == DIALECTS == tuple(dialects.DIALECTS)
    assert tuple(provider["server"]["enum"]) == SERVERS == tuple(openai_servers.SERVERS)
    modes = properties["permissions"]["properties"]["mode"]["enum"]
    assert set(modes) == set(config_file.MODES) == {mode.id for mode in permissions.MODES}


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


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '"x"', "[" * 100_000, "\0", '{"maxSteps": NaN}'])
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
    assert loaded(home).base_url == "" and loaded(home).main is None
    main = loaded(home, {"base_url": "http://a/v1/", "model": "m"}).main
    assert main and (main.base_url, main.dialect, main.missing) == ("http://a/v1", "openai", "")
    by_dialect = loaded(home, {"dialect": "anthropic"}, ANTHROPIC_API_KEY="k").main
    assert by_dialect and by_dialect.base_url == "https://api.anthropic.com/v1" and by_dialect.api_key == "k"
    by_key = loaded(home, {"api_key_env": "MINE"}, MINE="k").main
    assert by_key and (by_key.base_url, by_key.api_key) == ("https://api.openai.com/v1", "k")


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, "No model is configured"),
        ({"ACPSERVER_MODEL": "offline"}, ""),
        ({"ACPSERVER_MODEL": "gpt"}, "OpenAI needs a key: set the environment variable OPENAI_API_KEY, or"),
        ({"ACPSERVER_MODEL": "gpt", "OPENAI_API_KEY": "k"}, ""),
        ({"ACPSERVER_MODEL": "gpt", "OPENAI_API_KEY": "  "}, "OpenAI needs a key"),
        ({"ACPSERVER_MODEL": "local", "ACPSERVER_BASE_URL": "http://127.0.0.1:1/v1"}, ""),
        ({"ACPSERVER_MODEL": "m", "ACPSERVER_API_KEY_ENV": "K"}, "https://api.openai.com/v1 needs a key"),
        ({"ACPSERVER_MODEL": "anthropic/x", "OPENAI_API_KEY": "k"}, "Anthropic needs a key: set the"),
        ({"ANTHROPIC_API_KEY": "k"}, ""),
        ({"OLLAMA_HOST": "127.0.0.1:1"}, "No model is configured: set ACPSERVER_MODEL (or --model), for"),
    ],
)
def test_missing(home: Path, environ: dict[str, str], missing: str) -> None:
    found = loaded(home, **environ).missing
    assert found.startswith(missing) if missing else found == ""


def test_secrets_and_their_variables_are_known_and_not_shown(home: Path) -> None:
    headers = {"Authorization": "Bearer t0ken", "X-Title": "editor"}
    provider = {"baseUrl": "http://a", "apiKeyEnv": "MINE", "headers": headers}
    write(home, {"providers": {"x": provider}})
    (home / "credentials.json").write_text('{"keys": {"mistral": "stored-key"}}')
    found = loaded(home, MINE="my-key", OPENAI_API_KEY="other-key")
    assert {"my-key", "other-key", "stored-key", "t0ken"} <= set(found.secrets)
    assert "editor" not in found.secrets
    assert {"MINE", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"} <= set(found.key_variables)
    assert not [secret for secret in found.secrets if secret and secret in repr(found)]


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


PAGE = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_example_in_the_documents_fits_and_uses_everything() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    content = json.loads(example)
    assert config_file.check(content) == []
    provider = definitions.config_file()["properties"]["providers"]["additionalProperties"]["properties"]
    assert content["providers"]["work"].keys() == provider.keys()
    model = provider["models"]["additionalProperties"]["properties"]
    assert content["providers"]["work"]["models"]["large"].keys() == model.keys()
    for name in [*provider, *model, *permissions_of_file()]:
        assert f"`{name}`" in PAGE or name == "title"


def permissions_of_file() -> list[str]:
    return list(definitions.config_file()["properties"]["permissions"]["properties"])


def test_the_table_of_providers_in_the_documents_is_the_one_of_the_program() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")][: len(KNOWN)]
    for known, row in zip(KNOWN, rows, strict=True):
        name, title, keys, addresses, default, *_ = [cell.strip() for cell in row.strip("|").split("|")]
        assert (name, title) == (f"`{known.name}`", known.title)
        assert keys == (", ".join(f"`{variable}`" for variable in known.key_variables) or "(no key)")
        assert addresses == ", ".join(f"`{variable}`" for variable in known.url_variables)
        assert default == (f"`{known.models[0].name}`" if known.models else "(name one)")


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_an_endpoint_without_a_model_is_an_error_and_nobody_else_is_asked(home: Path, way: str) -> None:
    url = "http://127.0.0.1:1/v1"
    environ = {"ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"}
    if way == "file":
        write(home, {"baseUrl": url})
    elif way == "variable":
        environ["ACPSERVER_BASE_URL"] = url
    with pytest.raises(ConfigError, match="an endpoint needs a model too"):
        loaded(home, {"base_url": url} if way == "flag" else None, **environ)
    assert loaded(home, {"base_url": url, "model": "m"}, **environ).model == "m"

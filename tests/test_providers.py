"""Which providers are usable, with which key, and which models they offer."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acpserver import catalog, model_lists
from acpserver.cancel import CancelFlag
from acpserver.catalog import KNOWN
from acpserver.config import Config, load
from acpserver.errors import ConfigError
from acpserver.llm.http import warm_up
from acpserver.llm.openai_servers import HOSTS
from acpserver.llm.providers import MOST_LISTED, Models
from acpserver.llm.types import Endpoint, ModelDetails
from acpserver.model_choice import choose
from acpserver.model_lists import ModelLists, load_with_model
from acpserver.prices import LongPrompt, Price
from acpserver.provider_setup import ProviderSetup, set_up
from tests.fakes.llm_answers import Stall, text
from tests.fakes.llm_server import FakeLlm


def usable(
    given: dict[str, Any] | None = None, stored: dict[str, str] | None = None, **environ: str
) -> list[str]:
    """The names of the usable providers."""
    return [one.name for one in set_up(given or {}, environ, stored or {}, ()) if not one.missing]


def only(name: str, given: dict[str, Any] | None = None, **environ: str) -> ProviderSetup:
    """One provider as it is set up."""
    return next(one for one in set_up(given or {}, environ, {}, ()) if one.name == name)


def test_which_openai_compatible_server_it_is() -> None:
    url = {"baseUrl": "http://127.0.0.1:8000/v1"}
    assert only("mine", {"mine": url}).server == ""
    assert only("mine", {"mine": {**url, "server": "vllm"}}).server == "vllm"
    assert only("deepseek", {"deepseek": url}).server == "deepseek"
    assert only("deepseek", {"deepseek": {**url, "server": "vllm"}}).server == "vllm"
    assert only("openai", OPENAI_BASE_URL=url["baseUrl"]).server == ""
    config = Config(model="m", base_url=url["baseUrl"], server="llama.cpp")
    assert config.main is not None and Models(config).endpoint(config.main).server == "llama.cpp"


# -- The known ones --


def test_nothing_is_usable_where_nothing_is_set() -> None:
    assert usable() == []


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_a_variable_is_enough(known: catalog.KnownProvider) -> None:
    variables = known.key_variables or known.url_variables
    for variable in variables:
        assert usable(**{variable: "127.0.0.1:1"}) == [known.name]
        assert usable(**{variable: "  "}) == []
    default, missing = choose(set_up({}, {variables[0]: "127.0.0.1:1"}, {}, ()), "")
    assert default == (f"{known.name}/{known.models[0].name}" if known.models else "")
    assert bool(missing) != bool(known.models)


def test_the_table_is_sound() -> None:
    assert len({known.name for known in KNOWN}) == len(KNOWN)
    for known in KNOWN:
        assert known.dialect in catalog.DIALECTS and "/" not in known.name
        assert known.base_url.startswith("https://") or known.name == "ollama"
        for model in known.models:
            price = model.price or Price(1, 2)
            assert 0 < (price.cached or price.input) <= price.input < price.output
            assert (model.output_limit or 1) < (model.context_window or 1_000_000)
        assert not [model for model in known.models if any(part in model.name for part in known.not_chat)]
    hosts = {known.base_url.split("/")[2] for known in KNOWN if known.dialect.startswith("openai")}
    plain = {"api.x.ai", "api.cerebras.ai", "api.together.ai", "api.fireworks.ai", "api.z.ai"}
    assert hosts - HOSTS.keys() == plain, "the dialect must know what the others want"
    for known in KNOWN:
        assert known.server in ("", HOSTS.get(known.base_url.split("/")[2])), "what it wants at a gateway too"


def test_the_first_variable_that_is_set_holds_the_key() -> None:
    assert only("gemini", GEMINI_API_KEY="one", GOOGLE_API_KEY="two").api_key == "one"
    google = only("gemini", GEMINI_API_KEY="", GOOGLE_API_KEY=" two\n")
    assert (google.api_key, google.key_source) == ("two", "environment variable GOOGLE_API_KEY")


def test_the_environment_comes_before_a_stored_key() -> None:
    stored = {"openai": "stored", "nobody": "x"}
    (both,) = [one for one in set_up({}, {"OPENAI_API_KEY": "set"}, stored, ()) if not one.missing]
    assert both.api_key == "set" and "OPENAI_API_KEY" in both.key_source
    (kept,) = [one for one in set_up({}, {}, stored, ()) if not one.missing]
    assert kept.api_key == "stored" and kept.key_source == "key stored by 'acpserver login openai'"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("0.0.0.0:5000", "http://127.0.0.1:5000"),
        ("box", "http://box:11434"),
        (":5000", "http://127.0.0.1:5000"),
        ("https://box/ollama/", "https://box/ollama"),
    ],
)
def test_the_ways_to_write_the_address_of_ollama(host: str, url: str) -> None:
    assert only("ollama", OLLAMA_HOST=host).base_url == url


def test_another_address_needs_no_key_and_gets_the_older_dialect() -> None:
    setup = only("openai", OPENAI_BASE_URL="http://127.0.0.1:8080/v1/")
    assert (setup.base_url, setup.dialect, setup.missing) == ("http://127.0.0.1:8080/v1", "openai", "")
    assert only("openai", OPENAI_API_KEY="k").dialect == "openai-responses"


@pytest.mark.parametrize("host", ["https://api.openai.com/v1", "https://eu.api.openai.com/v1"])
def test_openai_itself_is_asked_in_the_way_in_which_its_models_have_tools(host: str) -> None:
    assert only("openai", OPENAI_BASE_URL=host, OPENAI_API_KEY="k").dialect == "openai-responses"
    assert only("openai", OPENAI_BASE_URL="https://api.openai.com.example/v1").dialect == "openai"
    assert set_up({"x": {"baseUrl": host}}, {}, {}, ())[0].dialect == "openai-responses"
    assert set_up({"x": {"baseUrl": host, "dialect": "openai"}}, {}, {}, ())[0].dialect == "openai"
    environ = {"ACPSERVER_BASE_URL": host, "ACPSERVER_MODEL": "m", "ACPSERVER_HOME": "/nowhere"}
    main = load({}, environ).main
    assert main and main.dialect == "openai-responses"


def test_an_address_without_a_scheme_is_not_called_in_the_clear() -> None:
    assert only("openai", OPENAI_BASE_URL="gw.example/v1", OPENAI_API_KEY="k").base_url == "gw.example/v1"


def test_a_key_of_an_endpoint_of_ones_own_is_not_given_to_the_vendor() -> None:
    environ = {"ACPSERVER_BASE_URL": "http://127.0.0.1:1/v1", "ACPSERVER_MODEL": "m", "OPENAI_API_KEY": "k"}
    config = load({}, {"ACPSERVER_HOME": "/nowhere", **environ})
    assert [one.name for one in config.providers if one.api_key] == ["main"]
    given = {"proxy": {"baseUrl": "http://127.0.0.1:1/v1", "apiKeyEnv": "OPENAI_API_KEY"}}
    assert usable(given, OPENAI_API_KEY="k") == ["proxy"]


# -- config.json --


def test_nor_is_it_when_the_configuration_says_more_of_the_vendor() -> None:
    given = {"openai": {"models": {"gpt-5.5": {"images": False}}}}
    environ = {"OPENAI_API_KEY": "mine"}
    assert [one.api_key for one in set_up(given, environ, {}, ["OPENAI_API_KEY"]) if one.api_key] == []
    meant = {"openai": {"apiKeyEnv": "OPENAI_API_KEY"}}
    assert set_up(meant, environ, {}, ["OPENAI_API_KEY"])[0].api_key == "mine"


def test_a_provider_of_ones_own() -> None:
    price = {"input": 1, "output": 2, "cached": 0.5}
    model = {"contextWindow": 1000, "outputLimit": 100, "price": price, "images": True, "thinking": True}
    model["audio"] = True
    given = {
        "x": {
            "title": "Mine",
            "dialect": "anthropic",
            "baseUrl": "http://a/v1/",
            "apiKeyEnv": "X_KEY",
            "headers": {"A": "b"},
            "models": {"first": model, "second": {}},
        }
    }
    assert "set the environment variable X_KEY" in only("x", given).missing
    setup = only("x", given, X_KEY="k")
    assert (setup.title, setup.dialect, setup.base_url) == ("Mine", "anthropic", "http://a/v1")
    assert (setup.api_key, setup.headers, setup.missing) == ("k", (("A", "b"),), "")
    assert setup.info("first") == ("first", 1000, 100, Price(1, 2, 0.5), True, True, True)
    assert setup.info("other") == ("other", None, None, None, None, None, None)
    assert choose(set_up(given, {"X_KEY": "k", "ANTHROPIC_API_KEY": "k"}, {}, ()), "")[0] == "x/first"


def test_a_known_provider_is_changed_and_not_replaced() -> None:
    given = {
        "anthropic": {"headers": {"a": "b"}, "models": {"claude-opus-5-5": {"contextWindow": 5}, "new": {}}}
    }
    setup = only("anthropic", given, ANTHROPIC_API_KEY="k")
    assert (setup.dialect, setup.api_key, setup.title) == ("anthropic", "k", "Anthropic")
    opus = setup.info("claude-opus-5-5")
    assert (opus.context_window, opus.output_limit, opus.thinking) == (5, 128_000, True)
    assert [model.name for model in setup.models][:3] == ["claude-opus-5-5", "new", "claude-sonnet-5-5"]
    assert only("ollama", {"ollama": {"models": {"q": {}}}}).missing == ""
    local = only("openai", {"openai": {"baseUrl": "http://127.0.0.1:1/v1"}})
    assert (local.missing, local.dialect, local.api_key) == ("", "openai", "")


def test_what_is_known_of_a_model_holds_for_its_dated_name() -> None:
    setup = only("anthropic")
    dated = setup.info("claude-haiku-4-5-20251001")
    assert (dated.name, dated.context_window) == ("claude-haiku-4-5-20251001", 200_000)
    assert setup.info("claude-sonnet-5-5").price == Price(2, 10, 0.1, 2.5)
    unknown = setup.with_habits(setup.info("claude-opus-9"))
    assert (unknown.context_window, unknown.price, unknown.images, unknown.thinking) == (
        None,
        None,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("provider", "model", "hears"),
    [
        ("gemini", "gemini-3.8-flash", True),
        ("gemini", "gemini-9-pro", True),
        ("dashscope", "qwen3.8-omni-flash", True),
        ("dashscope", "qwen3.8-max", False),
        ("openai", "gpt-6.2-sol", False),
        ("anthropic", "claude-opus-9", False),
        ("mistral", "voxtral-small-latest", False),  # its list tells
    ],
)
def test_known_models_that_take_audio(provider: str, model: str, hears: bool) -> None:
    setup = only(provider)
    assert setup.with_habits(setup.info(model)).audio is hears


def test_what_a_call_costs() -> None:
    assert Price(3, 15, 0.3).cost(1_000_000, 100_000, 0) == pytest.approx(4.5)
    assert Price(3, 15, 0.3).cost(1_000_000, 0, 500_000) == pytest.approx(1.65)
    assert Price(3, 15).cost(1_000_000, 0, 500_000) == pytest.approx(3.0)
    assert Price(0, 0).cost(5, 5, 5) == 0
    assert Price(4, 20, 0.4, 5).cost(1_000_000, 0, 250_000, 500_000) == pytest.approx(3.6)
    assert Price(4, 20, 0.4).cost(1_000_000, 0, 0, 500_000) == pytest.approx(4.0)


def test_a_long_prompt_costs_more_for_the_whole_call() -> None:
    price = Price(2, 10, 0.1, 2.5, LongPrompt(272_000, 2, 1.5))
    assert price.cost(272_000, 10_000) == pytest.approx(0.644)
    assert price.cost(272_001, 10_000) == pytest.approx(1.238004)
    assert price.cost(300_000, 0, 100_000, 100_000) == pytest.approx(0.92)
    given = {"input": 2, "output": 10, "written": 2.5, "long": {"above": 9, "input": 2, "output": 1.5}}
    setup = only("mine", {"mine": {"baseUrl": "http://h/v1", "models": {"m": {"price": given}}}})
    assert setup.info("m").price == Price(2, 10, None, 2.5, LongPrompt(9, 2, 1.5))


# -- The model that is meant --


@pytest.mark.parametrize(
    ("wanted", "environ", "chosen", "missing"),
    [
        ("offline", {}, "offline", ""),
        ("anthropic/claude-opus-9", {"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-opus-9", ""),
        (
            "claude-opus-5-5",
            {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"},
            "anthropic/claude-opus-5-5",
            "",
        ),
        ("gpt-9", {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "openai/gpt-9", ""),
        ("new", {"MISTRAL_API_KEY": "k"}, "mistral/new", ""),
        ("qwen/qwen3", {"OPENROUTER_API_KEY": "k"}, "openrouter/qwen/qwen3", ""),
        ("new", {"MISTRAL_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}, "", "deepseek/new or mistral/new"),
        ("claude-opus-5-5", {}, "", "Anthropic needs a key: set the environment variable ANTHROPIC_API_KEY"),
        ("new", {}, "", "OpenAI needs a key"),
        ("", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "anthropic/claude-sonnet-5-5", ""),
        (
            "foo/bar",
            {"OPENAI_API_KEY": "k"},
            "",
            "There is no provider 'foo': the usable ones are openai. A model of that name at OpenAI is "
            "openai/foo/bar",
        ),
        (
            "foo/bar",
            {"ANTHROPIC_API_KEY": "k", "MISTRAL_API_KEY": "k"},
            "",
            "usable ones are anthropic, mistral.",
        ),
        ("foo/bar", {}, "", "There is no provider 'foo': the known ones are anthropic, openai, gemini,"),
        ("foo/bar", {"ANTHROPIC_API_KEY": "k", "OPENROUTER_API_KEY": "k"}, "openrouter/foo/bar", ""),
        ("foo/bar", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "openai/foo/bar", ""),
        ("hf.co/foo/bar", {"OLLAMA_HOST": "127.0.0.1:1"}, "ollama/hf.co/foo/bar", ""),
        ("openrouter/auto", {"OPENROUTER_API_KEY": "k"}, "openrouter/auto", ""),
        ("foo/bar", {"OLLAMA_HOST": "127.0.0.1:1", "OPENROUTER_API_KEY": "k"}, "", "It is not clear whose"),
    ],
)
def test_the_model_that_is_meant(wanted: str, environ: dict[str, str], chosen: str, missing: str) -> None:
    found, why = choose(set_up({}, environ, {}, ()), wanted)
    assert found == chosen and missing in why and bool(why) == bool(missing)


def test_a_model_that_two_have_is_asked_for() -> None:
    given = {name: {"baseUrl": "http://a", "models": {"m": {}}} for name in ("a", "b")}
    assert (
        choose(set_up(given, {}, {}, ()), "m")[1]
        == "It is not clear whose model m is: set the model to a/m or b/m"
    )


def test_a_name_that_begins_with_another_provider_goes_to_the_host_that_lists_it() -> None:
    name, both = "openai/gpt-oss-120b", {"GROQ_API_KEY": "k", "OPENAI_API_KEY": "k"}
    assert choose(set_up({}, {"GROQ_API_KEY": "k"}, {}, ()), name) == (f"groq/{name}", "")
    assert choose(set_up({}, both, {}, ()), name) == (name, "")
    assert "OPENAI_API_KEY" in choose(set_up({}, {"MISTRAL_API_KEY": "k"}, {}, ()), name)[1]


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        ({"a": {}}, ""),
        ({"org/a": {}}, "mine/foo/bar"),
        ({"foo/bar": {}}, "mine/foo/bar"),
        ({}, "mine/foo/bar"),
    ],
)
def test_a_slash_is_no_part_of_a_name_where_no_known_model_has_one(
    models: dict[str, Any], chosen: str
) -> None:
    given = {"mine": {"baseUrl": "http://127.0.0.1:1", "models": models}}
    found, why = choose(set_up(given, {}, {}, ()), "foo/bar")
    assert found == chosen and why.startswith("" if chosen else "There is no provider 'foo'")


# -- The table of this process --


def test_models_of_all_usable_providers_and_the_offline_one() -> None:
    given = {"a": {"baseUrl": "http://127.0.0.1:1", "title": "A", "models": {"x": {}, "y": {}}}}
    models = Models(
        Config(model="main-model", base_url="http://127.0.0.1:2", others=set_up(given, {}, {}, ()))
    )
    assert models.names() == [
        ("main-model", "main-model"),
        ("a/x", "x (A)"),
        ("a/y", "y (A)"),
        ("offline", "Offline demo (no language model)"),
    ]
    assert models.default == "main-model" == models.ids[0]
    assert models.info("a/x").name == "x" and models.dialect("a/x") == "openai"
    assert models.provider("a/x") is models.provider("a/y") is not models.provider("main-model")
    assert models.info("offline").price == Price(0, 0) and models.dialect("offline") == ""


def test_a_name_with_a_slash_at_an_endpoint_of_ones_own() -> None:
    given = {"a": {"baseUrl": "http://127.0.0.1:1", "models": {"x": {}}}}
    models = Models(Config(model="a/x", base_url="http://127.0.0.1:2", others=set_up(given, {}, {}, ())))
    assert models.info("a/x").name == "a/x"


def test_the_list_of_an_endpoint_of_ones_own_is_offered_and_fills_in_what_nobody_said() -> None:
    said = ModelDetails(77, True, audio=True)
    url = "http://127.0.0.1:2"
    models = Models(Config(model="m", base_url=url))
    assert models.info("m") == ("m", None, None, None, False, False, False)
    models.take_lists({"main": dict.fromkeys(("m", "other", "text-embedding-x"), said)})
    assert models.ids == ["m", "other", "offline"]
    assert models.info("m") == ("m", 77, None, None, True, False, True)
    assert models.info("other") == ("other", 77, None, None, True, False, True)
    told = Models(Config(model="m", base_url=url, context_window=5, images=False, audio=False))
    told.take_lists({"main": {"m": said}})
    assert told.info("m") == ("m", 5, None, None, False, False, False)


def test_a_name_in_the_list_of_ones_own_endpoint_that_means_another_provider_is_not_offered_there() -> None:
    given = {"a": {"baseUrl": "http://127.0.0.1:1", "title": "A", "models": {"x": {}}}}
    models = Models(Config(model="a/y", base_url="http://127.0.0.1:2", others=set_up(given, {}, {}, ())))
    models.take_lists({"main": dict.fromkeys(("a/x", "a/y", "a/z", "b/z", "offline"), ModelDetails())})
    assert models.names() == [
        ("a/y", "a/y"),
        ("b/z", "b/z"),
        ("a/x", "x (A)"),
        ("offline", "Offline demo (no language model)"),
    ]


def test_another_configuration_holds_at_once_for_whoever_has_the_ids() -> None:
    models = Models(Config())
    ids = models.ids
    assert (ids, models.configured, models.default) == (["offline"], False, "offline")
    models.reload(Config(others=set_up({}, {"DEEPSEEK_API_KEY": "k"}, {}, ())))
    assert ids == ["deepseek/deepseek-flash", "offline"] and models.configured
    assert models.missing == "" and models.default == "deepseek/deepseek-flash"


def test_a_route_of_the_client_gets_no_key_of_the_user() -> None:
    models = Models(Config(others=set_up({}, {"OPENAI_API_KEY": "user-key"}, {}, ())))
    models.route("openai", "anthropic", "http://127.0.0.1:1", {"Authorization": "Bearer gateway"})
    setup = next(one for one, _ in models.setups() if one.name == "openai")
    found: Endpoint = models.endpoint(setup)
    assert (found.dialect, found.base_url, found.api_key) == ("anthropic", "http://127.0.0.1:1", "")
    assert found.headers == (("Authorization", "Bearer gateway"),)
    models.disable("openai")
    assert models.ids == ["offline"] and not models.configured
    with pytest.raises(KeyError):
        models.disable("nobody")
    with pytest.raises(KeyError):
        models.route("nobody", "openai", "http://127.0.0.1:1", {})


@pytest.mark.parametrize("wanted", ["anthropic/claude-opus-5-5", "claude-opus-5-5", "anthropic/new"])
def test_the_model_of_a_disabled_provider_is_not_sought_elsewhere(wanted: str) -> None:
    others = set_up({}, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, {}, ())
    models = Models(Config(model=wanted, others=others))
    assert models.default == f"anthropic/{wanted.removeprefix('anthropic/')}"
    models.disable("anthropic")
    assert not models.configured and models.default == "offline"
    models.disable("openai")
    assert models.missing == "The editor has disabled the provider anthropic"


def test_a_gateway_that_is_set_again_and_again_leaves_nothing_behind() -> None:
    models = Models(Config(others=set_up({}, {"OPENAI_API_KEY": "k", "MISTRAL_API_KEY": "k"}, {}, ())))
    kept = models.provider("mistral/m")
    made = []
    for token in range(3):
        models.route("openai", "openai", "http://127.0.0.1:1", {"Authorization": f"Bearer {token}"})
        made.append(weakref.ref(models.provider("openai/m")))
    assert [one() is None for one in made] == [True, True, False]
    assert models.provider("mistral/m") is kept


def test_lists_are_filtered_and_bounded() -> None:
    models = Models(Config(others=set_up({}, {"OPENAI_API_KEY": "k"}, {}, ())))
    before = len(models.ids)
    names = dict.fromkeys(
        ["text-embedding-3", "gpt-5.5", "gpt-9", *(f"o{n}" for n in range(500))], ModelDetails()
    )
    assert models.take_lists({"openai": names}) is True
    assert models.take_lists({"openai": names}) is False
    assert "openai/gpt-9" in models.ids and not [name for name in models.ids if "embedding" in name]
    assert len(models.ids) == len(set(models.ids)) <= before + MOST_LISTED
    assert models.default == "openai/gpt-6.2-sol"


def test_of_a_long_list_the_newest_are_offered_and_what_is_configured_always() -> None:
    given = {"p": {"baseUrl": "http://127.0.0.1:1", "models": {"mine": {}}}}
    models = Models(Config(others=set_up(given, {}, {}, ())))
    told = {f"m{n}": ModelDetails(created=n) for n in range(1, 101)}
    models.take_lists({"p": {"no-time": ModelDetails(), "mine": ModelDetails(created=1), **told}})
    assert models.ids[:4] == ["p/mine", "p/m100", "p/m99", "p/m98"]
    assert models.ids[-2:] == ["p/m41", "offline"]
    models.take_lists({"p": {"b": ModelDetails(), "a": ModelDetails()}})
    assert models.ids == ["p/mine", "p/b", "p/a", "offline"]


# -- Lists, fetched --


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm(models=("one", "two")) as llm:
        yield llm


def lists_of(
    llm: FakeLlm, folder: Path, changed: Callable[[], None] = lambda: None
) -> tuple[Models, ModelLists]:
    given = {"p": {"baseUrl": llm.base_url, "models": {"mine": {}}}}
    models = Models(Config(others=set_up(given, {}, {}, ())))
    return models, ModelLists(models, str(folder), changed)


def test_a_list_is_fetched_once_and_kept_for_the_next_process(llm: FakeLlm, tmp_path: Path) -> None:
    told = threading.Event()
    models, lists = lists_of(llm, tmp_path, told.set)
    lists.use_stored()
    assert models.ids == ["p/mine", "offline"]
    lists.refresh()
    lists.refresh()
    assert told.wait(10) and lists.wait_idle(10)
    assert models.ids == ["p/mine", "p/one", "p/two", "offline"]
    assert len(llm.lists) == 1
    again, lists = lists_of(llm, tmp_path)
    lists.use_stored()
    assert again.ids == models.ids
    lists.refresh()
    assert lists.wait_idle(10) and len(llm.lists) == 1
    assert (tmp_path / "models.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("is_here", "asked"), [(True, 2), (False, 1)])
def test_a_list_of_this_machine_is_soon_fetched_again(
    llm: FakeLlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool, asked: int
) -> None:
    """A server here is often started anew with another model; one elsewhere is not asked more than daily."""
    monkeypatch.setattr(model_lists, "is_on_this_machine", lambda url: is_here)
    _, lists = lists_of(llm, tmp_path)
    lists.refresh()
    assert lists.wait_idle(10)
    stored = json.loads((tmp_path / "models.json").read_text())
    (entry,) = stored.values()
    entry["time"] -= model_lists.AGAIN_SECONDS + 1
    (tmp_path / "models.json").write_text(json.dumps(stored))
    _, lists = lists_of(llm, tmp_path)
    lists.refresh()
    assert lists.wait_idle(10) and len(llm.lists) == asked


def test_a_list_that_is_a_day_old_is_fetched_again_and_used_meanwhile(llm: FakeLlm, tmp_path: Path) -> None:
    _, lists = lists_of(llm, tmp_path)
    lists.refresh()
    assert lists.wait_idle(10)
    stored = json.loads((tmp_path / "models.json").read_text())
    (entry,) = stored.values()
    for age in (model_lists.FRESH_SECONDS + 1, -3600):  # older, and from a clock that was wrong
        entry["time"] -= age
        entry["models"] = ["old"]
        (tmp_path / "models.json").write_text(json.dumps(stored))
        models, lists = lists_of(llm, tmp_path)
        lists.use_stored()
        assert "p/old" in models.ids
        lists.refresh()
        assert lists.wait_idle(10) and "p/one" in models.ids and "p/old" not in models.ids
        entry["time"] += age
    assert len(llm.lists) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", '{"p": 1}', '{"p x": {"time": "now", "models": [1]}}'])
def test_a_damaged_store_is_as_good_as_none(llm: FakeLlm, tmp_path: Path, content: str) -> None:
    (tmp_path / "models.json").write_text(content)
    models, lists = lists_of(llm, tmp_path)
    lists.use_stored()
    lists.refresh()
    assert lists.wait_idle(10) and "p/two" in models.ids


def test_a_failure_changes_nothing_and_is_not_repeated_at_once(tmp_path: Path) -> None:
    with FakeLlm(api_key="right") as llm:
        models, lists = lists_of(llm, tmp_path)
        lists.refresh()
        assert lists.wait_idle(10)
        lists.refresh()
        assert lists.wait_idle(10) and len(llm.lists) == 1
    assert models.ids == ["p/mine", "offline"] and not (tmp_path / "models.json").exists()


def test_a_list_that_does_not_come_is_given_up_at_the_end(tmp_path: Path) -> None:
    class Silent(FakeLlm):
        def _check(self, request: Any) -> Any:
            return text("x").answer().insert(0, Stall())

    with Silent() as llm:
        _, lists = lists_of(llm, tmp_path)
        lists.refresh()
        llm.wait_for_lists(1)
        lists.close()
        assert lists.wait_idle(5)


def keyed(llm: FakeLlm, key: str) -> Config:
    given = {"p": {"baseUrl": llm.base_url, "apiKeyEnv": "P_KEY", "models": {"mine": {}}}}
    return Config(others=set_up(given, {"P_KEY": key}, {}, ()))


def test_the_list_of_another_key_is_not_offered_and_no_key_is_stored(llm: FakeLlm, tmp_path: Path) -> None:
    models = Models(keyed(llm, "sk-first-key"))
    lists = ModelLists(models, str(tmp_path), lambda: None)
    lists.refresh()
    assert lists.wait_idle(10) and models.ids == ["p/mine", "p/one", "p/two", "offline"]
    models.reload(keyed(llm, "sk-second-key"))
    lists.use_stored()
    assert models.ids == ["p/mine", "offline"]
    llm.models = ("three",)
    lists.refresh()
    assert lists.wait_idle(10) and models.ids == ["p/mine", "p/three", "offline"]
    stored = (tmp_path / "models.json").read_text()
    assert len(json.loads(stored)) == 1, "the list of a key that is used no more is not kept"
    (entry,) = json.loads(stored).values()
    assert len(entry["mark"]) == 8 and "sk-" not in stored and "key" not in stored


def test_the_list_that_a_key_in_the_address_was_told_is_for_that_key_alone(
    llm: FakeLlm, tmp_path: Path
) -> None:
    def with_token(token: str) -> Models:
        given = {"p": {"baseUrl": f"{llm.base_url}?token={token}", "models": {"mine": {}}}}
        return Models(Config(others=set_up(given, {}, {}, ())))

    lists = ModelLists(with_token("sk-first-key"), str(tmp_path), lambda: None)
    lists.refresh()
    assert lists.wait_idle(10)
    for token, count in (("sk-first-key", 4), ("sk-second-key", 2)):
        models = with_token(token)
        ModelLists(models, str(tmp_path), lambda: None).use_stored()
        assert len(models.ids) == count
    assert "sk-" not in (tmp_path / "models.json").read_text()


def test_lists_that_nobody_has_used_for_a_month_are_forgotten(llm: FakeLlm, tmp_path: Path) -> None:
    """A gateway may be at another port of this machine each time."""
    now = time.time()
    stored = {f"p {days}": {"time": now - days * 86_400, "models": ["m"]} for days in (29, 31)}
    (tmp_path / "models.json").write_text(json.dumps(stored))
    _, lists = lists_of(llm, tmp_path)
    lists.refresh()
    assert lists.wait_idle(10)
    kept = json.loads((tmp_path / "models.json").read_text())
    assert kept.keys() == {"p 29", f"p {llm.base_url}"}


def test_a_list_that_comes_when_another_key_is_set_is_dropped(
    llm: FakeLlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(keyed(llm, "sk-first-key"))
    lists = ModelLists(models, str(tmp_path), lambda: None)

    def fetch_while_the_user_logs_in(endpoint: Endpoint, cancel: CancelFlag) -> dict[str, ModelDetails]:
        models.reload(keyed(llm, "sk-second-key"))
        return {"of-the-first-key": ModelDetails()}

    monkeypatch.setattr(model_lists, "fetch_list", fetch_while_the_user_logs_in)
    lists.refresh()
    assert lists.wait_idle(10) and models.ids == ["p/mine", "offline"]
    assert not (tmp_path / "models.json").exists()


def test_without_a_state_folder_lists_live_in_memory(llm: FakeLlm) -> None:
    given = {"p": {"baseUrl": llm.base_url}}
    models = Models(Config(others=set_up(given, {}, {}, ())))
    lists = ModelLists(models, "", lambda: None)
    lists.refresh()
    assert lists.wait_idle(10) and models.ids == ["offline", "p/one", "p/two"]


# -- An endpoint that is named without a model --


@pytest.mark.parametrize("listed", [("only",), ("nomic-embed-text", "\x1b[2J", "only", "bge-reranker")])
def test_the_only_model_of_an_endpoint_is_taken(listed: tuple[str, ...]) -> None:
    with FakeLlm(models=listed) as llm:
        flags: dict[str, object] = {"base_url": llm.base_url}
        config = load_with_model(flags, {})
        assert config.model == "only" and config.missing == ""
        assert flags == {"base_url": llm.base_url, "model": "only"}, "for the server that chat starts"
        assert config.sources["model"] == "the endpoint's list, which has no other"
        assert load_with_model({"base_url": llm.base_url, "model": "mine"}, {}).model == "mine"
        assert len(llm.lists) == 1


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (("a", "b"), "It has a, b."),
        ((), "It has none."),
        (tuple("abcdefghi"), "It has a, b, c, d, e, f, g, h, ..."),
    ],
)
def test_where_it_has_several_the_error_names_them(listed: tuple[str, ...], told: str) -> None:
    with FakeLlm(models=listed) as llm, pytest.raises(ConfigError) as caught:
        load_with_model({}, {"ACPSERVER_BASE_URL": llm.base_url, "ANTHROPIC_API_KEY": "k"})
    start = "environment variable ACPSERVER_BASE_URL: an endpoint needs a model too"
    assert str(caught.value).startswith(start) and told in str(caught.value)


def test_where_it_has_no_list_the_error_says_so() -> None:
    with FakeLlm(api_key="right") as llm, pytest.raises(ConfigError, match="models are not known: .*401"):
        load_with_model({"base_url": llm.base_url}, {"OPENAI_API_KEY": "sk-wrong"})


# -- What servers say of their models --


def test_the_user_and_the_catalog_come_before_what_a_server_says() -> None:
    mine = {"contextWindow": 10, "images": False, "audio": False}
    given = {"p": {"baseUrl": "http://127.0.0.1:1", "models": {"mine": mine, "bare": {}}}}
    models = Models(Config(others=set_up(given, {"ANTHROPIC_API_KEY": "k"}, {}, ())))
    said = ModelDetails(77, True, True, True, 7, audio=True)
    assert models.take_lists({"p": dict.fromkeys(("mine", "bare", "new"), said)})
    models.take_lists({"anthropic": {"claude-opus-5-5": said, "claude-x": ModelDetails(images=False)}})
    assert models.info("p/mine") == ("mine", 10, 7, None, False, True, False)
    assert models.info("p/bare") == ("bare", 77, 7, None, True, True, True)
    assert models.info("p/new") == ("new", 77, 7, None, True, True, True)
    opus = models.info("anthropic/claude-opus-5-5")
    assert (opus.context_window, opus.output_limit) == (1_000_000, 128_000)
    assert not models.info("anthropic/claude-x").images and models.info("anthropic/claude-y").images


def test_the_window_of_the_flat_settings_comes_before_what_a_list_says() -> None:
    given = {"p": {"baseUrl": "http://127.0.0.1:1"}}
    models = Models(Config(others=set_up(given, {}, {}, ()), context_window=5))
    models.take_lists({"p": {"new": ModelDetails(77)}})
    assert models.info("p/new").context_window == 5


@pytest.mark.parametrize(
    ("fact", "window"),
    [
        ([7, None, True, None, None, 8, False], 7),
        ([7, None, True, None, None, -8, None], None),
        ([True, None, None, None, None, None, None], None),
        ([7, "x", None, None, None, None, None], None),
        ([7, None, None, None, None, None, 1], None),
        ([-1, None, None, None, None, None, None], None),
        ([7], None),
        ("x", None),
    ],
)
def test_stored_facts_that_look_wrong_are_left_out(
    llm: FakeLlm, tmp_path: Path, fact: object, window: int | None
) -> None:
    _, lists = lists_of(llm, tmp_path)
    lists.refresh()
    assert lists.wait_idle(10)
    stored = json.loads((tmp_path / "models.json").read_text())
    (entry,) = stored.values()
    entry["details"] = {"one": fact}
    (tmp_path / "models.json").write_text(json.dumps(stored))
    models, lists = lists_of(llm, tmp_path)
    lists.use_stored()
    assert "p/one" in models.ids and models.info("p/one").context_window == window
    del entry["details"]  # as it was stored before there were any
    (tmp_path / "models.json").write_text(json.dumps(stored))
    models, lists = lists_of(llm, tmp_path)
    lists.use_stored()
    assert "p/one" in models.ids and models.info("p/one").context_window is None


def test_a_model_that_is_slow_to_be_shown_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpserver.llm.providers.SHOW_SECONDS", 0.5)
    warm_up()
    with FakeLlm(dialect="ollama") as llm:
        llm.shows["m"] = text("x").answer().insert(0, Stall())
        given = {"o": {"baseUrl": llm.base_url, "dialect": "ollama"}}
        models = Models(Config(others=set_up(given, {}, {}, ())))
        models.learn("o/m", CancelFlag())
        models.learn("o/m", CancelFlag())
        assert llm.shown == ["m"] and models.info("o/m").context_window is None

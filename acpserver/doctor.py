"""`acpserver doctor`: what would be used, whether it works, and one clear line for each problem.

Runs on the main thread and waits for the network. It must never show a key, nor what in a URL could be one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from acpserver.cancel import CancelFlag
from acpserver.config import OFFLINE, Config
from acpserver.config_file import PROJECT_FILE, Permissions, with_project
from acpserver.errors import ProviderError
from acpserver.llm.providers import endpoint
from acpserver.model_choice import choose
from acpserver.model_lists import fetch
from acpserver.provider_setup import MAIN, ProviderSetup
from acpserver.settings import SETTINGS
from acpserver.version import __version__

PACKAGES = ("requests", "urllib3", "jsonschema", "tenacity", "filelock")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE")
SHOWN_MODELS = 8
KEYS = {setting.name: setting.key for setting in SETTINGS}


def run(config: Config, environ: Mapping[str, str] = os.environ) -> int:
    """Print the report. Returns 0 when everything is fine and 1 when there are problems."""
    problems = []
    for name, value in facts(config, environ):
        print(f"{name:<12} {value}")
    for finding in findings(config):
        problems.append(finding)
        print(f"problem: {finding}", flush=True)
    print(f"problems: {len(problems)}" if problems else "everything is fine")
    return 1 if problems else 0


def facts(config: Config, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What would be used: a name and a value for each line."""
    yield "acpserver", f"{__version__} in {os.path.dirname(os.path.abspath(__file__))}"
    yield "python", f"{sys.version.split()[0]} ({sys.executable})"
    yield "packages", ", ".join(f"{name} {installed(name) or 'missing'}" for name in PACKAGES)
    yield "config file", _file_state(config.config_file)
    stored = [one.name for one in config.providers if one.key_is_stored]
    if stored:
        yield "stored keys", f"{', '.join(stored)} in {config.credentials_file}"
    yield "state folder", config.state_dir or "none, because there is no home folder"
    default, _ = choose(config.providers, config.model)
    yield "model", f"{default or config.model or 'none'} (from {config.sources.get('model', 'the default')})"
    for name, source in config.sources.items():
        if name != "model":
            value = without_secrets(config.base_url) if name == "base_url" else getattr(config, name)
            yield "setting", f"{KEYS[name]} {value} (from {source})"
    for one in config.providers:
        if not one.missing:
            address = without_secrets(one.base_url)
            yield "provider", f"{_called(one)} at {address}, dialect {one.dialect}, {_key_state(one)}"
    denied = ", ".join(sorted(config.permissions.denied)) or "none"
    if config.permissions != Permissions():
        yield "permissions", f"mode {config.permissions.mode}, denied tools: {denied}"
    if os.path.lexists(PROJECT_FILE):
        yield "this project", f"{os.path.abspath(PROJECT_FILE)} {_tightened(config.permissions)}"
    network = [name for name in PROXIES if environ.get(name) or environ.get(name.lower())]
    if network:
        # Only the names: a proxy's address may hold a password.
        yield "network", f"these variables are set: {', '.join(network)}"


def findings(config: Config) -> Iterator[str]:
    """Each problem, in words that say what to do. Asks the providers for their models: this may take long."""
    missing = [name for name in PACKAGES if not installed(name)]
    if missing:
        yield f"not installed: {', '.join(missing)}. Install acpserver again with pip."
    yield from _file_findings(config)
    yield from with_project(config.permissions, os.curdir).remarks
    if config.missing:
        yield f"{config.missing}."
    if config.model != OFFLINE and not missing:
        default, _ = choose(config.providers, config.model)
        for one in config.providers:
            if not one.missing:
                yield from _provider_findings(config, one, default)


def _file_findings(config: Config) -> Iterator[str]:
    path = config.config_file
    if path and os.path.exists(path) and not os.access(path, os.R_OK):
        yield f"{path} exists but cannot be read, so its settings are not used."
    keys = config.credentials_file
    if keys and os.path.exists(keys) and os.stat(keys).st_mode & 0o077:
        yield f"{keys} can be read by others. Run: chmod 600 {keys}"
    folder = _existing_folder(config.state_dir)
    if not config.state_dir:
        yield "sessions cannot be saved: there is no home folder. Set HOME or ACPSERVER_HOME."
    elif not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        yield f"sessions cannot be saved in {config.state_dir}: {folder} is no folder that we may write to."


def installed(name: str) -> str:
    """The version of an installed distribution, "" when there is none."""
    # By name, because this module takes as long to load as the server may take to start.
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return ""


def without_secrets(url: str) -> str:
    """A URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else "(not a URL)"


def _provider_findings(config: Config, one: ProviderSetup, default: str) -> Iterator[str]:
    try:
        models = fetch(endpoint(one, config), CancelFlag())
    except ProviderError as error:
        if error.status in (404, 405, 501):
            print(f"note: {_called(one)} answers, but has no list of models; no model's name is checked")
        else:
            yield str(error) if one.name == MAIN else f"{one.name}: {error}"
        return
    print(f"note: {_called(one)} answers; models offered: {len(models)}")
    offered = any(_is_form(one.id_of(model), default) for model in models)
    if models and not offered and (one.name == MAIN or default.startswith(f"{one.name}/")):
        shown = ", ".join(map(one.id_of, models[:SHOWN_MODELS]))
        more = ", ..." if len(models) > SHOWN_MODELS else ""
        yield f"{_called(one)} does not offer the model {default!r}, but {shown}{more}."


def _is_form(listed: str, model: str) -> bool:
    """Whether a server that lists one of these names takes the other: Anthropic lists names with their dates,
    Ollama with their tags."""
    return listed == model or listed.startswith(f"{model}-20") or listed == f"{model}:latest"


def _called(one: ProviderSetup) -> str:
    return "your endpoint" if one.name == MAIN else one.name


def _tightened(own: Permissions) -> str:
    """What the project's file changes for sessions that are opened in this folder."""
    found = with_project(own, os.curdir)
    denied = ", ".join(sorted(found.denied - own.denied))
    changes = [f"sets the mode to {found.mode}"] if found.mode != own.mode else []
    changes += [f"denies {denied}"] if denied else []
    return " and ".join(changes) or "tightens nothing"


def _key_state(one: ProviderSetup) -> str:
    if one.key_is_stored:
        return one.key_source
    if one.api_key:
        return f"key from the {one.key_source}"
    return f"no key ({one.key_variable} is not set)" if one.key_variable else "no key"


def _existing_folder(path: str) -> str:
    """The nearest thing on the way to `path` that exists: the rest would have to be made in it."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _file_state(path: str) -> str:
    if not path:
        return "none, because there is no home folder"
    return path if os.path.exists(path) else f"{path} (does not exist)"

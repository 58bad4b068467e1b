"""`acpserver doctor`: what would be used, whether it works, and one clear line for each problem.

Runs on the main thread and waits for the network. It must never show a key, nor what in a URL could be one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from acpserver.cancel import CancelFlag
from acpserver.config import OFFLINE, Config
from acpserver.errors import ProviderError
from acpserver.llm.http import HttpProvider
from acpserver.llm.providers import endpoint
from acpserver.version import __version__

PACKAGES = ("requests", "urllib3", "jsonschema", "tenacity", "filelock")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE")
IDLE_SECONDS = 20.0  # somebody is waiting in front of a terminal
SHOWN_MODELS = 8


def run(config: Config, environ: Mapping[str, str] = os.environ) -> int:
    """Print the report. Returns 0 when everything is fine and 1 when there are problems."""
    problems = []
    for name, value in facts(config, environ):
        print(f"{name:<12} {value}")
    for finding in findings(config):
        problems.append(finding)
        print(f"problem: {finding}", flush=True)
    print("everything is fine" if not problems else f"{len(problems)} problem(s)")
    return 1 if problems else 0


def facts(config: Config, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What would be used: a name and a value for each line."""
    yield "acpserver", f"{__version__} in {os.path.dirname(os.path.abspath(__file__))}"
    yield "python", f"{sys.version.split()[0]} ({sys.executable})"
    yield "packages", ", ".join(f"{name} {installed(name) or 'missing'}" for name in PACKAGES)
    yield "config file", _file_state(config.config_file)
    yield "state folder", config.state_dir or "none, because there is no home folder"
    yield "model", _with_source(config, "model", config.model or "none")
    if config.model and config.model != OFFLINE:
        yield "endpoint", _with_source(config, "base_url", without_secrets(config.base_url))
        yield "dialect", _with_source(config, "dialect", config.dialect)
        state = "set" if config.api_key else "not set"
        yield "key", f"environment variable {config.api_key_env}: {state}"
    network = [name for name in PROXIES if environ.get(name) or environ.get(name.lower())]
    if network:
        # Only the names: a proxy's address may hold a password.
        yield "network", f"these variables are set: {', '.join(network)}"


def findings(config: Config) -> Iterator[str]:
    """Each problem, in words that say what to do. Asks the endpoint for its models: this may take long."""
    missing = [name for name in PACKAGES if not installed(name)]
    if missing:
        yield f"not installed: {', '.join(missing)}. Install acpserver again with pip."
    path = config.config_file
    if path and os.path.exists(path) and not os.access(path, os.R_OK):
        yield f"{path} exists but cannot be read, so its settings are not used."
    folder = _existing_folder(config.state_dir)
    if not config.state_dir:
        yield "sessions cannot be saved: there is no home folder. Set HOME or ACPSERVER_HOME."
    elif not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        yield f"sessions cannot be saved in {config.state_dir}: {folder} is no folder that we may write to."
    if config.missing:
        yield f"{config.missing}."
    elif config.model != OFFLINE and not missing:
        yield from _endpoint_findings(config)


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


def _endpoint_findings(config: Config) -> Iterator[str]:
    asked = replace(endpoint(config.providers[0], config), idle_timeout=min(config.idle_timeout, IDLE_SECONDS))
    provider = HttpProvider(asked)
    try:
        models = provider.list_models(CancelFlag())
    except ProviderError as error:
        if error.status in (404, 405, 501):
            print("note: the endpoint answers, but has no list of models; the model's name is not checked")
        else:
            yield str(error)
        return
    finally:
        provider.close()
    print(f"note: the endpoint answers and offers {len(models)} model(s)")
    if models and config.model not in models:
        shown = ", ".join(models[:SHOWN_MODELS]) + (", ..." if len(models) > SHOWN_MODELS else "")
        yield f"the endpoint does not offer the model {config.model!r}, but {shown}."


def _existing_folder(path: str) -> str:
    """The nearest thing on the way to `path` that exists: the rest would have to be made in it."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _file_state(path: str) -> str:
    if not path:
        return "none, because there is no home folder"
    return path if os.path.exists(path) else f"{path} (does not exist)"


def _with_source(config: Config, name: str, value: str) -> str:
    return f"{value} (from {config.sources.get(name, 'the default')})"

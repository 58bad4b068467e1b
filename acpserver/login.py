"""`acpserver login` and `acpserver logout`: keys of providers in a private file, for a person at a terminal.

Runs on the main thread and waits for the person and the network. A key is never shown: it is read without an
echo, and every word of a server about it passes through `Faults`, which hides it.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from dataclasses import replace

from acpserver import credentials, system
from acpserver.cancel import CancelFlag
from acpserver.config import Config
from acpserver.errors import ConfigError, ProviderError
from acpserver.llm.providers import endpoint
from acpserver.model_lists import fetch
from acpserver.provider_setup import MAIN, ProviderSetup
from acpserver.redaction import Secrets

OK, ERROR, INTERRUPTED = 0, 1, 130
TRIES = 3


class _Stop(Exception):
    """The person, or the input, has come to an end."""


def run(config: Config, name: str, secrets: Secrets) -> int:
    """Ask for a provider (unless named) and a key, try it, store it. Returns the exit status.

    Raises `ConfigError` for a provider that does not exist, and without a home folder.
    """
    if not config.credentials_file:
        raise ConfigError("there is no home folder to store a key in: set HOME or ACPSERVER_HOME")
    system.unwind_on("SIGINT")  # a terminal that hides what is typed must not stay so
    offered = [one for one in config.providers if one.name != MAIN and one.key_variable]
    try:
        chosen = _named(offered, name) if name else _choose(offered)
        return _take_key(config, chosen, secrets)
    except _Stop:
        _say("Nothing was stored.")
        return ERROR
    except KeyboardInterrupt:
        _say("\nNothing was stored.")
        return INTERRUPTED


def forget(path: str, name: str) -> int:
    """Remove the stored key of one provider, or of all. Returns the exit status; raises `OSError`."""
    removed = credentials.remove_keys(path, name) if path else []
    _say(f"Removed: {', '.join(removed)}." if removed else "There was no stored key.")
    return OK


def _named(offered: Sequence[ProviderSetup], name: str) -> ProviderSetup:
    for one in offered:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in offered)
    raise ConfigError(f"login: there is no provider {name!r} that takes a key; there are {known}")


def _choose(offered: Sequence[ProviderSetup]) -> ProviderSetup:
    """Show the providers and let the person choose, by number or name."""
    width = max(len(one.name) for one in offered)
    for number, one in enumerate(offered, 1):
        state = f"  ({one.key_source})" if one.api_key else ""
        _say(f"{number:>3}  {one.name:<{width}}  {one.title}{state}")
    for _ in range(TRIES):
        answer = _read("Provider (number or name): ").strip()
        for number, one in enumerate(offered, 1):
            if answer in (str(number), one.name):
                return one
        _say("There is no such provider.")
    raise _Stop


def _take_key(config: Config, chosen: ProviderSetup, secrets: Secrets) -> int:
    for _ in range(TRIES):
        key = _read_key(f"Key for {chosen.title} (it is not shown): ").strip()
        if not key:
            raise _Stop
        secrets.add([key])
        if not (key.isascii() and key.isprintable()) or " " in key:
            _say("That is no key: it holds a space, or a character that no key has.")
        elif _works(config, chosen._replace(api_key=key, key_is_stored=True)):
            credentials.store_key(config.credentials_file, chosen.name, key)
            _report(config, chosen)
            return OK
        if not sys.stdin.isatty():
            break
    raise _Stop


def _works(config: Config, chosen: ProviderSetup) -> bool:
    """Whether the key is to be stored, after one cheap call; the person decides where that says nothing."""
    if chosen.open_list:
        _say(f"{chosen.title} tells its models to everybody, so the key could not be tried.")
        return True
    try:
        typed = replace(endpoint(chosen, config), api_key_source="the one that was just typed")
        models = fetch(typed, CancelFlag())
    except ProviderError as error:
        _say(str(error))
        if error.kind == "auth" or not sys.stdin.isatty():
            return False
        answer = _read("The key could not be tried. Store it all the same? [y/N] ")
        return answer.strip().lower() in ("y", "yes")
    _say(f"The key works. Models that {chosen.title} offers: {len(models)}.")
    return True


def _report(config: Config, chosen: ProviderSetup) -> None:
    _say(f"Stored in {config.credentials_file}, which only you can read.")
    if chosen.api_key and not chosen.key_is_stored:
        _say(f"But the {chosen.key_source} is set, and comes first.")
    if not config.model and chosen.models:
        _say(f"Without another choice, sessions may now use {chosen.id_of(chosen.models[0].name)}.")


def _read(prompt: str) -> str:
    """One line from the person. Raises `_Stop` at the end of the input."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        _say("")
        raise _Stop
    return line


def _read_key(prompt: str) -> str:
    """A key: without an echo from a terminal, else a line of the input."""
    if not sys.stdin.isatty():
        return _read("")
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise _Stop from None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

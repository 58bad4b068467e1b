"""What a person calls on the command line, apart from serving. Runs on the main thread.

Loaded by `cli` only when such a command is given: an editor that waits for the server needs none of it.
"""

from __future__ import annotations

import argparse
import os

from acpserver import config, doctor, login, logs, sessions_command
from acpserver.chat import command as chat
from acpserver.config import Config, NoModel
from acpserver.model_lists import load_with_model
from acpserver.redaction import Secrets


def run(options: argparse.Namespace) -> int:
    """Do what the command line says and return the exit status. Raises `ConfigError` and `OSError`."""
    if options.command == "logout":  # also when what is stored cannot be read
        return login.forget(config.credentials_file(os.environ), options.provider)
    settings = _settings(options)
    secrets = Secrets(settings.secrets)
    logs.set_up(settings.log_level, settings.log_file, secrets)
    if options.command == "chat":
        return chat.run(settings, vars(options), options.prompt, options.allow, resume=options.resume)
    if options.command == "doctor":
        return doctor.run(settings)
    if options.command == "sessions":
        return sessions_command.run(settings, options.action, options.session, options.format)
    return login.run(settings, getattr(options, "provider", ""), secrets)


def _settings(options: argparse.Namespace) -> Config:
    """The configuration; keys and sessions can be looked after without a model."""
    if options.command in ("chat", "doctor"):
        return load_with_model(vars(options), os.environ)
    try:
        return config.load(vars(options), os.environ)
    except NoModel as error:
        return error.config

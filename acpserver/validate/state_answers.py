"""What error answers say, and what no message may say.

Rules A5, J12 and L4. One thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from acpserver import jsontext
from acpserver.redaction import HIDDEN
from acpserver.validate.findings import AGENT, CLIENT, MAX_TEXT, Entry
from acpserver.validate.state import Answer, Breach, Call, Mark, objects, text
from acpserver.validate.world import World

_SECRET_NAME = re.compile(r"key(?!board)|token(?!izer)|secret|passw|auth(?!or(?!iz))|credential|cookie", re.I)
_NO_SECRET = re.compile(r"[/~.\\]|[A-Za-z]:[/\\]|\w+://[^@]*$")
"""Where a secret lies rather than what it is: a path, or an address without a user in it."""
_KEY = re.compile(r"\b(sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}|ghp_[A-Za-z0-9]{30,}|xox[bp]-[A-Za-z0-9-]{20,})")
_SHORTEST = 8  # characters of a secret; shorter ones would be found everywhere
_MOST_SECRETS = 100


class Secrets:
    """Remembers what MCP servers are given in confidence, and looks for it in what the agent sends."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        """Each as it is and as it stands in JSON, with the line that told it."""

    def learn(self, call: Call) -> None:
        """Take note of the secrets in the client's request."""
        for server in objects(call.params, "mcpServers"):
            for pair in (*objects(server, "env"), *objects(server, "headers")):
                value = text(pair, "value")
                is_secret = _SECRET_NAME.search(text(pair, "name")) and not _NO_SECRET.match(value)
                if is_secret and len(value) >= _SHORTEST:
                    if len(self._known) < _MOST_SECRETS:
                        forms = (value, jsontext.dumps(value)[1:-1])
                        self._known.update(dict.fromkeys(forms, call.mark.line))

    def look(self, entry: Entry) -> Iterator[Breach]:
        """Is there a secret in what the agent sends?"""
        if entry.sender != AGENT:
            return
        secret = self._known_in(entry)
        if secret:
            reason = "the value of a variable or header of an MCP server"
            yield Breach("A5", AGENT, "", f"a secret on the wire: {reason}", related=self._known[secret])
        elif _has_key(entry):
            yield Breach("A5", AGENT, "error", "a secret on the wire: this looks like an API key")

    def _known_in(self, entry: Entry) -> str:
        """A secret that stands in the message, or ""."""
        if not self._known:
            return ""
        whole = entry.text if len(entry.text) < MAX_TEXT else jsontext.dumps(entry.message)
        return next((secret for secret in self._known if secret in whole), "")

    def shown(self, entry: Entry) -> Entry:
        """The message as people may see it: without what `look` finds, whoever sends it."""
        if not (self._known_in(entry) or _has_key(entry)):
            return entry
        return entry._replace(text=self.hidden(entry.text), message=self._hidden_in(entry.message))

    def hidden(self, words: str) -> str:
        """`words` without secrets."""
        words = _KEY.sub(HIDDEN, words)
        for secret in self._known:
            words = words.replace(secret, HIDDEN)
        return words

    def _hidden_in(self, value: object) -> object:
        """A copy of a JSON value without secrets."""
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, dict):
            return {self.hidden(name): self._hidden_in(item) for name, item in value.items()}
        return [self._hidden_in(item) for item in value] if isinstance(value, list) else value


def _has_key(entry: Entry) -> bool:
    """Whether something in an error looks like an API key."""
    return '"error"' in entry.text and _KEY.search(entry.text) is not None


class Errors:
    """Looks at the words of error answers."""

    def __init__(self, world: World):
        self._world = world

    def called(self, call: Call) -> Iterator[Breach]:
        """Calls have no error."""
        return iter(())

    def answered(self, answer: Answer) -> Iterator[Breach]:
        """Does an error say what clients look for?"""
        call, error = answer.call, answer.error
        if error is None or call.side != CLIENT:
            return
        said = jsontext.dumps([error.get("message"), error.get("data")])
        name = jsontext.dumps(call.session)[1:21].rstrip('"')
        if answer.code == -32002 and name and name not in said:
            reason = f"the error does not name the session {call.session!r}"
            yield Breach("L4", AGENT, "error", reason, related=call.mark.line)
        if answer.code == -32603 and "data" in error:
            data = error["data"]
            if not isinstance(data, dict) or set(data) != {"details"}:
                reason = "data with anything but details is not shown by some clients"
                yield Breach("L4", AGENT, "error.data", reason)
        if answer.code == -32602 and not call.faults:
            named = next((name for name in call.unknown if name in said), "")
            if named or ("_meta" in said and "_meta" in jsontext.dumps(call.params)):
                reason = f"unknown fields are accepted, also {named or '_meta'}"
                yield Breach("J12", AGENT, "error", reason, related=call.mark.line)

    def disturbed(self, side: str) -> None:
        """Nothing is remembered."""

    def finish(self, end: Mark | None) -> Iterator[Breach]:
        """Nothing is only wrong at the end."""
        return iter(())

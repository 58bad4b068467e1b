"""A real browser without a window, driven over loopback with nothing but the standard library.

Chromium through chromedriver (W3C WebDriver over HTTP), Firefox through its own Marionette port (the same
commands as length-prefixed JSON over TCP). Both start with an empty profile of their own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

LIMIT = 40.0  # seconds for one answer of the browser

CHROMIUM = ("chromium", "google-chrome")
CHROMEDRIVER = ("chromedriver",)
FIREFOX = ("firefox-esr", "firefox")

CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars=false",
)

FIREFOX_FLAGS = (
    "--headless",
    "--marionette",
    "--no-remote",
    "-remote-allow-system-access",  # to read the console
)
FIREFOX_SETTINGS = """\
user_pref("marionette.port", 0);
user_pref("app.update.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1");
user_pref("toolkit.telemetry.enabled", false);
"""

KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "PageUp": "\ue00e",
    "PageDown": "\ue00f",
    "End": "\ue010",
    "Home": "\ue011",
    "Left": "\ue012",
    "Up": "\ue013",
    "Down": "\ue015",
}


class Link(Protocol):
    """What carries the commands."""

    def command(self, name: str, **parameters: object) -> Any: ...


class Browser:
    """One page at a time."""

    def __init__(self, link: Link):
        self._link = link

    def open(self, url: str) -> None:
        """Load a page to its end."""
        self._link.command("url", url=url)

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a function body returns in the page; a promise is waited for."""
        return self._link.command("execute/sync", script=script, args=list(arguments))

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._link.command("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def click(self, x: float, y: float) -> None:
        """Press the left button at a place of the window."""
        actions = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._link.command("actions", actions=[{"type": "pointer", "id": "mouse", "actions": actions}])

    def resize(self, width: int, height: int) -> None:
        """Give the window a size in pixels."""
        self._link.command("window/rect", width=width, height=height)

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self._link.command("screenshot"))

    def complaints(self) -> list[str]:
        """What the console has shown since the last call: errors and warnings about the page."""
        return list(self._link.command("complaints"))


class _WebDriver:
    """Commands to chromedriver: POST below the session, GET where the protocol says so."""

    def __init__(self, port: int, binary: str, profile: Path):
        self._base = f"http://127.0.0.1:{port}"
        # The environment's proxy must not see what goes to loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        flags = [*CHROMIUM_FLAGS, f"--user-data-dir={profile}", "--window-size=1440,900"]
        options = {"binary": binary, "args": flags}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._post("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._base += f"/session/{session['sessionId']}"

    def command(self, name: str, **parameters: object) -> Any:
        if name == "complaints":
            log = self._post("/se/log", {"type": "browser"})
            return [f"{entry['level']}: {entry['message']}" for entry in log]
        return self._post(f"/{name}", None if name == "screenshot" else parameters)

    def _post(self, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=LIMIT) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def close(self) -> None:
        """End the session, and with it the browser."""
        request = urllib.request.Request(self._base, method="DELETE")
        self._opener.open(request, timeout=LIMIT).close()


class _Marionette:
    """Commands to Firefox: [0, number, name, parameters] answered by [1, number, error, result]."""

    NAMES = {
        "url": "WebDriver:Navigate",
        "execute/sync": "WebDriver:ExecuteScript",
        "actions": "WebDriver:PerformActions",
        "window/rect": "WebDriver:SetWindowRect",
        "screenshot": "WebDriver:TakeScreenshot",
    }
    CONSOLE = """
        const own = Services.console.getMessageArray().filter(
            (entry) => entry instanceof Ci.nsIScriptError && /^file:.*html/.test(entry.sourceName));
        const found = own.map((entry) => entry.toString());
        Services.console.reset();
        return found;
    """

    def __init__(self, port: int):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self._stream = self._socket.makefile("rb")
        self._number = 0
        self._read()  # its greeting
        self._send("WebDriver:NewSession", {})

    def command(self, name: str, **parameters: object) -> Any:
        if name == "complaints":
            self._send("Marionette:SetContext", {"value": "chrome"})
            found = self._send("WebDriver:ExecuteScript", {"script": self.CONSOLE, "args": []})["value"]
            self._send("Marionette:SetContext", {"value": "content"})
            return found
        if name == "screenshot":
            parameters = {"full": False}
        result = self._send(self.NAMES[name], parameters)
        return result.get("value") if isinstance(result, dict) else None

    def _send(self, name: str, parameters: object) -> Any:
        self._number += 1
        data = json.dumps([0, self._number, name, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(data), data))
        _, number, error, result = self._read()
        assert number == self._number and error is None, error
        return result

    def _read(self) -> Any:
        size = b""
        while (byte := self._stream.read(1)) != b":":
            assert byte, "the browser has gone"
            size += byte
        return json.loads(self._stream.read(int(size)))

    def close(self) -> None:
        """Ask the browser to end."""
        with contextlib.suppress(OSError, AssertionError):  # it may be gone before it has answered
            self._send("Marionette:Quit", {"flags": ["eForceQuit"]})
        self._stream.close()
        self._socket.close()


def missing(name: str) -> str:
    """Which program of this browser is not on this machine, "" when all are there."""
    programs = (CHROMIUM, CHROMEDRIVER) if name == "chromium" else (FIREFOX,)
    return ", ".join(names[0] for names in programs if not _program(names))


def _program(names: tuple[str, ...]) -> str:
    """The path of the first of these programs that is there, else ""."""
    return next(filter(None, map(shutil.which, names)), "")


@contextlib.contextmanager
def browser(name: str, folder: Path) -> Iterator[Browser]:
    """A running browser with its profile and home below `folder`; it is ended in every case."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "MOZ_CRASHREPORTER_DISABLE": "1"}
    if name == "chromium":
        command = [_program(CHROMEDRIVER), "--port=0"]
        pattern = rb"started successfully on port (\d+)"
    else:
        (folder / "profile").mkdir()
        (folder / "profile" / "user.js").write_text(FIREFOX_SETTINGS)
        command = [_program(FIREFOX), *FIREFOX_FLAGS, "--profile", str(folder / "profile")]
        pattern = rb"Listening on port (\d+)"
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    link: _WebDriver | _Marionette | None = None
    try:
        port = _announced(process, pattern)
        if name == "chromium":
            link = _WebDriver(port, _program(CHROMIUM), folder / "profile")
        else:
            link = _Marionette(port)
        yield Browser(link)
    finally:
        if link:
            link.close()
        if name == "chromium" or link is None:
            process.terminate()
        try:
            process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def _announced(process: subprocess.Popen[bytes], pattern: bytes) -> int:
    """The port that a starting program tells on its output."""
    assert process.stdout is not None
    said = b""
    for line in process.stdout:
        said += line
        if found := re.search(pattern, line):
            return int(found[1])
    raise AssertionError(f"the browser did not start: {said.decode(errors='replace')}")

"""web_fetch against a small server on the loopback, and HTML as text."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acpserver.errors import Cancelled, ToolError
from acpserver.tools.base import READ
from acpserver.tools.web import WebFetch
from acpserver.tools.webtext import html_to_text
from tests.fakes.tool_context import Surroundings


class Site:
    """Answers each connection with the bytes that stand for its path; None: says nothing."""

    def __init__(self, pages: dict[str, bytes | None]):
        self.pages = pages
        self.requests: list[str] = []
        self.asked = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            self.requests.append(request.decode())
            answer = self.pages[request.split()[1].decode()]
            self.asked.set()
            if answer is None:
                self._open.append(connection)
                continue
            with connection:
                try:
                    connection.sendall(answer)
                except OSError:  # the client has read enough
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        for connection in self._open:
            connection.close()


def page(
    body: bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK", more: str = ""
) -> bytes:
    fields = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body


PAGES: dict[str, bytes | None] = {
    "/": page("<title>T</title><p>Grüße <b>an</b> alle</p><script>no()</script>".encode()),
    "/plain": page(b"a < b\nc", "text/plain"),
    "/utf8": page("ä".encode(), "text/plain"),
    "/latin": page(b"\xe4", "text/plain; charset=iso-8859-1"),
    "/odd": page(b"x", "text/plain; charset=no-such"),
    "/json": page(b'{"a": 1}', "application/json"),
    "/image": page(b"\x89PNG", "image/png"),
    "/gone": page(b"<p>nothing here</p>", status="404 Not Found"),
    "/moved": page(b"", status="302 Found", more="Location: /plain\r\n"),
    "/loop": page(b"", status="302 Found", more="Location: /loop\r\n"),
    "/elsewhere": page(b"", status="302 Found", more="Location: file:///etc/passwd\r\n"),
    "/large": page(b"x" * 5_000_000, "text/plain"),
    "/empty": page(b""),
    "/garbage": b"nonsense\r\n\r\n",
    "/silent": None,
    "/chunked": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
    "/broken": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf",
    "/packed": page(gzip.compress(b"packed " * 1000), "text/plain", more="Content-Encoding: gzip\r\n"),
}


@pytest.fixture
def site() -> Iterator[Site]:
    """The server."""
    made = Site(PAGES)
    yield made
    made.close()


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A session in an empty folder."""
    return Surroundings(tmp_path)


def test_a_page_is_read_as_text_without_asking(site: Site, here: Surroundings) -> None:
    action = here.prepare(WebFetch(), url=f"{site.url}/")
    assert action.access == READ and site.url in action.title and site.requests == []
    done = action.run()
    assert done.text == "T\n\nGrüße an alle"
    assert done.raw_output == {"status": 200, "url": f"{site.url}/", "contentType": "text/html"}


@pytest.mark.parametrize(
    ("path", "text"),
    [("/plain", "a < b\nc"), ("/utf8", "ä"), ("/latin", "ä"), ("/odd", "x"), ("/json", '{"a": 1}'),
     ("/chunked", "abcde"), ("/packed", "packed " * 1000), ("/empty", "(The page is empty.)")],
)  # fmt: skip
def test_text_of_other_kinds(site: Site, here: Surroundings, path: str, text: str) -> None:
    assert here.call(WebFetch(), url=site.url + path).text == text


def test_a_redirect_is_followed_and_said(site: Site, here: Surroundings) -> None:
    assert here.call(WebFetch(), url=f"{site.url}/moved").text == f"{site.url}/plain\na < b\nc"


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/image", "image/png"), ("/loop", "redirects"), ("/elsewhere", "could not be read"),
     ("/broken", "could not be read"), ("/garbage", "could not be read")],
)  # fmt: skip
def test_what_cannot_be_read_is_told(site: Site, here: Surroundings, path: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        here.call(WebFetch(), url=site.url + path)


def test_an_error_page_is_a_failed_call_with_its_text(site: Site, here: Surroundings) -> None:
    done = here.call(WebFetch(), url=f"{site.url}/gone")
    assert (done.text, done.is_error) == ("HTTP status 404\nnothing here", True)


def test_a_large_page_is_cut(site: Site, here: Surroundings) -> None:
    done = here.call(WebFetch(), url=f"{site.url}/large")
    assert len(done.text) < 31_000 and done.text.endswith("[… the rest of the page is left out …]")


def test_a_closed_port_is_told(here: Surroundings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ToolError, match="could not be read"):
        here.call(WebFetch(), url=f"http://127.0.0.1:{port}/")


def test_a_silent_server_is_left_at_once_on_cancel(site: Site, here: Surroundings) -> None:
    ended: list[float] = []

    def run() -> None:
        with pytest.raises(Cancelled):
            here.call(WebFetch(), url=f"{site.url}/silent")
        ended.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    assert site.asked.wait(10)
    began = time.monotonic()
    here.cancel.set()
    thread.join(5)
    assert ended and ended[0] - began < 0.1


def test_no_credentials_of_the_user_are_sent(
    site: Site, here: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cr3t\n")
    monkeypatch.setenv("NETRC", str(netrc))
    here.call(WebFetch(), url=f"{site.url}/plain")
    assert "authorization" not in site.requests[0].lower()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "file:///etc/passwd",
        "ftp://a/b",
        "http://",
        "http://me:pw@host/",
        "http://[::1",
        "javascript:1",
    ],
)
def test_other_addresses_are_refused(here: Surroundings, url: str) -> None:
    with pytest.raises(ToolError, match="url must be"):
        here.prepare(WebFetch(), url=url)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain", "plain"),
        ("<h1>A</h1><p>b\nc</p><p>d", "# A\n\nb c\n\nd"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "| a | b"),
        ("<pre>a\n  b\t c</pre>", "a\n  b  c"),
        ("a<br>b&amp;c&nbsp;d", "a\nb&c d"),
        ("<head><title>T</title><style>x</style><body>b", "T\n\nb"),
        ("<script>if (a<b) {}</script>x<!-- c -->y", "xy"),
        ("</div></script></p>x", "x"),
        ("", ""),
    ],
)
def test_html_becomes_rough_text(html: str, text: str) -> None:
    assert html_to_text(html) == text

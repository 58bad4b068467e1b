"""Kept HTTP connections, each of which can be cut from another thread at any moment.

Owns the sockets of model calls. A turn's thread sends and reads; the thread that cancels only runs
`Line.cut`, which shuts the socket and so wakes that read. Resolving and connecting cannot be woken: they
run on a daemon thread that is left behind. Nothing here knows about models, and nothing waits under a lock.

Imports `requests`, which is slow to load: only `llm/calls.py`, itself loaded late, imports this room.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import requests.utils
from requests.adapters import HTTPAdapter
from requests.models import PreparedRequest, Response
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError

from acpserver.cancel import CancelFlag
from acpserver.errors import Cancelled
from acpserver.llm.chunked import EagerResponse
from acpserver.llm.wire import HttpRequest

_POOL_SIZE = 64  # connections kept for later; more may be open at once
_ABORT = struct.pack("HH" if sys.platform == "win32" else "ii", 1, 0)  # linger: on, for no time at all


class Line:
    """The connection that one call is using at this moment; entered by the call and by who cuts it."""

    def __init__(self, cancel: CancelFlag, idle_timeout: float):
        self.cancel = cancel
        self.idle_timeout = idle_timeout
        self.connected = False
        """Connected, with TLS where it is used: the request is on its way."""
        self.reused = False
        """The call went out on a kept connection, which the server may have closed in that moment."""
        self._lock = threading.Lock()  # guards the two below
        self._handle: socket.socket | None = None
        """A second handle on the connection: TLS takes the first one away while it shakes hands."""
        self._is_cut = False

    def attach(self, sock: socket.socket) -> None:
        """From now on `sock` is what `cut` shuts."""
        handle = socket.fromfd(sock.fileno(), sock.family, sock.type)
        with self._lock:
            old, self._handle = self._handle, handle
            is_cut = self._is_cut
        if old is not None:
            old.close()
        if is_cut:
            _shut(handle)

    def is_attached(self) -> bool:
        """Whether the call has a connection."""
        with self._lock:
            return self._handle is not None

    def cut(self) -> None:
        """End the connection now. The read that is waiting sees an end of stream, not an error."""
        with self._lock:
            self._is_cut = True
            handle = self._handle
            if handle is not None:
                _shut(handle)  # does not block; under the lock, so that nobody closes it meanwhile

    def release(self) -> None:
        """Let go of the connection without ending it."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()


def _shut(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the peer was faster
        # A peer that waits with a full window learns nothing from the end that a shutdown sends, and nobody
        # will read on: the close that follows must tell it by a reset (RFC 9293 section 3.10.4, ABORT).
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        handle.shutdown(socket.SHUT_RDWR)


class _Here(threading.local):
    """The line of the call that runs on this thread: urllib3 hands nothing down to its connections."""

    line: Line | None = None


_here = _Here()


class _Dial:
    """One attempt to connect, on a thread of its own."""

    def __init__(self, connect: Callable[[], socket.socket]):
        self._connect = connect
        self._lock = threading.Lock()  # guards the three below
        self._sock: socket.socket | None = None
        self._error: Exception | None = None
        self._abandoned = False
        self._over = threading.Event()

    def run(self, cancel: CancelFlag, timeout: float) -> socket.socket | None:
        """The connected socket, or None after `timeout` seconds. Raises what `connect` raised."""
        threading.Thread(target=self._work, name="connect", daemon=True).start()
        with cancel.waking(self._over.set):
            self._over.wait(timeout)
        with self._lock:
            sock, error = self._sock, self._error
            self._abandoned = True
        if cancel.is_set():
            if sock is not None:
                sock.close()
            raise Cancelled(cancel.reason)
        if error is not None:
            raise error
        return sock

    def _work(self) -> None:
        sock: socket.socket | None = None
        error: Exception | None = None
        try:
            sock = self._connect()
        except Exception as caught:  # raised again on the thread that waits, unless it has left
            error = caught
        with self._lock:
            self._sock, self._error = sock, error
            abandoned = self._abandoned
        self._over.set()
        if abandoned and sock is not None:
            sock.close()


class _Cuttable:
    """What both kinds of connection add to urllib3's: they report their socket to the current line."""

    sock: Any
    timeout: Any
    host: str

    def _new_conn(self) -> socket.socket:
        line = _here.line
        connect = super()._new_conn  # type: ignore[misc]
        if line is None:
            return connect()  # type: ignore[no-any-return]
        # The connect timeout holds for each address of the host; here is the end of all of it, so that a
        # name that is never resolved has one too, and a second address gets its chance.
        sock = _Dial(connect).run(line.cancel, 2 * float(self.timeout))
        if sock is None:
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out")
        line.attach(sock)
        return sock

    def request(self, *args: Any, **kwargs: Any) -> None:
        line = _here.line
        if line is not None:
            if self.sock is None:
                self.connect()  # type: ignore[attr-defined]
            elif not line.is_attached():
                line.attach(self.sock)
                line.reused = True
            line.connected = True
            # urllib3 would send under the connect timeout, too short for a long prompt on a slow uplink.
            self.timeout = line.idle_timeout
            self.sock.settimeout(line.idle_timeout)
        super().request(*args, **kwargs)  # type: ignore[misc]


class _Connection(_Cuttable, HTTPConnection):
    response_class = EagerResponse


class _SecureConnection(_Cuttable, HTTPSConnection):
    response_class = EagerResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS = {"http": _Pool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    """requests' adapter with our connections, direct and through a proxy."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = _POOLS
        return manager


class Pool:
    """Sends requests over kept connections. One object serves many threads at once.

    No cookies, no redirects, no .netrc: a key goes to the configured address and nowhere else. Proxies and
    certificates come from the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE), read once.
    """

    def __init__(self, base_url: str):
        self._adapter = _Adapter(pool_connections=4, pool_maxsize=_POOL_SIZE)
        self._proxies = requests.utils.get_environ_proxies(base_url)
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        self._verify: bool | str = bundle or True

    @contextlib.contextmanager
    def send(self, request: HttpRequest, line: Line, connect_timeout: float) -> Iterator[Response]:
        """The response, its body unread, for the time of the block.

        A body that was not read to its end when the block is left ends the connection; else it is kept.
        Raises what `requests` and `urllib3` raise, and `Cancelled`.
        """
        prepared = PreparedRequest()
        prepared.prepare(
            method=request.method, url=request.url, headers=request.headers, data=request.body or None
        )
        with line.cancel.waking(line.cut):
            try:
                line.cancel.check()
                _here.line = line
                try:
                    response = self._adapter.send(
                        prepared,
                        stream=True,
                        timeout=(connect_timeout, line.idle_timeout),
                        verify=self._verify,
                        proxies=self._proxies,
                    )
                finally:
                    _here.line = None
                try:
                    yield response
                finally:
                    response.raw.close()
            finally:
                line.release()

    def close(self) -> None:
        """End the kept connections; those in use go on to their end."""
        for manager in (self._adapter.poolmanager, *self._adapter.proxy_manager.values()):
            for key in manager.pools.keys():
                manager.pools[key].close()
        self._adapter.close()

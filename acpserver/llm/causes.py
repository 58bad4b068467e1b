"""Why a connection failed, from the errors that `requests` and `urllib3` wrap around one another.

Pure; entered by the thread whose call failed. Their own texts are never passed on: they hold addresses in
memory, whole URLs and nothing to act on.
"""

from __future__ import annotations

import http.client
import socket
import ssl

import requests
import urllib3.exceptions as urllib3_errors

from acpserver.addresses import is_on_this_machine
from acpserver.llm.faults import Fault, Faults
from acpserver.llm.types import Endpoint

FAILURES = (requests.RequestException, urllib3_errors.HTTPError, http.client.HTTPException, OSError)
"""What sending a request and reading its answer may raise."""

_TIMEOUTS = (TimeoutError, urllib3_errors.TimeoutError, requests.Timeout)
_REFUSED = "connection refused"
_CHECK = "Check the base URL, the network and the proxy settings."
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


def explain(
    error: BaseException, faults: Faults, endpoint: Endpoint, *, connected: bool, reused: bool
) -> Fault:
    """The error for one of `FAILURES`, raised before the headers of the answer had come.

    `connected`: the request was on its way; `reused`: on a kept connection.
    """
    chain = _chain(error)
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader)):
        return faults.error("cannot be called: its URL or a header is invalid", _CHECK, kind="request")
    if found := _first(chain, ssl.SSLError):
        return _tls(found, faults)
    if not connected:
        return _unconnected(error, chain, faults, endpoint)
    if _first(chain, *_TIMEOUTS):
        return faults.network(f"sent nothing for {endpoint.idle_timeout:g} s", "Send the prompt again later.")
    if _first(chain, http.client.BadStatusLine) and not _first(chain, ConnectionError):
        return faults.network("does not speak HTTP", "Check the base URL.")
    return faults.network(
        "closed the connection without an answer",
        "Send the prompt again.",
        # A kept connection may simply have grown old: a new one is tried at once.
        retry_after=0.0 if reused else None,
    )


def _unconnected(
    error: BaseException, chain: list[BaseException], faults: Faults, endpoint: Endpoint
) -> Fault:
    if (
        isinstance(error, OSError)
        and not isinstance(error, requests.RequestException)
        and error.errno is None
    ):
        # requests itself raises a bare OSError for one thing: a certificate file that is not there.
        return faults.network(
            "cannot be called: the file in REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE is missing",
            "Correct the variable.",
            retryable=False,
        )
    if _first(chain, urllib3_errors.ProxyError):
        what, advice = "the proxy refused", "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY."
    elif _first(chain, socket.gaierror, urllib3_errors.NameResolutionError):
        what, advice = "its host name is unknown", _CHECK
    elif _first(chain, ConnectionRefusedError):
        what, advice = _REFUSED, "Start the server or correct the base URL."
    elif _first(chain, *_TIMEOUTS):
        what, advice = f"no connection within {endpoint.connect_timeout:g} s", _CHECK
    else:
        found = [link.strerror for link in chain if isinstance(link, OSError) and link.strerror]
        what, advice = found[-1] if found else "the connection failed", _CHECK
    fault = faults.network(f"cannot be reached: {what}", advice)
    if what == _REFUSED and is_on_this_machine(endpoint.base_url):
        # Nobody listens on this machine, which time alone does not change: only a restart is waited for.
        fault.most_attempts, fault.retry_after = 3, 0.25
    return fault


def explain_broken(error: BaseException, faults: Faults, endpoint: Endpoint) -> Fault:
    """The error for one of `FAILURES` in the middle of an answer."""
    chain = _chain(error)
    if _first(chain, *_TIMEOUTS):
        return faults.stream(f"stopped: nothing came for {endpoint.idle_timeout:g} s")
    if _first(chain, urllib3_errors.DecodeError):
        return faults.stream("cannot be decompressed")
    return faults.stream("broke off: the connection was lost")


def _tls(error: BaseException, faults: Faults) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        return faults.network(
            f"cannot be trusted: {error.verify_message}",
            "Set REQUESTS_CA_BUNDLE to the file of your certificate authority, or correct the base URL.",
            retryable=False,
        )
    reason = getattr(error, "reason", None) or "no reason given"
    if reason in _NO_TLS:
        return faults.network(
            "does not speak TLS", "Begin the base URL with http:// or correct it.", retryable=False
        )
    return faults.network(f"failed in the TLS handshake: {reason}", _CHECK)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and all that is wrapped in it, the outermost first."""
    chain: list[BaseException] = []
    open_ends: list[object] = [error]
    while open_ends and len(chain) < 50:
        link = open_ends.pop(0)
        if isinstance(link, BaseException) and link not in chain:
            chain.append(link)
            open_ends += [*link.args, getattr(link, "reason", None), link.__cause__, link.__context__]
    return chain


def _first(chain: list[BaseException], *kinds: type[BaseException]) -> BaseException | None:
    return next((link for link in chain if isinstance(link, kinds)), None)

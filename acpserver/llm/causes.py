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

from acpserver.errors import ProviderError
from acpserver.llm.faults import Faults
from acpserver.llm.types import Endpoint

FAILURES = (requests.RequestException, urllib3_errors.HTTPError, http.client.HTTPException, OSError)
"""What sending a request and reading its answer may raise."""


def explain(error: BaseException, faults: Faults, endpoint: Endpoint, reused: bool) -> ProviderError:
    """The `ProviderError` for one of `FAILURES`, raised before the headers of the answer had come.

    `reused`: a kept connection was used. That one may simply have grown old: a new one is tried at once.
    """
    chain = _chain(error)
    if found := _first(chain, ssl.SSLError):
        return _tls(found, faults)
    if _first(chain, urllib3_errors.ProxyError):
        return faults.network(
            "the proxy cannot be reached or refused the connection. Check HTTP_PROXY, "
            "HTTPS_PROXY and NO_PROXY."
        )
    if _first(chain, socket.gaierror, urllib3_errors.NameResolutionError):
        return faults.network("the host name cannot be resolved. Check the base URL and the network.")
    if _first(chain, urllib3_errors.ConnectTimeoutError):
        return faults.network(
            f"no connection within {endpoint.connect_timeout:g} s. Check the base URL, the "
            "network and the proxy settings."
        )
    if _first(chain, TimeoutError, urllib3_errors.ReadTimeoutError, requests.Timeout):
        return faults.network(
            f"the server sent nothing for {endpoint.idle_timeout:g} s. Send the prompt again "
            "later, or set a longer idle timeout."
        )
    if _first(chain, ConnectionRefusedError):
        return faults.network(
            "nothing listens there (connection refused). Start the server or correct the base URL."
        )
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader)):
        return faults.error(f"{faults.place}: the base URL or a header cannot be used.", kind="request")
    if _first(chain, ConnectionError, http.client.HTTPException, urllib3_errors.ProtocolError):
        if _first(chain, http.client.BadStatusLine) and not _first(chain, http.client.RemoteDisconnected):
            return faults.network("what answers there does not speak HTTP. Check the base URL.")
        return faults.network(
            "the server closed the connection without an answer. Send the prompt again.",
            retry_after=0.0 if reused else None,
        )
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return faults.network(f"{error.strerror or error}.", retryable=error.errno is not None)
    system = _first(chain, OSError)
    detail = system.strerror if isinstance(system, OSError) and system.strerror else "the connection failed"
    return faults.network(f"{detail}. Check the base URL and the network.")


def explain_broken(error: BaseException, faults: Faults, endpoint: Endpoint) -> ProviderError:
    """The `ProviderError` for one of `FAILURES` in the middle of an answer."""
    chain = _chain(error)
    if _first(chain, TimeoutError, urllib3_errors.ReadTimeoutError, requests.Timeout):
        return faults.stream(f"stopped: nothing came for {endpoint.idle_timeout:g} s")
    if _first(chain, urllib3_errors.DecodeError):
        return faults.stream("cannot be decompressed")
    return faults.stream("broke off: the connection was lost")


def _tls(error: BaseException, faults: Faults) -> ProviderError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return faults.network(
            f"the server's certificate is not trusted ({error.verify_message}). Set REQUESTS_CA_BUNDLE to "
            "the file of your certificate authority, or correct the base URL.",
            retryable=False,
        )
    reason = getattr(error, "reason", None) or "no reason given"
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return faults.network(
            "the server does not speak TLS there. Use http:// in the base URL, or correct it.",
            retryable=False,
        )
    return faults.network(f"the TLS handshake failed ({reason}). Check the base URL and the network.")


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

"""Fetches pictures over http and https, within a policy.

Messages name the host that the caller wrote and nothing more: paths and queries hold tokens, and a
redirect's target may be an inner name. Whatever keeps a connection from being made, a refused
address, a name that does not exist, a closed port, has one message, so that nobody learns from it
what exists behind the server.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpcore2

from firstlight.errors import MediaError
from firstlight.media.addresses import AddressRefusedError, Resolver, system_resolver
from firstlight.media.connection import CheckedBackend, Deadline
from firstlight.media.policy import FetchPolicy
from firstlight.media.web_address import WebAddress, parse_web_address

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_LOGGERS: Final = ("httpcore2.connection", "httpcore2.http11")
_CONNECTING = (
    AddressRefusedError,
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
)


class Fetcher:
    """Fetches pictures one at a time; threads may share it.

    No proxy, cookie or credential is ever used, and environment variables change nothing but the
    certificates that are trusted (``SSL_CERT_FILE``, ``SSL_CERT_DIR``).

    Args:
        policy: what may be fetched.
        resolve: host and port to addresses.
        certificates: what TLS trusts; None for the system's.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        policy: FetchPolicy,
        *,
        resolve: Resolver = system_resolver,
        certificates: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._networks = policy.networks()
        self._resolve = resolve
        # Made once: reading the system's certificates takes many milliseconds.
        self._tls = certificates or httpcore2.default_ssl_context()
        self._clock = clock

    def fetch(self, url: str) -> bytes:
        """The bytes behind an http or https address.

        Raises:
            MediaError: not accepted, not reachable, not answered with a picture, too large, or too
                slow.
        """
        if not self._policy.fetches:
            raise MediaError(
                "pictures from web addresses are not accepted: no domain is allowed, "
                "allowed_media_domains names those that are"
            )
        address = parse_web_address(url)
        self._check(address)
        deadline = Deadline(self._policy.total_s, self._clock)
        backend = CheckedBackend(self._resolve, self._networks, deadline)
        # Of one fetch only: a connection that is kept would keep its deadline, too.
        with (
            _unlogged(),
            httpcore2.ConnectionPool(
                ssl_context=self._tls, network_backend=backend, max_connections=2
            ) as pool,
        ):
            return self._follow(pool, address)

    def _check(self, address: WebAddress) -> None:
        """Before any look-up, so the message tells nothing about the network."""
        if not self._policy.allows_host(address.host):
            raise MediaError(
                f"pictures from {address.host} are not accepted: "
                "it is none of allowed_media_domains"
            )
        if not self._policy.allows_port(address.port):
            raise MediaError(
                f"pictures from port {address.port} are not accepted: it is none of media_ports"
            )

    def _follow(self, pool: httpcore2.ConnectionPool, first: WebAddress) -> bytes:
        address = first
        for _ in range(self._policy.max_redirects + 1):
            try:
                answer = self._ask(pool, address, first.host)
                if isinstance(answer, bytes):
                    return answer
            except _CONNECTING as error:
                raise _unreachable(first.host) from error
            address = self._redirected(address, answer, first.host)
        raise MediaError(
            f"the picture at {first.host} lies behind more than {self._policy.max_redirects} "
            "redirects"
        )

    def _redirected(self, address: WebAddress, location: str, host: str) -> WebAddress:
        try:
            target = address.join(location)
        except MediaError:
            raise MediaError(
                f"the picture at {host} redirects to something else than an http or https address"
            ) from None
        if not self._policy.allows_host(target.host) or not self._policy.allows_port(target.port):
            raise _unreachable(host)
        return target

    def _ask(self, pool: httpcore2.ConnectionPool, address: WebAddress, host: str) -> bytes | str:
        """The body, or where a redirect leads to."""
        policy = self._policy
        url = httpcore2.URL(
            scheme=address.scheme, host=address.host, port=address.port, target=address.target
        )
        timeouts = {"connect": policy.connect_s, "read": policy.read_s, "write": policy.read_s}
        headers: dict[bytes | str, bytes | str] = {
            "Host": address.authority,
            "User-Agent": "firstlight",
            "Accept": "image/*,*/*;q=0.5",
            # Compressed bytes have no limit until they are unpacked, and images gain nothing.
            "Accept-Encoding": "identity",
        }
        with pool.stream("GET", url, headers=headers, extensions={"timeout": timeouts}) as response:
            sent = {name.lower(): value for name, value in response.headers}
            if response.status in _REDIRECTS and b"location" in sent:
                return sent[b"location"].decode("utf-8", "replace")
            if response.status != 200:
                raise MediaError(f"the picture at {host} was answered with {response.status}")
            if sent.get(b"content-encoding", b"identity").strip().lower() != b"identity":
                raise MediaError(f"the picture at {host} is sent compressed, unasked")
            return self._body(response, sent.get(b"content-length", b""), host)

    def _body(self, response: httpcore2.Response, length: bytes, host: str) -> bytes:
        """All of the body; the declared length can end it early and is not believed otherwise."""
        limit = self._policy.max_bytes
        too_large = MediaError(
            f"the picture at {host} is larger than {limit} bytes, the most that is accepted"
        )
        if length.isdigit() and (len(length) > 18 or int(length) > limit):
            raise too_large
        data = bytearray()
        try:
            for chunk in response.iter_stream():
                data += chunk
                if len(data) > limit:
                    raise too_large
        except httpcore2.TimeoutException as error:
            raise MediaError(f"the picture at {host} comes too slowly") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise MediaError(f"the picture at {host} ends early") from error
        return bytes(data)


def _unreachable(host: str) -> MediaError:
    return MediaError(
        f"the picture at {host} cannot be fetched: its address is not accepted or does not answer"
    )


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep this thread's fetch out of the library's debug log, which writes headers in full.

    A redirect's ``Location`` holds a query.
    """
    here = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return threading.get_ident() != here

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(elsewhere)

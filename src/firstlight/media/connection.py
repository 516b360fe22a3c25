"""Connections that go only to addresses that were checked, and that end in time."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore2

from firstlight.media.addresses import Network, Resolver, checked_addresses, within


class Deadline:
    """A moment after which nothing is waited for any more.

    Args:
        seconds: from now.
        clock: seconds, monotonic.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def remaining(self) -> float:
        """Seconds that are left; not below 0."""
        return max(self._end - self._clock(), 0.0)

    def limit(self, timeout: float | None) -> float:
        """The timeout of one wait, cut to what is left.

        Raises:
            httpcore2.ReadTimeout: nothing is left.
        """
        left = self.remaining
        if not left:
            raise httpcore2.ReadTimeout("the time for the picture is over")
        return left if timeout is None else min(timeout, left)


class CheckedBackend(httpcore2.NetworkBackend):
    """Looks a name up once, checks every address, and connects to one of those.

    The name is never looked up again for the same connection, so an answer that changes between
    check and use (DNS rebinding) changes nothing. TLS still names and verifies the host.

    Args:
        resolve: host and port to addresses.
        trusted: networks that are accepted although they are not public.
        deadline: of everything that goes over these connections.
    """

    def __init__(self, resolve: Resolver, trusted: Sequence[Network], deadline: Deadline) -> None:
        self._resolve = resolve
        self._trusted = trusted
        self._deadline = deadline
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """A connection to the first checked address that answers.

        Raises:
            AddressRefusedError: from :func:`checked_addresses`.
            httpcore2.ConnectError, httpcore2.ConnectTimeout: none answers.
        """
        look_up = within(self._deadline.limit(timeout), self._resolve)
        addresses = checked_addresses(host, port, look_up, self._trusted)
        failure: Exception = httpcore2.ConnectError("no address answers")
        for address in addresses:
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self._deadline.limit(timeout), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
                continue
            return _TimedStream(stream, self._deadline)
        raise failure

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Never: no picture lies behind a local socket."""
        raise httpcore2.ConnectError("local sockets are not accepted")


class _TimedStream(httpcore2.NetworkStream):
    """A stream whose every wait ends with the deadline.

    A server that sends one byte at a time stays below the limit of each single wait.
    """

    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.limit(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.limit(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        limit = self._deadline.limit(timeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, limit)
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

"""The socket of a server. It needs no library that takes long to load."""

from __future__ import annotations

import socket

from firstlight.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the address and does not listen yet, so that nobody waits for a model.

    Raises:
        ConfigError: naming the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delays off (40 ms an answer) only where the protocol is named.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise ConfigError(
            f"host = {host!r} and port = {port} cannot be listened on: {reason}"
        ) from error
    return sock


def inherited(fd: int) -> socket.socket:
    """The socket that the process above this one has bound.

    Raises:
        ConfigError: the number is no socket's.
    """
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise ConfigError(f"socket_fd = {fd} is no socket: {error.strerror}") from error

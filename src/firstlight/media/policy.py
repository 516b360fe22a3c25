"""What may be read when a request names a picture: one value, decided when an engine starts."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from firstlight.errors import ConfigError
from firstlight.media.addresses import Network, parse_network
from firstlight.media.web_address import ascii_host, is_host_name

MAX_REDIRECTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy:
    """Sources that are accepted, and their limits. By default nothing is read but what is given.

    Attributes:
        domains: hosts that pictures may be fetched from over http and https: a name exactly
            (``images.example.org``) or all names below one (``.example.org``). Redirects are held
            to it as well. Empty, and ``any_host`` off: nothing is fetched.
        any_host: fetch from any host whose addresses are public.
        trusted_networks: networks (``10.1.0.0/16``) whose addresses are accepted although they are
            not public. The metadata services of clouds never are.
        ports: ports that are accepted; None for any.
        max_redirects: redirects that are followed, 0 to 5.
        connect_s, read_s: seconds that one connection attempt, and one wait for data, may take.
        total_s: seconds that a picture may take from the first look-up to the last byte.
        max_bytes: most bytes of one picture, from any source.
        file_root: folder that paths and ``file:`` addresses must lie in, links resolved.
        any_path: read any path that the process may read; for callers who own the machine.

    Raises:
        ConfigError: naming the field, its value and what is accepted, or a contradicting pair.
    """

    domains: tuple[str, ...] = ()
    any_host: bool = False
    trusted_networks: tuple[str, ...] = ()
    ports: tuple[int, ...] | None = (80, 443)
    max_redirects: int = 3
    connect_s: float = 5.0
    read_s: float = 10.0
    total_s: float = 30.0
    max_bytes: int = 64 * 1024 * 1024
    file_root: Path | None = None
    any_path: bool = False

    def __post_init__(self) -> None:
        for name in ("domains", "trusted_networks"):
            if isinstance(getattr(self, name), str):  # each letter of it would be a name
                raise ConfigError(f"{name} = {getattr(self, name)!r}; accepted: a tuple of texts")
        object.__setattr__(self, "domains", tuple(map(_domain, self.domains)))
        for text in self.trusted_networks:
            _network(text)
        _check_int("max_redirects", self.max_redirects, 0, MAX_REDIRECTS)
        _check_int("max_bytes", self.max_bytes, 1)
        for port in self.ports or ():
            _check_int("ports", port, 1, 65535)
        for name in ("connect_s", "read_s", "total_s"):
            seconds = getattr(self, name)
            if not 0 < seconds < float("inf"):
                raise ConfigError(f"{name} = {seconds!r}; accepted: a number of seconds above 0")
        if self.any_path and self.file_root is not None:
            raise ConfigError(
                f"any_path = True and file_root = {str(self.file_root)!r} contradict each other: "
                "the folder would limit nothing"
            )

    @property
    def fetches(self) -> bool:
        """Whether anything may be fetched over the network."""
        return self.any_host or bool(self.domains)

    def allows_host(self, host: str) -> bool:
        """Whether a host, lower-case ASCII without a trailing dot, may be asked at all."""
        if self.any_host:
            return True
        return any(
            host.endswith(domain) if domain.startswith(".") else host == domain
            for domain in self.domains
        )

    def allows_port(self, port: int) -> bool:
        """Whether a connection may go to this port."""
        return self.ports is None or port in self.ports

    def networks(self) -> tuple[Network, ...]:
        """``trusted_networks``, parsed."""
        return tuple(map(_network, self.trusted_networks))


def _domain(text: str) -> str:
    """A domain in the form in which hosts are compared: lower case, ASCII, no trailing dot."""
    dot = "." if text.startswith(".") else ""
    name = text.removeprefix(".").removesuffix(".").lower()
    if not name.isascii() and not set(name) & set("/@:?#[]"):
        name = ascii_host(name)
    if is_host_name(name) or (not dot and _is_address(name)):
        return dot + name
    raise ConfigError(
        f"domains holds {text!r}; accepted: host names such as 'images.example.org', or "
        "'.example.org' for all names below it, without scheme, port or path"
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _network(text: str) -> Network:
    try:
        return parse_network(text)
    except ValueError as error:
        raise ConfigError(
            f"trusted_networks holds {text!r}; accepted: networks such as '10.1.0.0/16' ({error})"
        ) from error


def _check_int(name: str, value: object, low: int, high: int | None = None) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= low
    if not fits or (high is not None and isinstance(value, int) and value > high):
        upper = "" if high is None else f" to {high}"
        raise ConfigError(f"{name} = {value!r}; accepted: an int from {low}{upper}")


LOCAL: Final = FetchPolicy(any_path=True)
"""For a program that reads its own user's pictures: any path, nothing from the network."""

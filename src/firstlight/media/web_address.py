"""The address of a picture on the web, in the one form that is checked, connected to and shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Final

import httpx2

from firstlight.errors import MediaError

PORTS: Final = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True, slots=True)
class WebAddress:
    """What a request is made from; only scheme, host and port may be shown.

    Attributes:
        scheme: ``http`` or ``https``.
        host: lower-case ASCII, or an IPv6 address without its brackets.
        port: always a number.
        target: path and query, which may hold a token.
    """

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)

    @property
    def authority(self) -> str:
        """Host, in brackets where it is an IPv6 address, and the port unless it is the scheme's."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def join(self, location: str) -> WebAddress:
        """The address that a redirect from here leads to.

        Raises:
            MediaError: as for :func:`parse_web_address`.
        """
        here = _parsed(f"{self.scheme}://{self.authority}{self.target}")
        return _checked(_joined(here, location), location)


def parse_web_address(text: str) -> WebAddress:
    """An http or https address, its fragment dropped.

    Parsers that disagree let a check pass for one host and the connection go to another, so there
    is one parser, and what others read otherwise (a backslash, a blank, an escape in the host) is
    refused.

    Raises:
        MediaError: malformed, of another scheme, or with a user name. Nothing of it is repeated.
    """
    return _checked(_parsed(text), text)


def is_host_name(text: str) -> bool:
    """Whether a text is a lower-case ASCII host name, without a trailing dot."""
    return len(text) <= 253 and _NAME.fullmatch(text) is not None


def ascii_host(name: str) -> str:
    """A host name as the network knows it (IDNA); empty if it has no such form."""
    try:
        return httpx2.URL(scheme="http", host=name).raw_host.decode("ascii")
    except (httpx2.InvalidURL, UnicodeError):
        return ""


def _checked(url: httpx2.URL | None, text: str) -> WebAddress:
    # Raised here and not where a parser failed: its exception quotes what must not be shown.
    if url is None or _UNPRINTABLE.search(text):
        raise _malformed()
    if url.scheme not in PORTS:
        raise MediaError("the address of the picture is neither http nor https")
    if url.userinfo:
        raise MediaError("the web address of the picture holds a user name or a password")
    host = url.raw_host.decode("ascii").removesuffix(".")
    port = PORTS[url.scheme] if url.port is None else url.port
    if not (is_host_name(host) or _is_ipv6(host)) or not 1 <= port <= 65535:
        raise _malformed()
    return WebAddress(url.scheme, host, port, url.raw_path.decode("ascii"))


def _parsed(text: str) -> httpx2.URL | None:
    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL:
        return None


def _joined(base: httpx2.URL | None, location: str) -> httpx2.URL | None:
    try:
        return None if base is None else base.join(location)
    except (httpx2.InvalidURL, ValueError):  # ValueError: brackets that do not close
        return None


def _is_ipv6(host: str) -> bool:
    try:
        # An address with a zone (``fe80::1%eth0``) means an interface of this machine.
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _malformed() -> MediaError:
    return MediaError("the web address of the picture is malformed")

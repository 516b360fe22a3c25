"""Which network addresses a picture may be fetched from, and what a host name stands for.

The tables are written out instead of asked of ``ipaddress``: its flags call 100.64.0.1 not private
and the NAT64 and 6to4 forms of loopback addresses global, and they change between Python versions.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]
"""Host name and port to addresses, in order of preference; raises OSError or UnicodeError."""

# IANA's registry of special-purpose IPv4 addresses (RFC 6890 and later), and multicast.
_REFUSED_V4: Final = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared between carrier and customer
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Global unicast is 2000::/3 (RFC 4291); everything outside it is local, mapped, translated
# (64:ff9b::/96), multicast or unassigned. These are the exceptions inside.
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6: Final = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID, benchmarks and other protocol assignments
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: any IPv4 address inside
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
# Services that hand credentials to whoever asks from inside a machine; never trusted, whatever
# networks are. The first has an address that is public otherwise (Azure).
METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "168.63.129.16",
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)


def parse_network(text: str) -> Network:
    """A network such as ``10.1.0.0/16`` or one address; ValueError for anything else."""
    return ipaddress.ip_network(text, strict=True)


def is_public(address: Address) -> bool:
    """Whether an address is one of the open internet's, and no metadata service."""
    if address in METADATA:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    if address.scope_id is not None or address not in _GLOBAL_V6:
        return False
    return not any(address in network for network in _REFUSED_V6)


def may_connect(address: Address, trusted: Sequence[Network] = ()) -> bool:
    """Whether a connection may go there: public, or in a network that the operator trusts.

    Trusting a network of translated addresses, such as NAT64's 64:ff9b::/96, trusts the translation
    and not what lies behind it: the IPv4 address inside has to pass as well.
    """
    if is_public(address):
        return True
    if address in METADATA:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded(address)
        if address.scope_id is not None or (inner and not may_connect(inner, trusted)):
            return False
    return any(address in network for network in trusted)


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address is another form of."""
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


class AddressRefusedError(Exception):
    """A name has no address, or one of its addresses is not accepted; never leaves this package."""


def checked_addresses(
    host: str, port: int, resolve: Resolver, trusted: Sequence[Network] = ()
) -> list[str]:
    """The addresses that a connection to a host may go to, looked up once.

    A literal address in any spelling that the system understands (``127.1``, ``0x7f000001``) is
    looked up like a name, so that its check is the same.

    Raises:
        AddressRefusedError: no address, or one among them that is not accepted: a name that also
            stands for an inner address was made to reach it.
    """
    try:
        found = list(dict.fromkeys(resolve(host, port)))
        addresses = [ipaddress.ip_address(text) for text in found]
    except (OSError, ValueError) as error:  # UnicodeError of an impossible label is a ValueError
        raise AddressRefusedError("the name cannot be looked up") from error
    if not addresses:
        raise AddressRefusedError("the name has no address")
    if not all(may_connect(address, trusted) for address in addresses):
        raise AddressRefusedError("the name stands for an address that is not accepted")
    return found


def system_resolver(host: str, port: int) -> list[str]:
    """The addresses that the operating system finds, as text."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(sockaddr[0]) for *_, sockaddr in found]


def within(seconds: float, resolve: Resolver) -> Resolver:
    """A resolver that gives up after ``seconds`` with TimeoutError.

    The system's own look-up knows no limit; a thread that still waits for it is left to end by
    itself and holds nothing but the name.
    """

    def limited(host: str, port: int) -> Sequence[str]:
        result: list[Sequence[str]] = []
        failure: list[Exception] = []

        def work() -> None:
            try:
                result.append(resolve(host, port))
            except Exception as error:  # carried to the waiting thread
                failure.append(error)

        thread = threading.Thread(target=work, name="firstlight-lookup", daemon=True)
        thread.start()
        thread.join(max(seconds, 0.0))
        if failure:
            raise failure[0]
        if not result:
            raise TimeoutError("looking up the name takes too long")
        return result[0]

    return limited

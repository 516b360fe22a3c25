"""Only addresses of the open internet are connected to, whatever form they come in."""

from __future__ import annotations

import ipaddress
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.media.addresses import (
    METADATA,
    AddressRefusedError,
    checked_addresses,
    is_public,
    may_connect,
    parse_network,
    system_resolver,
    within,
)
from tests.media.listener import names

REFUSED = {
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1"],
    "carrier": ["100.64.0.1", "100.127.255.255"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:127.0.0.1"],
    "translated": ["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"],
    "6to4": ["2002:7f00:1::", "2002:808:808::1", "192.88.99.1"],
    "teredo": ["2001::1", "2001:0:53aa:64c::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.0.1", "198.18.0.1", "4000::1", "100::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_address_that_is_not_of_the_open_internet_is_refused(kind: str) -> None:
    wrong = [text for text in REFUSED[kind] if may_connect(ipaddress.ip_address(text))]
    assert wrong == []


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "100.128.0.1", "172.32.0.1", "2600::1"])
def test_a_public_address_is_accepted(text: str) -> None:
    assert may_connect(ipaddress.ip_address(text))


@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_otherwise(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


def test_a_trusted_network_is_accepted_and_its_neighbours_are_not() -> None:
    trusted = [parse_network("10.1.0.0/16"), parse_network("fd12::/32")]
    accepted = ["10.1.0.0", "10.1.255.255", "fd12::1"]
    refused = ["10.2.0.0", "10.0.255.255", "fd13::1", "fd12::1%1", "::ffff:10.1.0.1", "127.0.0.1"]
    assert all(may_connect(ipaddress.ip_address(text), trusted) for text in accepted)
    assert not any(may_connect(ipaddress.ip_address(text), trusted) for text in refused)


def test_no_trusted_network_opens_a_metadata_service() -> None:
    trusted = [parse_network(text) for text in ("0.0.0.0/0", "::/0")]
    forms = [
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "::169.254.169.254",
    ]
    for address in [*METADATA, *map(ipaddress.ip_address, forms)]:
        assert not may_connect(address, trusted), address
    assert may_connect(ipaddress.ip_address("127.0.0.1"), trusted)


def test_trusting_a_translation_trusts_nothing_behind_it() -> None:
    trusted = [parse_network("64:ff9b::/96")]
    assert may_connect(ipaddress.ip_address("64:ff9b::808:808"), trusted)
    assert not may_connect(ipaddress.ip_address("64:ff9b::a00:1"), trusted)


@pytest.mark.parametrize("spelling", ["127.0.0.1", "2130706433", "0x7f000001", "127.1", "0177.1"])
def test_every_spelling_of_an_address_meets_the_same_check(spelling: str) -> None:
    assert system_resolver(spelling, 80) == ["127.0.0.1"]
    with pytest.raises(AddressRefusedError):
        checked_addresses(spelling, 80, system_resolver)


def test_one_inner_address_among_public_ones_refuses_the_name() -> None:
    resolve = names({"a.example": "8.8.8.8,10.0.0.1", "b.example": "8.8.8.8,1.1.1.1,8.8.8.8"})
    with pytest.raises(AddressRefusedError):
        checked_addresses("a.example", 80, resolve)
    assert checked_addresses("b.example", 80, resolve) == ["8.8.8.8", "1.1.1.1"]


@pytest.mark.parametrize("host", ["missing.example", "a..b", "x" * 300, ""])
def test_a_name_that_cannot_be_looked_up_is_refused(host: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        if host == "missing.example":
            raise OSError
        host.encode("idna")  # as the system's own look-up does first
        return []

    with pytest.raises(AddressRefusedError):
        checked_addresses(host, 80, resolve)


def test_a_look_up_that_hangs_is_left_behind() -> None:
    answer = threading.Event()

    def hangs(host: str, port: int) -> list[str]:
        answer.wait(10)
        return ["8.8.8.8"]

    started = time.monotonic()
    with pytest.raises(TimeoutError):
        within(0.02, hangs)("a.example", 80)
    assert time.monotonic() - started < 1
    answer.set()


def test_a_look_up_in_time_gives_its_answer_or_its_error() -> None:
    resolve = within(5, names({"a.example": "8.8.8.8"}))
    assert resolve("a.example", 80) == ["8.8.8.8"]
    with pytest.raises(OSError, match="no such name"):
        resolve("b.example", 80)

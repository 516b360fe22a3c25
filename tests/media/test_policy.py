"""A policy says what may be read; what makes no sense is refused when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import ConfigError
from firstlight.media.policy import LOCAL, FetchPolicy


def test_by_default_nothing_is_read_but_what_is_given() -> None:
    policy = FetchPolicy()
    assert not policy.fetches
    assert not policy.any_path
    assert policy.file_root is None
    assert not policy.allows_host("example.org")


def test_the_policy_for_ones_own_machine_reads_paths_and_fetches_nothing() -> None:
    assert LOCAL.any_path
    assert not LOCAL.fetches


@pytest.mark.parametrize(
    ("domain", "accepted", "refused"),
    [
        (
            "example.org",
            ["example.org"],
            ["a.example.org", "example.org.evil", "xample.org", "org"],
        ),
        (".example.org", ["a.example.org", "b.a.example.org"], ["example.org", "badexample.org"]),
        ("EXAMPLE.org.", ["example.org"], []),
        ("bücher.example", ["xn--bcher-kva.example"], ["bücher.example"]),
        (".bücher.example", ["a.xn--bcher-kva.example"], ["xn--bcher-kva.example"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.11", "110.0.0.1"]),
        ("::1", ["::1"], ["::11"]),
    ],
)
def test_a_domain_accepts_itself_or_with_a_dot_all_below_it(
    domain: str, accepted: list[str], refused: list[str]
) -> None:
    policy = FetchPolicy(domains=(domain,))
    assert policy.fetches
    assert all(map(policy.allows_host, accepted))
    assert not any(map(policy.allows_host, refused))


def test_any_host_accepts_every_name() -> None:
    assert FetchPolicy(any_host=True).allows_host("example.org")


def test_ports_are_those_of_http_unless_said_otherwise() -> None:
    assert [port for port in (22, 80, 443, 8080) if FetchPolicy().allows_port(port)] == [80, 443]
    assert FetchPolicy(ports=(8080,)).allows_port(8080)
    assert FetchPolicy(ports=None).allows_port(22)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"domains": "localhost"}, "domains = 'localhost'; accepted: a tuple"),
        ({"trusted_networks": "::1"}, "trusted_networks = '::1'; accepted: a tuple"),
        ({"domains": ("https://example.org",)}, "domains holds 'https://example.org'"),
        ({"domains": ("*.example.org",)}, r"domains holds '\*\.example\.org'"),
        ({"domains": ("example.org:80",)}, "domains holds"),
        ({"domains": ("ü/x.example",)}, "domains holds"),
        ({"domains": ("",)}, "domains holds"),
        ({"domains": (".",)}, "domains holds"),
        ({"trusted_networks": ("10.1.0.1/16",)}, "trusted_networks holds '10.1.0.1/16'"),
        ({"trusted_networks": ("localhost",)}, "trusted_networks holds"),
        ({"max_redirects": 6}, "max_redirects = 6; accepted: an int from 0 to 5"),
        ({"max_redirects": True}, "max_redirects = True"),
        ({"max_bytes": 0}, "max_bytes = 0"),
        ({"ports": (0,)}, "ports = 0"),
        ({"total_s": 0}, "total_s = 0"),
        ({"read_s": float("nan")}, "read_s = nan"),
        ({"connect_s": float("inf")}, "connect_s = inf"),
        ({"any_path": True, "file_root": Path("/a")}, "any_path = True and file_root = '/a'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FetchPolicy(**fields)

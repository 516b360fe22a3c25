"""A page that gives its own name this machine's address reads nothing of the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from firstlight.errors import ConfigError
from firstlight.server.hosts import HostCheck, accepted_hosts
from firstlight.server.settings import ServerSettings


def status(hosts: frozenset[str], *given: str) -> tuple[int, Any]:
    """The status of a request with these Host headers, and its error; 200 if it got through."""
    sent: list[Any] = []

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"null"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    facts: dict[str, Any] = {}
    headers = [(b"host", value.encode("latin-1")) for value in given]
    scope = {"type": "http", "headers": headers, "state": {"facts": facts}}
    asyncio.run(HostCheck(served, hosts)(scope, receive, send))
    body = json.loads(sent[1]["body"])
    if body is not None:
        assert facts == {"error": "host_not_allowed"}
    return sent[0]["status"], body and body["error"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST.:1", "a.localhost", "127.0.0.1:8000", "[::1]:8000",
     "10.1.2.3"],
)  # fmt: skip
def test_addresses_and_localhost_are_always_answered(host: str) -> None:
    assert status(frozenset(), host) == (200, None)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example",
     "notlocalhost", "[evil.example]", "", "1", "2130706433", "0x7f.1"],
)  # fmt: skip
def test_any_other_name_is_refused_and_not_repeated(host: str) -> None:
    code, error = status(frozenset(), host)
    assert code == 403
    assert error["code"] == "host_not_allowed"
    assert error["type"] == "permission_error"
    assert "evil" not in error["message"]
    assert "--allowed-hosts" in error["message"]


def test_two_hosts_are_refused_and_none_at_all_is_a_client_of_old() -> None:
    assert status(frozenset(), "localhost", "localhost")[0] == 403
    assert status(frozenset())[0] == 200


def test_names_that_were_set_are_answered_and_a_dot_stands_for_all_below() -> None:
    hosts = accepted_hosts(ServerSettings(allowed_hosts=("Models.example", ".a.org")), keyed=True)
    assert hosts is not None
    for host in ("models.example", "MODELS.EXAMPLE:443", "b.a.org", "c.b.a.org."):
        assert status(hosts, host)[0] == 200
    for host in ("a.org", "ba.org", "x.models.example"):
        assert status(hosts, host)[0] == 403


@pytest.mark.parametrize(
    ("settings", "keyed", "checked"),
    [
        ({}, False, True),
        ({"host": "::1"}, False, True),
        ({}, True, False),
        ({"host": "0.0.0.0"}, False, False),
        ({"host": "0.0.0.0", "allowed_hosts": "a.org"}, False, True),
        ({"allowed_hosts": "a.org"}, True, True),
        ({"allowed_hosts": "*"}, False, False),
    ],
)
def test_names_matter_on_loopback_without_a_key_and_where_they_are_set(
    settings: dict[str, Any], keyed: bool, checked: bool
) -> None:
    assert (accepted_hosts(ServerSettings(**settings), keyed=keyed) is not None) is checked


@pytest.mark.parametrize("name", ["http://a.org", "a.org:80", "a.org/x", "*.a.org", "a b"])
def test_what_is_no_host_name_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="allowed_hosts = "):
        ServerSettings(allowed_hosts=(name,))

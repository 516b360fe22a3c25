"""Public faults of what a picture's address may reach (cases H40 and H41)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.errors import MediaError
from firstlight.media.fetch import Fetcher
from firstlight.media.policy import FetchPolicy
from firstlight.media.source import SourceLoader
from tests.media.files import encoded, noise
from tests.media.listener import Listener, listening, redirects, sends

ALLOWED = "127.0.0.3"
"""An address of this machine that the policy trusts, as if it were on the open internet."""

SPELLINGS = [
    "127.0.0.1",
    "localhost",
    "localhost.",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "127.1",
    "127.0.1",
    "0177.0.0.1",
    "0.0.0.0",
    "0",
    "[::]",
    "169.254.169.254",
    "10.0.0.1",
    "100.64.0.1",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "127.0.0.3@127.0.0.1",
    "127.0.0.1%2eexample",
    "１２７.0.0.1",
]


@pytest.fixture
def victim() -> Iterator[Listener]:
    """A service that only this machine may reach, on every one of its IPv4 addresses."""
    with listening(sends(b"secret"), "0.0.0.0") as listener:
        yield listener


def loader(**fields: object) -> SourceLoader:
    """A server that is as open as it can be set, but for the networks that are not public."""
    policy = FetchPolicy(
        any_host=True,
        ports=None,
        max_redirects=5,
        connect_s=0.5,
        total_s=1.0,
        **fields,  # type: ignore[arg-type]
    )
    return SourceLoader(policy, Fetcher(policy))


def refused(source: SourceLoader, url: str) -> str:
    with pytest.raises(MediaError) as caught:
        source.load(url)
    return str(caught.value)


def test_the_victim_would_answer_if_it_were_trusted(victim: Listener) -> None:
    """The control of the tests below."""
    source = loader(trusted_networks=("127.0.0.1",))
    for host in ("127.0.0.1", "2130706433", "127.1"):
        assert source.load(f"http://{host}:{victim.port}/a.png") == b"secret"
    assert victim.hits == 3


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_an_inner_address_is_connected_to(host: str, victim: Listener) -> None:
    """H40: the same words whether something listens there or not."""
    source = loader()
    here = refused(source, f"http://{host}:{victim.port}/a.png")
    nowhere = refused(source, f"http://{host}:9/a.png")
    assert here == nowhere
    assert victim.hits == 0


@pytest.mark.parametrize("scheme", ["ftp", "gopher", "dict", "ldap", "jar:http", "unix"])
def test_no_other_scheme_is_followed(scheme: str, victim: Listener) -> None:
    """H40"""
    assert "not accepted" in refused(loader(), f"{scheme}://127.0.0.1:{victim.port}/a.png")
    assert victim.hits == 0


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("hops", [1, 5, 20])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost.", "[::1]", "2130706433", "0.0.0.0"])
def test_no_chain_of_redirects_leads_inside(
    host: str, hops: int, status: int, victim: Listener
) -> None:
    """H40: from an allowed host, the port changing on the way."""
    target = f"http://{host}:{victim.port}/a.png"

    def answer(handler: object) -> None:
        left = int(handler.path[1:]) - 1  # type: ignore[attr-defined]
        redirects(f"/{left}" if left else target, status)(handler)  # type: ignore[arg-type]

    with listening(answer, ALLOWED) as outside:
        message = refused(loader(trusted_networks=(ALLOWED,)), outside.url(f"/{hops}"))
        assert len(outside.requests) == min(hops, 6)  # so the chain was really walked
    assert victim.hits == 0
    assert target not in message


def test_nothing_is_fetched_unless_a_host_was_named(victim: Listener) -> None:
    """H40: off by default, and limited to named hosts where some are."""
    for policy in (
        FetchPolicy(ports=None),
        FetchPolicy(ports=None, domains=("example.org",)),
        FetchPolicy(ports=None, domains=("127.0.0.1", "localhost")),  # named, but not trusted
    ):
        refused(SourceLoader(policy), victim.url(host="127.0.0.1"))
    assert victim.hits == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An allowed folder, beside it a canary, in it ways that lead out."""
    root = tmp_path / "media"
    root.mkdir()
    (root / "a.png").write_bytes(encoded(noise()))
    canary = tmp_path / "canary.png"
    canary.write_bytes(encoded(noise()))
    (root / "link.png").symlink_to(canary)
    (root / "up").symlink_to(tmp_path)
    os.mkfifo(root / "pipe.png")
    return root


def ways_out(root: Path) -> list[str]:
    """H41's spellings of what must not be read; some exist and some do not."""
    canary, missing = root.parent / "canary.png", root.parent / "missing.png"
    found = ["/proc/self/environ", "/proc/self/fd/0", str(root / "pipe.png"), str(root)]
    found += [str(root / "link.png"), str(root / "up" / "canary.png"), f"{root}/../canary.png"]
    found += [f"\\\\?\\{canary}", f"{canary}\0.png", f"{root}/a.png\0/../../canary.png"]
    for path in (canary, missing):
        found += [str(path), f"file://{path}", f"file://localhost{path}", f"FILE:{path}"]
        found += [f"file://{root}/../{path.name}", f"file://{root}/%2e%2e/{path.name}"]
        found += [f"file://{root}/%2e%2e%2f{path.name}", f"file://{root}/..%5c{path.name}"]
    return found


def test_no_file_is_read_by_default(folder: Path) -> None:
    """H41: an address that names a file, and one that names none, are answered alike."""
    source = SourceLoader(FetchPolicy(any_host=True))
    ways = [*ways_out(folder), str(folder / "a.png"), "a.png"]
    assert len({refused(source, way) for way in ways}) == 1


def test_with_a_folder_allowed_only_what_really_lies_in_it_is_read(folder: Path) -> None:
    """H41"""
    source = SourceLoader(FetchPolicy(file_root=folder))
    assert source.load(f"file://{folder}/a.png") == (folder / "a.png").read_bytes()
    assert len({refused(source, way) for way in ways_out(folder)}) == 1

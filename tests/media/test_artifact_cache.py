"""The artifact cache stays within its limits and never gives what was not asked for."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import ConfigError
from firstlight.media.artifact import Artifact
from firstlight.media.artifact_cache import ENTRY_BYTES, ArtifactCache, Flight, cached_bytes
from firstlight.media.artifact_maker import Made
from firstlight.media.identity import ArtifactKey

FLOATS = 256
SIZE = 4 * FLOATS + ENTRY_BYTES
"""Bytes of one entry of these tests."""


def key(name: str, check: str = "1.0") -> ArtifactKey:
    return ArtifactKey(f"sha256:{name}", f"digest of {name}", check)


def artifact(of: ArtifactKey, floats: int = FLOATS) -> Artifact:
    return Artifact({"pixels": torch.zeros(floats)}, (1, 1), of.digest, str(of))


def begin(cache: ArtifactCache, of: ArtifactKey) -> Flight:
    """Own a key."""
    (claim,) = cache.claim([of])
    assert claim.owner
    assert claim.flight is not None
    return claim.flight


def put(cache: ArtifactCache, name: str, floats: int = FLOATS) -> Artifact:
    """Make one artifact and keep it."""
    made = artifact(key(name), floats)
    cache.finish(begin(cache, key(name)), Made(made))
    return made


def holds(cache: ArtifactCache, *names: str) -> list[str]:
    return [name for name in names if cache.get(key(name)) is not None]


def test_what_was_put_is_got_again_as_the_same_object() -> None:
    cache = ArtifactCache(10 * SIZE)
    made = put(cache, "a")
    assert cache.get(key("a")) is made
    assert cache.get(key("b")) is None


def test_the_least_recently_used_makes_room() -> None:
    cache = ArtifactCache(2 * SIZE)
    put(cache, "a")
    put(cache, "b")
    cache.get(key("a"))
    put(cache, "c")
    assert holds(cache, "a", "b", "c") == ["a", "c"]
    assert cache.usage().evictions == 1


def test_a_larger_entry_makes_as_much_room_as_it_needs() -> None:
    cache = ArtifactCache(3 * SIZE)
    for name in "abc":
        put(cache, name)
    put(cache, "d", floats=(SIZE + 4 * FLOATS) // 4)  # takes two places
    assert holds(cache, "a", "b", "c", "d") == ["c", "d"]


def test_the_number_of_entries_has_a_limit_of_its_own() -> None:
    cache = ArtifactCache(100 * SIZE, max_entries=2)
    for name in "abc":
        put(cache, name)
    assert holds(cache, "a", "b", "c") == ["b", "c"]


def test_an_entry_over_the_limit_is_refused_and_evicts_nothing() -> None:
    cache = ArtifactCache(2 * SIZE)
    put(cache, "a")
    put(cache, "large", floats=3 * SIZE)
    assert holds(cache, "a", "large") == ["a"]
    assert cache.usage().refused == 1


@pytest.mark.parametrize("limits", [(0, 8), (SIZE, 0)])
def test_a_limit_of_nothing_keeps_nothing(limits: tuple[int, int]) -> None:
    cache = ArtifactCache(*limits)
    put(cache, "a")
    assert holds(cache, "a") == []
    assert (cache.usage().bytes, cache.usage().refused) == (0, 1)


@pytest.mark.parametrize("limits", [(-1, 1), (1, -1)])
def test_a_limit_below_nothing_is_refused(limits: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="accepted: an int from 0"):
        ArtifactCache(*limits)


def test_an_artifact_on_another_device_is_refused() -> None:
    cache = ArtifactCache(10 * SIZE)
    of = key("a")
    elsewhere = Artifact({"pixels": torch.zeros(4, device="meta")}, (1, 1), of.digest, str(of))
    assert cached_bytes(elsewhere) is None
    flight = begin(cache, of)
    cache.finish(flight, Made(elsewhere))
    assert flight.result.result().artifact is elsewhere  # those who wait have it all the same
    assert holds(cache, "a") == []
    assert cache.usage().refused == 1


def test_whole_storages_count_and_each_once() -> None:
    base = torch.zeros(100)
    whole = Artifact({"a": base}, (1, 1), "")
    views = Artifact({"a": base[:1], "b": base[1:2]}, (1, 1), "")
    assert cached_bytes(whole) == cached_bytes(views) == 400 + ENTRY_BYTES


def test_an_entry_that_is_not_what_its_key_says_is_evicted() -> None:
    """E7"""
    cache = ArtifactCache(10 * SIZE)
    cache.finish(begin(cache, key("a")), Made(artifact(key("b"))))
    assert cache.get(key("a")) is None
    assert (cache.usage().entries, cache.usage().bytes, cache.usage().corrupt) == (0, 0, 1)


def test_content_that_came_to_one_digest_is_neither_hit_nor_joined() -> None:
    """H14"""
    cache = ArtifactCache(10 * SIZE)
    flight = begin(cache, key("a"))
    begin(cache, key("a", check="1.1"))  # its own flight
    cache.finish(flight, Made(artifact(key("a"))))
    assert cache.get(key("a", check="1.1")) is None


# -- single flight -----------------------------------------------------------------------------


def test_one_owner_makes_and_the_others_join() -> None:
    cache = ArtifactCache(10 * SIZE)
    flight = begin(cache, key("a"))
    (joined,) = cache.claim([key("a")])
    assert (joined.owner, joined.flight) == (False, flight)
    cache.finish(flight, Made(artifact(key("a"))))
    (hit,) = cache.claim([key("a")])
    assert hit.artifact is flight.result.result().artifact
    usage = cache.usage()
    assert (usage.misses, usage.joins, usage.hits, usage.in_flight) == (1, 1, 1, 0)


def test_several_keys_are_claimed_at_once_each_by_its_own_state() -> None:
    cache = ArtifactCache(10 * SIZE)
    made, flight = put(cache, "hit"), begin(cache, key("flying"))
    hit, joined, owned = cache.claim([key("hit"), key("flying"), key("new")])
    assert hit.artifact is made
    assert joined.flight is flight
    assert owned.owner


def test_a_failure_reaches_all_who_wait_and_releases_the_key() -> None:
    cache = ArtifactCache(10 * SIZE)
    flight = begin(cache, key("a"))
    failure = ValueError("broken")
    cache.finish(flight, failure)
    assert flight.result.exception() is failure
    begin(cache, key("a"))
    assert cache.usage().entries == 0


def test_threads_that_claim_one_key_at_one_moment_have_one_owner() -> None:
    cache, together, owners = ArtifactCache(10 * SIZE), threading.Barrier(8), []

    def claim() -> None:
        together.wait()
        owners.append(cache.claim([key("a")])[0].owner)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(owners) == [False] * 7 + [True]


# -- generations -------------------------------------------------------------------------------


def test_a_flush_forgets_everything() -> None:
    cache = ArtifactCache(10 * SIZE)
    put(cache, "a")
    cache.flush()
    assert holds(cache, "a") == []
    assert (cache.usage().entries, cache.usage().bytes) == (0, 0)


def test_what_began_before_a_flush_serves_its_waiters_and_is_not_kept() -> None:
    cache = ArtifactCache(10 * SIZE)
    flight, made = begin(cache, key("a")), artifact(key("a"))
    cache.flush()
    cache.finish(flight, Made(made))
    assert flight.result.result().artifact is made
    assert holds(cache, "a") == []
    assert cache.usage().refused == 1


def test_what_began_before_a_flush_is_not_joined_and_does_not_end_the_new_flight() -> None:
    cache = ArtifactCache(10 * SIZE)
    old = begin(cache, key("a"))
    cache.flush()
    new = begin(cache, key("a"))
    cache.finish(old, Made(artifact(key("a"))))
    assert cache.claim([key("a")])[0].flight is new
    cache.finish(new, Made(artifact(key("a"))))
    assert holds(cache, "a") == ["a"]


# -- any order ---------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3 * FLOATS)), max_size=40)


@given(STEPS, st.integers(0, 4))
def test_bytes_and_entries_add_up_and_stay_within_their_limits(
    steps: list[tuple[str, int]], max_entries: int
) -> None:
    cache = ArtifactCache(3 * SIZE, max_entries)
    for name, floats in steps:
        (claim,) = cache.claim([key(name)])
        if claim.flight is not None:
            cache.finish(claim.flight, Made(artifact(key(name), floats)))
        usage = cache.usage()
        assert usage.bytes <= usage.max_bytes
        assert usage.entries <= max_entries
        kept = [cache.get(key(n)) for n in "abcdef"]
        assert usage.bytes == sum(cached_bytes(a) or 0 for a in kept if a is not None)
    assert cache.usage().in_flight == 0

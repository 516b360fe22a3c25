"""Each item of a request gets its own artifact, made once and only where it must be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from firstlight.errors import ArtifactError, MediaError
from firstlight.media import Outcome
from firstlight.media.artifact import Artifact
from firstlight.media.artifact_maker import Made, Miss
from firstlight.media.identity import Snapshot, take_snapshot
from tests.media.stores import Maker, Open, digest, items, stores


@pytest.fixture
def open_store() -> Iterator[Open]:
    """``open_store(maker, max_bytes=..., trust=...)`` with pools that end with the test."""
    with stores() as open_:
        yield open_


# -- hits, misses, duplicates ------------------------------------------------------------------


def test_only_what_is_missing_is_made_in_one_batch_and_the_order_is_kept(open_store: Open) -> None:
    """E4: [a, b, b, a] with a cached."""
    maker = Maker()
    store = open_store(maker)
    (a,) = store.lookup(items("a"))
    found = store.prepare(items("a", "b", "b", "a"))
    assert maker.batches == [["a"], ["b"]]
    artifacts = [each.artifact for each in found]
    assert artifacts[0] is artifacts[3] is a
    assert artifacts[1] is artifacts[2] is not a
    hit, miss, joined = Outcome.HIT, Outcome.MISS, Outcome.JOINED
    assert [each.outcome for each in found] == [hit, miss, joined, hit]
    assert [each.process_s for each in found] == [0, 2, 0, 0]


def test_several_misses_of_a_request_are_one_batch(open_store: Open) -> None:
    maker = Maker()
    open_store(maker).lookup(items("a", "b", "a", "c"))
    assert maker.batches == [["a", "b", "c"]]


def test_a_source_that_is_named_twice_is_read_once(open_store: Open) -> None:
    maker = Maker()
    open_store(maker).lookup(items("a", "b", "a"))
    assert sorted(map(str, maker.reads)) == ["a", "b"]


def test_no_items_are_no_work(open_store: Open) -> None:
    maker = Maker()
    assert open_store(maker).lookup([]) == []
    assert maker.batches == []


def test_equal_content_of_different_sources_is_one_artifact(open_store: Open) -> None:
    class Same(Maker):
        def snapshot(self, source: object) -> Snapshot:
            return take_snapshot(b"same")

    one, other = open_store(Same()).lookup(items("a", "b"))
    assert one is other


def test_other_options_are_another_artifact_and_the_default_is_not(open_store: Open) -> None:
    """E2 and H15: in the order A, B, A, B."""
    maker = Maker()
    store = open_store(maker)
    details = ["auto", "low", "auto", "low"]
    found = [store.lookup(items("a", options={"detail": d}))[0] for d in details]
    assert found[0] is found[2]
    assert found[1] is found[3]
    assert found[0].key != found[1].key
    assert store.lookup(items("a"))[0] is found[0]
    assert store.lookup(items("a", options={"unknown": 1}))[0].key not in {a.key for a in found}


def test_another_processor_makes_its_own(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    store.lookup(items("a"))
    maker.fingerprint = "processor 2"
    store.lookup(items("a"))
    assert maker.batches == [["a"], ["a"]]


def test_a_cache_of_no_bytes_still_makes_and_shares_within_a_request(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, max_bytes=0)
    for _ in range(2):
        one, other = store.lookup(items("a", "a"))
        assert one is other
    assert maker.batches == [["a"], ["a"]]
    assert store.cache.usage().bytes == 0


def test_seconds_are_those_of_the_own_work(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    (made,) = store.prepare(items("a"))
    (hit,) = store.prepare(items("a"))
    assert (made.decode_s, made.process_s) == (1.0, 2.0)
    assert (hit.decode_s, hit.process_s) == (0.0, 0.0)
    assert hit.read_s > 0


# -- hashes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("trust", [False, True])
def test_a_wrong_hash_is_refused_whatever_is_set(
    bypass: bool, trust: bool, open_store: Open
) -> None:
    """E9"""
    maker = Maker()
    with pytest.raises(MediaError, match=r"^images\[0\]: .*does not have the hash"):
        open_store(maker, trust=trust).lookup(items("a", content_hash=digest("b")), bypass=bypass)
    assert maker.batches == []


@pytest.mark.parametrize("text", ["", "abc", "sha256:abc", "SHA256:" + "a" * 64, "md5:" + "a" * 64])
def test_what_is_no_hash_is_refused_before_anything_is_read(text: str, open_store: Open) -> None:
    maker = Maker()
    with pytest.raises(MediaError, match=r"images\[0\]: .*is no digest"):
        open_store(maker).lookup(items("a", content_hash=text))
    assert maker.reads == []


def test_a_trusted_hit_never_reads_the_source(open_store: Open) -> None:
    """E6"""
    maker = Maker()
    store = open_store(maker, trust=True)
    (first,) = store.lookup(items("a"))
    (found,) = store.prepare(items("missing", content_hash=digest("a")))
    assert found.artifact is first
    assert (found.outcome, found.read_s) == (Outcome.HIT, 0.0)
    assert maker.reads == ["a"]


def test_a_trusted_hash_that_is_not_cached_is_read_and_checked(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, trust=True)
    for _ in range(2):
        store.lookup(items("a", content_hash=digest("a")))
    assert maker.reads == ["a"]
    assert maker.batches == [["a"]]


def test_by_default_a_hash_spares_no_reading(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    for _ in range(2):
        store.lookup(items("a", content_hash=digest("a")))
    assert maker.reads == ["a", "a"]
    assert maker.batches == [["a"]]


# -- bypass ------------------------------------------------------------------------------------


def test_a_bypass_shares_nothing_keeps_nothing_and_leaves_the_cache_alone(open_store: Open) -> None:
    """E8"""
    maker = Maker()
    store = open_store(maker)
    (kept,) = store.lookup(items("a"))
    before = store.cache.usage()
    one, other, new = store.lookup(items("a", "a", "b"), bypass=True)
    assert len({id(kept), id(one), id(other), id(new)}) == 4
    assert maker.batches == [["a"], ["a", "a", "b"]]
    assert store.cache.usage() == before
    assert one.key == kept.key  # what is computed from equal artifacts may be shared


def test_a_bypass_believes_no_hash_and_reads_each_source_itself(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, trust=True)
    (kept,) = store.lookup(items("a"))
    found = store.lookup(items("a", "a", content_hash=digest("a")), bypass=True)
    assert kept not in found
    assert maker.reads == ["a", "a", "a"]


# -- failures ----------------------------------------------------------------------------------


def test_the_first_item_that_cannot_be_read_is_named(open_store: Open) -> None:
    maker = Maker()
    with pytest.raises(MediaError, match=r"^images\[1\]: it is not there$"):
        open_store(maker).lookup(items("a", "missing", "b", "missing"))
    assert maker.batches == []


def test_the_first_item_that_cannot_be_made_is_named_and_the_others_are_kept(
    open_store: Open,
) -> None:
    maker = Maker()
    store = open_store(maker)
    with pytest.raises(MediaError, match=r"^images\[1\]: it is broken$"):
        store.lookup(items("a", "broken", "b"))
    store.lookup(items("a", "b"))
    assert maker.batches == [["a", "broken", "b"]]


def test_a_batch_that_raises_is_made_again_one_by_one(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    with pytest.raises(ArtifactError, match=r"^images\[1\]: preparing it failed: ZeroDivision"):
        store.lookup(items("a", "raises", "b"))
    store.lookup(items("a", "b"))
    assert maker.batches == [["a", "raises", "b"], ["a"], ["raises"], ["b"]]


def test_a_failure_is_not_kept(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    for _ in range(2):
        with pytest.raises(MediaError):
            store.lookup(items("broken"))
    assert maker.batches == [["broken"], ["broken"]]
    assert store.cache.usage().in_flight == 0


@pytest.mark.parametrize("what", ["key", "digest", "order", "count", "type"])
def test_a_maker_that_breaks_its_contract_is_refused(what: str, open_store: Open) -> None:
    """E5"""

    class Wrong(Maker):
        def make(self, misses: Sequence[Miss]) -> Sequence[Made | Exception]:
            made = list(super().make(misses))
            first = made[0].artifact  # type: ignore[union-attr]
            changed: dict[str, Any] = {
                "key": Made(Artifact(first.tensors, first.size, first.digest, "sha256:x/1.0")),
                "digest": Made(Artifact(first.tensors, first.size, digest("x"), first.key)),
                "type": first,
            }
            if what == "order":
                return made[::-1]
            if what == "count":
                return made[1:]
            return [changed[what], *made[1:]]

    store = open_store(Wrong())
    with pytest.raises(ArtifactError, match=r"^images\[0\]: "):
        store.lookup(items("a", "b"))
    assert store.cache.usage().entries == 0
    assert store.cache.usage().in_flight == 0


def test_an_option_that_is_refused_is_named_before_anything_is_read(open_store: Open) -> None:
    maker = Maker()
    with pytest.raises(MediaError, match=r"^images\[0\]: .*no canonical form"):
        open_store(maker).lookup(items("a", options={"x": object()}))
    assert maker.reads == []

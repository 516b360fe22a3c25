"""The encoder cache: bounded in bytes, exact in counts, strict about rows and width."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from firstlight.errors import ConfigError
from firstlight.memory.encoder_cache import EncoderCache

WIDTH = 4
ROW = WIDTH * 4  # bytes


def rows(n: int, value: float = 0.0) -> Tensor:
    return torch.full((n, WIDTH), value)


def cache_of(n_rows: int) -> EncoderCache:
    return EncoderCache(n_rows * ROW)


def test_what_was_put_is_found_under_its_key_alone() -> None:
    cache = cache_of(8)
    assert cache.put("a", rows(3, 1.0))
    found = cache.get("a", 3, WIDTH)
    assert found is not None
    assert torch.equal(found, rows(3, 1.0))
    assert cache.get("b", 3, WIDTH) is None
    usage = cache.usage()
    assert (usage.entries, usage.bytes, usage.hits, usage.misses) == (1, 3 * ROW, 1, 1)


def test_a_reset_forgets_pinned_rows_too() -> None:
    cache = cache_of(8)
    assert cache.put("a", rows(3))
    cache.pin("a")
    cache.reset()
    usage = cache.usage()
    assert (usage.entries, usage.bytes, usage.pinned) == (0, 0, 0)
    assert cache.put("a", rows(8))


@pytest.mark.parametrize(("n", "width"), [(4, WIDTH), (2, WIDTH), (3, WIDTH + 1)])
def test_an_entry_of_other_rows_or_width_is_evicted_and_missed(n: int, width: int) -> None:
    """Reference §9 G1, case H13: what does not fit its key must not be met again."""
    cache = cache_of(8)
    cache.put("a", rows(3))
    assert not cache.has("a", n, width)
    assert cache.get("a", n, width) is None
    assert cache.usage().entries == 0
    assert cache.usage().evictions == 1
    assert cache.put("a", torch.zeros(n, width))
    assert cache.get("a", n, width) is not None


def test_a_pinned_entry_of_another_shape_is_missed_but_stays() -> None:
    cache = cache_of(8)
    cache.put("a", rows(3, 1.0))
    cache.pin("a")
    assert cache.get("a", 2, WIDTH) is None
    assert not cache.put("a", rows(2))
    assert cache.get("a", 3, WIDTH) is not None


def test_asking_whether_it_is_there_changes_nothing() -> None:
    cache = cache_of(2)
    cache.put("a", rows(1))
    cache.put("b", rows(1))
    assert cache.has("a", 1, WIDTH)
    cache.put("c", rows(1))
    assert not cache.has("a", 1, WIDTH)  # still the oldest when room was needed
    assert (cache.usage().hits, cache.usage().misses) == (0, 0)


def test_the_least_recently_used_makes_room() -> None:
    cache = cache_of(3)
    for key in "abc":
        cache.put(key, rows(1))
    cache.get("a", 1, WIDTH)
    cache.put("b", rows(1))  # known: only its recency changes
    cache.put("d", rows(1))
    assert [cache.has(key, 1, WIDTH) for key in "abcd"] == [True, True, False, True]
    assert cache.usage().evictions == 1


def test_rows_larger_than_the_capacity_are_refused_and_evict_nothing() -> None:
    cache = cache_of(3)
    cache.put("a", rows(2))
    assert not cache.put("b", rows(4))
    assert cache.has("a", 2, WIDTH)
    assert cache.usage().refused == 1


def test_a_pinned_entry_never_makes_room() -> None:
    cache = cache_of(3)
    cache.put("a", rows(2))
    cache.pin("a")
    assert not cache.put("b", rows(2))
    assert cache.put("c", rows(1))
    assert cache.has("a", 2, WIDTH)
    cache.unpin("a")
    assert cache.put("b", rows(2))
    assert not cache.has("a", 2, WIDTH)


def test_an_entry_is_unpinned_as_often_as_it_was_pinned_and_no_more() -> None:
    """Case H11: two occurrences are two pins, and no count is negative."""
    cache = cache_of(1)
    cache.put("a", rows(1))
    cache.pin("a")
    cache.pin("a")
    cache.unpin("a")
    assert not cache.put("b", rows(1))
    cache.unpin("a")
    with pytest.raises(ValueError, match="not pinned"):
        cache.unpin("a")
    assert cache.put("b", rows(1))
    with pytest.raises(ValueError, match="not pinned"):
        cache.unpin("a")
    with pytest.raises(KeyError):
        cache.pin("a")


def test_a_cache_without_bytes_keeps_nothing() -> None:
    cache = EncoderCache(0)
    assert not cache.put("a", rows(1))
    assert cache.get("a", 1, WIDTH) is None
    assert cache.usage().bytes == 0


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(ConfigError, match="encoder_cache_bytes = -1"):
        EncoderCache(-1)


def test_a_part_of_a_batch_does_not_keep_the_batch_alive() -> None:
    batch = rows(100, 2.0)
    cache = cache_of(8)
    cache.put("a", batch[4:7])
    batch.zero_()
    found = cache.get("a", 3, WIDTH)
    assert found is not None
    assert torch.equal(found, rows(3, 2.0))
    assert found.untyped_storage().nbytes() == 3 * ROW


def test_an_entry_that_was_flushed_while_pinned_is_found_no_more_and_goes_with_its_pin() -> None:
    cache = cache_of(8)
    cache.put("a", rows(1))
    cache.put("b", rows(1))
    cache.pin("a")
    cache.flush()
    assert cache.get("a", 1, WIDTH) is None
    assert not cache.put("a", rows(1))
    assert (cache.usage().entries, cache.usage().pinned) == (1, 1)
    cache.unpin("a")
    assert (cache.usage().entries, cache.usage().bytes) == (0, 0)
    assert cache.put("a", rows(1))


KEYS = st.sampled_from("abcdef")


class AnyOrder(RuleBasedStateMachine):
    """Whatever is done in whatever order: bounded, exact, and right rows for each key."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache_of(6)
        self.pins: dict[str, int] = {}

    @rule(key=KEYS, n=st.integers(1, 8))
    def put(self, key: str, n: int) -> None:
        shapes = {k: e.rows.shape for k, e in self.cache._entries.items()}
        accepted = self.cache.put(key, rows(n, float(ord(key))))
        if not accepted:
            assert shapes == {k: e.rows.shape for k, e in self.cache._entries.items()}

    @rule(key=KEYS, n=st.integers(1, 8))
    def get(self, key: str, n: int) -> None:
        expected = self.cache.has(key, n, WIDTH)
        found = self.cache.get(key, n, WIDTH)
        assert (found is not None) == expected
        assert found is None or torch.equal(found, rows(n, float(ord(key))))

    @precondition(lambda self: self.cache._entries)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.cache._entries)))
        self.cache.pin(key)
        self.pins[key] = self.pins.get(key, 0) + 1

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.pins)))
        self.cache.unpin(key)
        self.pins[key] -= 1
        if not self.pins[key]:
            del self.pins[key]

    @rule()
    def flush(self) -> None:
        self.cache.flush()
        assert set(self.cache._entries) == set(self.pins)

    @invariant()
    def counts_add_up(self) -> None:
        entries: dict[str, Any] = self.cache._entries
        usage = self.cache.usage()
        assert usage.bytes == sum(e.rows.nbytes for e in entries.values()) <= 6 * ROW
        assert {k: e.pins for k, e in entries.items() if e.pins} == self.pins
        assert self.cache._pinned_bytes == sum(entries[k].rows.nbytes for k in self.pins)


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase

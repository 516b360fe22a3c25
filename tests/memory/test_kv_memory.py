"""Pages and prefix reuse of models whose layers all see the whole context."""

from __future__ import annotations

import pytest

from firstlight.core.span import Span
from firstlight.errors import ConfigError, IntegrityError
from firstlight.memory import Holding, KVLayout, KVMemory, MediaKey, PrefixKey
from firstlight.memory.integrity import check

P = 4
PAD = 99


def _memory(n_pages: int = 40, page_size: int = P, prefix_cache: bool = True) -> KVMemory:
    return KVMemory(KVLayout.of([None], 1000), n_pages, [n_pages], page_size, prefix_cache)


def _key(ids: list[int], *media: MediaKey, page_size: int = P) -> PrefixKey:
    return PrefixKey(ids, media, page_size)


def _picture(identity: str, start: int, rows: int) -> MediaKey:
    return MediaKey(identity, (Span(0, start, start + rows),))


def _run(memory: KVMemory, key: PrefixKey) -> Holding:
    """A request that is computed and published, and still running."""
    holding = memory.start(key, key.length - 1)
    assert memory.reserve(holding, key.length)
    memory.advance(holding, key.length)
    memory.publish(holding, key, key.length)
    return holding


def _serve(memory: KVMemory, key: PrefixKey) -> int:
    """The same, finished; the tokens it found in the cache."""
    holding = _run(memory, key)
    memory.release(holding)
    check(memory)
    return holding.cached


def test_a_repeated_prompt_computes_its_last_page_only() -> None:
    memory = _memory()
    ids = list(range(11))
    assert _serve(memory, _key(ids)) == 0
    assert _serve(memory, _key(ids)) == 8


def test_at_least_one_token_is_left_to_compute() -> None:
    memory = _memory()
    ids = list(range(8))
    _serve(memory, _key(ids))
    assert _serve(memory, _key(ids)) == 4
    assert memory.start(_key(ids), limit=100).cached == 4
    assert memory.start(_key(ids), limit=3).cached == 0
    assert memory.start(_key([]), limit=-1).cached == 0


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    memory = _memory()
    key = _key(list(range(6)))
    holding = _run(memory, key)
    key.extend([7, 8, 9])
    assert memory.reserve(holding, 9)
    memory.publish(holding, key, computed=8)  # the last token's keys are not there yet
    memory.release(holding)
    assert memory.start(_key([*key._ids, 1, 2, 3, 4]), 100).cached == 8


def test_another_picture_under_the_same_text_is_not_found() -> None:
    memory = _memory(page_size=2)
    ids = [1, 2, 3, *[PAD] * 4, 5, 6]
    _serve(memory, _key(ids, _picture("a", 3, 4), page_size=2))
    assert _serve(memory, _key(ids, _picture("b", 3, 4), page_size=2)) == 2
    assert _serve(memory, _key(ids, _picture("a", 3, 4), page_size=2)) == 8


def test_swapped_pictures_are_not_found() -> None:
    memory = _memory(page_size=2)
    ids = [1, 2, *[PAD] * 4, 5, *[PAD] * 4, 6, 8]
    one, two = _picture("a", 2, 4), _picture("b", 7, 4)
    _serve(memory, _key(ids, one, two, page_size=2))
    swapped = (_picture("b", 2, 4), _picture("a", 7, 4))
    assert _serve(memory, _key(ids, *swapped, page_size=2)) == 2
    assert _serve(memory, _key(ids, one, two, page_size=2)) == 12


@pytest.mark.parametrize(("remain", "cached"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 64)])
def test_a_hit_never_ends_inside_a_picture(remain: int, cached: int) -> None:
    # 40 rows from token 10 on, pages of 16: the picture ends in the fourth page.
    memory = _memory(5, page_size=16)
    ids = [*range(10), *[PAD] * 40, *range(14)]
    _serve(memory, _key(ids, _picture("a", 10, 40), page_size=16))
    other = memory.start(_key([7] * 16 * (4 - remain), page_size=16), 0)
    assert memory.reserve(other, 16 * (4 - remain))
    assert len(memory.tree) == remain
    longer = _key([*ids, 5], _picture("a", 10, 40), page_size=16)
    holding = memory.start(longer, longer.length - 1)
    assert holding.cached == cached
    check(memory, [other, holding])


def test_a_hit_may_end_where_a_picture_begins_or_ends() -> None:
    memory = _memory()
    ids = [*range(4), *[PAD] * 8, 1, 2, 3]
    _serve(memory, _key(ids, _picture("a", 4, 8)))
    assert memory.start(_key([*ids[:12], 9], _picture("a", 4, 8)), 12).cached == 12
    assert memory.start(_key(ids, _picture("a", 4, 8)), 11).cached == 4


def test_nothing_is_cached_with_the_cache_off() -> None:
    memory = _memory(prefix_cache=False)
    ids = list(range(11))
    assert [_serve(memory, _key(ids)) for _ in range(2)] == [0, 0]
    assert memory.usage().pages.free == 39
    assert memory.usage().lookups == 0


def test_requests_share_the_pages_of_a_common_beginning() -> None:
    memory = _memory()
    one = _run(memory, _key(list(range(11))))
    two = memory.start(_key([*range(8), 50, 51]), 9)
    assert two.pages == one.pages[:2]
    assert memory.usage().pages.held == 3
    memory.release(one)
    check(memory, [two])
    assert memory.usage().pages.held == 2


def test_cached_pages_are_evicted_when_pages_run_short_the_oldest_first() -> None:
    memory = _memory(7)
    old, new = list(range(9)), list(range(50, 59))
    _serve(memory, _key(old))
    _serve(memory, _key(new))
    other = memory.start(_key([7] * 16), 0)
    assert memory.reserve(other, 16)  # 4 pages; 2 are free and 4 are cached
    assert memory.start(_key(old), 8).cached == 0
    assert memory.start(_key(new), 8).cached == 8
    assert memory.usage().pages.evictions == 2


def test_pages_in_use_are_not_evicted_and_a_refusal_takes_nothing() -> None:
    memory = _memory(7)
    one = _run(memory, _key(list(range(9))))
    other = memory.start(_key([7] * 16), 0)
    before = memory.usage()
    assert not memory.reserve(other, 16)
    assert (memory.usage(), other.pages) == (before, [])
    assert memory.reserve(other, 12)
    check(memory, [one, other])


def test_releasing_twice_gives_back_once() -> None:
    memory = _memory()
    one = _run(memory, _key(list(range(9))))
    two = memory.start(_key(list(range(9))), 8)
    memory.release(one)
    memory.release(one)
    check(memory, [two])
    with pytest.raises(ValueError, match="was released"):
        memory.reserve(one, 4)


def test_equal_pages_computed_at_the_same_time_keep_their_ids_until_the_release() -> None:
    memory = _memory()
    ids = list(range(11))
    one, two = (memory.start(_key(ids), 10) for _ in range(2))
    keys = [_key(list(ids)), _key(list(ids))]
    for holding, key in zip((one, two), keys, strict=True):
        assert memory.reserve(holding, 15)
        memory.publish(holding, key, 11)
    assert set(one.pages).isdisjoint(two.pages)
    check(memory, [one, two])
    keys[1].extend([70, 71, 72, 73])
    memory.publish(two, keys[1], 14)
    memory.release(two)
    check(memory, [one])
    # What only the second one went on to compute is cached behind the first one's pages.
    found = memory.start(_key([*ids, 70, 99]), 12)
    assert found.cached == 12
    assert found.pages[:2] == one.pages[:2]


def test_flushing_forgets_everything_and_requests_run_on() -> None:
    memory = _memory()
    ids = list(range(11))
    _serve(memory, _key([5] * 9))
    key = _key(ids)
    one = _run(memory, key)
    two = memory.start(_key(ids), 10)
    memory.flush()
    check(memory, [one, two])
    assert memory.start(_key(ids), 10).cached == 0
    assert memory.usage().pages.cached == 0
    memory.publish(one, key, 11)
    check(memory, [one, two])
    memory.release(one)
    memory.release(two)
    check(memory)
    assert memory.start(_key(ids), 10).cached == 8


def test_what_two_requests_share_since_before_a_flush_is_not_cached_behind_other_pages() -> None:
    memory = _memory()
    ids = list(range(13))
    key = _key(ids)
    one = _run(memory, key)
    two = memory.start(_key(ids), 12)
    memory.flush()
    other = _run(memory, _key(ids[:9]))  # the same beginning again, at pages of its own
    memory.publish(one, key, 13)
    memory.release(one)
    check(memory, [two, other])
    memory.release(other)
    memory.release(two)
    check(memory)
    assert memory.usage().pages.held == 0


def test_a_page_cached_again_after_a_flush_can_be_evicted_when_its_last_holder_ends() -> None:
    memory = _memory()
    ids = list(range(9))
    key = _key(ids)
    one = _run(memory, key)
    two = _run(memory, _key([*ids[:8], 50, 51, 52, 53, 54]))
    memory.flush()
    memory.publish(one, key, 9)
    memory.release(one)
    memory.release(two)
    check(memory)
    assert memory.usage().pages.held == 0
    assert memory.start(_key(ids), 8).cached == 8


def test_pages_lie_in_one_run_behind_a_cached_beginning() -> None:
    memory = _memory()
    ids = list(range(8))
    _serve(memory, _key([*ids, 1]))
    holding = memory.start(_key([*ids, *[2] * 8]), 15)
    assert memory.reserve(holding, 16)
    assert holding.pages == list(range(holding.pages[0], holding.pages[0] + 4))


def test_requests_that_grow_side_by_side_stay_in_runs() -> None:
    memory = _memory()
    holdings = [memory.start(_key([n] * 5), 4) for n in range(3)]
    for length in range(5, 33):
        for holding in holdings:
            assert memory.reserve(holding, length, expected=32)
    for holding in holdings:
        assert holding.pages == list(range(holding.pages[0], holding.pages[0] + 8))


def test_a_new_request_in_a_full_cache_gets_a_run_to_grow_in() -> None:
    memory = _memory(37)
    for n in range(6):
        _serve(memory, _key([n] * 24))
    holding = memory.start(_key([77] * 8), 7)
    for length in range(8, 25):
        assert memory.reserve(holding, length, expected=24)
    assert holding.pages == list(range(holding.pages[0], holding.pages[0] + 6))
    assert memory.usage().pages.evictions == 6


def test_usage_counts_free_cached_and_held_pages_and_hits() -> None:
    memory = _memory(11)
    _serve(memory, _key(list(range(9))))
    _run(memory, _key(list(range(7))))
    usage = memory.usage()
    assert (usage.pages.free, usage.pages.cached, usage.pages.held) == (7, 1, 2)
    assert (usage.lookups, usage.hits, usage.cached_tokens) == (2, 1, 4)
    assert memory.n_free == 8


def test_a_request_that_is_started_in_vain_is_no_hit() -> None:
    memory = _memory()
    ids = list(range(9))
    _serve(memory, _key(ids))
    memory.release(memory.start(_key(ids), 8))
    assert (memory.usage().lookups, memory.usage().hits) == (1, 0)
    memory.reserve(memory.start(_key([]), 0), 8)  # pages for no prompt at all
    assert memory.usage().lookups == 1


def test_room_to_grow_is_for_anybody_once_its_request_has_ended() -> None:
    memory = _memory()
    key = _key([1] * 8)
    holding = memory.start(key, 7)
    memory.reserve(holding, 8, expected=200)
    memory.publish(holding, key, 8)
    memory.release(holding)  # its last page stays, cached
    other = memory.start(_key([2] * 8), 7)
    memory.reserve(other, 8)
    assert other.pages == [3, 4]


def test_page_counts_that_do_not_fit_the_sides_are_refused() -> None:
    layout = KVLayout.of([None, 8], 1000)
    with pytest.raises(ConfigError, match="1 page counts for 2 KV sides"):
        KVMemory(layout, 10, [10], P, True)
    with pytest.raises(ConfigError, match="full has 9 pages"):
        KVMemory(layout, 10, [9, 5], P, True)
    with pytest.raises(ConfigError, match="sliding_pages = 1"):
        KVMemory(layout, 10, [10, 1], P, True)
    with pytest.raises(ConfigError, match="page_size = 0"):
        KVMemory(layout, 10, [10, 5], 0, True)


def test_a_reset_frees_every_page_whatever_was_left_half_done() -> None:
    memory = KVMemory(KVLayout.of([None, 8], 1000), 20, [20, 12], P, True)
    running, half = _key(list(range(20))), _key(list(range(100, 109)))
    holding = memory.start(running, 19)
    assert memory.reserve(holding, 12)
    assert memory.prepare(holding, 0, 12)
    memory.publish(holding, running, 8)
    torn = memory.start(half, 8)
    assert memory.reserve(torn, 9)
    torn.pages = []  # nobody knows any more whose pages these are
    with pytest.raises(IntegrityError):
        check(memory, [holding, torn])
    memory.reset()
    check(memory)
    assert memory.n_free == 19
    assert memory.start(running, 19).cached == 0

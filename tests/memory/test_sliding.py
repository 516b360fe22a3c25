"""Windowed sides: bindings on demand, freed behind the window, kept for hits that can use them."""

from __future__ import annotations

import pytest

from firstlight.memory import Holding, KVLayout, KVMemory, PrefixKey
from firstlight.memory.integrity import check

P = 4


def _memory(
    window_pages: int,
    *,
    window: int = 8,
    n_pages: int = 60,
    prefix_cache: bool = True,
) -> KVMemory:
    layout = KVLayout.of([None, window], 1000)
    return KVMemory(layout, n_pages, [n_pages, window_pages], P, prefix_cache)


def _key(ids: list[int]) -> PrefixKey:
    return PrefixKey(ids, [], P)


def _run(memory: KVMemory, key: PrefixKey, chunk: int = 100) -> Holding:
    """A request computed in chunks and published, still running."""
    holding = memory.start(key, key.length - 1)
    assert memory.reserve(holding, key.length)
    for start in range(holding.cached, key.length, chunk):
        end = min(start + chunk, key.length)
        assert memory.prepare(holding, start, end)
        memory.advance(holding, end)
        check(memory, [holding])
    memory.publish(holding, key, key.length)
    return holding


def _bound(memory: KVMemory, holding: Holding) -> list[int]:
    return [i for i, page in enumerate(holding.pages) if memory.maps[1].is_bound(page)]


def test_pages_that_left_the_window_are_freed_while_the_request_runs() -> None:
    memory = _memory(20, prefix_cache=False)
    key = _key(list(range(40)))
    holding = memory.start(key, 39)
    assert memory.reserve(holding, 40)
    most = 0
    for position in range(40):
        assert memory.prepare(holding, position, position + 1)
        most = max(most, memory.usage().sides[0].held)
        memory.advance(holding, position + 1)
        seen = range(max(position + 1 - 7, 0), position + 1)  # by the next query, with itself
        assert _bound(memory, holding) == sorted({p // P for p in seen})
    assert most == 3
    memory.release(holding)
    assert memory.usage().sides[0].free == 19


def test_what_left_the_window_gives_way_where_the_cache_keeps_it() -> None:
    memory = _memory(5)
    holding = _run(memory, _key(list(range(40))), chunk=4)
    assert len(holding.pages) == 10
    assert len(_bound(memory, holding)) == 4
    assert memory.usage().sides[0].evictions == 6


def test_a_chunk_that_finds_no_page_takes_nothing_on_any_side() -> None:
    layout = KVLayout.of([None, 8, 16], 1000)
    memory = KVMemory(layout, 60, [60, 20, 4], P, True)
    holding = memory.start(_key([1] * 40), 39)
    assert memory.reserve(holding, 40)
    before = memory.usage()
    assert not memory.prepare(holding, 0, 16)
    assert memory.usage() == before
    assert memory.prepare(holding, 0, 12)
    check(memory, [holding])


def test_positions_without_pages_or_behind_a_gap_are_refused() -> None:
    memory = _memory(20)
    holding = memory.start(_key([1] * 40), 39)
    assert memory.reserve(holding, 20)
    with pytest.raises(ValueError, match="need 6 pages; 5 held"):
        memory.prepare(holding, 0, 21)
    with pytest.raises(ValueError, match=r"positions \[0, 8\) are unbound"):
        memory.prepare(holding, 8, 12)


def test_a_hit_reads_the_cached_window_of_the_page_map() -> None:
    memory = _memory(20)
    ids = list(range(30))
    first = _run(memory, _key(ids))
    memory.release(first)
    again = memory.start(_key(ids), 29)
    assert again.cached == 28
    assert again.bound == [range(5, 7)]  # positions 21 to 27 of what a query at 28 sees
    check(memory, [again])


def test_a_hit_ends_where_every_window_is_still_there() -> None:
    memory = _memory(20)
    ids = list(range(30))
    holding = _run(memory, _key(ids))
    memory.release(holding)
    pages = memory.start(_key(ids), 29).pages
    for broken, cached in ((6, 24), (4, 16), (1, 4), (0, 0)):
        memory = _memory(20)
        memory.release(_run(memory, _key(ids)))
        side = memory.windows[0]
        side.allocator.free([side.map.unbind(pages[broken])])
        side._idle.pop(pages[broken])
        assert memory.start(_key(ids[: 4 * broken + 5]), 29).cached == cached


def test_a_page_missing_in_front_of_the_window_does_no_harm() -> None:
    memory = _memory(20)
    ids = list(range(30))
    first = _run(memory, _key(ids))
    pages = list(first.pages)
    memory.release(first)
    side = memory.windows[0]
    side.allocator.free([side.map.unbind(pages[4])])
    side._idle.pop(pages[4])
    assert memory.start(_key(ids), 29).cached == 28


def _crowd(memory: KVMemory, tokens: int) -> None:
    """Somebody who needs so many tokens' bindings at once, and leaves nothing behind."""
    other = memory.start(_key([7] * (tokens + 1)), 0)
    assert memory.reserve(other, tokens)
    assert memory.prepare(other, 0, tokens)
    memory.release(other)


def test_cached_windows_are_evicted_the_oldest_first_while_their_pages_stay_cached() -> None:
    memory = _memory(11)
    old, new = list(range(17)), list(range(50, 67))
    for ids in (old, new):
        memory.release(_run(memory, _key(ids)))
    assert memory.usage().sides[0].cached == 8
    _crowd(memory, 28)  # 7 bindings; 2 are free, 4 lie in the middle of a prompt
    assert memory.usage().pages.evictions == 0
    assert memory.usage().sides[0].evictions == 5
    assert memory.start(_key(old), 16).cached == 0
    assert memory.start(_key(new), 16).cached == 16


def test_windows_in_the_middle_of_a_prompt_are_evicted_before_those_at_its_end() -> None:
    memory = _memory(13)
    first, long = list(range(17)), list(range(50, 83))
    memory.release(_run(memory, _key(first)))
    memory.release(_run(memory, _key(long), chunk=4))
    _crowd(memory, 32)  # 8 bindings; the ends take 2 each of the 12
    assert memory.start(_key(first), 16).cached == 16
    assert memory.start(_key(long), 32).cached == 32


def test_where_prompts_have_parted_before_the_window_is_kept() -> None:
    memory = _memory(15)
    shared = list(range(16))
    memory.release(_run(memory, _key([*shared, *range(100, 125)]), chunk=4))
    _crowd(memory, 56)
    assert memory.start(_key([*shared, 1]), 16).cached == 0, "nothing has to be lost"
    second = _run(memory, _key([*shared, *range(200, 225)]), chunk=4)
    _crowd(memory, 36)  # 9 bindings; 3 are free, 6 lie in the middle of the second prompt
    memory.release(second)
    assert memory.start(_key([*shared, 1]), 16).cached == 16


def test_bindings_that_a_request_needs_are_not_evicted() -> None:
    memory = _memory(5)
    holding = _run(memory, _key(list(range(9))))  # needs 3 of 4
    other = memory.start(_key([7] * 8), 0)
    assert memory.reserve(other, 8)
    assert not memory.prepare(other, 0, 8)
    assert memory.prepare(other, 0, 4)
    check(memory, [holding, other])


def test_two_requests_share_bindings_and_each_leaves_for_itself() -> None:
    memory = _memory(20)
    ids = list(range(17))
    memory.release(_run(memory, _key(ids)))
    one, two = (memory.start(_key([*ids[:16], n]), 16) for n in (1, 2))
    memory.advance(one, 16)
    check(memory, [one, two])
    memory.release(one)
    check(memory, [two])
    assert two.bound == [range(2, 4)]
    assert memory.usage().sides[0].held == 2


def test_an_evicted_page_gives_back_its_binding() -> None:
    memory = _memory(20, n_pages=6)
    memory.release(_run(memory, _key(list(range(17)))))
    other = memory.start(_key([7] * 20), 0)
    assert memory.reserve(other, 20)
    check(memory, [other])
    assert memory.usage().sides[0].free == 19


def test_a_computed_page_restores_a_cached_one_that_lost_its_binding() -> None:
    memory = _memory(6)
    ids = list(range(13))
    memory.release(_run(memory, _key(ids)))
    other = _run(memory, _key([7] * 20))  # takes all bindings
    memory.release(other)
    assert memory.start(_key(ids), 12).cached == 0
    memory.release(_run(memory, _key(ids)))  # computed again under other ids
    check(memory)
    assert memory.start(_key(ids), 12).cached == 12


def test_without_a_full_side_pages_have_ids_all_the_same() -> None:
    memory = KVMemory(KVLayout.of([8, 8], 1000), 30, [12], P, True)
    memory.release(_run(memory, _key(list(range(17)))))
    check(memory)
    assert memory.start(_key(list(range(17))), 16).cached == 16
    assert len(memory.maps) == 1


@pytest.mark.parametrize("window", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("chunk", [1, 3, 4, 11])
def test_the_pages_a_request_needs_alone_are_enough_and_not_too_many(
    window: int, chunk: int
) -> None:
    whole, on_side = _memory(2, window=window).pages_needed(45, chunk)
    assert whole == 12
    ranges = [range(max(at - window + 1, 0), at + chunk) for at in range(45 - chunk)]
    assert on_side == max(len({position // P for position in seen}) for seen in ranges)
    memory = _memory(on_side + 1, window=window, prefix_cache=False)
    holding = memory.start(_key([1] * 45), 44)
    assert memory.reserve(holding, 45)
    for start in range(0, 45, chunk):
        assert memory.prepare(holding, start, min(start + chunk, 45))
        memory.advance(holding, min(start + chunk, 45))


def test_bindings_of_a_request_follow_one_another() -> None:
    memory = _memory(40)
    holdings = [memory.start(_key([n] * 5), 4) for n in range(2)]
    for length in range(1, 33):
        for holding in holdings:
            assert memory.reserve(holding, length, expected=32)
            assert memory.prepare(holding, length - 1, length)
            memory.advance(holding, length)
    for holding in holdings:
        places = [memory.maps[1].physical(page) for page in holding.pages]
        live = [places[i] for i in holding.bound[0]]
        assert live == list(range(live[0], live[0] + len(live)))


def test_room_to_grow_on_a_side_is_for_anybody_once_its_request_has_ended() -> None:
    memory = _memory(20)
    key = _key([1] * 8)
    holding = memory.start(key, 7)
    memory.reserve(holding, 8, expected=200)
    memory.prepare(holding, 0, 8)
    memory.publish(holding, key, 8)
    memory.release(holding)
    other = memory.start(_key([2] * 8), 7)
    memory.reserve(other, 8)
    memory.prepare(other, 0, 8)
    assert [memory.maps[1].physical(page) for page in other.pages] == [3, 4]

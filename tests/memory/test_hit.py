"""Hits that end inside a page: what is found, what is copied, and what is taken over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from firstlight.core.span import Span
from firstlight.memory import Holding, KVLayout, KVMemory, MediaKey, PrefixKey, VirtualPage
from firstlight.memory.integrity import check

P = 4
PAD = 99
PROMPT = list(range(10))


@dataclass(slots=True)
class Memory:
    """A memory that says what it copies."""

    kv: KVMemory
    copies: list[tuple[list[tuple[int, int]], int]] = field(default_factory=list)

    @classmethod
    def of(cls, n_pages: int = 40, window: int | None = None, side_pages: int = 20) -> Memory:
        layout = KVLayout.of([None] if window is None else [None, window], 1000)
        copies: list[tuple[list[tuple[int, int]], int]] = []

        def copy(places: Sequence[tuple[int, int]], rows: int) -> None:
            copies.append((list(places), rows))

        sides = [n_pages, side_pages][: len(layout.sides)]
        return cls(KVMemory(layout, n_pages, sides, P, True, copy), copies)

    def start(self, ids: list[int], *media: MediaKey) -> Holding:
        key = PrefixKey(list(ids), media, P)
        return self.kv.start(key, key.length - 1, key.length + 4)

    def run(self, ids: list[int], *media: MediaKey, answer: int = 0) -> Holding:
        """A request that has computed its prompt and ``answer`` tokens, and published both."""
        key = PrefixKey(list(ids), media, P)
        holding = self.kv.start(key, key.length - 1, key.length + answer)
        key.extend(range(50, 50 + answer))
        for end in (len(ids), key.length):
            assert self.kv.reserve(holding, end)
            assert self.kv.prepare(holding, holding.cached, end)
            self.kv.advance(holding, end)
            self.kv.publish(holding, key, end)
        return holding

    def serve(self, ids: list[int], *media: MediaKey, answer: int = 0) -> int:
        """The same, finished; the tokens that it found."""
        holding = self.run(ids, *media, answer=answer)
        check(self.kv, [holding])
        self.kv.release(holding)
        check(self.kv)
        return holding.cached


def _picture(identity: str, start: int, rows: int) -> MediaKey:
    return MediaKey(identity, (Span(0, start, start + rows),))


@pytest.mark.parametrize("answer", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("length", range(1, 13))
def test_an_identical_prompt_computes_one_token(length: int, answer: int) -> None:
    memory = Memory.of()
    ids = list(range(length))
    memory.serve(ids, answer=answer)
    for _ in range(3):
        assert memory.serve(ids, answer=answer) == length - 1


def test_a_prompt_that_parts_inside_a_page_goes_on_from_the_first_differing_token() -> None:
    memory = Memory.of()
    memory.serve(PROMPT)
    assert memory.serve([*PROMPT[:7], 70, 71]) == 7
    assert memory.serve([*PROMPT[:3], 80]) == 3
    assert memory.serve([70, *PROMPT]) == 0


def test_of_several_continuations_the_one_with_the_longest_common_beginning_is_found() -> None:
    memory = Memory.of()
    for ids in ([0, 1, 9, 9], [0, 1, 2, 9], [0, 3, 9, 9], [0, 1, 2, 3], [7, 7, 7, 7]):
        memory.serve([*ids, 5])
    assert memory.start([0, 1, 2, 4, 9]).cached == 3
    assert memory.start([0, 1, 8, 8, 8]).cached == 2
    assert memory.start([0, 9, 9, 9, 9]).cached == 1
    assert memory.start([4, 1, 2, 3, 5]).cached == 0


def test_full_pages_of_a_running_request_are_copied_and_stay_its_own() -> None:
    memory = Memory.of()
    one = memory.run(PROMPT)
    two = memory.start([*PROMPT[:6], 60, 61])
    assert two.pages[0] == one.pages[0]
    assert two.pages[1] != one.pages[1]
    assert memory.copies == [([(one.pages[1], two.pages[1])], 2)]
    check(memory.kv, [one, two])


def test_a_page_that_is_not_full_is_taken_over_by_who_goes_on_from_its_end() -> None:
    memory = Memory.of()
    first = memory.run(PROMPT)
    last = first.pages[-1]
    memory.kv.release(first)
    assert memory.run([*PROMPT, 20, 21]).pages[2] == last
    assert memory.copies == []


def test_the_same_prompt_again_lies_in_one_run_of_pages() -> None:
    memory = Memory.of()
    memory.serve(PROMPT, answer=1)
    pages = memory.run(PROMPT, answer=9).pages
    assert pages == list(range(pages[0], pages[0] + len(pages)))


def test_a_page_that_is_not_full_is_copied_by_who_parts_from_it() -> None:
    memory = Memory.of()
    memory.serve([*PROMPT, 10])
    assert memory.serve([*PROMPT, 77, 78]) == 10
    assert [rows for _, rows in memory.copies] == [2]
    assert memory.start([*PROMPT, 10, 11]).cached == 11


def test_a_request_that_is_started_in_vain_leaves_what_it_found() -> None:
    memory = Memory.of()
    memory.serve(PROMPT, answer=1)
    for _ in range(3):
        holding = memory.start(PROMPT)
        assert holding.cached == 9
        memory.kv.release(holding)
        check(memory.kv)


def test_what_a_page_has_already_is_not_cached_twice() -> None:
    memory = Memory.of()
    one, two = memory.run(PROMPT), memory.run(PROMPT)
    memory.kv.release(one)
    memory.kv.release(two)
    assert memory.kv.usage().pages.cached == 3
    longer = memory.run([*PROMPT, 10, 11, 12])
    memory.kv.release(longer)
    memory.serve(PROMPT)
    check(memory.kv)
    assert memory.kv.usage().pages.cached == 4


def test_pages_that_are_not_full_are_evicted_like_others() -> None:
    memory = Memory.of(n_pages=7)
    memory.serve(PROMPT)
    memory.serve([70, 71])
    other = memory.start([80, 81])
    assert memory.kv.reserve(other, 3 * P)
    assert memory.kv.usage().pages.cached == 3
    assert memory.start(PROMPT).cached == 8


def test_a_page_that_is_copied_from_is_not_evicted_for_the_copy() -> None:
    memory = Memory.of(n_pages=4)
    memory.serve(list(range(12)))
    holding = memory.start([*range(6), 60])
    assert holding.cached == 6
    ((source, target),), rows = memory.copies[0]
    assert (source != target, rows) == (True, 2)
    check(memory.kv, [holding])


def test_a_pool_without_a_page_to_copy_into_gives_the_full_pages() -> None:
    memory = Memory.of(n_pages=4)
    memory.serve(list(range(12)))
    # The page copied from cannot be evicted meanwhile, and the prompt needs all the others.
    holding = memory.start([*range(6), *range(60, 66)])
    assert holding.cached == 4
    assert memory.kv.reserve(holding, 12)
    check(memory.kv, [holding])


def test_rows_of_the_same_picture_are_reused_and_a_hit_never_ends_inside_it() -> None:
    memory = Memory.of()
    ids = [1, 2, *[PAD] * 5, 3, 4]
    memory.serve(ids, _picture("a", 2, 5))
    assert memory.serve([*ids[:7], 8, 9], _picture("a", 2, 5)) == 7
    assert memory.serve(ids, _picture("b", 2, 5)) == 2
    shifted = MediaKey("a", (Span(0, 2, 7, 1),))
    assert memory.serve(ids, shifted) == 2


def test_a_row_of_a_picture_is_no_token_of_the_same_number() -> None:
    memory = Memory.of()
    memory.serve([1, PAD, PAD, 3, 4], _picture("a", 1, 2))
    assert memory.serve([1, 0, 1, 3, 4]) == 1


def test_what_is_in_the_window_of_a_page_is_copied_on_every_side() -> None:
    memory = Memory.of(window=6)
    memory.serve(PROMPT)
    holding = memory.start([*PROMPT[:7], 70])
    assert holding.cached == 7
    (places, rows) = memory.copies[0]
    assert (len(places), rows) == (2, 3)
    assert all(source != target for source, target in places)
    assert memory.kv.windows[0].map.physical(holding.pages[1]) == places[1][1]
    check(memory.kv, [holding])


def test_a_page_whose_window_is_gone_is_not_gone_on_from() -> None:
    memory = Memory.of(window=6, side_pages=6)
    memory.serve(PROMPT)
    other = memory.run(list(range(100, 120)))  # its window takes what the first one left
    assert not memory.kv.windows[0].map.is_bound(_last_cached(memory, PROMPT))
    assert memory.start(PROMPT).cached == 0
    memory.kv.release(other)
    assert memory.serve(PROMPT) == 0
    assert memory.serve(PROMPT) == 9  # computed again, its page has replaced the one without


def _last_cached(memory: Memory, ids: list[int]) -> VirtualPage:
    key = PrefixKey(list(ids), (), P)
    path = memory.kv.tree.match(key, key.n_pages)
    page, _ = memory.kv.tree.nearest(path[-1], key.between(len(path) * P, key.length))
    return page


def test_flushing_forgets_pages_that_are_not_full() -> None:
    memory = Memory.of()
    memory.serve(PROMPT)
    memory.kv.flush()
    check(memory.kv)
    assert memory.kv.usage().pages.cached == 0
    assert memory.serve(PROMPT) == 0

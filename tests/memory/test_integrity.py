"""Each kind of damage is found and named."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from firstlight.errors import IntegrityError
from firstlight.memory import (
    Holding,
    KVLayout,
    KVMemory,
    PhysicalPage,
    PrefixKey,
    VirtualPage,
)
from firstlight.memory.integrity import check

P = 4


def _busy() -> tuple[KVMemory, list[Holding]]:
    """Pages free, cached (1-4, a finished request's) and held by two requests (shared: 1-2)."""
    memory = KVMemory(KVLayout.of([None, 8], 1000), 20, [20, 15], P, prefix_cache=True)

    def run(ids: list[int]) -> Holding:
        key = PrefixKey(ids, [], P)
        holding = memory.start(key, key.length - 1)
        assert memory.reserve(holding, key.length)
        assert memory.prepare(holding, holding.cached, key.length)
        memory.publish(holding, key, key.length)
        memory.advance(holding, key.length)
        return holding

    ids = list(range(8))
    memory.release(run([*ids, *range(8, 17)]))
    return memory, [run([*ids, *[50] * 9]), run([*ids, *[60] * 5])]


Damage = Callable[[KVMemory, list[Holding]], object]


def _leak(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.allocator.allocate(1)


def _continued(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.tree._nodes[VirtualPage(1)].key = (0, 1)


def _free_and_held(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.allocator.free([holdings[0].pages[-1]])


def _two_owners(memory: KVMemory, holdings: list[Holding]) -> None:
    holdings[1].pages.append(holdings[0].pages[-1])


def _twice(memory: KVMemory, holdings: list[Holding]) -> None:
    holdings[0].pages.append(holdings[0].pages[0])


def _page_out_of_range(memory: KVMemory, holdings: list[Holding]) -> None:
    holdings[0].pages[-1] = VirtualPage(20)


def _sink_held(memory: KVMemory, holdings: list[Holding]) -> None:
    holdings[0].pages[-1] = VirtualPage(0)


def _bound_out_of_range(memory: KVMemory, holdings: list[Holding]) -> None:
    holdings[0].bound[0] = range(2, 90)


def _wrong_count(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.counts[holdings[0].pages[0]] += 1


def _lost_reference(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.counts[3] -= 1


def _idle_while_held(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.tree.rest([holdings[0].pages[0]])


def _never_evicted(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.tree.use([VirtualPage(4)])


def _parent_first(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.tree.use([VirtualPage(3)])
    memory.tree._idle[VirtualPage(3)] = None
    memory.tree._idle.move_to_end(VirtualPage(3), last=False)


def _orphan(memory: KVMemory, holdings: list[Holding]) -> None:
    del memory.tree._nodes[VirtualPage(3)]


def _unreachable(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.tree._nodes[VirtualPage(3)].children.clear()


def _not_injective(memory: KVMemory, holdings: list[Holding]) -> None:
    one, other = holdings[0].pages[-1], holdings[1].pages[-1]
    place = memory.windows[0].map.unbind(one)
    memory.windows[0].allocator.free([place])
    memory.windows[0].map.bind(one, memory.maps[1].physical(other))


def _binding_out_of_range(memory: KVMemory, holdings: list[Holding]) -> None:
    side = memory.windows[0]
    side.allocator.free([side.map.unbind(holdings[0].pages[-1])])
    side.map.bind(holdings[0].pages[-1], PhysicalPage(15))


def _binding_at_a_free_page(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.windows[0].allocator.free([memory.maps[1].physical(holdings[0].pages[-1])])


def _physical_leak(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.windows[0].allocator.allocate(1)


def _needed_and_unbound(memory: KVMemory, holdings: list[Holding]) -> None:
    side = memory.windows[0]
    side.allocator.free([side.map.unbind(holdings[0].pages[-1])])


def _wrong_need(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.windows[0]._needs[holdings[0].pages[-1]] += 1


def _binding_forgotten(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.windows[0]._idle.pop(VirtualPage(4))


def _idle_and_needed(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.windows[0]._idle[holdings[0].pages[-1]] = None


def _free_page_bound(memory: KVMemory, holdings: list[Holding]) -> None:
    side = memory.windows[0]
    side.map.bind(VirtualPage(19), side.allocator.allocate(1)[0])
    side._idle[VirtualPage(19)] = None


def _overlapping_runs(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.allocator._hoped.add(18, 2)


def _miscounted_free_pages(memory: KVMemory, holdings: list[Holding]) -> None:
    memory.allocator._n_free -= 1


def _short_map(memory: KVMemory, holdings: list[Holding]) -> None:
    side = memory.windows[0]
    side.map._entries = side.map._entries[:15]


DAMAGE: list[tuple[Damage, str]] = [
    (_continued, r"cached page 2 continues page 1, which is not full"),
    (_continued, r"page 1 is cached, held, and not full"),
    (_leak, r"page \d+ leaked: it is neither free nor anybody's"),
    (_free_and_held, r"page 7 is free and has \d owners"),
    (_two_owners, r"page \d belongs to requests 0 and 1, which share no prefix"),
    (_twice, r"request 0 holds page 1 twice"),
    (_page_out_of_range, r"request 0: page table entry 4 is 20, out of range"),
    (_sink_held, r"request 0: page table entry 4 is 0, out of range"),
    (_bound_out_of_range, r"request 0: bound pages range\(2, 90\) of 5 are out of range"),
    (_wrong_count, r"page 1 has count 4 and 3 owners"),
    (_lost_reference, r"page 3 has count 0 and 1 owners, the prefix tree among them"),
    (_idle_while_held, r"page 1 is cached, held"),
    (_never_evicted, r"page 4 is cached, not idle and not held"),
    (_parent_first, r"cached page 4 would be evicted after page 3 in front of it"),
    (_orphan, r"cached page 4 continues page 3, which is not cached"),
    (_unreachable, r"cached page 4 cannot be reached from page 3"),
    (_not_injective, r"window_8: pages \d+ and \d+ both lie at \d+"),
    (_binding_out_of_range, r"window_8: page \d+ lies at 15, out of range"),
    (_binding_at_a_free_page, r"window_8: page \d+ lies at \d+, which is free"),
    (_physical_leak, r"window_8: physical page \d+ leaked"),
    (_needed_and_unbound, r"window_8: page \d+ is needed and not bound"),
    (_wrong_need, r"window_8: page \d+ has need 2 and 1 requests need it"),
    (_binding_forgotten, r"window_8: the binding of page 4 is neither needed nor idle"),
    (_idle_and_needed, r"window_8: the binding of page \d+ is both needed and idle"),
    (_free_page_bound, r"window_8: page 19 is bound and nobody's"),
    (_overlapping_runs, r"virtual: page 18 is in 2 free runs"),
    (_miscounted_free_pages, r"virtual: \d+ pages are free and \d+ are counted"),
    (_short_map, r"window_8: the map has 15 entries for 20 ids"),
]


def test_a_sound_memory_passes() -> None:
    memory, holdings = _busy()
    check(memory, holdings)
    usage = memory.usage()
    assert min(usage.pages.free, usage.pages.cached, usage.pages.held) > 0
    assert min(usage.sides[0].free, usage.sides[0].cached, usage.sides[0].held) > 0


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=[d.__name__ for d, _ in DAMAGE])
def test_damage_is_found_and_named(damage: Damage, message: str) -> None:
    memory, holdings = _busy()
    damage(memory, holdings)
    with pytest.raises(IntegrityError) as caught:
        check(memory, holdings)
    assert any(re.search(message, finding) for finding in caught.value.findings)


def test_a_holding_that_was_forgotten_is_found() -> None:
    memory, holdings = _busy()
    with pytest.raises(IntegrityError, match="owners"):
        check(memory, holdings[:1])


def test_a_released_holding_is_not_running() -> None:
    memory, holdings = _busy()
    memory.release(holdings[1])
    with pytest.raises(IntegrityError, match="request 1 was released"):
        check(memory, holdings)
    check(memory, holdings[:1])


def test_the_message_names_some_findings_and_counts_the_rest() -> None:
    memory, holdings = _busy()
    for page in range(1, 8):
        memory.counts[page] += 1
    with pytest.raises(IntegrityError, match="and 2 more") as caught:
        check(memory, holdings)
    assert len(caught.value.findings) == 7

"""Who gets pages, who gives them up, and who is admitted after that."""

from __future__ import annotations

from tests.engine.scheduling.fakes import CountedMemory, request
from tests.engine.scheduling.loop import loop


def test_admission_leaves_every_running_request_a_page_to_grow_into() -> None:
    player = loop(CountedMemory(4))
    player.add(request(0, 4, 8), request(1, 5, 1))
    player.step()
    assert player.shapes() == [[(0, 0, 4), (1, 0, 4)]]  # 1 + 2 pages, and one to grow into
    player = loop(CountedMemory(3))
    player.add(request(0, 4, 8), request(1, 5, 1))
    player.step()
    assert player.shapes() == [[(0, 0, 4)]]


def test_a_request_has_pages_for_its_whole_prompt_from_its_first_chunk_on() -> None:
    player = loop(CountedMemory(20))
    long = request(0, 41, 30)
    player.add(long)
    player.step()
    assert long.holding is not None
    assert len(long.holding.pages) == 11


def test_nobody_overtakes_a_head_that_finds_no_pages() -> None:
    player = loop(CountedMemory(5))
    player.add(request(0, 8, 5), request(1, 9, 1), request(2, 1, 1))
    player.run()
    assert [r.first_token for r in player.seen.values()] == [1, 7, 7]


def test_a_head_without_pages_is_tried_again_only_when_somebody_left() -> None:
    memory = CountedMemory(6)
    player = loop(memory)
    short, long, head = request(0, 4, 3), request(1, 4, 13), request(2, 9, 1)
    player.add(short, long, head)
    while short in player.live:
        player.step()
    assert memory.starts == 3
    assert head.holding is None
    player.step()
    assert memory.starts == 4
    assert head.holding is not None
    assert long in player.live


def test_a_latecomer_is_tried_though_the_head_behind_it_found_no_pages() -> None:
    player = loop(CountedMemory(4))
    player.add(request(0, 4, 9), request(2, 13, 1))
    player.step()
    player.step()
    player.add(request(1, 3, 1))
    player.step()
    assert player.shapes() == [[(0, 0, 4)], [(0, 4, 5)], [(0, 5, 6), (1, 0, 3)]]


def test_the_youngest_gives_its_pages_to_an_older_one_and_is_computed_again() -> None:
    memory = CountedMemory(4)
    player = loop(memory)
    player.add(request(0, 4, 9), request(1, 4, 7))
    player.run()
    assert player.scheduler.stats.preempted == 1
    assert player.shapes()[0] == [(0, 0, 4), (1, 0, 4)]
    assert [(1, 0, 8)] in player.shapes()  # its prompt and the answer so far
    assert memory.free == 4


def test_a_preempted_request_waits_without_pages_and_without_anything_computed() -> None:
    player = loop(CountedMemory(4))
    youngest = request(1, 4, 7)
    player.add(request(0, 4, 9), youngest)
    while player.scheduler.stats.preempted == 0:
        player.step()
    assert (youngest.computed, youngest.holding) == (0, None)
    assert player.scheduler.stats.waiting == 1


def test_nobody_is_admitted_behind_a_preemption_until_somebody_leaves() -> None:
    memory = CountedMemory(100, 4, window=4, side_pages=4)
    player = loop(memory, tokens=16, rows=8)
    images, blocks = [("a", 0, 4), ("b", 4, 12)], [(0, 4), (4, 12)]
    old = request(0, 20, 4, images=images, blocks=blocks)
    player.add(old, request(1, 4, 6))
    player.step()
    player.step()
    assert player.scheduler.stats.preempted == 1
    starts = memory.starts
    player.step()  # its prefill is complete: from the next step on there may be room
    assert memory.starts == starts
    player.step()
    assert memory.starts == starts + 1


def test_nobody_is_admitted_while_a_running_request_lacks_a_page() -> None:
    memory = CountedMemory(5)
    player = loop(memory, tokens=9)
    player.add(request(0, 5, 9), request(1, 4, 4))
    player.step()
    memory.free = 0
    player.add(request(3, 1, 1))
    starts = memory.starts
    player.step()
    assert memory.starts == starts


def test_a_preempted_request_hits_what_it_had_published() -> None:
    memory = CountedMemory(4)
    player = loop(memory)
    second = request(1, 4, 7)
    player.add(request(0, 4, 9), second)
    memory.hits[id(second.key)] = 0
    while player.scheduler.stats.preempted == 0:
        player.step()
    memory.hits[id(second.key)] = 4
    player.run()
    assert [(1, 4, 9)] in player.shapes()


def test_a_row_planned_for_the_preempted_request_leaves_the_step() -> None:
    memory = CountedMemory(100, 4, window=4, side_pages=4)
    player = loop(memory, tokens=16, rows=8)
    images, blocks = [("a", 0, 4), ("b", 4, 12)], [(0, 4), (4, 12)]
    player.add(request(0, 13, 2, images=images, blocks=blocks), request(1, 4, 6))
    player.step()
    player.step()  # the younger one decodes, until the older one's block needs its windowed pages
    assert player.shapes() == [[(0, 0, 4), (1, 0, 4)], [(0, 4, 13)]]
    assert player.scheduler.stats.preempted == 1
    player.run()
    assert memory.side_free == 4


def test_the_youngest_keeps_its_pages_while_it_waits_for_one_more() -> None:
    memory = CountedMemory(4)
    player = loop(memory, tokens=9)
    youngest = request(1, 4, 4)
    player.add(request(0, 5, 4), youngest)
    player.step()
    memory.free = 0
    player.step()
    memory.free = 1
    player.step()
    assert player.shapes()[1:] == [[(0, 5, 6)], [(0, 6, 7), (1, 4, 5)]]
    assert player.scheduler.stats.stalled == 1
    assert player.scheduler.stats.preempted == 0


def test_a_chunk_shrinks_to_what_its_windowed_side_can_hold() -> None:
    memory = CountedMemory(100, 4, window=4, side_pages=4)
    player = loop(memory, tokens=32)
    player.add(request(0, 30))
    player.step()
    assert player.shapes() == [[(0, 0, 16)]]
    player.run()
    assert memory.side_free == 4

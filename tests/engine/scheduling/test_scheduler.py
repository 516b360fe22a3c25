from __future__ import annotations

import pytest

from firstlight.core.reason import Phase
from firstlight.engine.scheduling import Limits
from firstlight.errors import RequestError, SchedulerError
from tests.engine.scheduling.fakes import CountedMemory, Encoder, request
from tests.engine.scheduling.loop import Loop, loop


def test_a_long_prompt_is_prefilled_in_chunks_and_then_decoded() -> None:
    player = loop()
    player.add(request(0, 19, 3))
    player.run()
    assert player.shapes() == [
        [(0, 0, 8)],
        [(0, 8, 16)],
        [(0, 16, 19)],
        [(0, 19, 20)],
        [(0, 20, 21)],
    ]
    assert [plan.phase for plan in player.plans] == [Phase.PREFILL] * 3 + [Phase.DECODE] * 2


def test_decodes_ride_along_with_a_prefill() -> None:
    player = loop()
    player.add(request(0, 3, 4))
    player.step()
    player.add(request(1, 9, 1))
    player.run()
    assert player.shapes()[1:3] == [[(0, 3, 4), (1, 0, 7)], [(0, 4, 5), (1, 7, 9)]]


def test_prompts_share_a_step_in_order_of_arrival() -> None:
    player = loop()
    player.add(request(0, 3), request(1, 4), request(2, 5))
    player.run()
    assert player.shapes() == [[(0, 0, 3), (1, 0, 4), (2, 0, 1)], [(2, 1, 5)]]


def test_a_latecomer_with_an_earlier_place_is_served_first() -> None:
    player = loop(seqs=1)
    player.add(request(1, 2), request(3, 2), request(2, 2))
    player.run()
    assert player.shapes() == [[(1, 0, 2)], [(2, 0, 2)], [(3, 0, 2)]]


def test_no_more_requests_run_than_allowed() -> None:
    player = loop(seqs=2)
    player.add(*(request(i, 1, 2) for i in range(4)))
    player.run()
    assert [[a for a, _, _ in plan] for plan in player.shapes()] == [[0, 1]] * 2 + [[2, 3]] * 2


def test_a_single_token_prompt_is_a_decode_of_one_row() -> None:
    player = loop()
    player.add(request(0, 1))
    player.run()
    assert [plan.phase for plan in player.plans] == [Phase.DECODE]


def test_a_request_that_lacks_one_token_after_a_hit_is_a_decode_of_one_row() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    hit = request(0, 9)
    memory.hits[id(hit.key)] = 8
    player.add(hit)
    player.run()
    assert player.shapes() == [[(0, 8, 9)]]
    assert player.plans[0].phase is Phase.DECODE


def test_a_hit_leaves_at_least_one_token_to_compute() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    hit = request(0, 8)
    memory.hits[id(hit.key)] = 8
    player.add(hit)
    player.run()
    assert player.shapes() == [[(0, 4, 8)]]


def test_the_cache_is_asked_when_a_request_is_admitted_not_when_it_arrives() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    late = request(1, 9)
    player.add(request(0, 8), late)
    player.step()  # the whole budget went to the older one
    memory.hits[id(late.key)] = 8
    player.run()
    assert player.shapes() == [[(0, 0, 8)], [(1, 8, 9)]]


def test_a_hit_that_ends_inside_a_block_is_cut_back_to_its_start() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    hit = request(0, 14, images=[("a", 6, 13)], blocks=[(6, 13)])
    memory.hits[id(hit.key)] = 12
    player.add(hit)
    player.run()
    assert player.shapes() == [[(0, 4, 6)], [(0, 6, 14)]]
    assert memory.free == 100


def test_nothing_is_planned_when_there_is_nobody() -> None:
    assert loop().scheduler.next_batch() is None


def test_a_request_whose_token_was_never_sampled_is_reported_with_numbers() -> None:
    player = loop()
    player.add(request(0, 3, 4))
    plan = player.plan()
    assert plan is not None
    player.scheduler.commit(plan)
    player.scheduler.publish(plan)
    with pytest.raises(SchedulerError, match=r"1 running and 0 waiting .* 3 of 3 tokens computed"):
        player.scheduler.next_batch()


def test_a_plan_that_was_not_computed_is_planned_again() -> None:
    player = loop()
    player.add(request(0, 11, 2))
    first = player.plan()
    assert player.plan() == first


def test_a_chunk_that_left_its_plan_is_planned_again() -> None:
    player = loop()
    player.add(request(0, 3, 2), request(1, 3, 2))
    plan = player.plan()
    assert plan is not None
    player.finish(type(plan)(plan.phase, plan.chunks[1:]))
    assert player.plan() is not None
    assert player.shapes()[1] == [(1, 3, 4), (0, 0, 3)]


def test_a_plan_is_not_committed_twice() -> None:
    player = loop()
    player.add(request(0, 11, 2))
    plan = player.plan()
    assert plan is not None
    player.scheduler.commit(plan)
    player.scheduler.publish(plan)
    with pytest.raises(SchedulerError, match=r"\[0, 8\) of request 0 .* 8 are computed"):
        player.scheduler.commit(plan)


def test_a_request_may_leave_while_its_step_runs() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    gone = request(0, 3, 2)
    player.add(gone, request(1, 3, 1))
    plan = player.plan()
    assert plan is not None
    player.remove(gone)
    player.finish(plan)
    assert player.step() is False
    assert memory.free == 100
    assert gone.computed == 0


def test_a_waiting_request_may_leave() -> None:
    player = loop(seqs=1)
    gone = request(1, 3)
    player.add(request(0, 3, 3), gone, request(2, 3))
    player.step()
    player.remove(gone)
    player.run()
    assert {a for plan in player.shapes() for a, _, _ in plan} == {0, 2}


def test_removing_a_stranger_or_twice_does_nothing() -> None:
    player = loop()
    known = request(0, 3)
    player.add(known)
    player.remove(request(1, 3))
    player.remove(known)
    player.remove(known)
    assert player.scheduler.next_batch() is None


def test_a_request_is_added_once() -> None:
    player = loop()
    twice = request(0, 3)
    player.add(twice)
    with pytest.raises(ValueError, match="added already"):
        player.scheduler.add(twice)


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_computed_is_kept_for_others_unless_it_may_be_wrong(keep: bool) -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    aborted = request(0, 19)
    player.add(aborted)
    player.step()
    player.remove(aborted, keep=keep)
    assert memory.published == ([8] if keep else [])


def test_a_prompt_is_published_when_its_prefill_is_complete() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    player.add(request(0, 19, 5))
    for _ in range(2):
        player.step()
    assert memory.published == []
    for _ in range(2):
        player.step()
    assert memory.published == [19]


def test_a_request_that_never_fits_is_refused_at_arrival() -> None:
    player = loop(CountedMemory(4))
    with pytest.raises(RequestError, match="17 tokens take 5 KV pages of 4 tokens; the pool has 4"):
        player.scheduler.add(request(0, 10, 7))
    assert player.scheduler.check_fits(16) is None
    assert player.scheduler.next_batch() is None


def test_a_block_wider_than_a_step_is_refused_at_arrival() -> None:
    with pytest.raises(RequestError, match=r"9 positions .* max_batch_tokens = 8"):
        loop().scheduler.add(request(0, 12, blocks=[(2, 11)]))


def test_a_block_beside_which_no_decode_has_room_gets_the_next_step_first() -> None:
    player = loop()
    player.add(request(0, 2, 9), request(1, 2, 9))
    player.step()
    player.add(request(2, 9, 3, images=[("a", 0, 8)], blocks=[(0, 8)]))
    for _ in range(4):
        player.step()
    assert player.shapes()[1:5] == [
        [(0, 2, 3), (1, 2, 3)],
        [(2, 0, 8)],
        [(0, 3, 4), (1, 3, 4), (2, 8, 9)],
        [(0, 4, 5), (1, 4, 5), (2, 9, 10)],
    ]
    assert player.scheduler.stats.displaced == 2


def test_a_request_that_goes_first_has_one_row_if_the_cache_has_all_else_by_then() -> None:
    memory = CountedMemory(100)
    player = loop(memory)
    player.add(request(0, 2, 9))
    player.step()
    blocked = request(1, 9, images=[("a", 0, 8)], blocks=[(0, 8)])
    player.add(blocked)
    player.step()
    memory.hits[id(blocked.key)] = 8
    player.step()
    assert player.shapes()[2] == [(1, 8, 9), (0, 3, 4)]


def test_a_request_that_goes_first_has_one_chunk_though_the_others_have_left() -> None:
    player = loop()
    decoding = [request(i, 2, 9) for i in range(3)]
    player.add(*decoding)
    player.step()
    player.add(request(3, 8, images=[("a", 0, 6), ("b", 6, 8)], blocks=[(0, 6), (6, 8)]))
    player.step()
    for gone in decoding:
        player.remove(gone)
    player.run()
    assert player.shapes()[2:] == [[(3, 0, 8)]]


def test_a_younger_block_does_not_displace_decodes_while_an_older_prefill_goes_on() -> None:
    player = loop(rows=4)
    player.add(request(0, 2, 9))
    player.step()
    older = request(1, 16, images=[("a", 0, 4), ("b", 4, 8), ("c", 8, 12)])
    player.add(older, request(2, 8, images=[("d", 0, 8)], blocks=[(0, 8)]))
    player.run()
    assert player.shapes()[1:6] == [
        [(0, 2, 3), (1, 0, 4)],
        [(0, 3, 4), (1, 4, 8)],
        [(0, 4, 5), (1, 8, 15)],
        [(0, 5, 6), (1, 15, 16)],
        [(2, 0, 8)],
    ]


def test_a_block_goes_first_as_soon_as_every_older_prefill_is_complete() -> None:
    player = loop()
    player.add(request(0, 2, 9))
    player.step()
    player.add(request(1, 4, 3), request(2, 8, images=[("a", 0, 8)], blocks=[(0, 8)]))
    player.step()
    player.step()
    assert player.shapes()[1:] == [[(0, 2, 3), (1, 0, 4)], [(2, 0, 8)]]


def test_of_two_blocks_without_room_the_older_goes_first() -> None:
    player = loop()
    player.add(request(0, 2, 9))
    player.step()
    images, blocks = [("a", 3, 11)], [(3, 11)]
    player.add(*(request(i, 11, images=images, blocks=blocks) for i in (1, 2)))
    for _ in range(4):
        player.step()
    assert player.shapes()[1:] == [
        [(0, 2, 3), (1, 0, 3), (2, 0, 3)],
        [(0, 3, 4)],
        [(1, 3, 11)],
        [(0, 4, 5)],
    ]
    player.step()
    assert player.shapes()[5] == [(2, 3, 11)]


def test_decodes_that_have_room_beside_the_block_ride_along() -> None:
    player = loop()
    player.add(request(0, 2, 9), request(1, 2, 9))
    player.step()
    player.add(request(2, 7, 3, images=[("a", 0, 7)], blocks=[(0, 7)]))
    player.step()
    player.step()
    assert player.shapes()[2] == [(2, 0, 7), (0, 3, 4)]


def test_many_blocks_leave_out_a_decode_every_second_step_at_most() -> None:
    player = loop(tokens=8, seqs=3)
    player.add(request(0, 2, 30))
    player.step()
    blocks = [(8 * i, 8 * i + 8) for i in range(5)]
    player.add(request(1, 41, images=[(str(a), a, b) for a, b in blocks], blocks=blocks))
    player.run()
    rows = [any(a == 0 for a, _, _ in plan) for plan in player.shapes()[1:11]]
    assert rows == [True, False] * 5


def test_no_more_media_are_encoded_in_a_step_than_its_budget() -> None:
    player = loop(tokens=64, rows=10)
    player.add(*(request(i, 9, images=[(f"i{i}", 2, 8)]) for i in range(3)))
    player.run()
    assert player.shapes() == [
        [(0, 0, 9), (1, 0, 2), (2, 0, 2)],
        [(1, 2, 9)],
        [(2, 2, 9)],
    ]


def test_equal_media_of_two_requests_are_paid_once() -> None:
    player = loop(tokens=64, rows=6)
    player.add(*(request(i, 9, images=[("same", 2, 8)]) for i in range(3)))
    player.step()
    assert player.shapes() == [[(0, 0, 9), (1, 0, 9), (2, 0, 9)]]


def test_a_picture_is_cut_at_any_token_by_a_chunk() -> None:
    player = loop(tokens=5)
    player.add(request(0, 14, images=[("a", 3, 11)]))
    player.run()
    assert player.shapes() == [[(0, 0, 5)], [(0, 5, 10)], [(0, 10, 14)]]


def test_the_statistics_are_a_frozen_value() -> None:
    player = loop()
    player.add(request(0, 3, 2), *(request(i, 9, 1) for i in range(1, 7)))
    player.step()
    stats = player.scheduler.stats
    assert (stats.waiting, stats.running) == (5, 2)
    assert (stats.steps, stats.planned_tokens, stats.last_tokens) == (1, 8, 8)
    player.step()
    assert stats.steps == 1
    assert player.scheduler.stats.steps == 2


def test_the_running_requests_are_those_with_pages_the_oldest_first() -> None:
    player = loop(seqs=2)
    requests = [request(i, 2, 3) for i in (4, 1, 3)]
    player.add(*requests)
    player.step()
    assert [r.arrival for r in player.scheduler.running] == [1, 3]
    player.run()
    assert player.scheduler.running == ()


def test_the_encoder_is_asked_again_for_what_it_could_not_keep() -> None:
    class Forgetful(Encoder):
        asked = 0

        def cost(self, need: object) -> int:
            self.asked += 1
            return 8

    encoder = Forgetful()
    limits = Limits(max_num_seqs=2, max_batch_tokens=5, max_encoder_rows=8)
    player = Loop(CountedMemory(100), limits, encoder)
    player.add(request(0, 14, images=[("a", 3, 11)]))
    player.run()
    assert len(player.plans) == 3
    assert encoder.asked == 6  # how far, and then what it costs


def test_after_a_restart_all_are_computed_again_in_order_of_arrival() -> None:
    player = loop()
    player.add(request(0, 6, 4), request(1, 9, 2))
    player.step()
    player.step()
    scheduler = player.scheduler
    plan = scheduler.next_batch()  # never committed
    assert plan is not None
    again = scheduler.restart()
    assert [r.arrival for r in again] == [0, 1]
    assert all(r.holding is None and r.computed == 0 for r in again)
    assert (scheduler.stats.waiting, scheduler.stats.running) == (2, 0)
    player.run()
    assert all(r.finished for r in again)

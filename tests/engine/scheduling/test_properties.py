"""Random traffic over the real memory and over one that only counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.core.plan import BatchPlan
from firstlight.engine.scheduling import Limits
from firstlight.memory.integrity import check
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import KVLayout
from tests.engine.scheduling.contents import Contents, Slots, copy_in
from tests.engine.scheduling.fakes import CountedMemory, Request, request
from tests.engine.scheduling.loop import Loop


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sizes of a run; what happens in it is drawn from ``seed``."""

    seed: int
    page_size: int
    window: int | None
    n_requests: int
    max_prompt: int
    max_answer: int
    slack: int  # pages beyond what the largest request needs alone
    side_slack: int
    seqs: int
    tokens: int  # rows of a step beyond what must be
    rows: int
    media: bool
    blocks: bool
    prefix_cache: bool
    aborts: float  # share of the requests that leave before their end

    @property
    def limits(self) -> Limits:
        most = max(self.seqs, 12 if self.blocks else 1)
        return Limits(
            max_num_seqs=self.seqs, max_batch_tokens=most + self.tokens, max_encoder_rows=self.rows
        )


traffic = st.builds(
    Traffic,
    seed=st.integers(0, 10**9),
    page_size=st.sampled_from([1, 4, 16, 128]),
    window=st.sampled_from([None, None, 1, 5, 16, 40]),
    n_requests=st.integers(2, 9),
    max_prompt=st.sampled_from([3, 40, 90]),
    max_answer=st.sampled_from([1, 5, 30]),
    slack=st.sampled_from([0, 0, 1, 2, 5, 50]),
    side_slack=st.sampled_from([0, 0, 1, 3, 50]),
    seqs=st.integers(1, 5),
    tokens=st.sampled_from([0, 0, 1, 5, 16, 100]),
    rows=st.sampled_from([1, 8, 20, 1000]),
    media=st.booleans(),
    blocks=st.booleans(),
    prefix_cache=st.booleans(),
    aborts=st.sampled_from([0.0, 0.0, 0.3, 0.8]),
)

crowds_with_blocks = st.builds(
    Traffic,
    seed=st.integers(0, 10**9),
    page_size=st.sampled_from([1, 4, 16]),
    window=st.sampled_from([None, 5, 16]),
    n_requests=st.integers(4, 9),
    max_prompt=st.sampled_from([20, 60]),
    max_answer=st.just(30),
    slack=st.sampled_from([5, 50]),
    side_slack=st.sampled_from([3, 50]),
    seqs=st.integers(3, 5),
    tokens=st.sampled_from([0, 1, 2]),
    rows=st.sampled_from([8, 1000]),
    media=st.just(True),
    blocks=st.just(True),
    prefix_cache=st.booleans(),
    aborts=st.sampled_from([0.0, 0.3]),
)


def _requests(traffic: Traffic, random: Random) -> list[Request]:
    """Prompts of two families with a common start each, with pictures of few kinds."""
    made = []
    for arrival in range(traffic.n_requests):
        length = random.randint(1, traffic.max_prompt)
        family, common = random.randint(1, 2), random.randint(0, length)
        ids = [family * 10**6 + i for i in range(common)]
        ids += [(arrival + 10) * 10**6 + i for i in range(common, length)]
        images: list[tuple[str, int, int]] = []
        at = random.randint(0, 6)
        while traffic.media and at < length and len(images) < 4:
            end = min(at + random.choice((1, 3, 7, 12, 12)), length)
            images.append((f"{random.randint(0, 3)} of {end - at}", at, end))
            at = end + random.randint(0, 9)
        blocks = [(start, end) for _, start, end in images] if traffic.blocks else []
        answer = random.randint(1, traffic.max_answer)
        made.append(
            request(arrival, ids, answer, images=images, blocks=blocks, page_size=traffic.page_size)
        )
    return made


def _sizes(traffic: Traffic, requests: list[Request]) -> tuple[int, int]:
    """Pages of the pool and of the windowed one, the sinks included."""
    block = max([b - a for r in requests for a, b in r.blocks], default=1)
    whole = max(-(-r.capacity // traffic.page_size) for r in requests)
    chunk = (traffic.window or 0) - 1 + block
    side = (chunk + traffic.page_size - 2) // traffic.page_size + 1
    return whole + traffic.slack + 1, max(min(whole, side), 1) + traffic.side_slack + 1


def _real(traffic: Traffic, requests: list[Request], slots: Slots) -> KVMemory:
    pages, side = _sizes(traffic, requests)
    windows = [None] if traffic.window is None else [None, traffic.window]
    layout = KVLayout.of(windows, 10**6)
    counts = (pages, side)[: len(layout.sides)]
    copy = copy_in(slots, layout, traffic.page_size)
    return KVMemory(layout, pages, counts, traffic.page_size, traffic.prefix_cache, copy)


def _drive(
    traffic: Traffic,
    loop: Loop,
    requests: list[Request],
    random: Random,
    compute: Callable[[BatchPlan[Request]], None],
) -> int:
    """Arrivals, aborts and failures at any moment, until nothing is left; the steps it took."""
    coming = list(requests)
    doomed = {r for r in requests if random.random() < traffic.aborts}
    # The oldest gets at least a token in every second step, and nothing takes it back.
    bound = 2 * sum(r.capacity for r in requests) + 3 * len(requests) + 10
    for _step in range(bound):
        while coming and (not loop.live or random.random() < 0.4):
            loop.add(coming.pop(0))
        _leave(loop, doomed, random)
        plan = loop.plan()
        if plan is None:
            if not coming:
                return len(loop.plans)
            continue
        _leave(loop, doomed, random, keep=False)  # media that cannot be had
        kept = tuple(chunk for chunk in plan.chunks if chunk.request in loop.live)
        plan = BatchPlan(plan.phase, kept)
        compute(plan)
        _leave(loop, doomed, random)  # a client that goes while the step runs
        loop.finish(plan)
    raise AssertionError(f"{loop.live} are not done after {bound} steps")


def _leave(loop: Loop, doomed: set[Request], random: Random, *, keep: bool = True) -> None:
    for leaver in [r for r in loop.live if r in doomed and random.random() < 0.08]:
        loop.remove(leaver, keep=keep)


def _run_real(traffic: Traffic) -> Loop:
    random = Random(traffic.seed)
    requests = _requests(traffic, random)
    slots: Slots = {}
    memory = _real(traffic, requests, slots)
    loop = Loop(memory, traffic.limits)
    contents = Contents(memory, slots)

    def compute(plan: BatchPlan[Request]) -> None:
        check(memory, [r.holding for r in loop.live if r.holding is not None])
        contents.compute(plan)

    _drive(traffic, loop, requests, random, compute)
    check(memory)
    usage = memory.usage()
    assert not any(space.held for space in (usage.pages, *usage.sides))
    memory.flush()
    check(memory)
    assert memory.n_free == usage.pages.free + usage.pages.cached
    assert memory.usage().pages.cached == 0
    return loop


@settings(deadline=None, max_examples=80)
@given(traffic)
def test_everybody_finishes_on_the_right_contents_and_every_page_comes_back(
    traffic: Traffic,
) -> None:
    _run_real(traffic)


@settings(deadline=None, max_examples=25)
@given(crowds_with_blocks)
def test_blocks_displace_decodes_and_nobody_starves(traffic: Traffic) -> None:
    _run_real(traffic)


@pytest.mark.slow
@settings(deadline=None, max_examples=3000)
@given(st.one_of(traffic, crowds_with_blocks))
def test_everybody_finishes_in_thousands_of_runs(traffic: Traffic) -> None:
    _run_real(traffic)


@settings(deadline=None, max_examples=60)
@given(traffic)
def test_a_memory_that_only_counts_gets_every_page_back(traffic: Traffic) -> None:
    random = Random(traffic.seed)
    requests = _requests(traffic, random)
    pages, side = _sizes(traffic, requests)
    memory = CountedMemory(pages - 1, traffic.page_size, traffic.window, side - 1)
    for r in requests:
        memory.hits[id(r.key)] = random.choice([0, 0, r.prompt_length])
    loop = Loop(memory, traffic.limits)
    _drive(traffic, loop, requests, random, lambda plan: None)
    assert (memory.free, memory.side_free) == (memory.pages, memory.side_pages)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 8),
    prompt=st.integers(1, 40),
    answer=st.integers(1, 12),
    page_size=st.sampled_from([1, 4, 16]),
    slack=st.integers(0, 20),
    seqs=st.integers(1, 5),
    tokens=st.integers(5, 30),
    gaps=st.lists(st.integers(0, 6), min_size=8, max_size=8),
)
def test_first_tokens_of_equal_requests_come_in_order_of_arrival(
    n: int,
    prompt: int,
    answer: int,
    page_size: int,
    slack: int,
    seqs: int,
    tokens: int,
    gaps: list[int],
) -> None:
    memory = CountedMemory(-(-(prompt + answer) // page_size) + slack, page_size)
    limits = Limits(max_num_seqs=seqs, max_batch_tokens=tokens, max_encoder_rows=8)
    loop = Loop(memory, limits)
    equal = [request(i, prompt, answer, page_size=page_size) for i in range(n)]
    for one, gap in zip(equal, gaps, strict=False):
        loop.add(one)
        for _ in range(gap):
            loop.step()
    loop.run()
    steps = [loop.seen[one].first_token for one in equal]
    assert None not in steps
    assert steps == sorted(steps, key=lambda step: step or 0)


@settings(deadline=None, max_examples=60)
@given(traffic)
def test_a_request_computes_each_position_once_unless_it_was_preempted(traffic: Traffic) -> None:
    random = Random(traffic.seed)
    requests = _requests(traffic, random)
    loop = Loop(_real(traffic, requests, {}), traffic.limits)
    loop.add(*requests)
    loop.run()
    computed = {r: 0 for r in requests}
    for plan in loop.plans:
        for chunk in plan.chunks:
            computed[chunk.request] += len(chunk)
    if loop.scheduler.stats.preempted == 0:
        for r, tokens in computed.items():
            assert r.capacity - 1 - r.prompt_length <= tokens <= r.capacity - 1

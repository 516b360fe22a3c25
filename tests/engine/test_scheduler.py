from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.reason import Phase
from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.prompt import Prompt
from firstlight.engine.scheduler import Scheduler
from firstlight.engine.sequence import Sequence
from firstlight.memory import PageAllocator
from firstlight.models.positions import linear_positions
from firstlight.sampling import SamplingState


def sequence(prompt: int, answer: int) -> Sequence:
    params = SamplingParams(max_tokens=answer)
    return Sequence(
        prompt=Prompt(list(range(prompt))),
        params=params,
        positions=linear_positions(prompt),
        sampling=SamplingState(params),
        detokenizer=cast(Any, None),
        max_tokens=answer,
        started=0.0,
    )


class Loop:
    """Plays the engine: computes what is planned, one token per decided row."""

    def __init__(self, *, pages: int, seqs: int, tokens: int) -> None:
        self.pages = PageAllocator(pages)
        self.scheduler = Scheduler(
            self.pages, page_size=4, max_num_seqs=seqs, max_batch_tokens=tokens
        )
        self.plans: list[tuple[Phase, list[tuple[int, int]]]] = []

    def step(self) -> bool:
        plan = self.scheduler.next_batch()
        if plan is None:
            return False
        self.plans.append((plan.phase, [(c.start, c.end) for c in plan.chunks]))
        for chunk in plan.chunks:
            request = chunk.request
            request.computed = chunk.end
            if chunk.end == request.length:
                request.output_ids.append(7)
            if len(request.output_ids) == request.max_tokens:
                self.scheduler.remove(request)
        return True


def test_a_long_prompt_is_prefilled_in_chunks_and_then_decoded() -> None:
    loop = Loop(pages=20, seqs=2, tokens=8)
    loop.scheduler.add(sequence(19, 3))
    while loop.step():
        pass
    assert loop.plans == [
        (Phase.PREFILL, [(0, 8)]),
        (Phase.PREFILL, [(8, 16)]),
        (Phase.PREFILL, [(16, 19)]),
        (Phase.DECODE, [(19, 20)]),
        (Phase.DECODE, [(20, 21)]),
    ]


def test_prompts_share_a_prefill_step_up_to_its_tokens() -> None:
    loop = Loop(pages=20, seqs=4, tokens=8)
    for n in (3, 4, 5):
        loop.scheduler.add(sequence(n, 1))
    loop.step()
    assert loop.plans == [(Phase.PREFILL, [(0, 3), (0, 4), (0, 1)])]


def test_requests_beyond_the_limit_wait_for_a_place() -> None:
    loop = Loop(pages=20, seqs=1, tokens=8)
    first, second = sequence(2, 2), sequence(2, 1)
    loop.scheduler.add(first)
    loop.scheduler.add(second)
    while loop.step():
        pass
    assert [phase for phase, _ in loop.plans] == [Phase.PREFILL, Phase.DECODE, Phase.PREFILL]


def test_removing_frees_the_pages_once_whatever_the_state() -> None:
    loop = Loop(pages=20, seqs=2, tokens=8)
    waiting, running = sequence(70, 5), sequence(5, 5)
    loop.scheduler.add(running)
    loop.step()
    loop.scheduler.add(waiting)
    for request in (waiting, running, running):
        loop.scheduler.remove(request)
    assert loop.pages.n_free == 19
    assert loop.scheduler.next_batch() is None


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 16),
)
def test_every_request_ends_in_order_of_arrival_within_the_limits(
    sizes: list[tuple[int, int]], seqs: int, tokens: int
) -> None:
    loop = Loop(pages=12, seqs=seqs, tokens=tokens)
    requests = [sequence(n, m) for n, m in sizes]
    for request in requests:
        loop.scheduler.add(request)
    for _ in range(2000):
        if not loop.step():
            break
    assert [len(r.output_ids) for r in requests] == [m for _, m in sizes]
    assert loop.pages.n_free == 11
    for phase, chunks in loop.plans:
        assert len(chunks) <= seqs
        assert phase is Phase.DECODE or sum(b - a for a, b in chunks) <= tokens

"""Public faults of captured graphs (cases H02 to H05), in their form for a CPU."""

from __future__ import annotations

import gc
import hashlib

import pytest
import torch
from torch import Tensor

from firstlight import LLM
from firstlight.core.plan import BatchPlan
from firstlight.core.reason import Phase
from firstlight.engine.sequence import Sequence as Request
from firstlight.errors import ConfigError
from firstlight.graphs import TapeBackend
from firstlight.graphs.slots import ATTENTION_ROWS, PAGE_TABLE, WRITE_LOCATIONS
from tests.cases.steps import (
    after_each_step,
    ask,
    assert_idle,
    assert_same,
    assert_sensitive,
    before_each_step,
    difference,
    eager_llm,
    letters,
    params,
    watch,
)
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, assert_all_graph, tiny_llm, user
from tests.pictures import picture

QUESTION = "What is it?"


def asked(seed: int, side: int = 32) -> list[Part]:
    """The same question about a picture of that seed."""
    return [picture(side, side, seed=seed), QUESTION]


# -- H02 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "llava", "internvl", "mistral3"])
def test_pictures_reach_graphs_whose_first_request_was_text(
    family: str, tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H02: text, then a picture, then the same text with another; no visual input is dropped."""
    path = tiny_checkpoint(family)
    llm, eager = tiny_llm(path), eager_llm(path)
    parts: list[list[Part]] = [[QUESTION], asked(1), asked(2)]
    answers = [ask(llm, *p) for p in parts]
    assert_sensitive(answers[1], answers[2])
    for p, answer in zip(parts, answers, strict=True):
        assert_all_graph(answer)
        assert_same(answer, ask(eager, *p))
    adapter = llm.parts.model.adapter
    for segment in adapter.contract.segments:
        encode = type(adapter).encode

        def blank(artifacts: object, start: int = segment.start, end: int = segment.end) -> object:
            rows = encode(adapter, artifacts)  # type: ignore[arg-type]  # noqa: B023
            for row in rows:
                row[:, start:end] = 0
            return rows

        monkeypatch.setattr(adapter, "encode", blank)
        llm.flush_caches()  # rows that were encoded before would hide it
        assert difference(ask(llm, *asked(1)), answers[1]) > 1e-3, segment.name


def test_text_after_a_picture_is_the_text_alone(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """H02, the other way round: what a picture left in the slots does not reach a later text."""
    llm = tiny_llm(tiny_checkpoint("qwen3_vl"))
    before = ask(llm, QUESTION)
    ask(llm, *asked(1, side=96))
    after = ask(llm, QUESTION)
    assert after.token_ids == before.token_ids
    assert difference(after, before) == 0


# -- H03 ---------------------------------------------------------------------------------------


def poison(backend: TapeBackend) -> int:
    """Fill all memory that no slot, weight, pool or constant owns with NaN; bytes filled."""
    filled = 0
    for block in backend.scratch._blocks:
        torch.empty(0, dtype=torch.uint8).set_(block).fill_(0xFF)
        filled += block.nbytes()
    return filled


def test_graphs_of_all_sizes_replay_right_in_any_order_over_poisoned_scratch(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H03: no intermediate is held weakly or left to a neighbour, whatever ran in between."""
    path = tiny_checkpoint("qwen3_vl")
    llm, eager = tiny_llm(path), eager_llm(path)
    backend = llm.parts.runners[Phase.PREFILL].backend
    assert isinstance(backend, TapeBackend)
    assert torch.frombuffer(bytearray(b"\xff" * 4), dtype=torch.float32).isnan().all()
    gc.collect()
    poisoned: list[int] = []
    churn: list[Tensor] = []

    def disturb(plan: BatchPlan[Request]) -> None:
        poisoned.append(poison(backend))
        churn.append(torch.full((1000 + 777 * len(churn),), float("nan")))

    before_each_step(monkeypatch, disturb)
    small: list[Part] = ["ab"]
    middle: list[Part] = [picture(32, 32, seed=5), "What is it?"]
    large: list[Part] = [picture(96, 128, seed=6), "Describe the picture. " * 10]
    buckets: list[int] = []
    for parts in (small, large, ["cd"], middle, [picture(128, 96, seed=7), "Compare. " * 20]):
        answer = ask(llm, *parts)
        assert_all_graph(answer)
        buckets.append(answer.timings.steps[0].decision.bucket or 0)
        assert_same(answer, ask(eager, *parts))
    first, largest, again, between, last = buckets
    assert first == again < between < largest < last
    assert min(poisoned) > 0


# -- H04 ---------------------------------------------------------------------------------------


def hashes(llm: LLM) -> dict[int, str]:
    """A digest of what each page holds, over all layers; the sink is left out."""
    pool = llm.parts.pool
    return {
        page: hashlib.sha256(
            b"".join(t[page].numpy().tobytes() for t in (*pool.keys, *pool.values))
        ).hexdigest()
        for page in range(1, pool.n_pages[0])
    }


def look_at_pages(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Check that each step changes pages of its own requests alone; the last page of each step."""
    last_pages: list[int] = []
    held: dict[str, dict[int, str]] = {}

    def before(plan: BatchPlan[Request]) -> None:
        held["before"] = hashes(llm)

    def after(plan: BatchPlan[Request]) -> None:
        holdings = [chunk.request.holding for chunk in plan.chunks]
        mine = {page for holding in holdings if holding is not None for page in holding.pages}
        last_pages.append(max(mine))
        now = hashes(llm)
        changed = {page for page, value in now.items() if value != held["before"][page]}
        assert changed
        assert changed <= mine

    before_each_step(monkeypatch, before)
    after_each_step(monkeypatch, after)
    return last_pages


def test_padded_rows_write_no_page_of_another_request(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H04: with the pool's last page in use by A, B's rows padded to 8 change no byte of A's."""
    path = tiny_checkpoint("llama")
    # Pages of 4: the filler takes 3 and A the 7 behind them, up to the last one; then B comes.
    llm = tiny_llm(
        path, prefill_buckets=(8, 24), kv_pages=11, max_num_seqs=4, max_context=28, page_size=4
    )
    filler, a, b = "abcdefghi", "fghijklmn", "opqrs"
    alone = eager_llm(path).generate(a, params(19))
    seen = watch(monkeypatch, WRITE_LOCATIONS, PAGE_TABLE)
    last_pages = look_at_pages(llm, monkeypatch)
    admit = llm.parts.admission.text
    first, second, third = (
        admit(text, (), params(n)) for text, n in ((filler, 3), (a, 19), (b, 3))
    )
    engine = llm.parts.engine
    engine.add(first)
    engine.add(second)
    while second.holding is None or len(second.holding.pages) < 7:
        assert engine.step()
    assert first.finish is not None
    assert second.holding.pages[-1] == llm.parts.pool.n_pages[0] - 1
    engine.add(third)
    while engine.step():
        pass
    assert tuple(second.output_ids) == alone.token_ids
    b_steps = [f for f in seen if f.phase is Phase.PREFILL and f.chunks[-1].request is third]
    (step,) = b_steps
    assert (step.decision.tokens, step.decision.bucket) == (6, 8)
    assert step.slots[WRITE_LOCATIONS][6:].tolist() == [0, 0]
    assert llm.parts.pool.n_pages[0] - 1 in last_pages
    for fed in seen:
        assert fed.slots[WRITE_LOCATIONS].min() >= 0
        assert fed.slots[PAGE_TABLE].min() >= 0
    assert_idle(llm)


# -- H05 ---------------------------------------------------------------------------------------


LIMITS = (599, 600, 601)


@pytest.mark.parametrize("context", LIMITS)
def test_two_long_requests_are_right_whatever_limit_is_the_smaller(
    context: int, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H05: no buffer is sized by one limit and filled by the other."""
    path = tiny_checkpoint("qwen3_vl")
    eager = eager_llm(path, max_context=context, max_num_seqs=1)
    parts: list[Part] = [picture(96, 64, seed=1), letters(555)]
    expected = ask(eager, *parts, tokens=4)
    assert 585 <= expected.usage.prompt_tokens <= 595
    assert len(set(expected.token_ids)) > 1
    for budget in LIMITS:
        llm = tiny_llm(
            path,
            max_context=context,
            max_batch_tokens=budget,
            max_num_seqs=2,
            prefill_buckets=(64, budget),
            prefix_cache=True,
        )
        for _ in range(2):  # then from the prefix cache
            answers = llm.chat([user(*parts)] * 2, params(4))
            for answer in answers:
                assert_same(answer, expected)
                assert_all_graph(answer)
        assert answers[0].usage.cached_tokens > 500
        assert_every_buffer_holds_the_largest_batch(llm)


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"max_batch_tokens": 3, "max_num_seqs": 4}, ("max_batch_tokens", "max_num_seqs")),
        ({"kv_pages": 10, "max_context": 600}, ("kv_pages", "max_context")),
    ],
)
def test_limits_under_which_no_request_gets_on_are_refused_by_their_names(
    settings: dict[str, int], fields: tuple[str, str], tiny_checkpoint: TinyCheckpoint
) -> None:
    """H05: at the start, never a step that picks no token for ever."""
    with pytest.raises(ConfigError) as refused:
        tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, **settings)
    assert all(f"{field} = {settings[field]}" in str(refused.value) for field in fields)


def assert_every_buffer_holds_the_largest_batch(llm: LLM) -> None:
    memory = llm.parts.memory
    for runner in llm.parts.runners.values():
        registry = runner.registry
        for name in registry.names:
            view = registry.view(name, runner.extent(runner.buckets.largest))
            assert view.numel() > 0
        assert registry.buffer("input_embeds").shape[0] >= runner.buckets.largest
        assert registry.buffer(PAGE_TABLE).shape[1] * memory.page_size >= memory.max_context
        assert registry.buffer(ATTENTION_ROWS).shape[0] >= llm.config.max_num_seqs

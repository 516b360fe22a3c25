"""Tokens taken one step late: the same answers, pages and caches as in step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion, FinishReason
from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.engine.engine import completion
from firstlight.engine.flight import Part
from firstlight.engine.sequence import Sequence as Request
from tests.cases.steps import assert_idle, assert_sound, letters
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part as Given
from tests.engine.engines import tiny_llm, user
from tests.pictures import picture

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)
KINDS = {
    "greedy": GREEDY,
    "plain": replace(GREEDY, logprobs=None),
    "drawn": replace(GREEDY, temperature=1.1, seed=3),
    "filtered": replace(GREEDY, temperature=0.9, seed=4, top_k=20, top_p=0.9, min_p=0.02),
    "penalised": replace(GREEDY, repetition_penalty=1.3, frequency_penalty=0.4),
    "form": replace(
        GREEDY, ignore_eos=False, structured_outputs=StructuredOutputs(regex="[ab]{4,9}")
    ),
}
HEAD = letters(21, seed=50)
ASKED: list[list[Given]] = [
    [letters(3, seed=1)],
    [HEAD + letters(4, seed=2)],
    [picture(48, 32, seed=1), HEAD],
    [picture(48, 32, seed=1), HEAD + letters(30, seed=3)],
]


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> Iterator[LLM]:
    """Steps and pages are so few that prompts are cut and requests wait and give pages up."""
    with tiny_llm(
        tiny_checkpoint("qwen3_vl"),
        eager=True,
        prefix_cache=True,
        max_context=128,
        max_batch_tokens=40,
        kv_pages=56,
    ) as built:
        yield built


@dataclass(frozen=True)
class Visit:
    """One request: what it asks, before which step it comes, and after how many tokens it leaves.

    Attributes:
        stops: token of its answer at which a stop token or string ends it.
    """

    asked: int
    kind: str
    tokens: int = 12
    arrival: int = 0
    leaves: int | None = None
    stops: int | None = None
    by_text: bool = False


class Alone(dict[tuple[int, str], Completion]):
    """Each question's answer with each kind of draw, by itself and in step."""

    def __repr__(self) -> str:
        return "Alone()"


def admit(llm: LLM, visit: Visit, alone: Alone) -> Request:
    params = replace(KINDS[visit.kind], max_tokens=visit.tokens)
    if visit.stops is not None:
        answer = alone[visit.asked, visit.kind]
        if visit.by_text:
            text = answer.text[visit.stops : visit.stops + 2]
            params = replace(params, stop=(text,) if text.strip() else ())
        else:
            at = min(visit.stops, len(answer.token_ids) - 1)
            params = replace(params, stop_token_ids=(answer.token_ids[at],))
    return llm.parts.admission.chat(user(*ASKED[visit.asked]), params)


def play(llm: LLM, visits: Sequence[Visit], alone: Alone, late: bool) -> list[Request]:
    """The requests of a mix, run to their ends from empty caches; nothing is left of them."""
    llm.flush_caches()
    engine = llm.parts.engine
    engine._overlap = late
    requests = [admit(llm, visit, alone) for visit in visits]
    try:
        step, busy = 0, True
        while busy or step <= max(visit.arrival for visit in visits):
            for visit, request in zip(visits, requests, strict=True):
                if visit.arrival == step:
                    engine.add(request)
                due = visit.leaves is not None and len(request.output_ids) >= visit.leaves
                if due and visit.arrival <= step:
                    engine.abort(request)
            busy = engine.step()
            assert_sound(llm, [r for r in requests if r.holding is not None])
            step += 1
    finally:
        for request in requests:
            engine.abort(request)
        engine._overlap = False
    assert not engine._flights
    assert_idle(llm)
    return requests


def outcome(request: Request) -> tuple[Any, ...]:
    """All that a caller is told, but for times and for what it found in the cache."""
    answer = completion(request)
    usage = replace(answer.usage, cached_tokens=0)
    fields = (answer.token_ids, answer.text, answer.finish_reason, answer.logprobs, answer.error)
    return (*fields, usage)


@pytest.fixture(scope="module")
def alone(llm: LLM) -> Alone:
    """Asked once for all tests."""
    visits = [Visit(i, kind) for i in range(len(ASKED)) for kind in KINDS]
    answers = Alone()
    for visit in visits:
        (request,) = play(llm, [visit], answers, late=False)
        answers[visit.asked, visit.kind] = completion(request)
    return answers


def compare(llm: LLM, visits: Sequence[Visit], alone: Alone) -> None:
    """Both ways give each request the same; of one that leaves, one token more or less."""
    ways = [play(llm, visits, alone, late) for late in (False, True)]
    for visit, in_step, late in zip(visits, *ways, strict=True):
        if FinishReason.ABORT in (in_step.finish, late.finish):
            assert visit.leaves is not None
            n = min(len(in_step.output_ids), len(late.output_ids))
            assert in_step.output_ids[:n] == late.output_ids[:n]
        else:
            assert outcome(late) == outcome(in_step)
            assert late.timings.ttft_s > 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_draw_gives_the_same_beside_others(llm: LLM, alone: Alone, kind: str) -> None:
    compare(llm, [Visit(0, kind), Visit(1, "greedy"), Visit(3, kind, arrival=3)], alone)


@pytest.mark.parametrize("by_text", [False, True], ids=["token", "string"])
@pytest.mark.parametrize("kind", ["greedy", "plain", "drawn"])
def test_an_answer_ends_where_it_is_stopped(
    llm: LLM, alone: Alone, kind: str, by_text: bool
) -> None:
    compare(llm, [Visit(1, kind, stops=5, by_text=by_text), Visit(0, kind)], alone)


def test_the_row_behind_a_stop_is_counted_and_its_page_given_back(llm: LLM, alone: Alone) -> None:
    before = llm.parts.engine.wasted_rows
    (request,) = play(llm, [Visit(0, "plain", stops=6)], alone, late=True)
    assert request.finish is FinishReason.STOP
    assert llm.parts.engine.wasted_rows == before + 1


def test_a_row_that_must_be_the_last_one_is_never_planned(llm: LLM, alone: Alone) -> None:
    before = llm.parts.engine.wasted_rows
    visits = [Visit(i, kind, tokens=3 + i) for i, kind in enumerate(["plain", "drawn", "greedy"])]
    requests = play(llm, visits, alone, late=True)
    assert [request.finish for request in requests] == [FinishReason.LENGTH] * 3
    assert llm.parts.engine.wasted_rows == before


def test_the_end_of_the_context_is_known_beforehand(llm: LLM, alone: Alone) -> None:
    before = llm.parts.engine.wasted_rows
    answers = []
    for late in (False, True):
        llm.flush_caches()
        llm.parts.engine._overlap = late
        params = replace(GREEDY, max_tokens=None)
        answers.append(llm.chat(user(letters(90, seed=9)), params))
    llm.parts.engine._overlap = False
    assert answers[0].finish_reason is FinishReason.LENGTH
    assert answers[1].token_ids == answers[0].token_ids
    assert answers[1].logprobs == answers[0].logprobs
    assert llm.parts.engine.wasted_rows == before


def test_min_tokens_hold_for_tokens_that_have_not_arrived(llm: LLM, alone: Alone) -> None:
    stop = alone[0, "plain"].token_ids[2]
    params = replace(KINDS["plain"], min_tokens=7, stop_token_ids=(stop,))
    answers = []
    for late in (False, True):
        llm.flush_caches()
        llm.parts.engine._overlap = late
        answers.append(llm.chat(user(*ASKED[0]), params))
    llm.parts.engine._overlap = False
    assert stop not in answers[0].token_ids[:7]
    assert answers[1].token_ids == answers[0].token_ids


def test_a_preempted_request_gets_its_pending_token(llm: LLM, alone: Alone) -> None:
    visits = [Visit(3, kind, tokens=24) for kind in ("greedy", "drawn", "plain", "filtered")]
    before = llm.parts.scheduler.stats.preempted
    compare(llm, visits, alone)
    assert llm.parts.scheduler.stats.preempted > before + 1  # in both ways


def test_prompts_are_found_in_the_cache_as_they_are_in_step(llm: LLM, alone: Alone) -> None:
    """The second request arrives when the first one's last chunk is just done."""
    visits = [Visit(3, "greedy"), *(Visit(3, "greedy", arrival=n) for n in (1, 2, 3, 4))]
    found = [[r.cached_tokens for r in play(llm, visits, alone, late)] for late in (False, True)]
    assert found[0] == found[1]
    assert any(found[0])


@pytest.mark.parametrize("stops", [None, 1, 2, 3, 4, 5, 7])
def test_what_an_answer_leaves_in_the_cache_is_what_it_leaves_in_step(
    llm: LLM, alone: Alone, stops: int | None
) -> None:
    """At every place in a page of four."""
    left = []
    for late in (False, True):
        (request,) = play(llm, [Visit(1, "plain", stops=stops)], alone, late)
        pages = llm.parts.kv.usage().pages.cached
        left.append((request.computed, pages, len(llm.parts.kv.tree)))
    assert left[0] == left[1]


def issued(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every step from now on, whether it may stay under way."""
    seen: list[bool] = []
    engine = llm.parts.engine
    plain = engine._can_wait_for

    def can_wait_for(parts: list[Part]) -> bool:
        seen.append(plain(parts))
        return seen[-1]

    monkeypatch.setattr(engine, "_can_wait_for", can_wait_for)
    return seen


def test_of_an_answer_only_the_first_and_the_last_step_land_at_once(
    llm: LLM, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = issued(llm, monkeypatch)
    play(llm, [Visit(0, "plain")], alone, late=True)
    assert seen == [False, *[True] * 10, False]


@pytest.mark.parametrize("kind", ["penalised", "form"])
def test_a_step_whose_tokens_decide_the_next_one_lands_at_once(
    llm: LLM, alone: Alone, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seen = issued(llm, monkeypatch)
    play(llm, [Visit(0, kind)], alone, late=True)
    assert seen
    assert not any(seen)


def test_a_prompts_chunks_follow_one_another_without_a_wait(
    llm: LLM, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = issued(llm, monkeypatch)
    play(llm, [Visit(3, "plain", tokens=1)], alone, late=True)
    assert seen == [True, False]


def test_each_call_hands_out_one_token_of_a_request_at_most(llm: LLM, alone: Alone) -> None:
    """Nobody's token waits for a step that was issued behind it."""
    engine = llm.parts.engine
    engine._overlap = True
    requests = [admit(llm, visit, alone) for visit in (Visit(0, "plain"), Visit(3, "plain"))]
    engine.add(requests[0])
    counts = [0, 0]
    for step in itertools.count():
        if step == 4:
            engine.add(requests[1])
        if not engine.step():
            break
        now = [len(request.output_ids) for request in requests]
        assert all(b - a <= 1 for a, b in zip(counts, now, strict=True))
        counts = now
    engine._overlap = False
    assert counts == [12, 12]


def test_times_of_steps_do_not_overlap(llm: LLM, alone: Alone) -> None:
    """What a request's steps took is no more than what it took."""
    (request,) = play(llm, [Visit(0, "plain")], alone, late=True)
    times = request.timings
    assert len(times.steps) == 12
    assert sum(step.seconds for step in times.steps) <= times.total_s
    assert 0 < times.ttft_s < times.total_s
    assert min(step.seconds for step in times.steps) > 0


def test_somebody_who_leaves_takes_the_row_under_way_along(llm: LLM, alone: Alone) -> None:
    before = llm.parts.engine.wasted_rows
    (request,) = play(llm, [Visit(0, "plain", leaves=4)], alone, late=True)
    assert request.finish is FinishReason.ABORT
    assert tuple(request.output_ids) == alone[0, "plain"].token_ids[:4]
    assert llm.parts.engine.wasted_rows == before + 1


def visits() -> st.SearchStrategy[Visit]:
    return st.builds(
        Visit,
        asked=st.integers(0, len(ASKED) - 1),
        kind=st.sampled_from(list(KINDS)),
        tokens=st.integers(1, 12),
        arrival=st.integers(0, 8),
        leaves=st.none() | st.none() | st.integers(0, 6),
        stops=st.none() | st.integers(0, 11),
        by_text=st.booleans(),
    )


MIXES = st.lists(visits(), min_size=1, max_size=7)
Play = Callable[..., None]


def _random_mixes(examples: int) -> Play:
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(mix=MIXES)
    def run(llm: LLM, alone: Alone, mix: list[Visit]) -> None:
        compare(llm, mix, alone)

    return run


test_random_mixes_give_the_same_both_ways = _random_mixes(8)
test_many_random_mixes_give_the_same_both_ways = pytest.mark.slow(_random_mixes(300))

"""A request that had to give its pages up and is computed again answers as if it never had."""

from __future__ import annotations

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion
from firstlight.engine.engine import completion
from tests.cases.steps import assert_idle, difference, letters
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, tiny_llm, user
from tests.pictures import picture

KINDS = {
    "greedy": SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, logprobs=2),
    "sampled": SamplingParams(
        temperature=1.2, top_p=0.9, seed=5, max_tokens=40, ignore_eos=True, logprobs=2
    ),
    "penalised": SamplingParams(
        temperature=0.8,
        seed=7,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        max_tokens=40,
        ignore_eos=True,
        logprobs=2,
    ),
}


def asked() -> list[list[Part]]:
    """Eight conversations, every other one about a picture."""
    return [
        [*([picture(48, 32, seed=i)] if i % 2 else []), letters(5 + 3 * i, seed=i)]
        for i in range(8)
    ]


def engine(checkpoints: TinyCheckpoint, *, cache: bool, pages: int | None = None) -> LLM:
    """Pages of 4; with ``pages`` of them, eight requests of up to 90 tokens do not fit."""
    return tiny_llm(
        checkpoints("qwen3_vl"),
        max_num_seqs=8,
        max_context=128,
        kv_pages=pages,
        prefix_cache=cache,
        eager=True,
    )


def run(llm: LLM, params: SamplingParams) -> list[Completion]:
    """All eight at once."""
    return llm.chat([user(*parts) for parts in asked()], params)


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("kind", KINDS)
def test_preempted_requests_have_the_tokens_and_log_probabilities_of_those_with_room(
    kind: str, cache: bool, tiny_checkpoint: TinyCheckpoint
) -> None:
    expected = run(engine(tiny_checkpoint, cache=cache), KINDS[kind])
    tight = engine(tiny_checkpoint, cache=cache, pages=41)
    answers = run(tight, KINDS[kind])
    assert tight.parts.scheduler.stats.preempted > 0
    assert len({answer.token_ids for answer in expected}) == len(expected)
    for answer, reference in zip(answers, expected, strict=True):
        assert answer.token_ids == reference.token_ids
        assert answer.text == reference.text
        assert difference(answer, reference) <= 1e-4
    assert_idle(tight)


def test_a_stream_sends_no_text_twice_when_its_request_was_preempted(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    llm = engine(tiny_checkpoint, cache=True, pages=41)
    params = KINDS["greedy"]
    expected = run(engine(tiny_checkpoint, cache=True), params)
    others = [llm.parts.admission.chat(user(*parts), params) for parts in asked()[:-1]]
    for request in others:
        llm.parts.engine.add(request)
    *pieces, last = llm.stream_chat(user(*asked()[-1]), params)
    assert llm.parts.scheduler.stats.preempted > 0
    assert isinstance(last, Completion)
    assert "".join(map(str, pieces)) == last.text == expected[-1].text
    assert [completion(r).token_ids for r in others] == [a.token_ids for a in expected[:-1]]

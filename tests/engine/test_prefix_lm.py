"""Prefix-LM models in the whole engine: no chunk cuts an image, and nothing else changes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES

from firstlight import LLM
from firstlight.core.output import Completion
from firstlight.core.reason import Phase
from firstlight.errors import RequestError
from tests.conftest import TinyCheckpoint
from tests.engine.engines import (
    GREEDY,
    Part,
    assert_all_graph,
    assert_same_ids,
    first_logits,
    reference,
    tiny_llm,
    user,
)
from tests.pictures import picture

SMALL, LARGE = picture(48, 32, seed=1), picture(40, 72, seed=2)
TWO: list[Part] = ["a", SMALL, "b", LARGE, "compare"]
TEXT: list[Part] = ["How many circles are there in the picture?"]
ROWS = 16
CHUNKED: dict[str, Any] = {"max_batch_tokens": 24, "prefill_buckets": (8, 24)}

pytestmark = pytest.mark.parametrize("family", PREFIX_LM_FAMILIES)


def blocks(llm: LLM, parts: list[Part]) -> tuple[tuple[int, int], ...]:
    """The blocks of a prompt."""
    spans = llm.parts.admission.chat(user(*parts), GREEDY).prompt.spans
    return llm.parts.model.adapter.blocks(spans)


def prefill_sizes(answer: Completion) -> list[int]:
    """Rows of each prefill step of a request that ran alone."""
    steps = [s.decision for s in answer.timings.steps]
    return [d.tokens for d in steps if d.phase is Phase.PREFILL]


def test_a_prompt_in_chunks_answers_like_transformers(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = tiny_llm(tiny_checkpoint(family), **CHUNKED)
    expected = reference(llm, tiny_checkpoint(family), TWO)
    answer = llm.chat(user(*TWO), GREEDY)
    assert_same_ids(answer, expected)
    assert_all_graph(answer)
    assert (first_logits(llm, TWO) - expected.logits).abs().max() < 1e-4


def test_no_chunk_ends_inside_an_image(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint(family), **CHUNKED)
    sizes = prefill_sizes(llm.chat(user(*TWO), GREEDY))
    ends = list(accumulate(sizes))
    assert len(ends) > 2
    assert not [(e, b) for e in ends for b in blocks(llm, TWO) if b[0] < e < b[1]]


def test_an_image_that_no_step_holds_is_that_requests_error(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = tiny_llm(tiny_checkpoint(family), max_batch_tokens=12, prefill_buckets=(12,))
    with pytest.raises(RequestError, match=rf"{ROWS} positions .* max_batch_tokens = 12"):
        llm.chat(user(*TWO), GREEDY)
    assert_same_ids(llm.chat(user(*TEXT), GREEDY), reference(llm, tiny_checkpoint(family), TEXT))


def test_prompts_that_wait_for_each_other_answer_as_they_do_alone(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = tiny_llm(tiny_checkpoint(family), **CHUNKED)
    prompts: list[list[Part]] = [TEXT, TWO, [LARGE, "What is it?"], ["What is it?", SMALL]]
    answers = llm.chat([user(*parts) for parts in prompts], GREEDY)
    for parts, answer in zip(prompts, answers, strict=True):
        assert_same_ids(answer, reference(llm, tiny_checkpoint(family), parts))
        assert_all_graph(answer)


def test_a_cached_prefix_ends_in_front_of_or_behind_an_image(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = tiny_llm(tiny_checkpoint(family), prefix_cache=True)
    asked: list[list[Part]] = [
        ["a", SMALL, "b", LARGE, "compare"],
        ["a", SMALL, "b", LARGE, "which is larger?"],
        ["a", SMALL, "b", picture(40, 72, seed=3), "compare"],
        ["a", LARGE, "b", SMALL, "compare"],
    ]
    found = []
    for parts in asked:
        expected = reference(llm, tiny_checkpoint(family), parts)
        answer = llm.chat(user(*parts), GREEDY)
        assert_same_ids(answer, expected)
        cached = answer.usage.cached_tokens
        assert len(expected.prompt_ids) == cached + sum(prefill_sizes(answer))
        assert not [b for b in blocks(llm, parts) if b[0] < cached < b[1]]
        found.append(sum(b[1] <= cached for b in blocks(llm, parts)))
    assert found == [0, 2, 1, 0], "images of each prompt that were found in the cache"

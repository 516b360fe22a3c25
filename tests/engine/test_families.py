"""Every family answers like transformers, prefill and decode from captured graphs."""

from __future__ import annotations

import pytest
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES, TEXT_FAMILIES, VISION_FAMILIES

from firstlight import LLM
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
TEXT: list[Part] = ["How many circles are there in the picture?"]
PROMPTS: dict[str, list[Part]] = {
    "text only": TEXT,
    "image first": [SMALL, "What is it?"],
    "image last": ["What is it?", LARGE],
    "two images of different sizes": ["a", SMALL, "b", LARGE, "compare"],
}

IMAGE_FAMILIES = (*VISION_FAMILIES, *PREFIX_LM_FAMILIES)


class Engines:
    """One engine a family, built when it is first asked for and dropped for the next one."""

    def __init__(self, checkpoints: TinyCheckpoint) -> None:
        self._checkpoints = checkpoints
        self._held: tuple[str, LLM] | None = None

    def get(self, family: str) -> LLM:
        if self._held is None or self._held[0] != family:
            self._held = (family, tiny_llm(self._checkpoints(family)))
        return self._held[1]


@pytest.fixture(scope="module")
def engines(tiny_checkpoint: TinyCheckpoint) -> Engines:
    return Engines(tiny_checkpoint)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_a_text_family_answers_like_transformers(
    family: str, engines: Engines, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = engines.get(family)
    expected = reference(llm, tiny_checkpoint(family), TEXT)
    assert (first_logits(llm, TEXT) - expected.logits).abs().max() < 1e-4
    answer = llm.chat(user(*TEXT), GREEDY)
    assert_same_ids(answer, expected)
    assert_all_graph(answer)


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_a_vision_family_answers_like_transformers(
    family: str, engines: Engines, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = engines.get(family)
    other: list[Part] = [picture(48, 32, seed=7), "What is it?"]
    change = first_logits(llm, PROMPTS["image first"]) - first_logits(llm, other)
    assert change.abs().max() > 1e-3, "the test would not see a lost image"
    for parts in PROMPTS.values():
        expected = reference(llm, tiny_checkpoint(family), parts)
        assert (first_logits(llm, parts) - expected.logits).abs().max() < 1e-4
        answer = llm.chat(user(*parts), GREEDY)
        assert_same_ids(answer, expected)
        assert_all_graph(answer)


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_three_unequal_requests_together_answer_as_they_do_alone(
    family: str, engines: Engines, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = engines.get(family)
    names = ("text only", "image first", "two images of different sizes")
    answers = llm.chat([user(*PROMPTS[name]) for name in names], GREEDY)
    for name, answer in zip(names, answers, strict=True):
        assert_same_ids(answer, reference(llm, tiny_checkpoint(family), PROMPTS[name]))
        assert_all_graph(answer)

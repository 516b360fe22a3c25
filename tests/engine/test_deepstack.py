"""DeepStack features reach the decoder inside the captured prefill graph."""

from __future__ import annotations

import pytest
import torch

from firstlight import LLM
from firstlight.core.reason import Decision, Phase, Reason
from firstlight.core.sampling_params import SamplingParams
from tests.conftest import TinyCheckpoint
from tests.engine.engines import (
    GREEDY,
    Part,
    assert_same_ids,
    first_logits,
    reference,
    tiny_llm,
    user,
)
from tests.pictures import picture

PARTS: list[Part] = [picture(48, 32, seed=1), "What is it?"]


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> LLM:
    """Without a prefix cache: these tests look at slots that hold the whole prompt."""
    return tiny_llm(tiny_checkpoint("qwen3_vl"), prefix_cache=False)


def run_slots(llm: LLM, bucket: int, *, graph: bool) -> torch.Tensor:
    """Run what the prefill slots hold, by the bucket's graph or eagerly at the same shape."""
    runner = llm.parts.runners[Phase.PREFILL]
    reason = Reason.CAPTURED if graph else Reason.GRAPHS_OFF
    decision = Decision(Phase.PREFILL, bucket if graph else None, bucket, reason)
    return runner.run(decision).clone()


def fill_with_picture(llm: LLM) -> int:
    """Leave a picture's prefill in the slots; returns the bucket it ran in."""
    answer = llm.chat(user(*PARTS), SamplingParams(temperature=0, max_tokens=1))
    bucket = answer.timings.steps[0].decision.bucket
    assert bucket is not None
    return bucket


def test_replay_equals_eager_bit_for_bit(llm: LLM) -> None:
    bucket = fill_with_picture(llm)
    assert torch.equal(run_slots(llm, bucket, graph=True), run_slots(llm, bucket, graph=False))


@pytest.mark.parametrize("name", ["tokens", "deepstack.0", "deepstack.1"])
def test_zeroing_one_segment_changes_what_the_graph_computes(llm: LLM, name: str) -> None:
    bucket = fill_with_picture(llm)
    whole = run_slots(llm, bucket, graph=True)
    segment = llm.parts.model.adapter.contract.segment(name)
    rows = llm.parts.runners[Phase.PREFILL].embeds(bucket)
    rows[:, segment.start : segment.end] = 0
    assert (run_slots(llm, bucket, graph=True) - whole).abs().max() > 1e-3


def test_text_after_a_picture_does_not_see_its_features(llm: LLM) -> None:
    text: list[Part] = ["How many circles are there in the picture? Count."]
    fresh = first_logits(llm, text)
    fill_with_picture(llm)
    assert torch.equal(first_logits(llm, text), fresh)


def test_a_model_without_stacks_has_rows_of_hidden_size(tiny_checkpoint: TinyCheckpoint) -> None:
    path = tiny_checkpoint("qwen3_vl_plain")
    plain = tiny_llm(path)
    contract = plain.parts.model.adapter.contract
    assert contract.input_embeds_hidden_size == contract.hidden_size
    assert_same_ids(plain.chat(user(*PARTS), GREEDY), reference(plain, path, PARTS))

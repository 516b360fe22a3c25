"""What the sampler remembers of a request."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from firstlight.core.sampling_params import SamplingParams
from firstlight.sampling import SamplingState


def test_counts_follow_the_output_as_it_grows_and_shrinks() -> None:
    state = SamplingState(SamplingParams(), prompt_ids=[1, 2])
    assert not state.output_counts()
    state.output_ids += [5, 5, 1]
    assert state.output_counts() == {5: 2, 1: 1}
    state.output_ids.append(5)
    assert state.output_counts() == {5: 3, 1: 1}
    del state.output_ids[1:]
    assert state.output_counts() == {5: 1}
    assert state.seen_ids() == {1, 2, 5}


def test_a_draw_is_taken_back_unless_its_token_was_taken() -> None:
    state = SamplingState(SamplingParams(seed=3))
    assert state.generator is not None
    state.rewind()  # nothing was marked
    state.mark()
    first = torch.rand(1, generator=state.generator)
    state.rewind()
    assert torch.rand(1, generator=state.generator) == first
    state.output_ids.append(1)
    state.rewind()
    assert torch.rand(1, generator=state.generator) != first


def test_draws_of_two_steps_can_be_taken_back() -> None:
    """The last token has not been taken when the next one is drawn."""
    state = SamplingState(SamplingParams(seed=3))
    drawn = []
    for pending in range(2):
        state.pending = pending
        state.mark()
        drawn.append(torch.rand(1, generator=state.generator).item())
    state.pending = 0
    state.rewind()
    assert [torch.rand(1, generator=state.generator).item() for _ in range(2)] == drawn
    state.output_ids.append(1)  # the first one was taken, the second one was lost
    state.rewind()
    assert torch.rand(1, generator=state.generator).item() == drawn[1]


def test_a_pending_token_counts_among_those_drawn() -> None:
    params = SamplingParams(min_tokens=2)
    state = SamplingState(params, eos_token_ids=(7,), output_ids=[1])
    assert state.suppressed_ids() == [7]
    state.pending = 1
    assert state.drawn == 2
    assert state.suppressed_ids() == []


@pytest.mark.parametrize(
    ("params", "follows"),
    [
        ({}, False),
        ({"temperature": 0.0, "logprobs": 2, "min_tokens": 3, "logit_bias": {1: 2.0}}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -0.1}, True),
    ],
)
def test_penalties_follow_the_tokens_themselves(params: dict[str, Any], follows: bool) -> None:
    assert SamplingState(SamplingParams(**params)).follows_tokens is follows


def test_end_tokens_are_suppressed_up_to_min_tokens() -> None:
    params = SamplingParams(min_tokens=2, stop_token_ids=(9,))
    state = SamplingState(params, eos_token_ids=(7, 8))
    assert state.suppressed_ids() == [7, 8, 9]
    state.output_ids += [1, 2]
    assert state.suppressed_ids() == []


def test_ignored_end_tokens_need_no_suppression() -> None:
    params = SamplingParams(min_tokens=2, stop_token_ids=(9,), ignore_eos=True)
    assert SamplingState(params, eos_token_ids=(7,)).suppressed_ids() == [9]


def test_a_seed_of_any_size_makes_a_generator() -> None:
    for seed in (0, -1, 2**64 - 1, 2**70, -(2**80)):
        assert SamplingState(SamplingParams(seed=seed)).generator is not None
    assert SamplingState(SamplingParams()).generator is None

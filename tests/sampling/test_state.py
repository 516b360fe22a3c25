"""What the sampler remembers of a request."""

from __future__ import annotations

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

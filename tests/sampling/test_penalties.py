"""The penalties are transformers' and OpenAI's."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from firstlight.sampling.penalties import (
    bias_,
    occurrence_penalties_,
    repetition_penalty_,
    suppress_,
)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 10.0])
def test_the_repetition_penalty_is_that_of_transformers(penalty: float) -> None:
    row = torch.randn(200, generator=torch.Generator().manual_seed(1))
    seen = [3, 17, 3, 150, 199, 0]
    processor = RepetitionPenaltyLogitsProcessor(penalty)
    expected = processor(torch.tensor([seen]), row.clone()[None])[0]
    repetition_penalty_(row, seen, penalty)
    assert torch.equal(row, expected)


def test_the_smallest_repetition_penalty_leaves_logits_finite_and_the_impossible_impossible() -> (
    None
):
    row = torch.tensor([20.0, -20.0, 0.0, -torch.inf, 1.0])
    repetition_penalty_(row, [0, 1, 2, 3], 5e-324)
    assert row.argmax() == 0
    assert row[0].isfinite()
    assert row[1:].tolist() == [pytest.approx(0, abs=1e-20), 0.0, -torch.inf, 1.0]


def test_presence_counts_once_and_frequency_each_time() -> None:
    row = torch.zeros(6)
    occurrence_penalties_(row, Counter([2, 2, 2, 5]), presence=0.5, frequency=0.25)
    assert row.tolist() == [0.0, 0.0, -1.25, 0.0, 0.0, -0.75]


def test_suppressed_tokens_become_impossible() -> None:
    row = torch.zeros(4)
    suppress_(row, [1, 3])
    assert row.tolist() == [0.0, -torch.inf, 0.0, -torch.inf]


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    """Media tokens may have ids above the columns of the logits."""
    row = torch.ones(4)
    repetition_penalty_(row, [-1, 4, 10**6], 2.0)
    occurrence_penalties_(row, Counter([-1, 4]), 1.0, 1.0)
    suppress_(row, [9])
    assert row.tolist() == [1.0] * 4


def test_a_bias_is_added_to_its_tokens_and_what_is_impossible_stays_so() -> None:
    row = torch.tensor([1.0, 2.0, -torch.inf, 4.0])
    bias_(row, [(0, 5.0), (2, 100.0), (3, -1.5), (99, 7.0)])
    assert row.tolist() == [6.0, 2.0, -torch.inf, 2.5]

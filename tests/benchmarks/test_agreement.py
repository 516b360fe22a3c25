"""Perplexity and agreement are what their definitions say."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.agreement import Agreement

EVEN = torch.full((3, 4), 0.25).log()
SURE = torch.tensor([[0.7, 0.1, 0.1, 0.1]] * 3).log()


def test_even_chances_have_the_perplexity_of_the_vocabulary() -> None:
    found = Agreement()
    found.add([1, 2, 3], EVEN, EVEN)
    assert found.predicted == 2
    assert found.perplexity == pytest.approx(4)


def test_two_texts_are_weighed_by_their_predicted_tokens() -> None:
    found = Agreement()
    found.add([0, 0, 0], SURE, SURE)
    found.add([0, 1], SURE[:2], SURE[:2])
    assert found.perplexity == pytest.approx(math.exp(-(2 * math.log(0.7) + math.log(0.1)) / 3))


def test_a_model_agrees_with_itself_and_diverges_from_another() -> None:
    same, other = Agreement(), Agreement()
    same.add([0, 1, 2], SURE, SURE)
    other.add([0, 1, 2], SURE, SURE.roll(1, 1))
    assert (same.top1, other.top1) == (1, 0)
    assert same.kl == pytest.approx(0)
    assert other.kl == pytest.approx((0.7 - 0.1) * math.log(7), rel=1e-6)

"""The filters keep what transformers' warpers keep, cut ties by id, and never empty a row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from firstlight.sampling.filters import min_p, rank, top_k, top_p

ROWS, SIZE = 16, 3000


def _logits(seed: int, rows: int = ROWS, size: int = SIZE, scale: float = 4.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, size, generator=generator) * scale


def _kept(logits: Tensor) -> list[set[int]]:
    return [set(torch.nonzero(row > -torch.inf)[:, 0].tolist()) for row in logits]


def _all(value: float, rows: int = ROWS) -> list[float]:
    return [value] * rows


@pytest.mark.parametrize("k", [1, 2, 50, SIZE - 1, SIZE])
def test_top_k_keeps_what_transformers_keeps(k: int) -> None:
    logits = _logits(k)
    expected = TopKLogitsWarper(k)(None, logits)
    assert torch.equal(top_k(logits, [k] * ROWS), expected)


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0])
def test_top_p_keeps_what_transformers_keeps(p: float, scale: float) -> None:
    # In float64 the two orders of summation agree to far below the gaps between tokens.
    logits = _logits(3, scale=scale).double()
    expected = TopPLogitsWarper(p)(None, logits)
    assert torch.equal(top_p(logits, _all(p)), expected)


@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 1.0])
def test_min_p_keeps_what_transformers_keeps(p: float) -> None:
    logits = _logits(5)
    expected = MinPLogitsWarper(p)(None, logits)
    assert _kept(min_p(logits, torch.full((ROWS,), p))) == _kept(expected)


def test_each_row_has_its_own_parameter() -> None:
    logits = _logits(7, rows=3)
    together = top_k(logits, [1, 0, 7])
    assert [len(kept) for kept in _kept(together)] == [1, SIZE, 7]
    together = top_p(logits, [0.2, 1.0, 0.9])
    for row, p in enumerate([0.2, 1.0, 0.9]):
        alone = top_p(logits[row : row + 1], _all(p, rows=1))
        assert torch.equal(together[row], alone[0])


def test_a_tie_at_the_edge_is_cut_by_token_id() -> None:
    logits = torch.tensor([[1.0, 5.0, 1.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    assert _kept(top_k(logits, [2, 3])) == [{1, 0}, {0, 1, 2}]
    # Five equal tokens of 0.2: the third one is where half is passed.
    assert _kept(top_p(logits, _all(0.5, rows=2))) == [{1}, {0, 1, 2}]


@pytest.mark.parametrize("size", [40, 5000])
def test_a_nucleus_in_a_flat_distribution_is_the_first_tokens(size: int) -> None:
    """All tokens tie, across the border of what is ranked first."""
    kept = _kept(top_p(torch.zeros(1, size, dtype=torch.float64), _all(0.5, rows=1)))[0]
    assert len(kept) in (size // 2, size // 2 + 1)
    assert kept == set(range(len(kept)))


def test_a_nucleus_among_ties_takes_the_first_ids_though_it_fits_the_head() -> None:
    kept = _kept(top_p(torch.zeros(1, 8192, dtype=torch.float64), _all(0.0625, rows=1)))[0]
    assert kept == set(range(512))


def test_a_nucleus_that_reaches_p_exactly_stops_there() -> None:
    assert _kept(top_p(torch.zeros(1, 4), _all(0.5, rows=1))) == [{0, 1}]


def test_rank_orders_ties_by_token_id() -> None:
    values, ids = rank(torch.tensor([[0.0, 3.0, 1.0, 3.0, 1.0, 1.0]]), 4)
    assert ids.tolist() == [[1, 3, 2, 4]]
    assert values.tolist() == [[3.0, 3.0, 1.0, 1.0]]


_ROW = st.lists(st.sampled_from([-30.0, -1.0, 0.0, 0.5, 2.0, 2.0, 9.0]), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(row=_ROW, k=st.integers(0, 50), p=st.floats(1e-9, 1.0), m=st.floats(0.0, 1.0))
def test_every_filter_leaves_the_likeliest_token(
    row: list[float], k: int, p: float, m: float
) -> None:
    logits = torch.tensor([row])
    best = int(logits.argmax())
    for kept in (
        top_k(logits, [k]),
        top_p(logits, [p]),
        min_p(logits, torch.tensor([m])),
    ):
        assert kept[0, best] == logits[0, best]


@settings(max_examples=200, deadline=None)
@given(row=_ROW, k=st.integers(1, 50))
def test_top_k_keeps_exactly_k(row: list[float], k: int) -> None:
    kept = _kept(top_k(torch.tensor([row]), [k]))[0]
    assert len(kept) == min(k, len(row))
    dropped = [v for i, v in enumerate(row) if i not in kept]
    assert not dropped or max(dropped) <= min(row[i] for i in kept)


@settings(max_examples=200, deadline=None)
@given(row=_ROW, p=st.floats(1e-6, 1.0, exclude_max=True))
def test_a_nucleus_is_the_smallest_set_that_reaches_p(row: list[float], p: float) -> None:
    probs = torch.tensor(row, dtype=torch.float64).softmax(0)
    kept = _kept(top_p(torch.tensor([row], dtype=torch.float64), _all(p, rows=1)))[0]
    mass = float(probs[sorted(kept)].sum())
    assert mass >= p - 1e-9
    assert mass - float(probs[sorted(kept)].min()) < p + 1e-9

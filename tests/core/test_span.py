"""Spans: where media lie."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.span import Span


def test_a_cut_moves_the_encoder_row_along() -> None:
    span = Span(item=1, start=10, end=20, row=100)
    assert span.clip(0, 10) is None
    assert span.clip(20, 30) is None
    assert span.clip(0, 99) == span
    assert span.clip(0, 14) == Span(1, 10, 14, 100)
    assert span.clip(14, 99) == Span(1, 14, 20, 104)
    assert span.clip(12, 15) == Span(1, 12, 15, 102)


_SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), max_size=5)


@st.composite
def _spans(draw: st.DrawFn) -> tuple[Span, ...]:
    spans, at, row = [], 0, 0
    for gap, length in draw(_SPANS):
        spans.append(Span(0, at + gap, at + gap + length, row))
        at, row = at + gap + length, row + length
    return tuple(spans)


@given(spans=_spans(), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_chunks_hold_every_row_once_and_in_order(spans: tuple[Span, ...], cuts: list[int]) -> None:
    borders = sorted({0, 200, *cuts})
    rows: list[tuple[int, int]] = []
    for start, end in itertools.pairwise(borders):
        clipped = [c for s in spans if (c := s.clip(start, end))]
        rows += [(c.start + i, c.row + i) for c in clipped for i in range(len(c))]
    expected = [(s.start + i, s.row + i) for s in spans for i in range(len(s))]
    assert rows == expected

"""Bytes that operators copy are counted, and views are not."""

from __future__ import annotations

import torch
from benchmarks.step_cost import CopyCounter


def counted(run: object) -> int:
    with torch.inference_mode(), CopyCounter() as counter:
        run()  # type: ignore[operator]
    return int(counter.nbytes)


ROWS = torch.zeros(4, 8)
HALF = torch.zeros(4, 8, dtype=torch.bfloat16)


def test_a_copy_counts_what_is_written_in_the_type_that_it_gets() -> None:
    assert counted(lambda: HALF.copy_(ROWS)) == 4 * 8 * 2


def test_a_join_into_a_given_buffer_counts_its_result() -> None:
    out = torch.zeros(8, 8)
    assert counted(lambda: torch.cat([ROWS, ROWS], out=out)) == 8 * 8 * 4


def test_a_gather_counts_the_rows_it_took() -> None:
    assert counted(lambda: ROWS.index_select(0, torch.tensor([1, 2]))) >= 2 * 8 * 4


def test_a_scatter_counts_what_was_written_and_not_the_buffer() -> None:
    at, new = torch.tensor([0]), torch.ones(1, 8)
    assert counted(lambda: ROWS.clone().index_copy_(0, at, new)) == (4 * 8 + 8) * 4


def test_a_view_counts_nothing() -> None:
    assert counted(lambda: ROWS.view(8, 4).t()) == 0


def test_a_reshape_counts_only_where_it_must_copy() -> None:
    assert counted(lambda: ROWS.reshape(32)) == 0
    assert counted(lambda: ROWS.t().reshape(32)) == 32 * 4


def test_arithmetic_is_no_copy() -> None:
    assert counted(lambda: ROWS + ROWS) == 0

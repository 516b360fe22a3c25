"""How many copies write a batch's text rows."""

from __future__ import annotations

from typing import cast

import torch

from firstlight.engine.merge import _text_run
from firstlight.engine.sequence import Sequence
from firstlight.engine.token_ids import TokenIds


class Tokens:
    """Stands for a sequence: its token at position p is ``first + p``."""

    known = 1000

    def __init__(self, first: int) -> None:
        self.first = first

    def ids(self, start: int, end: int) -> list[int]:
        return list(range(self.first + start, self.first + end))


def runs_of(parts: list[tuple[int, int, int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Of (first token, start, end, row)."""
    runs: list[tuple[int, int]] = []
    ids = TokenIds()
    for first, start, end, row in parts:
        _text_run(runs, ids, cast(Sequence, Tokens(first)), start, end, row)
    return runs, ids.on(torch.device("cpu")).tolist()


def test_the_requests_of_a_decode_step_are_one_run() -> None:
    runs, ids = runs_of([(100, 7, 8, 0), (200, 3, 4, 1), (300, 9, 10, 2)])
    assert runs == [(0, 3)]
    assert ids == [107, 203, 309]


def test_rows_of_a_picture_part_two_runs() -> None:
    runs, ids = runs_of([(0, 0, 2, 0), (0, 5, 7, 5), (100, 0, 1, 7)])
    assert runs == [(0, 2), (5, 3)]
    assert ids == [0, 1, 5, 6, 100]


def test_no_text_is_no_run() -> None:
    assert runs_of([(0, 3, 3, 0)]) == ([], [])

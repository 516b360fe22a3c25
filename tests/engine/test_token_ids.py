"""Ids of a batch's rows, from the host and from the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
import torch
from torch import Tensor

from firstlight.engine.sequence import Drawn, Sequence
from firstlight.engine.token_ids import TokenIds
from tests.host_reads import HostReads

CPU = torch.device("cpu")


@dataclass
class Tokens:
    """Stands for a sequence: its token at position p is ``first + p``, as far as it is known."""

    first: int
    known: int = 1000
    latest: Drawn | None = None

    def ids(self, start: int, end: int) -> list[int]:
        assert end <= self.known
        return list(range(self.first + start, self.first + end))


def collect(*parts: tuple[Tokens, int, int]) -> Tensor:
    ids = TokenIds()
    for tokens, start, end in parts:
        ids.add(cast(Sequence, tokens), start, end)
    with HostReads() as reads:
        found = ids.on(CPU)
    assert reads.reads == []
    assert len(ids) == len(found)
    return found


def pending(drawn: Tensor, row: int, first: int = 100, known: int = 5) -> Tokens:
    return Tokens(first, known, Drawn(drawn, row))


def test_known_ids_come_from_the_host() -> None:
    assert collect((Tokens(100), 0, 3), (Tokens(200), 7, 8)).tolist() == [100, 101, 102, 207]


def test_a_step_of_pending_tokens_alone_takes_the_last_steps_ids_as_they_are() -> None:
    drawn = torch.tensor([11, 12])
    assert collect((pending(drawn, 0), 5, 6), (pending(drawn, 1), 5, 6)) is drawn


def test_a_request_that_left_or_moved_is_no_longer_in_between() -> None:
    drawn = torch.tensor([11, 12, 13])
    assert collect((pending(drawn, 2), 5, 6), (pending(drawn, 0), 5, 6)).tolist() == [13, 11]


def test_pending_tokens_stand_between_known_ones() -> None:
    drawn = torch.tensor([11, 12])
    parts = (Tokens(200), 0, 2), (pending(drawn, 1), 5, 6), (Tokens(300), 4, 5)
    assert collect(*parts).tolist() == [200, 201, 12, 304]


def test_a_prefill_that_is_repeated_may_end_in_a_pending_token() -> None:
    assert collect((pending(torch.tensor([11]), 0), 2, 6)).tolist() == [102, 103, 104, 11]


def test_the_host_is_not_asked_for_what_it_does_not_know() -> None:
    with pytest.raises(AssertionError, match="only the last"):
        collect((pending(torch.tensor([11]), 0), 5, 7))


def test_nothing_is_no_id() -> None:
    assert collect().shape == (0,)

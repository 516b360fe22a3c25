"""A batch plan counts its rows and its longest context."""

from __future__ import annotations

from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Phase


def test_rows_are_those_of_all_chunks_and_the_context_is_the_longest() -> None:
    plan = BatchPlan(Phase.PREFILL, (Chunk("a", 0, 7), Chunk("b", 64, 69), Chunk("c", 3, 4)))
    assert [len(chunk) for chunk in plan.chunks] == [7, 5, 1]
    assert plan.tokens == 13
    assert plan.max_context == 69


def test_chunks_of_one_request_compare_by_value() -> None:
    assert Chunk("a", 0, 7) == Chunk("a", 0, 7) != Chunk("a", 0, 8)

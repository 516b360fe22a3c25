from __future__ import annotations

from firstlight.core.span import Span
from firstlight.engine.scheduling.media import EncoderBudget, first_overlap, media_end
from tests.engine.scheduling.fakes import Encoder, Need

A = Need("a", (Span(0, 2, 6),))
B = Need("b", (Span(1, 8, 11),))
TILED = Need("t", (Span(2, 20, 24), Span(2, 26, 30, 4)))


def test_an_item_overlaps_where_its_spans_do() -> None:
    assert first_overlap(A, 0, 2) is None
    assert first_overlap(A, 0, 3) == 2
    assert first_overlap(A, 4, 9) == 4
    assert first_overlap(A, 6, 9) is None
    assert first_overlap(TILED, 24, 26) is None  # between two spans there are no rows
    assert first_overlap(TILED, 24, 27) == 26


def test_media_end_behind_their_last_row() -> None:
    assert media_end([A, TILED, B]) == 30
    assert media_end([]) == 0


def test_a_first_item_goes_whatever_its_size() -> None:
    assert EncoderBudget(Encoder(), 1).reach([A, B], 0, 12) == 8


def test_a_chunk_ends_before_the_item_that_is_over_the_budget() -> None:
    assert EncoderBudget(Encoder(), 6).reach([A, B], 0, 12) == 8
    assert EncoderBudget(Encoder(), 7).reach([A, B], 0, 12) == 12


def test_what_a_chunk_spends_is_missing_to_the_next() -> None:
    budget = EncoderBudget(Encoder(), 6)
    budget.spend([A], 0, 6)
    assert budget.reach([B], 0, 12) == 8
    assert budget.reach([TILED], 0, 22) == 20


def test_an_item_is_paid_for_once_a_step() -> None:
    budget = EncoderBudget(Encoder(), 6)
    budget.spend([A], 0, 6)
    again = Need("a", (Span(0, 1, 5),))
    assert budget.reach([again], 0, 9) == 9
    both = [A, Need("a", (Span(1, 8, 12),))]
    assert EncoderBudget(Encoder(), 4).reach(both, 0, 20) == 20


def test_cached_items_cost_nothing() -> None:
    assert EncoderBudget(Encoder({"b"}), 1).reach([A, B], 0, 12) == 12


def test_items_are_paid_in_the_order_of_their_positions() -> None:
    assert EncoderBudget(Encoder(), 1).reach([B, A], 0, 12) == 8


def test_asking_how_far_spends_nothing() -> None:
    budget = EncoderBudget(Encoder(), 6)
    budget.reach([A], 0, 6)
    assert budget.reach([B, TILED], 0, 40) == 20

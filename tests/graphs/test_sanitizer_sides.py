"""The sanitizer over two pools, one with a window: each side's pages, reads within the window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
import torch
from torch import Tensor

from firstlight.errors import SlotError
from firstlight.graphs.proof import Placed
from firstlight.graphs.sanitizer import (
    Finding,
    FindingKind,
    PagedMemory,
    Report,
    footprint_of_pages,
)
from tests.graphs.sided import (
    LAYERS,
    PAGE,
    PAGES,
    SLIDING,
    WINDOW,
    WINDOWED,
    Parts,
    SidedDecoder,
    SidedPages,
    SidedRig,
)

K = FindingKind


def served(parts: Parts) -> Report:
    report = Report()
    rig = SidedRig(parts, report=report)
    rig.runner.capture_all()
    with suppress(IndexError):  # what no pool holds cannot be read; what was found before counts
        rig.serve()
    return report


def first(report: Report, kind: FindingKind, subject: str) -> Finding:
    return next(f for f in report if (f.kind, f.subject) == (kind, subject))


@pytest.mark.parametrize("prefix_lm", [False, True])
def test_a_healthy_decoder_of_two_sides_gives_no_finding(prefix_lm: bool) -> None:
    assert str(served(Parts(prefix_lm=prefix_lm))) == ""


def test_a_batch_may_read_what_its_window_reaches_and_nothing_older() -> None:
    pages = torch.tensor([3, 9, 4])
    full = footprint_of_pages([(pages, 9, 11)], PagedMemory({}, PAGE))
    windowed = footprint_of_pages([(pages, 9, 11)], PagedMemory({}, PAGE, WINDOWED, WINDOW))
    assert full.reads.tolist() == [12, 13, 14, 15, 36, 37, 38, 39, 16, 17, 18]
    assert windowed.reads.tolist() == [36, 37, 38, 39, 16, 17, 18]
    assert windowed.writes.tolist() == full.writes.tolist() == [17, 18]


def test_a_layer_that_looks_beyond_its_window_reads_what_is_not_the_batchs() -> None:
    class NoWindow(SidedDecoder):
        def window(self, layer: int) -> int | None:
            return None

    report = served(Parts(NoWindow))
    assert {f.subject for f in report if f.kind is K.UNUSED_MEMORY_READ} == {
        "KV memory of window_6", "KV memory of window_6, sink page",
    }  # fmt: skip


def test_a_window_one_too_wide_is_found() -> None:
    class Wide(SidedDecoder):
        def window(self, layer: int) -> int | None:
            return WINDOW + 1 if LAYERS[layer] else None

    finding = first(served(Parts(Wide)), K.UNUSED_MEMORY_READ, "KV memory of window_6")
    assert "NaN in live rows" in finding.detail


class Spoilt(SidedPages):
    """The windowed side's metadata with a fault."""

    def spoil(self, name: str, value: Tensor, requests: Sequence[Placed]) -> Tensor:
        """One slot's value, changed."""
        return value

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        found = super().values(requests)
        return {name: self.spoil(name, value, requests) for name, value in found.items()}


def test_a_page_that_exists_on_the_other_side_alone_is_out_of_range() -> None:
    class Beyond(Spoilt):
        def spoil(self, name: str, value: Tensor, requests: Sequence[Placed]) -> Tensor:
            if name == f"page_table{WINDOWED}":
                return value.where(value == 0, PAGES - 1)
            return value

    assert SLIDING < PAGES
    finding = first(served(Parts(memory=Beyond)), K.BAD_INDEX, f"slot page_table{WINDOWED}")
    assert "name pages beyond the pool" in finding.detail


def test_a_write_location_beyond_the_sides_own_pool_is_out_of_range() -> None:
    class Beyond(Spoilt):
        def spoil(self, name: str, value: Tensor, requests: Sequence[Placed]) -> Tensor:
            return value + (SLIDING * PAGE if name == f"write_locations{WINDOWED}" else 0)

    finding = first(served(Parts(memory=Beyond)), K.BAD_INDEX, f"slot write_locations{WINDOWED}")
    assert f"outside the pool of {SLIDING * PAGE} token slots" in finding.detail


def test_a_tombstone_in_a_page_table_is_found() -> None:
    class Tombstones(Spoilt):
        def spoil(self, name: str, value: Tensor, requests: Sequence[Placed]) -> Tensor:
            return value.where(value != 0, -1) if name == f"page_table{WINDOWED}" else value

    finding = first(served(Parts(memory=Tombstones)), K.BAD_INDEX, f"slot page_table{WINDOWED}")
    assert "negative indices" in finding.detail


def test_a_run_that_the_page_table_does_not_say_is_found() -> None:
    class Runs(Spoilt):
        def spoil(self, name: str, value: Tensor, requests: Sequence[Placed]) -> Tensor:
            if name == f"attention_rows{WINDOWED}":
                value[0, 3] = 8
            return value

    found = [f for f in served(Parts(memory=Runs)) if f.kind is K.BAD_INDEX]
    assert {f.subject for f in found} == {f"slot attention_rows{WINDOWED}"}
    assert all("lies in a run at token slot" in f.detail for f in found)


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        ([1, 1], "leave out its own position"),
        ([0, 40], "reach beyond the rows of this batch"),
        ([0, 1], "are not those of the rows at their ends"),
    ],
)
def test_bounds_that_are_no_blocks_of_the_batch_are_found(shift: list[int], words: str) -> None:
    class Shifted(Spoilt):
        def spoil(self, name: str, value: Tensor, requests: Sequence[Placed]) -> Tensor:
            wide = value[:, 1] - value[:, 0] > 1 if name == "block_bounds" else None
            if wide is not None:
                value[wide] += torch.tensor(shift)
            return value

    report = served(Parts(memory=Shifted, prefix_lm=True))
    finding = next(f for f in report if f.subject == "slot block_bounds")
    assert (finding.kind, words in finding.detail) == (K.BAD_INDEX, True), finding


def test_bounds_that_the_batch_does_not_bring_are_refused() -> None:
    class Dropped(Spoilt):
        def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
            return {k: v for k, v in super().values(requests).items() if k != "block_bounds"}

    with pytest.raises(SlotError, match="no value for the slot 'block_bounds'"):
        served(Parts(memory=Dropped, prefix_lm=True))

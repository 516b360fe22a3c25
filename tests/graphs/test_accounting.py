"""Every byte and second of a capture is named once, and the sums are the whole."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import pytest
import torch

from firstlight.core.reason import Phase
from firstlight.graphs import Piece, TapeBackend
from firstlight.graphs.accounting import (
    Bytes,
    Kind,
    Ledger,
    Seconds,
    graph_bytes,
    graph_seconds,
    host_bytes,
    rest,
    slot_bytes,
)
from tests.graphs.decoder import Rig


def captured(backend: TapeBackend) -> Rig:
    rig = Rig(backend=backend)
    rig.runner.capture_all()
    return rig


@pytest.mark.parametrize("pin_output", [False, True])
def test_the_kinds_of_a_graph_add_up_to_its_bytes(pin_output: bool) -> None:
    rig = captured(TapeBackend(pin_output=pin_output))
    for bucket, graph in rig.runner.graphs.items():
        entries = graph_bytes(graph, Phase.PREFILL, bucket)
        assert sum(e.n_bytes for e in entries) == graph.bytes
        outputs = [e.n_bytes for e in entries if e.kind is Kind.OUTPUT]
        assert outputs == ([graph.replay().numel() * 4] if pin_output else [])


def test_scratch_entries_add_up_to_the_arena() -> None:
    backend = TapeBackend()
    graphs = captured(backend).runner.graphs
    entries = [e for b, g in graphs.items() for e in graph_bytes(g, Phase.PREFILL, b)]
    assert sum(e.n_bytes for e in entries if e.kind is Kind.SCRATCH) == backend.scratch.bytes


def test_the_parts_of_a_capture_add_up_to_its_seconds() -> None:
    graph = captured(TapeBackend()).runner.graphs[8]
    entries = graph_seconds(graph, Phase.PREFILL, 8)
    assert [e.part for e in entries] == ["record", "plan", "choosing forms"]
    assert sum(e.seconds for e in entries) == pytest.approx(graph.seconds)


def test_a_slot_that_phases_share_is_counted_once() -> None:
    rig = Rig()
    shared = slot_bytes({Phase.PREFILL: rig.registry, Phase.DECODE: rig.registry})
    alone = slot_bytes({Phase.PREFILL: rig.registry})
    assert shared == alone
    assert sum(e.n_bytes for e in alone) == sum(info.bytes for info in rig.registry.describe())


@dataclass
class Opaque:
    """A graph of a backend that does not say what its memory is for."""

    bytes: int = 100
    seconds: float = 2.0
    pieces: tuple[Piece, ...] = (Piece("graph", "opaque 4", 1), Piece("eager", "attention", 1))

    def replay(self) -> torch.Tensor:
        return torch.zeros(1)


def test_a_graph_that_says_nothing_is_one_entry() -> None:
    assert graph_bytes(Opaque(), Phase.DECODE, 4) == [
        Bytes(Kind.GRAPH, "opaque 4", 100, Phase.DECODE, 4)
    ]
    assert graph_seconds(Opaque(), Phase.DECODE, 4) == [Seconds("record", 2.0, Phase.DECODE, 4)]


def test_objects_on_the_host_are_counted_once_over_all_graphs() -> None:
    graphs = captured(TapeBackend()).runner.graphs
    listed = [(Phase.PREFILL, bucket, graph) for bucket, graph in graphs.items()]
    together = sum(entry.n_bytes for entry in host_bytes(listed))
    alone = [host_bytes([entry])[0].n_bytes for entry in listed]
    assert max(alone) < together < sum(alone)
    assert host_bytes(listed * 2) == host_bytes(listed)


def test_the_host_objects_of_a_graph_are_about_what_its_process_grows_by() -> None:
    rig = Rig()
    rig.runner.capture_all()  # whatever is made once is made
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        graph = TapeBackend().capture(
            lambda: rig.decoder(rig.inputs(8)), owned=rig.owned, label="again"
        )
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = graph.host_bytes(set())
    # Python's allocator does not see the C++ part of tensors, so the count is the larger.
    assert 0.5 * (after - before) < counted < 3 * (after - before)


def test_sums_are_by_kind_by_part_and_by_bucket() -> None:
    ledger = Ledger(
        (
            Bytes(Kind.SLOT, "positions", 8, Phase.PREFILL),
            Bytes(Kind.SCRATCH, "prefill 4", 32, Phase.PREFILL, 4),
            Bytes(Kind.CONSTANT, "table", 2, Phase.PREFILL, 4),
            Bytes(Kind.CONSTANT, "table", 3, Phase.PREFILL, 2),
        ),
        (Seconds("record", 1.0, Phase.PREFILL, 4), Seconds("record", 0.5, Phase.PREFILL, 2)),
    )
    assert ledger.bytes_by_kind() == {Kind.SCRATCH: 32, Kind.CONSTANT: 5, Kind.SLOT: 8}
    assert ledger.bytes_of(Phase.PREFILL, 4) == {Kind.SCRATCH: 32, Kind.CONSTANT: 2}
    assert ledger.seconds_by_part() == {"record": 1.5}
    assert ledger.seconds_of(Phase.PREFILL, 2) == {"record": 0.5}
    assert (ledger.total_bytes, ledger.total_seconds) == (45, 1.5)


def test_the_rest_is_what_the_entries_do_not_explain() -> None:
    entries = [Seconds("record", 1.0, Phase.PREFILL, 4), Seconds("proof", 0.5, Phase.PREFILL, 4)]
    assert rest(entries, 1.75, Phase.PREFILL) == Seconds("other", 0.25, Phase.PREFILL)
    assert rest(entries, 1.0, Phase.PREFILL).seconds == 0

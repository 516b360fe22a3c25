"""Where intermediates live, while recording and at replay."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from firstlight.graphs import ScratchArena, TapeBackend
from firstlight.graphs.backends.tape.plan import _FreeList
from tests.graphs.tape import capture

ROW = 4096  # bytes of the intermediates below


def chain(x: Tensor, length: int) -> Tensor:
    for _ in range(length):
        x = x * 1.5
    return x


def test_recording_holds_no_intermediate() -> None:
    x = torch.zeros(1024)
    alive: list[StorageWeakRef] = []

    def body() -> Tensor:
        y = x
        for _ in range(20):
            y = y + 1
            alive.append(StorageWeakRef(y.untyped_storage()))  # type: ignore[no-untyped-call]
        kept = sum(not ref.expired() for ref in alive)  # type: ignore[no-untyped-call]
        assert kept == 1
        return y

    capture(body, slots={"x": x})


def test_a_chain_needs_two_buffers_however_long() -> None:
    x = torch.zeros(1024)
    assert capture(lambda: chain(x, 50), slots={"x": x}).scratch_bytes == 2 * ROW


def test_what_is_alive_together_does_not_overlap() -> None:
    x = torch.zeros(1024)

    def body() -> Tensor:
        parts = [x + i for i in range(8)]
        return sum(p * i for i, p in enumerate(parts)) + parts[0]

    graph = capture(body, slots={"x": x})
    x.fill_(2)
    assert torch.equal(graph.replay(), body())
    assert graph.scratch_bytes >= 8 * ROW


def test_a_storage_kept_by_a_view_stays_alive() -> None:
    x = torch.zeros(1024)

    def body() -> Tensor:
        first = (x + 1)[:4]
        rest = chain(x, 10)
        return first + rest[:4]

    graph = capture(body, slots={"x": x})
    x.fill_(1)
    assert torch.equal(graph.replay(), body())


def test_graphs_of_one_arena_overlay_each_other() -> None:
    backend, x = TapeBackend(), torch.zeros(1024)
    large = capture(lambda: chain(x, 5), slots={"x": x}, backend=backend)
    small = capture(lambda: chain(x[:256], 5), slots={"x": x}, backend=backend)
    assert (large.bytes, small.bytes) == (2 * ROW, 0)
    assert large.output.untyped_storage().data_ptr() == small.output.untyped_storage().data_ptr()


def test_a_later_graph_that_needs_more_gets_a_further_block() -> None:
    backend, x = TapeBackend(), torch.zeros(1024)
    small = capture(lambda: chain(x[:256], 5), slots={"x": x}, backend=backend)
    address = small.output.data_ptr()
    large = capture(lambda: chain(x, 5), slots={"x": x}, backend=backend)
    x.fill_(1)
    large.replay()
    assert small.replay().data_ptr() == address
    assert small.replay().eq(1.5**5).all()
    assert backend.scratch.bytes == 2 * ROW // 4 + 2 * ROW


def test_two_backends_may_share_one_arena() -> None:
    scratch, x = ScratchArena(), torch.zeros(1024)
    for _ in range(2):
        capture(lambda: chain(x, 3), slots={"x": x}, backend=TapeBackend(scratch))
    assert scratch.bytes == 2 * ROW


def test_the_output_is_overwritten_by_the_next_replay_of_the_arena_unless_pinned() -> None:
    x = torch.zeros(1024)
    outputs = {}
    for pinned in (False, True):
        backend = TapeBackend(pin_output=pinned)
        first = capture(lambda: chain(x, 3), slots={"x": x}, backend=backend)
        second = capture(lambda: chain(x + 1, 3), slots={"x": x}, backend=backend)
        x.fill_(1)
        outputs[pinned] = first.replay()
        second.replay()
    assert outputs[True].eq(1.5**3).all()
    assert not outputs[False].eq(1.5**3).all()


def test_every_intermediate_starts_on_a_cache_line() -> None:
    x = torch.zeros(33)
    graph = capture(lambda: torch.cat((x + 1, x * 2)) + 1, slots={"x": x})
    starts = {r.start for r in graph._regions if r.owner != "slot x"}
    assert {start % 64 for start in starts} == {0}


def test_addresses_have_owners() -> None:
    x, weight = torch.zeros(4, 4), torch.ones(4, 4)
    graph = capture(lambda: (x @ weight) + torch.arange(4), slots={"x": x}, weights={"w": weight})
    assert graph.owner_of(x.data_ptr()) == "slot x"
    assert graph.owner_of(weight.data_ptr() + 4) == "weight w"
    assert "aten.add" in (graph.owner_of(graph.output.data_ptr()) or "")
    assert "aten.arange" in (graph.owner_of(graph.constants[0].tensor.data_ptr()) or "")
    assert graph.owner_of(1) is None


def test_the_dump_names_every_operation_with_shapes_and_line() -> None:
    x = torch.zeros(4, 4)
    graph = capture(lambda: x.view(2, 8).softmax(-1), slots={"x": x})
    head, line = graph.dump().splitlines()
    assert head.startswith("test: 1 ops, 1 views, 0 folded, 0 dropped")
    assert "aten._softmax.default" in line
    assert "[2, 8]:float32" in line
    assert "test_tape_memory.py:" in line


@given(st.lists(st.integers(1, 5), max_size=30), st.randoms(use_true_random=False))
def test_ranges_in_use_never_overlap(sizes: list[int], random: object) -> None:
    free = _FreeList()
    used: list[tuple[int, int]] = []
    for size in sizes:
        start = free.take(size * 64)
        assert all(start + size * 64 <= s or s + n <= start for s, n in used)
        used.append((start, size * 64))
        if random.random() < 0.5:  # type: ignore[attr-defined]
            free.give(*used.pop(random.randrange(len(used))))  # type: ignore[attr-defined]
    for piece in used:
        free.give(*piece)
    assert free._ranges == ([(0, free.end)] if sizes else [])


@pytest.mark.parametrize("n", [1, 63, 64, 65])
def test_blocks_are_reserved_in_cache_lines(n: int) -> None:
    block = ScratchArena().reserve(n)
    assert block.storage.nbytes() == block.fresh == -(-n // 64) * 64

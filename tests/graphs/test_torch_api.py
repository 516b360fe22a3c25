"""What captures leave behind in torch's allocator, by the rules that its source states.

The rules are played by :class:`Allocator` and :class:`Graph`; nothing here touches CUDA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest
import torch

from firstlight.graphs.backends.cuda import TorchGraphApi

Pool = tuple[int, int]


class Allocator:
    """Which pools take allocations now, and how many graphs hold each."""

    def __init__(self) -> None:
        self.recording: set[Pool] = set()
        self.uses: Counter[Pool] = Counter()

    def begin(self, pool: Pool) -> None:
        """A capture begins; a pool that was let go by all is dead."""
        if pool in self.recording:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        if pool in self.uses and self.uses[pool] == 0:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.recording.add(pool)
        self.uses[pool] += 1

    def end(self, device: int, pool: Pool) -> None:
        """Its allocations go elsewhere again."""
        assert device == 0
        if pool not in self.recording:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.recording.remove(pool)

    def release(self, device: int, pool: Pool) -> None:
        """A graph lets go of it."""
        assert device == 0
        self.uses[pool] -= 1


class Graph:
    """Begins and ends as torch's does: where CUDA refuses, the allocator hears nothing."""

    def __init__(self, allocator: Allocator, refuse: Callable[[str], None]) -> None:
        self._allocator, self._refuse = allocator, refuse
        self._begun = self._ended = False
        self.pool: Pool = (0, 0)

    def capture_begin(self, pool: Pool, capture_error_mode: str) -> None:
        """The allocator first, then CUDA."""
        assert capture_error_mode == "thread_local"
        self.pool = pool
        self._allocator.begin(pool)
        self._refuse("begin")
        self._begun = True

    def capture_end(self) -> None:
        """CUDA first, then the allocator, then the graph is made."""
        if self._ended or not self._begun:
            raise RuntimeError("CUDA error: the stream does not capture")
        self._refuse("end")
        self._allocator.end(0, self.pool)
        self._ended = True
        self._refuse("instantiate")

    def reset(self) -> None:
        """Only a graph that was ended lets go of its pool."""
        if self._ended:
            self._allocator.release(0, self.pool)
            self._ended = False


class World:
    """One allocator, and what CUDA refuses from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocator = Allocator()
        self.refused: set[str] = set()
        handles = ((0, n) for n in count(1))

        def graph(*_: Any) -> Graph:
            return Graph(self.allocator, self._refuse)

        monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
        for name, function in (
            ("_cuda_endAllocateToPool", self.allocator.end),
            ("_cuda_releasePool", self.allocator.release),
        ):
            monkeypatch.setattr(torch._C, name, function, raising=False)
        self.api = TorchGraphApi(torch.device("cpu", 0))

    def _refuse(self, where: str) -> None:
        if where in self.refused:
            raise RuntimeError(f"CUDA error at {where}")

    def capture(self) -> Graph:
        """One that works."""
        self.api.begin()
        return cast(Graph, self.api.end())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_graphs_share_one_pool(world: World) -> None:
    assert world.capture().pool == world.capture().pool
    assert not world.allocator.recording


def test_a_pool_outlives_a_first_capture_that_was_given_up(world: World) -> None:
    # E.g. no memory: CUDA itself has nothing against the capture.
    world.api.begin()
    world.api.abort()
    first = world.capture()
    assert world.allocator.uses[first.pool] == 2


def test_a_capture_that_cuda_has_invalidated_leaves_no_pool_that_takes_allocations(
    world: World,
) -> None:
    kept = world.capture()
    world.api.begin()
    world.refused.add("end")
    with pytest.raises(RuntimeError):
        world.api.end()
    world.api.abort()
    assert not world.allocator.recording
    assert world.allocator.uses[kept.pool] == 2  # its own and the anchor's
    world.refused.clear()
    again = world.capture()
    assert again.pool != kept.pool
    assert not world.allocator.recording


def test_a_capture_that_never_began_leaves_no_pool_that_takes_allocations(world: World) -> None:
    world.refused.add("begin")
    with pytest.raises(RuntimeError):
        world.api.begin()
    world.api.abort()
    assert not world.allocator.recording
    world.refused.clear()
    world.capture()


def test_a_graph_that_cannot_be_made_lets_go_of_its_pool(world: World) -> None:
    kept = world.capture()
    world.api.begin()
    world.refused.add("instantiate")
    with pytest.raises(RuntimeError):
        world.api.end()
    world.api.abort()
    assert not world.allocator.recording
    assert world.allocator.uses[kept.pool] == 2


def test_giving_up_where_nothing_is_open_does_nothing(world: World) -> None:
    world.api.abort()
    world.capture()
    world.api.abort()
    assert not world.allocator.recording

"""The reference backend."""

from __future__ import annotations

import pytest
import torch

from firstlight.graphs import CaptureBackend, EagerBackend, Graph, Ownership, TapeBackend


def test_a_replay_is_a_call() -> None:
    x = torch.zeros(3)
    graph = EagerBackend().capture(lambda: x + 1, owned=Ownership(), label="x")
    x.fill_(2)
    assert graph.replay().eq(3).all()
    assert (graph.bytes, [p.kind for p in graph.pieces]) == (0, ["eager"])


def test_what_the_body_raises_is_raised_at_capture() -> None:
    with pytest.raises(ZeroDivisionError):
        EagerBackend().capture(lambda: torch.ones(1) / (1 // 0), owned=Ownership(), label="x")


@pytest.mark.parametrize("backend", [EagerBackend(), TapeBackend()])
def test_backends_and_graphs_keep_their_protocols(backend: CaptureBackend) -> None:
    x, owned = torch.zeros(3), Ownership()
    owned.add(x, "slot x")
    graph = backend.capture(lambda: x + 1, owned=owned, label="x")
    assert isinstance(backend, CaptureBackend)
    assert isinstance(graph, Graph)
    assert graph.seconds > 0
    assert sum(piece.ops for piece in graph.pieces) == (1 if backend.name == "tape" else 0)

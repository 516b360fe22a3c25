"""What is computed once at capture, what at every replay, and what not at all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from firstlight.graphs import TapeBackend, TapeGraph
from tests.graphs.tape import capture, check


def test_operations_on_weights_alone_are_folded() -> None:
    x, weight = torch.zeros(4, 4), torch.randn(4, 4)
    graph = check(lambda: x @ (weight.exp() + 1), x, weights={"w": weight})
    assert (graph.counts.folded, graph.counts.replayed) == (2, 1)


def test_operations_on_slots_are_not_folded() -> None:
    x, other = torch.zeros(4, 4), torch.ones(4, 4)
    graph = capture(lambda: x + other.exp(), slots={"x": x, "other": other})
    other.fill_(0)
    assert graph.replay().eq(1).all()


def test_constants_are_listed_with_their_bytes() -> None:
    x = torch.zeros(4, 4)
    graph = capture(lambda: x + torch.arange(4.0) + torch.tensor([1.0, 2, 3, 4]), slots={"x": x})
    assert sorted(c.n_bytes for c in graph.constants) == [16, 16]
    assert any("aten.arange" in c.origin for c in graph.constants)
    assert any("host value" in c.origin for c in graph.constants)


def test_only_constants_that_are_read_are_kept() -> None:
    x, weight = torch.zeros(4, 4), torch.randn(4, 4)
    graph = capture(lambda: x + (weight * 2).exp(), slots={"x": x}, weights={"w": weight})
    assert len(graph.constants) == 1


def test_a_constant_that_the_body_changes_is_made_anew_at_every_replay() -> None:
    x = torch.zeros(4)

    def body() -> Tensor:
        total = torch.zeros(4)
        total.add_(x)
        return total

    graph = check(body, x)
    assert graph.constants == ()


def test_a_constant_overwritten_by_a_constant_after_its_use_is_made_anew() -> None:
    x = torch.zeros(4)

    def body() -> Tensor:
        factor = torch.full((4,), 2.0)
        y = x * factor
        factor.fill_(3.0)
        return y + x * factor

    check(body, x)


def test_what_a_changed_constant_was_made_from_is_not_read_too_late() -> None:
    x = torch.zeros(4)

    def body() -> Tensor:
        a = torch.zeros(4)
        b = a + 1
        a.fill_(5)
        b.add_(x)
        return b + a

    check(body, x)


def test_a_weight_that_the_body_writes_is_no_constant() -> None:
    x, state = torch.zeros(4), torch.zeros(4)
    graph = capture(lambda: state.add_(x) * 2, slots={"x": x}, weights={"state": state})
    x.fill_(1)
    state.zero_()
    assert graph.replay().eq(2).all()
    assert graph.replay().eq(4).all()


def test_results_that_nobody_reads_are_dropped() -> None:
    x = torch.zeros(4)

    def body() -> Tensor:
        _ = (x * 3).exp()
        return x + 1

    graph = check(body, x)
    assert (graph.counts.dropped, graph.counts.replayed) == (2, 1)


def test_writes_to_slots_are_never_dropped() -> None:
    x, memory = torch.zeros(4), torch.zeros(4)
    graph = capture(lambda: [memory.copy_(x), x + 1][1], slots={"x": x, "memory": memory})
    x.fill_(3)
    graph.replay()
    assert memory.eq(3).all()


def test_an_assertion_is_replayed_though_it_returns_nothing() -> None:
    x = torch.ones(1, dtype=torch.bool)

    def body() -> Tensor:
        torch.ops.aten._assert_async(x)
        return x.logical_not()

    graph = capture(body, slots={"x": x})
    assert graph.counts.replayed == 2


def test_graphs_of_one_backend_hold_equal_constants_once() -> None:
    backend, x, weight = TapeBackend(), torch.zeros(4, 4), torch.randn(4, 4)
    graphs = [
        capture(
            lambda: x @ weight.exp() + torch.tensor([1.0, 2, 3, 4]),
            slots={"x": x}, weights={"w": weight}, backend=backend,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert [sum(c.n_bytes for c in g.constants) for g in graphs] == [80, 0]
    assert torch.equal(graphs[0].replay().clone(), graphs[1].replay())


def test_constants_that_differ_are_not_mixed_up() -> None:
    backend, x = TapeBackend(), torch.zeros(4)
    makers: list[Callable[[], Tensor]] = [
        lambda: torch.arange(4), lambda: torch.arange(4.0), lambda: torch.arange(1, 5),
        lambda: torch.tensor([1, 1, 1, 1]), lambda: torch.tensor([2, 1, 1, 1]),
        lambda: torch.full((4,), 1), lambda: torch.full((4,), 1.0), lambda: torch.full((4,), True),
    ]  # fmt: skip

    def sum_with(make: Callable[[], Tensor]) -> TapeGraph:
        return capture(lambda: x + make(), slots={"x": x}, backend=backend)

    graphs = [sum_with(make) for make in makers]
    for graph, make in zip(graphs, makers, strict=True):
        assert torch.equal(graph.replay(), x + make())


def test_a_long_chain_of_reused_constants_is_named_quickly() -> None:
    x = torch.zeros(4)

    def body() -> Tensor:
        table = torch.ones(4)
        for _ in range(60):
            table = (table + table) * 0.5
        return x + table

    assert capture(body, slots={"x": x}).seconds < 2

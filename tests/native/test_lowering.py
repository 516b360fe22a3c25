"""Graphs whose operations run as compiled programs replay what eager execution gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.graphs import TapeBackend
from firstlight.native import Kernels, NativeLowering, WeightFormat, calls
from firstlight.native.instruction import Op
from tests.graphs.tape import capture, check, refresh
from tests.graphs.test_tape_programs import program
from tests.native.attention_cases import Case, Memory

LOWERED = "native"


@pytest.fixture
def backend(kernels: Kernels) -> TapeBackend:
    return TapeBackend(lowering=NativeLowering(kernels))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_random_programs_replay_as_they_run(backend: TapeBackend, dtype: torch.dtype) -> None:
    graphs = []
    for seed in range(100, 130):
        torch.manual_seed(seed)
        x, weight = torch.randn(6, 6).to(dtype), torch.randn(6, 6).to(dtype)
        run = program(seed)
        graph = capture(
            lambda run=run, x=x, weight=weight: run(x, weight),  # type: ignore[misc]
            slots={"x": x}, weights={"weight": weight}, backend=backend,
        )  # fmt: skip
        graphs.append((graph, run, x, weight))
        for graph, run, x, weight in graphs[-4:]:
            x.copy_(torch.randn(6, 6))
            assert torch.equal(graph.replay().nan_to_num(), run(x, weight).nan_to_num())
    forms = {line for graph, *_ in graphs for line in forms_of(graph)}
    assert (LOWERED in forms) == (dtype is not torch.float64)


def forms_of(graph: Any) -> list[str]:
    return [step.form for step in graph.steps]


SUMS: list[tuple[Callable[[Tensor], Tensor], bool]] = [
    (lambda x: x + x, True),
    (lambda x: x[:, 2:7] + x[:, 3:8], True),
    (lambda x: x[::2] + x[1::2], True),
    (lambda x: x + 1.0, False),
    (lambda x: x + x[0], False),
    (lambda x: x + x[:, :1], False),
    (lambda x: x.sum() + x.sum(), False),
    (lambda x: x.t() + x.t(), False),
    (lambda x: x + x.double(), False),
    (lambda x: x.double() + x.double(), False),
    (lambda x: (x > 0) + (x > 1), False),
    (lambda x: torch.add(x, x, alpha=2), False),
    (lambda x: x[:0] + x[:0], True),
    (lambda x: x[:, :0] + x[:, :0], True),
    (lambda x: x.view(2, 4, 8) + x.view(2, 4, 8), True),
    (lambda x: x.view(2, 4, 8)[:, :3] + x.view(2, 4, 8)[:, :3], False),
    (lambda x: x.long() + x.long(), False),
]


@pytest.mark.parametrize("index", range(len(SUMS)))
def test_sums_are_lowered_where_rows_lie_evenly_and_left_to_torch_elsewhere(
    backend: TapeBackend, index: int
) -> None:
    body, lowered = SUMS[index]
    x = torch.randn(8, 8)
    graph = check(lambda: body(x) * 1, x, backend=backend)
    adds = [step.form for step in graph.steps if "add" in step.op.name]
    assert adds == [LOWERED] * len(adds) if lowered else LOWERED not in adds


def test_neighbours_become_one_call(backend: TapeBackend, kernels: Kernels) -> None:
    x, scale = torch.randn(9, 64), torch.ones(64)
    weight = kernels.pack(torch.randn(128, 64), WeightFormat.INT8)

    def body() -> Tensor:
        normed = torch.ops.firstlight.rms_norm(x, scale, 1e-5, False)
        wide = torch.ops.firstlight.linear(normed, weight.data, None, int(weight.format), 128)
        gated: Tensor = torch.ops.firstlight.gate(wide, 0)
        return gated + x

    weights = {"scale": scale, "weight": weight.data}
    graph = check(body, x, weights=weights, backend=backend)
    assert set(forms_of(graph)) == {LOWERED}


def test_instructions_of_a_program_can_be_run_one_by_one(kernels: Kernels) -> None:
    x, y, z = torch.randn(9, 64), torch.empty(9, 64), torch.empty(9, 64)
    adds = [calls.add_call(x, x, y), calls.add_call(y, x, z)]
    program = kernels.program([add for add in adds if add is not None])
    for number, (one, alone) in enumerate(program.each()):
        assert Op(one.op) is Op.ADD
        z.zero_()
        alone()
        assert (z != 0).any() == (number == 1)
    assert torch.equal(z, x + x + x)


def test_a_rotation_whose_tables_lie_apart_is_left_to_the_operation(backend: TapeBackend) -> None:
    x, table = torch.randn(5, 64), torch.randn(5, 64)

    def body() -> Tensor:
        sin = table[:, 32:].contiguous()
        turned: Tensor = torch.ops.firstlight.rotate(x, table[:, :32], sin, None, 32, 0.0, False)
        return turned

    graph = capture(body, slots={"x": x, "table": table}, backend=backend)
    refresh(table, 7)
    refresh(x, 8)
    assert torch.equal(graph.replay(), body())
    assert LOWERED not in [s.form for s in graph.steps if "rotate" in s.op.name]


def test_attention_of_several_graphs_shares_scratch_memory(backend: TapeBackend) -> None:
    graphs = []
    for chunks in (((1, 700),), ((1, 40), (1, 90)), ((20, 600), (1, 3))):
        memory = Memory(Case(chunks, pages=100))
        named = {
            str(i): t for i, t in enumerate(memory.arguments(torch.empty(0)))
            if isinstance(t, Tensor)
        }  # fmt: skip
        graph = capture(memory.attend, slots=named, backend=backend)
        graphs.append((graph, memory, memory.attend()))
    for graph, memory, want in [*graphs, *reversed(graphs)]:
        assert LOWERED in forms_of(graph)
        assert torch.equal(graph.replay(), want)
        assert memory.q.isfinite().all()


def test_a_recording_computes_nothing_that_depends_on_slots_and_all_that_is_constant(
    kernels: Kernels,
) -> None:
    weight = torch.randn(16, 32)
    packed = kernels.pack(weight)
    lowering, stood_in = NativeLowering(kernels), list[int]()
    op = torch.ops.firstlight.linear.default

    def stand_in(x: Tensor, *rest: Any) -> Any:
        stood_in.append(len(x))
        return lowering_op(x, *rest)

    lowering_op = lowering.stand_ins[op]
    lowering.stand_ins = {op: stand_in}
    x, table = torch.randn(3, 32), torch.randn(5, 32)

    def linear(rows: Tensor) -> Tensor:
        out: Tensor = torch.ops.firstlight.linear(rows, packed.data, None, 0, 16)
        return out

    graph = capture(
        lambda: linear(x) + linear(table)[:3],
        slots={"x": x}, weights={"packed": packed.data, "table": table},
        backend=TapeBackend(lowering=lowering),
    )  # fmt: skip
    assert stood_in == [3]
    torch.testing.assert_close(graph.replay(), x @ weight.t() + (table @ weight.t())[:3])
    assert graph.counts.folded == 1

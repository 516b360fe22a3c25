"""Random programs of views, mutations, constants and products: replay equals eager.

All graphs of a run share one backend, and the last few are replayed in turn, so that memory handed
from one to the other would show.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from firstlight.graphs import TapeBackend, TapeGraph
from tests.graphs.tape import capture

N = 6
Instruction = Callable[[Tensor, Tensor, int], Tensor]


def overwrite_rows(p: Tensor, q: Tensor, d: int) -> Tensor:
    made = torch.zeros(N, N, dtype=p.dtype)
    made[d:].copy_(p[d:])
    return made


def scale_column(p: Tensor, q: Tensor, d: int) -> Tensor:
    p[:, d].mul_(0.5)
    return p


def into_given_output(p: Tensor, q: Tensor, d: int) -> Tensor:
    out = torch.empty(N, N, dtype=p.dtype)
    return torch.mul(p, q, out=out)


def constant(p: Tensor, q: Tensor, d: int) -> Tensor:
    return torch.full((N, N), 2.0, dtype=p.dtype).tril_(d)


INSTRUCTIONS: list[Instruction] = [
    overwrite_rows, scale_column, scale_column, into_given_output, constant,
    lambda p, q, d: p + q,
    lambda p, q, d: p @ q.t(),
    lambda p, q, d: p.t(),
    lambda p, q, d: p.softmax(-1),
    lambda p, q, d: torch.cat((p[:d], q[d:]), 0),
    lambda p, q, d: p.topk(N, -1)[0],
    lambda p, q, d: p.view_as(p),
    lambda p, q, d: p.index_select(0, torch.tensor([5, 4, 3, 2, 1, d])),
]  # fmt: skip


def program(seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of a slot and a weight, neither of which it changes."""
    rng = random.Random(seed)
    length = rng.randint(3, 14)
    steps = [(rng.choice(INSTRUCTIONS), rng.random(), rng.random(), rng.randint(0, 3))
             for _ in range(length)]  # fmt: skip

    def run(x: Tensor, weight: Tensor) -> Tensor:
        values = [x * 1, weight * 1]
        for instruction, a, b, d in steps:
            p, q = values[int(a * len(values))], values[int(b * len(values))]
            values.append(instruction(p, q, d))
        return values[-1] + values[-2] + values[-3]

    return run


@pytest.mark.parametrize("first", range(0, 60, 12))
def test_a_random_program_replays_as_it_runs(first: int) -> None:
    backend = TapeBackend()
    graphs: list[tuple[TapeGraph, Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]] = []
    for seed in range(first, first + 12):
        torch.manual_seed(seed)
        dtype = [torch.float32, torch.bfloat16, torch.float64][seed % 3]
        x, weight = torch.randn(N, N).to(dtype), torch.randn(N, N).to(dtype)
        run = program(seed)
        graph = capture(
            lambda run=run, x=x, weight=weight: run(x, weight),  # type: ignore[misc]
            slots={"x": x}, weights={"weight": weight}, backend=backend,
        )  # fmt: skip
        graphs.append((graph, run, x, weight))
        for graph, run, x, weight in graphs[-4:]:
            x.copy_(torch.randn(N, N))
            expected = run(x, weight)
            assert torch.equal(graph.replay().nan_to_num(), expected.nan_to_num()), graph.dump()

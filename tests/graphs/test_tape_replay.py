"""Replay equals eager, operation kind by operation kind."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from firstlight.graphs import Ownership, TapeBackend, TapeGraph
from tests.graphs.tape import capture, check, refresh

DTYPES = [torch.float32, torch.bfloat16]

BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: (x * 2.0 + 1).sigmoid() - x,
    "matmul of transposed": lambda x: x @ x.t(),
    "batched matmul": lambda x: torch.bmm(x.view(2, 4, 8), x.view(2, 8, 4)),
    "multiple outputs": lambda x: torch.topk(x, 2)[0] + torch.topk(x, 2)[1],
    "one of several outputs": lambda x: x.max(-1)[1],
    "sorted": lambda x: x.sort(-1)[0],
    "layer norm": lambda x: nn.functional.layer_norm(x, (8,)),
    "rms norm": lambda x: nn.functional.rms_norm(x, (8,)),
    "softmax": lambda x: x.softmax(-1),
    "split and cat": lambda x: torch.cat(x.chunk(3, -1)[::-1], -1),
    "chunk written apart": lambda x: x.chunk(2, -1)[0] * x.chunk(2, -1)[1],
    "transposed result": lambda x: (x + 1).t(),
    "result of no operation": lambda x: x[1:, ::2],
    "non-contiguous output": lambda x: (x.t() + 1) * x.t(),
    "expanded": lambda x: x[:1].expand(8, 8) + x,
    "cast and back": lambda x: x.double().exp().to(x.dtype),
    "integer index": lambda x: x[torch.tensor([3, 1, 1])],
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "embedding": lambda x: nn.functional.embedding((x[0] > 0).long(), x),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked fill": lambda x: x.masked_fill(x > 0, -1.0),
    "cumulative": lambda x: x.cumsum(0),
    "roll and flip": lambda x: x.roll(1, 0) + x.flip(1),
    "repeat": lambda x: x.repeat(2, 1),
    "stack": lambda x: torch.stack((x, -x)).sum(0),
    "gelu": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], is_causal=True
    )[0, 0],
    "convolution": lambda x: nn.functional.conv1d(x[None], x[:2, :, None])[0],
    "arange positions": lambda x: x + torch.arange(8),
    "scalar operand on the left": lambda x: 2.0 - 1.0 / (x * x + 1),
    "power": lambda x: x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "var_mean": lambda x: torch.var_mean(x, -1)[0],
    "complex rotation": lambda x: torch.view_as_real(
        torch.view_as_complex(x.float().view(8, 4, 2)) * torch.polar(torch.ones(4), torch.ones(4))
    ).flatten(1).to(x.dtype),
    "empty": lambda x: torch.cat((x[:0], x)) + x[:0].sum(),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BODIES)
def test_replay_equals_eager(name: str, dtype: torch.dtype) -> None:
    x = torch.zeros(8, 8, dtype=dtype)
    check(lambda: BODIES[name](x), x)


def in_place_chain(x: Tensor) -> Tensor:
    y = x + 1
    y.mul_(2).add_(x, alpha=0.5)
    return y


def in_place_on_a_view(x: Tensor) -> Tensor:
    y = x + 1
    y[:, 2:5].mul_(3)
    y.t()[0].zero_()
    return y


def written_buffer(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:4] = x[4:]
    y[4:].copy_(x[:4] * 2)
    return y


def accumulated(x: Tensor) -> Tensor:
    y = torch.zeros(8, 8, dtype=x.dtype)
    y.index_add_(0, torch.tensor([1, 1, 2, 3, 3, 3, 0, 7]), x)
    return y


def filled_then_changed(x: Tensor) -> Tensor:
    y = torch.full((8, 8), 2.0, dtype=x.dtype)
    before = y * x
    y.fill_(3.0)
    return before + y * x


def given_output(x: Tensor) -> Tensor:
    out = torch.empty(0, dtype=x.dtype)
    torch.add(x, x, out=out)
    return out * 2


def slot_written(x: Tensor) -> Tensor:
    x[0].add_(1)
    x.index_copy_(0, torch.tensor([2]), x[:1] * 2)
    return x * 1


def reshaped_in_place(x: Tensor) -> Tensor:
    y = x + 1
    y.unsqueeze_(0)
    y.squeeze_(0).t_()
    return y * 2


def scattered(x: Tensor) -> Tensor:
    y = x.clone()
    y.scatter_(1, torch.zeros(8, 1, dtype=torch.long), 5.0)
    y[torch.tensor([1, 2])] = x[torch.tensor([2, 1])]
    return y


MUTATING = [
    in_place_chain, in_place_on_a_view, written_buffer, accumulated, filled_then_changed,
    given_output, slot_written, reshaped_in_place, scattered,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("body", MUTATING, ids=lambda body: body.__name__)
def test_mutation_is_replayed(body: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    x = torch.zeros(8, 8, dtype=dtype)
    check(lambda: body(x), x)


def test_integer_slots_serve_as_indices() -> None:
    x = torch.zeros(6, dtype=torch.int64)
    table = torch.randn(4, 3)
    check(lambda: table[x] + nn.functional.embedding(x, table), x, weights={"table": table})


def test_a_custom_operation_is_called_through_its_kernel() -> None:
    calls: list[str] = []
    library = torch.library.Library("firstlight_test", "DEF")  # type: ignore[no-untyped-call]
    library.define("twice_(Tensor x, Tensor(a!) out) -> ()")  # type: ignore[no-untyped-call]

    def dispatched(x: Tensor, out: Tensor) -> None:
        calls.append("dispatched")
        out.copy_(x * 2)

    def kernel(x: Tensor, out: Tensor) -> None:
        calls.append(f"kernel, reads {x.tolist()[0]}")
        out.copy_(x * 2)

    library.impl("twice_", dispatched, "CPU")  # type: ignore[no-untyped-call]
    twice = torch.ops.firstlight_test.twice_.default
    x = torch.zeros(3)

    def body() -> Tensor:
        out = torch.empty_like(x)
        twice(x, out)
        return out + 1

    graph = capture(body, slots={"x": x}, backend=TapeBackend(kernels={twice: kernel}))
    x.fill_(4)
    assert graph.replay().tolist() == [9, 9, 9]
    assert calls == ["kernel, reads 0.0", "kernel, reads 4.0"]
    assert torch.equal(capture(body, slots={"x": x}).replay(), torch.full((3,), 9.0))
    assert calls[2:] == ["dispatched", "dispatched"]


def test_weights_of_an_opaque_layout_are_owned_by_their_module() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.randn(16, 8).bfloat16()
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight)

        def forward(self, x: Tensor) -> Tensor:
            linear = torch.ops.mkldnn._linear_pointwise
            result: Tensor = linear(x, self.packed, None, "none", [], "")
            return result + 1

    x = torch.zeros(4, 8, dtype=torch.bfloat16)
    module, owned = Packed(), Ownership()
    owned.add_module(module)
    owned.add(x, "slot x")
    graph = TapeBackend().capture(lambda: module(x), owned=owned, label="packed")
    refresh(x, 1)
    assert torch.equal(graph.replay(), module(x))


def test_a_capture_inside_inference_mode_is_a_capture_outside() -> None:
    x = torch.zeros(4, 4)
    with torch.inference_mode():
        graph = capture(lambda: x.double().to(torch.float32) * 2, slots={"x": x})
        x.fill_(1)
        assert graph.replay().eq(2).all()
    assert not graph.replay().is_inference()


def test_replay_needs_neither_the_function_nor_the_tensors_it_closed_over() -> None:
    def make() -> tuple[TapeGraph, Tensor]:
        x, weight = torch.zeros(4, 4), torch.full((4, 4), 3.0)
        graph = capture(lambda: (x + 1) * weight, slots={"x": x}, weights={"w": weight})
        return graph, x

    graph, x = make()
    gc.collect()
    churn = [torch.full((4, 4), float("nan")) for _ in range(100)]
    x.fill_(2)
    assert graph.replay().eq(9).all()
    assert len(churn) == 100


def test_an_operation_that_changes_one_thing_and_makes_another_is_replayed() -> None:
    state = torch.zeros(8)
    x = torch.zeros(4, 8)
    library = torch.library.Library("firstlight_mixed", "DEF")  # type: ignore[no-untyped-call]
    library.define("push(Tensor x, Tensor(a!) state) -> (Tensor, Tensor)")  # type: ignore[no-untyped-call]

    def push(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state.add_(x[0])
        return x * 2, x * 3

    library.impl("push", push, "CPU")  # type: ignore[no-untyped-call]
    op = torch.ops.firstlight_mixed.push.default
    graph = capture(lambda: op(x, state)[1] + 1, slots={"x": x, "state": state})
    x.fill_(1)
    state.zero_()
    assert graph.replay().eq(4).all()
    assert graph.replay().eq(4).all()
    assert state.eq(2).all()


def test_results_that_nobody_reads_do_not_stop_the_change_beside_them() -> None:
    library = torch.library.Library("firstlight_unread", "DEF")  # type: ignore[no-untyped-call]
    library.define("push(Tensor x, Tensor(a!) state) -> Tensor")  # type: ignore[no-untyped-call]

    def push(x: Tensor, state: Tensor) -> Tensor:
        state.add_(x)
        return x * 2

    library.impl("push", push, "CPU")  # type: ignore[no-untyped-call]
    x, state = torch.zeros(4), torch.zeros(4)

    def body() -> Tensor:
        torch.ops.firstlight_unread.push.default(x, state)
        return x + 1

    graph = capture(body, slots={"x": x, "state": state})
    x.fill_(1)
    graph.replay()
    graph.replay()
    assert state.eq(2).all()

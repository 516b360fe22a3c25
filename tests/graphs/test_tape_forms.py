"""Which calls an operation may be replayed by: only exact ones, the fastest of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.graphs import TapeBackend
from firstlight.graphs.backends.tape.choose import FormChooser
from firstlight.graphs.backends.tape.forms import Form, forms_of, out_overload
from firstlight.graphs.backends.tape.record import OpCall, Place
from firstlight.graphs.backends.tape.sample import same_bits
from tests.graphs.tape import capture

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (aten.mm.default, aten.mm.out),
        (aten.mul.Tensor, aten.mul.out),
        (aten.mean.dim, aten.mean.out),
        (aten.pow.Tensor_Scalar, aten.pow.Tensor_Scalar_out),
        (aten.native_layer_norm.default, aten.native_layer_norm.out),
        (aten.topk.default, aten.topk.values),
        (aten.max.dim, aten.max.dim_max),
        (aten.index.Tensor, aten.index.Tensor_out),
        (aten.cat.default, aten.cat.out),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, None),
    ],
)
def test_the_out_overload_takes_the_same_arguments(func: Any, expected: Any) -> None:
    assert out_overload(func) is expected


def test_copies_and_fills_have_forms_of_their_own() -> None:
    assert forms_of(aten._to_copy.default, 1)[0].name == "copy_"
    assert forms_of(aten.zeros.default, 1)[0].name == "fill_"


def op_call(func: Any, *args: Any) -> OpCall:
    place = Place(1, 0, (4, 4), (4, 1), torch.float32)
    return OpCall(func, args, {}, (place,), (0,), (1,), "", effect=False)


def unknown(place: Place) -> Tensor | None:
    return None


def test_a_form_that_is_not_exact_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def almost(args: Any, kwargs: Any, outs: Any) -> Callable[[], object]:
        return lambda: outs[0].copy_(args[0] * 2.0000002)

    def exact(args: Any, kwargs: Any, outs: Any) -> Callable[[], object]:
        return lambda: [sum(range(2000)), outs[0].copy_(args[0] * 2.0)]

    forms = [Form("fast but not exact", almost), Form("slow and exact", exact)]
    module = "firstlight.graphs.backends.tape.choose.forms_of"
    monkeypatch.setattr(module, lambda *ignored: forms)
    op = op_call(aten.mul.Tensor, Place(0, 0, (4, 4), (4, 1), torch.float32), 2.0)
    assert FormChooser({}).choose(op, unknown).name == "slow and exact"


def test_the_faster_of_two_exact_forms_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(work: int) -> Callable[..., Callable[[], object]]:
        return lambda args, kwargs, outs: lambda: [sum(range(work)), outs[0].copy_(args[0] * 2.0)]

    forms = [Form("slow", bind(100_000)), Form("fast", bind(1))]
    module = "firstlight.graphs.backends.tape.choose.forms_of"
    monkeypatch.setattr(module, lambda *ignored: forms)
    op = op_call(aten.mul.Tensor, Place(0, 0, (4, 4), (4, 1), torch.float32), 2.0)
    assert FormChooser({}).choose(op, unknown).name == "fast"


def test_where_no_form_is_exact_the_recorded_operation_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(args: Any, kwargs: Any, outs: Any) -> Callable[[], object]:
        raise TypeError

    module = "firstlight.graphs.backends.tape.choose.forms_of"
    monkeypatch.setattr(module, lambda *ignored: [Form("fails", fails)])
    op = op_call(aten.mul.Tensor, Place(0, 0, (4, 4), (4, 1), torch.float32), 2.0)
    assert FormChooser({}).choose(op, unknown).name == "dispatcher"


def test_layers_and_neighbouring_buckets_share_a_measurement() -> None:
    backend, x = TapeBackend(), torch.zeros(100, 16)
    weight = torch.randn(16, 16)

    def body(rows: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            y = x[:rows]
            for _ in range(4):
                y = torch.relu(y @ weight)
            return y

        return run

    capture(body(100), slots={"x": x}, weights={"w": weight}, backend=backend)
    measured = backend._chooser.n_measured
    assert measured == 2  # one product, one relu
    capture(body(90), slots={"x": x}, weights={"w": weight}, backend=backend)
    assert backend._chooser.n_measured == measured


def test_measuring_changes_no_slot() -> None:
    x = torch.arange(16.0).view(4, 4)
    index = torch.tensor([3, 2])
    capture(
        lambda: [x.index_add_(0, index, x[:2].clone()), x.mul_(1.0), x + 1][2],
        slots={"x": x, "index": index},
    )
    expected = torch.arange(16.0).view(4, 4)
    expected.index_add_(0, index, expected[:2].clone())
    assert torch.equal(x, expected)
    assert index.tolist() == [3, 2]


def test_bits_are_compared_not_values() -> None:
    zero, nan = torch.zeros(2), torch.full((2,), float("nan"))
    assert not same_bits(zero, -zero)
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, zero.double())
    assert not same_bits(zero, zero[:1])


def test_an_operation_on_too_large_arguments_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firstlight.graphs.backends.tape.sample._LARGEST", 8)
    chooser = FormChooser({})
    op = op_call(aten.mul.Tensor, Place(0, 0, (4, 4), (4, 1), torch.float32), 2.0)
    assert chooser.choose(op, unknown).name == "dispatcher"
    assert chooser.n_measured == 0

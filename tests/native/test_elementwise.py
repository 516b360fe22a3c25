"""Norms, rotary embedding, gates and sums against torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from firstlight.models.fuse.attention import rotate
from firstlight.native import Kernels
from firstlight.native.calls import add_call

DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = (2, 16, 17, 30, 64, 100, 576)
ROWS = (0, 1, 7, 8, 9, 30)
ACTIVATIONS: list[Callable[[Tensor], Tensor]] = [
    silu,
    partial(gelu, approximate="tanh"),
    gelu,
    lambda x: x * torch.sigmoid(1.702 * x),
]
TOLERANCE = {torch.float32: (2e-6, 1e-6), torch.bfloat16: (2**-7, 1e-3)}


def randn(*shape: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(found: Tensor, wanted: Tensor) -> None:
    rtol, atol = TOLERANCE[found.dtype]
    torch.testing.assert_close(found, wanted, rtol=rtol * 4, atol=atol * 4, equal_nan=True)


def norm(x: Tensor, weight: Tensor, eps: float, offset: bool) -> Tensor:
    """As transformers' Llama and Gemma norms compute."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * weight).to(x.dtype) if offset else weight * normed.to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm_is_torchs(kernels: Kernels, dtype: torch.dtype, offset: bool, width: int) -> None:
    weight = randn(width, dtype=torch.float32 if offset else dtype, seed=2)
    for rows in ROWS:
        x = randn(rows, width + 3, dtype=dtype)[:, 1 : width + 1]
        found = torch.ops.firstlight.rms_norm(x, weight, 1e-5, offset)
        assert_close(found, norm(x, weight, 1e-5, offset))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 8, 20, 32, 40, 64, 80, 128, 1024])
@pytest.mark.parametrize("normed", [None, False, True])
def test_rotation_is_torchs_with_and_without_a_norm(
    kernels: Kernels, dtype: torch.dtype, dim: int, normed: bool | None
) -> None:
    rows, heads = 9, 3
    x = randn(rows, heads * dim + 5, dtype=dtype)[:, : heads * dim]
    cos, sin = randn(1, rows, dim, dtype=dtype, seed=2), randn(1, rows, dim, dtype=dtype, seed=3)
    weight = None
    wanted = x.reshape(rows, heads, dim)
    if normed is not None:
        weight = randn(heads, dim, dtype=torch.float32 if normed else dtype, seed=4)
        wanted = norm(wanted, weight, 1e-6, normed)
    found = torch.ops.firstlight.rotate(x, cos, sin, weight, dim, 1e-6, bool(normed))
    assert_close(found, rotate(wanted, (cos, sin)))


def test_rotation_takes_tables_that_lie_differently(kernels: Kernels) -> None:
    x, table = randn(5, 64, dtype=torch.float32), randn(5, 64, dtype=torch.float32, seed=2)
    cos, sin = table[None, :, :32], table.T[32:].T.contiguous()[None]
    plain = torch.ops.firstlight.rotate(x, cos.contiguous(), sin, None, 32, 0.0, False)
    assert torch.equal(torch.ops.firstlight.rotate(x, cos, sin, None, 32, 0.0, False), plain)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", range(4))
def test_gates_are_torchs_from_small_to_large(
    kernels: Kernels, dtype: torch.dtype, kind: int
) -> None:
    values = torch.cat([torch.linspace(-120, 120, 1001), torch.tensor([0.0, -0.0, 1e-30])])
    x = torch.stack([values, torch.ones_like(values)]).reshape(1, -1).to(dtype)
    gate = x[:, : len(values)]
    wanted = ACTIVATIONS[kind](gate)
    assert_close(torch.ops.firstlight.gate(x, kind), wanted)
    assert_close(torch.ops.firstlight.activate(gate, kind), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_gates_multiply_every_column_with_its_own(
    kernels: Kernels, dtype: torch.dtype, width: int
) -> None:
    for rows in ROWS:
        x = randn(rows, 2 * width, dtype=dtype)
        found = torch.ops.firstlight.gate(x, 0)
        assert_close(found, silu(x[:, :width]) * x[:, width:])


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_is_so_where_torch_has_it(
    kernels: Kernels, dtype: torch.dtype, kind: int
) -> None:
    bad = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    x = torch.cat([bad, torch.ones(4)])[None].to(dtype)
    wanted = ACTIVATIONS[kind](x[:, :4])
    found = torch.ops.firstlight.gate(x, kind)
    assert torch.equal(found.isfinite(), wanted.isfinite())
    assert found[0, 0].isnan()
    assert found[0, 1] == float("inf")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bad_row_of_a_norm_harms_no_other(kernels: Kernels, dtype: torch.dtype) -> None:
    x, weight = randn(10, 40, dtype=dtype), randn(40, dtype=dtype)
    clean = torch.ops.firstlight.rms_norm(x, weight, 1e-5, False)
    x[4, 39], x[6, 0] = float("nan"), float("inf")
    found = torch.ops.firstlight.rms_norm(x, weight, 1e-5, False)
    wanted = norm(x, weight, 1e-5, False)
    assert torch.equal(found.isnan(), wanted.isnan())
    others = [i for i in range(10) if i not in (4, 6)]
    assert torch.equal(found[others], clean[others])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 5), (9, 17), (2, 3, 33), (70,), (0, 4), (4, 0)])
def test_sums_have_torchs_bits(
    kernels: Kernels, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    a, b = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype, seed=2)
    out = torch.empty_like(a)
    call = add_call(a, b, out)
    assert call is not None
    kernels.run(call)
    assert torch.equal(out, a + b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tiny", [1e-40, 3e-39])
def test_sums_have_torchs_bits_below_the_normal_numbers_too(
    kernels: Kernels, dtype: torch.dtype, tiny: float
) -> None:
    a = (torch.arange(1, 65, dtype=torch.float32).view(2, 32) * tiny).to(dtype)
    y = torch.empty_like(a)
    call = add_call(a, a, y)
    assert call is not None
    kernels.run(call)
    assert (y != 0).all()
    assert torch.equal(y, a + a)

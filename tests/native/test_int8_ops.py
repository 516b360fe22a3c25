"""Linear layers in whole numbers, against exact sums of what rows and weights are rounded to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.native import Kernels, NativeLowering, PackedWeight, WeightFormat
from tests.native.readers import read

F32, BF16 = torch.float32, torch.bfloat16
CODES = [(d, f) for d in (F32, BF16) for f in (WeightFormat.INT8, WeightFormat.INT4)]
ROWS = (1, 2, 3, 7, 8, 9, 16, 63, 64, 65, 130)


def linear_int8(x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    y: Tensor = torch.ops.firstlight.linear_int8(
        x, weight.data, bias, int(weight.format), weight.out_features
    )
    return y


def randn(*shape: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rounded_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """float64 ``[rows, K]``: each block of 32 as whole steps of a 127th of its largest value; and
    the steps of those that lie so near the middle of two that either is right."""
    blocks = x.double().reshape(len(x), x.shape[1] // 32, 32)
    step = blocks.abs().amax(-1, keepdim=True).float() / 127
    scaled = blocks / torch.where(step > 0, step, 1.0)
    near = (scaled - scaled.floor() - 0.5).abs() < 1e-4
    values, slack = scaled.round() * step.double(), near * step.double()
    return values.reshape(x.shape), slack.reshape(x.shape)


def assert_close(y: Tensor, x: Tensor, w: Tensor, bias: Tensor | None = None) -> None:
    """Within the rounding of the result, and of float32 sums of blocks."""
    rounded, slack = rounded_rows(x)
    want = rounded @ w.T + (0 if bias is None else bias.double())
    size = (rounded.abs() + slack) @ w.abs().T + 1e-30
    eps = 2**-8 if y.dtype is BF16 else 2**-23
    assert y.shape == want.shape
    assert ((y.double() - want).abs() <= eps * want.abs() + 4e-6 * size + slack @ w.abs().T).all()


@pytest.mark.parametrize(("dtype", "format"), CODES)
@pytest.mark.parametrize(("n", "k"), [(1, 32), (15, 64), (33, 96), (97, 32), (112, 288)])
def test_every_row_count_gives_the_product_of_rounded_rows(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat, n: int, k: int
) -> None:
    weight = kernels.pack(randn(n, k, dtype=dtype, seed=2), format)
    held, bias = read(weight), randn(n, dtype=dtype, seed=3)
    for rows in ROWS:
        x = randn(rows, k, dtype=dtype)
        assert_close(linear_int8(x, weight), x, held)
        assert_close(linear_int8(x, weight, bias), x, held, bias)


@pytest.mark.parametrize(("dtype", "format"), CODES)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat
) -> None:
    weight = kernels.pack(randn(112, 256, dtype=dtype, seed=2), format)
    x = randn(130, 256, dtype=dtype)
    alone = torch.cat([linear_int8(row[None], weight) for row in x])
    for rows in ROWS:
        for start in (0, 130 - rows):
            part = linear_int8(x[start : start + rows], weight)
            assert torch.equal(part, alone[start : start + rows]), rows


@pytest.mark.parametrize("format", [WeightFormat.INT8, WeightFormat.INT4])
def test_the_largest_codes_of_both_sides_are_summed_exactly(
    kernels: Kernels, format: WeightFormat
) -> None:
    """Sums of 16 bits would overflow: every code is the largest there is, with either sign."""
    steps = torch.full((32, 64), 127.0)
    steps[::2] = -127.0
    if format is WeightFormat.INT4:
        steps = torch.full((32, 64), 15.0)
        steps[:, ::32] = 0.0
    weight = kernels.pack(steps, format)
    for sign in (1.0, -1.0):
        x = torch.full((9, 64), sign * 127.0)
        assert torch.equal(linear_int8(x, weight).double(), x.double() @ read(weight).T)


@pytest.mark.parametrize(("dtype", "format"), CODES)
@pytest.mark.parametrize("value", [0.0, 1e-38, 1e-30, 1e36])
def test_rows_of_any_size_keep_it(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat, value: float
) -> None:
    weight = kernels.pack(torch.eye(32).to(dtype), format)
    x = torch.full((2, 32), value).to(dtype)
    y = linear_int8(x, weight).double()
    assert torch.allclose(y, x.double(), rtol=1e-2, atol=2e-36)


@pytest.mark.parametrize(("dtype", "format"), CODES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_in_its_row_and_shows_there(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat, bad: float
) -> None:
    weight, x = kernels.pack(randn(20, 64, dtype=dtype), format), randn(12, 64, dtype=dtype)
    clean = linear_int8(x, weight)
    x[3, 40] = bad
    y = linear_int8(x, weight)
    assert not y[3].isfinite().any()
    others = [i for i in range(12) if i != 3]
    assert torch.equal(y[others], clean[others])


def test_rows_may_lie_apart(kernels: Kernels) -> None:
    weight, wide = (
        kernels.pack(randn(20, 64, dtype=F32), WeightFormat.INT4),
        randn(11, 200, dtype=F32),
    )
    for x in (wide[:, 7:71], wide[::2, :64], wide[:, :64].expand(2, 11, 64), wide.T[:64, :].T):
        assert torch.equal(linear_int8(x, weight), linear_int8(x.contiguous(), weight))


@pytest.mark.parametrize("shape", [(64,), (0, 64), (2, 0, 64), (2, 3, 64)])
def test_any_number_of_axes_and_no_rows_at_all(kernels: Kernels, shape: tuple[int, ...]) -> None:
    weight, x = kernels.pack(randn(20, 64, dtype=F32), WeightFormat.INT8), randn(*shape, dtype=F32)
    y = linear_int8(x, weight)
    assert y.shape == (*shape[:-1], 20)
    assert_close(y.reshape(-1, 20), x.reshape(-1, 64), read(weight))


@pytest.mark.parametrize("format", [WeightFormat.FLOAT32, WeightFormat.BFLOAT16])
def test_weights_without_codes_are_refused_by_name(kernels: Kernels, format: WeightFormat) -> None:
    dtype = F32 if format is WeightFormat.FLOAT32 else BF16
    weight = kernels.pack(torch.zeros(16, 32, dtype=dtype))
    with pytest.raises(ValueError, match=f"format is {format.name}; accepted: INT8, INT4"):
        linear_int8(torch.zeros(1, 32, dtype=dtype), weight)


def test_a_weight_of_other_sizes_is_refused(kernels: Kernels) -> None:
    weight: Any = kernels.pack(torch.zeros(16, 64), WeightFormat.INT8)
    with pytest.raises(ValueError, match="weight is"):
        linear_int8(torch.zeros(1, 32), weight)


def test_a_program_computes_the_bits_of_the_operation(kernels: Kernels) -> None:
    weight = kernels.pack(randn(33, 96, dtype=BF16), WeightFormat.INT4)
    x, out = randn(9, 96, dtype=BF16, seed=5), torch.zeros(9, 33, dtype=BF16)
    arguments = (x, weight.data, None, int(weight.format), 33)
    lowering = NativeLowering(kernels)
    found = lowering.lower("firstlight.linear_int8.default", arguments, [out])
    assert found is not None
    lowering.program(found)()
    assert torch.equal(out, linear_int8(x, weight))

"""Linear layers against float64, over odd sizes, strides and formats."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.native import Kernels, PackedWeight, WeightFormat
from tests.native.readers import read

F32, BF16 = torch.float32, torch.bfloat16
PLAIN = [(F32, None), (BF16, None)]
FORMATS = PLAIN + [(d, f) for d in (F32, BF16) for f in (WeightFormat.INT8, WeightFormat.INT4)]
ROWS = (1, 2, 3, 7, 8, 9, 16, 63, 64, 65, 130)


def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    y: Tensor = torch.ops.firstlight.linear(
        x, weight.data, bias, int(weight.format), weight.out_features
    )
    return y


def randn(*shape: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(y: Tensor, x: Tensor, w: Tensor, bias: Tensor | None = None) -> None:
    """Within the rounding of the result, and of float32 sums of its terms."""
    want = x.double() @ w.T + (0 if bias is None else bias.double())
    size = x.double().abs() @ w.abs().T + 1e-30
    eps = 2**-8 if y.dtype is BF16 else 2**-23
    assert y.shape == want.shape
    assert ((y.double() - want).abs() <= eps * want.abs() + 4e-6 * size).all()


@pytest.mark.parametrize(("dtype", "format"), FORMATS)
@pytest.mark.parametrize(("n", "k"), [(1, 32), (15, 64), (33, 96), (97, 32), (112, 288)])
def test_every_row_count_gives_the_product(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat | None, n: int, k: int
) -> None:
    weight = kernels.pack(randn(n, k, dtype=dtype, seed=2), format)
    held, bias = read(weight), randn(n, dtype=dtype, seed=3)
    for rows in ROWS:
        x = randn(rows, k, dtype=dtype)
        assert_close(linear(x, weight), x, held)
        assert_close(linear(x, weight, bias), x, held, bias)


@pytest.mark.parametrize(("dtype", "format"), PLAIN)
@pytest.mark.parametrize("k", [2, 4, 30, 34, 1000])
def test_inputs_need_not_fill_blocks_without_codes(
    kernels: Kernels, dtype: torch.dtype, format: None, k: int
) -> None:
    weight, x = kernels.pack(randn(20, k, dtype=dtype)), randn(9, k, dtype=dtype, seed=4)
    assert_close(linear(x, weight), x, read(weight))


@pytest.mark.parametrize(("dtype", "format"), FORMATS)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat | None
) -> None:
    weight = kernels.pack(randn(112, 256, dtype=dtype, seed=2), format)
    x = randn(130, 256, dtype=dtype)
    alone = torch.cat([linear(row[None], weight) for row in x])
    for rows in ROWS:
        for start in (0, 130 - rows):
            part = linear(x[start : start + rows], weight)
            assert torch.equal(part, alone[start : start + rows]), rows


@pytest.mark.parametrize(("dtype", "format"), FORMATS)
def test_nan_and_infinity_stay_in_their_row(
    kernels: Kernels, dtype: torch.dtype, format: WeightFormat | None
) -> None:
    weight, x = kernels.pack(randn(20, 64, dtype=dtype), format), randn(12, 64, dtype=dtype)
    clean = linear(x, weight)
    x[3, 40], x[9, 7] = float("nan"), float("inf")
    y = linear(x, weight)
    assert y[3].isnan().all()
    assert not y[9].isfinite().any()
    others = [i for i in range(12) if i not in (3, 9)]
    assert torch.equal(y[others], clean[others])


@pytest.mark.parametrize("format", [None, WeightFormat.INT4])
def test_rows_may_lie_apart(kernels: Kernels, format: WeightFormat | None) -> None:
    weight, wide = kernels.pack(randn(20, 64, dtype=F32), format), randn(11, 200, dtype=F32)
    for x in (wide[:, 7:71], wide[::2, :64], wide[:, :64].expand(2, 11, 64), wide.T[:11, :].T):
        if x.shape[-1] == 64:
            assert torch.equal(linear(x, weight), linear(x.contiguous(), weight))


def test_columns_that_are_not_neighbours_are_copied_first(kernels: Kernels) -> None:
    weight, x = kernels.pack(randn(20, 64, dtype=F32)), randn(64, 11, dtype=F32).T
    assert torch.equal(linear(x, weight), linear(x.contiguous(), weight))


@pytest.mark.parametrize("shape", [(64,), (0, 64), (2, 0, 64), (2, 3, 64)])
def test_any_number_of_axes_and_no_rows_at_all(kernels: Kernels, shape: tuple[int, ...]) -> None:
    weight, x = kernels.pack(randn(20, 64, dtype=F32)), randn(*shape, dtype=F32)
    y = linear(x, weight)
    assert y.shape == (*shape[:-1], 20)
    assert torch.allclose(y, x @ read(weight).float().T, atol=1e-4)


def test_nothing_is_written_beyond_the_last_output(kernels: Kernels) -> None:
    from firstlight.native.calls import linear_call

    weight, x = kernels.pack(randn(17, 32, dtype=F32)), randn(9, 32, dtype=F32)
    room = torch.full((10, 40), 7.0)
    kernels.run(linear_call(x, weight.data, None, int(weight.format), room[:9, 3:20]))
    assert torch.equal(room[:9, 3:20], linear(x, weight))
    room[:9, 3:20] = 7.0
    assert (room == 7.0).all()

"""How weights are laid out and rounded."""

from __future__ import annotations

import pytest
import torch

from firstlight.native import Kernels, WeightFormat, can_pack
from firstlight.native.checks import panel_bytes
from tests.native.readers import read, rounded_int8

CODES = [WeightFormat.INT8, WeightFormat.INT4]


def random_weight(n: int, k: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 2), (16, 64), (17, 6), (40, 130)])
def test_plain_weights_stand_where_the_layout_says(
    kernels: Kernels, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    weight = random_weight(*shape, dtype)
    packed = kernels.pack(weight)
    assert packed.data.numel() == -(-shape[0] // 16) * panel_bytes(packed.format, shape[1])
    assert torch.equal(read(packed), weight.double())


@pytest.mark.parametrize("format", CODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 32), (19, 96)])
def test_codes_stand_where_the_layout_says_and_unpack_to_the_same(
    kernels: Kernels, dtype: torch.dtype, shape: tuple[int, int], format: WeightFormat
) -> None:
    packed = kernels.pack(random_weight(*shape, dtype), format)
    assert packed.data.numel() == -(-shape[0] // 16) * panel_bytes(format, shape[1])
    assert torch.equal(kernels.unpack(packed), read(packed).to(dtype))


def test_int8_codes_are_those_of_q8_0(kernels: Kernels) -> None:
    weight = random_weight(33, 128, torch.float32)
    assert torch.equal(
        kernels.unpack(kernels.pack(weight, WeightFormat.INT8)), rounded_int8(weight)
    )


@pytest.mark.parametrize("format", CODES)
def test_each_value_is_off_by_half_a_step_of_its_block_at_most(
    kernels: Kernels, format: WeightFormat
) -> None:
    weight = random_weight(48, 320, torch.float32) * 0.05
    blocks = weight.view(48, 10, 32)
    if format is WeightFormat.INT8:
        step = blocks.abs().amax(2) / 127
    else:
        step = (blocks.amax(2) - blocks.amin(2)) / 15
    off = (kernels.unpack(kernels.pack(weight, format)) - weight).view(48, 10, 32).abs().amax(2)
    # Scale and least value are themselves rounded to float16.
    assert (off <= step * 0.5 + blocks.abs().amax(2) * 2**-10).all()


@pytest.mark.parametrize("format", CODES)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-9, 65504.0])
def test_a_block_of_one_value_keeps_it_as_float16_does(
    kernels: Kernels, format: WeightFormat, value: float
) -> None:
    weight = torch.full((16, 32), value)
    found = kernels.unpack(kernels.pack(weight, format))
    assert torch.allclose(found, weight, rtol=2**-9, atol=127 * 2**-25)


@pytest.mark.parametrize("format", CODES)
def test_rounding_what_was_rounded_changes_little(kernels: Kernels, format: WeightFormat) -> None:
    once = kernels.unpack(kernels.pack(random_weight(16, 64, torch.float32), format))
    again = kernels.unpack(kernels.pack(once, format))
    assert torch.allclose(once, again, atol=2e-3)


@pytest.mark.parametrize("format", CODES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 7e4])
def test_values_that_codes_cannot_hold_are_refused(
    kernels: Kernels, format: WeightFormat, bad: float
) -> None:
    weight = torch.zeros(16, 32)
    weight[3, 5] = bad
    with pytest.raises(ValueError, match=f"cannot be stored as {format.name}"):
        kernels.pack(weight, format)


def test_a_weight_without_outputs_packs_to_nothing(kernels: Kernels) -> None:
    assert kernels.pack(torch.zeros(0, 32), WeightFormat.INT4).data.numel() == 0


@pytest.mark.parametrize(
    ("weight", "format"),
    [
        (torch.zeros(4, 3), None),
        (torch.zeros(4, 48), WeightFormat.INT8),
        (torch.zeros(4, 32, dtype=torch.float16), None),
        (torch.zeros(4, 4, 32), None),
        (torch.zeros(4, 32, dtype=torch.int32), WeightFormat.INT4),
    ],
)
def test_what_kernels_do_not_take_is_refused_with_its_shape(
    kernels: Kernels, weight: torch.Tensor, format: WeightFormat | None
) -> None:
    assert not can_pack(weight, format)
    with pytest.raises(ValueError, match="cannot be packed"):
        kernels.pack(weight, format)


def test_a_transposed_weight_packs_as_its_values(kernels: Kernels) -> None:
    weight = random_weight(64, 32, torch.float32).T
    assert torch.equal(kernels.pack(weight).data, kernels.pack(weight.contiguous()).data)

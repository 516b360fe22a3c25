"""Attention within segments, and LayerNorm, against torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from firstlight.graphs import TapeBackend
from firstlight.native import Kernels, NativeLowering, can_attend_segments
from tests.graphs.tape import capture, refresh
from tests.native.test_elementwise import DTYPES, WIDTHS, assert_close, randn

BOUNDS = [[0, 5], [0, 64, 128], [0, 1, 2, 70, 70, 171], [0, 96, 192, 200], [3, 40, 90]]
HEADS = [(64, 64), (8, 8), (32, 32), (80, 80), (72, 72), (16, 130), (512, 16)]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
Rotary = tuple[Tensor | None, Tensor | None]


def heads(rows: int, dims: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of three heads that lie in wider rows."""
    key_dim, value_dim = dims
    q, k = (randn(rows, 3, key_dim + 1, dtype=dtype, seed=i)[:, :, :key_dim] for i in (1, 2))
    return q, k, randn(rows, 3, value_dim, dtype=dtype, seed=3)


def rotary(rows: int, dim: int) -> tuple[Tensor, Tensor]:
    angles = randn(rows, dim // 2, dtype=torch.float32, seed=4).repeat(1, 2)
    return angles.cos(), angles.sin()


def attend(q: Tensor, k: Tensor, v: Tensor, turn: Rotary, bounds: Tensor) -> Tensor:
    found: Tensor = torch.ops.firstlight.attend_segments(
        q, k, v, *turn, bounds, 0, q.shape[2] ** -0.5
    )
    return found


def wanted(q: Tensor, k: Tensor, v: Tensor, turn: Rotary, bounds: list[int]) -> Tensor:
    dtype, (q, k, v) = q.dtype, (q.float(), k.float(), v.float())
    cos, sin = turn
    if cos is not None and sin is not None:
        half = q.shape[2] // 2
        q, k = (
            (x * cos[:, None] + torch.cat((-x[..., half:], x[..., :half]), -1) * sin[:, None])
            .to(dtype)
            .float()
            for x in (q, k)
        )
    out = torch.zeros_like(v)
    for begin, end in pairwise(bounds):
        a, b, c = (t[begin:end].transpose(0, 1) for t in (q, k, v))
        out[begin:end] = scaled_dot_product_attention(a, b, c).transpose(0, 1)
    return out.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", HEADS)
@pytest.mark.parametrize("turned", [False, True])
def test_each_row_attends_to_its_own_segment(
    kernels: Kernels, dtype: torch.dtype, dims: tuple[int, int], turned: bool
) -> None:
    for bounds in BOUNDS:
        rows = bounds[-1] + 3
        q, k, v = heads(rows, dims, dtype)
        turn: Rotary = rotary(rows, dims[0]) if turned else (None, None)
        found = attend(q, k, v, turn, torch.tensor(bounds, dtype=torch.int32))
        expected = wanted(q, k, v, turn, bounds)
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
        assert not found[: bounds[0]].any()
        assert not found[bounds[-1] :].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_segment_has_the_same_bits_wherever_it_stands(
    kernels: Kernels, dtype: torch.dtype
) -> None:
    q, k, v = heads(150, (64, 64), dtype)
    turn = rotary(150, 64)
    alone = attend(q, k, v, turn, torch.tensor([0, 150], dtype=torch.int32))
    before = [torch.cat((randn(37, *t.shape[1:], dtype=t.dtype), t)) for t in (q, k, v, *turn)]
    bounds = torch.tensor([0, 30, 37, 187, 187], dtype=torch.int32)
    found = attend(before[0], before[1], before[2], (before[3], before[4]), bounds)
    assert torch.equal(found[37:], alone)


def test_equal_segments_need_no_bounds(kernels: Kernels) -> None:
    q, k, v = heads(60, (32, 32), torch.float32)
    bounds = torch.arange(0, 61, 20, dtype=torch.int32)
    found = torch.ops.firstlight.attend_segments(q, k, v, None, None, None, 20, 32**-0.5)
    assert torch.equal(found, attend(q, k, v, (None, None), bounds))


@pytest.mark.parametrize("bounds", [[0, 70, 20], [-5, 30, 900], [60, 0, 60], [7, 7, 7]])
def test_bounds_that_are_none_read_nothing_beyond_the_rows(
    kernels: Kernels, bounds: list[int]
) -> None:
    q, k, v = heads(60, (32, 32), torch.bfloat16)
    found = attend(q, k, v, (None, None), torch.tensor(bounds, dtype=torch.int32))
    assert found.shape == (60, 3, 32)


def test_a_row_that_is_not_a_number_spoils_its_own_segment_only(kernels: Kernels) -> None:
    q, k, v = heads(200, (64, 64), torch.bfloat16)
    for t in (q, k, v):
        t[100:] = float("nan")
    bounds = torch.tensor([0, 100, 200], dtype=torch.int32)
    found = attend(q, k, v, (None, None), bounds)
    assert not found[:100].isnan().any()
    assert found[100:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_layer_norm_is_torchs(kernels: Kernels, dtype: torch.dtype, width: int) -> None:
    weight, bias = randn(width, dtype=dtype, seed=2), randn(width, dtype=dtype, seed=3)
    for rows in (0, 1, 9, 30):
        x = randn(rows, width + 3, dtype=dtype)[:, 1 : width + 1]
        for w, b in ((weight, bias), (weight, None), (None, None)):
            found = torch.ops.firstlight.layer_norm(x, w, b, 1e-5)
            assert_close(found, layer_norm(x, (width,), w, b, 1e-5))


Q = torch.zeros(6, 2, 8)
TABLE = torch.zeros(6, 8)
ENDS = torch.tensor([0, 6], dtype=torch.int32)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((Q.half(), Q, Q, None, None, ENDS, 0), "q is torch.float16"),
        ((Q[..., :7], Q, Q, None, None, ENDS, 0), "q is"),
        ((Q, Q[:5], Q, None, None, ENDS, 0), "k is"),
        ((Q, Q[..., :6], Q, None, None, ENDS, 0), "k is"),
        ((Q, Q, Q[:, :1], None, None, ENDS, 0), "v is"),
        ((Q, Q.bfloat16(), Q, None, None, ENDS, 0), "k is"),
        ((Q, Q, Q.transpose(1, 2).contiguous().transpose(1, 2), None, None, ENDS, 0), "v is"),
        ((Q, Q, Q, TABLE, None, ENDS, 0), "sin is"),
        ((Q, Q, Q, TABLE[:5], TABLE, ENDS, 0), "cos is"),
        ((Q, Q, Q, TABLE, TABLE.bfloat16(), ENDS, 0), "sin is"),
        ((Q, Q, Q, None, None, ENDS.long(), 0), "bounds is"),
        ((Q, Q, Q, None, None, ENDS[:1], 0), "bounds is"),
        ((Q, Q, Q, None, None, None, 4), "rows_each is 4"),
        ((Q, Q, Q, None, None, None, 0), "rows_each is 0"),
    ],
)
def test_attention_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.attend_segments(*arguments, 1.0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((torch.zeros(2, 8).half(), None, None), "x is torch.float16"),
        ((torch.zeros(2, 8), torch.zeros(7), None), "weight is"),
        ((torch.zeros(2, 8), torch.zeros(8), torch.zeros(8).bfloat16()), "bias is"),
    ],
)
def test_layer_norm_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.layer_norm(*arguments, 1e-5)


def test_odd_heads_are_not_for_the_kernel() -> None:
    assert can_attend_segments(torch.bfloat16, 72)
    assert not can_attend_segments(torch.bfloat16, 71)
    assert not can_attend_segments(torch.float16, 64)
    assert not can_attend_segments(torch.float32, 514)


def test_bounds_are_read_at_each_replay(kernels: Kernels) -> None:
    q, _, _ = heads(90, (16, 16), torch.float32)
    bounds = torch.tensor([0, 20, 90], dtype=torch.int32)
    weight = randn(16, dtype=torch.float32)

    def body() -> Tensor:
        x = torch.ops.firstlight.layer_norm(q, weight, None, 1e-6)
        x = torch.ops.firstlight.activate(x, 2)
        found = torch.ops.firstlight.attend_segments(x, q, q, None, None, bounds, 0, 0.25)
        return cast(Tensor, found * 1)

    slots, backend = {"q": q, "bounds": bounds}, TapeBackend(lowering=NativeLowering(kernels))
    graph = capture(body, slots=slots, weights={"weight": weight}, backend=backend)
    assert [step.form for step in graph.steps[:3]] == ["native"] * 3
    for middle in (20, 0, 64, 90):
        bounds[1] = middle
        refresh(q, middle)
        assert torch.equal(graph.replay(), body())

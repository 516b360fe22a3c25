"""Arguments that would make a kernel read or write elsewhere are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from firstlight.native import Kernels, WeightFormat
from firstlight.native.checks import panel_bytes
from tests.native.attention_cases import Case, Memory

X = torch.zeros(3, 64)
W = torch.zeros(2 * panel_bytes(WeightFormat.FLOAT32, 64), dtype=torch.uint8)
ROTARY = torch.zeros(1, 3, 32)


@pytest.mark.parametrize("format", list(WeightFormat))
def test_sizes_of_panels_are_the_librarys(kernels: Kernels, format: WeightFormat) -> None:
    assert panel_bytes(format, 96) == kernels._library.fl_panel_bytes(int(format), 96)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((X.half(), W, None, 0, 20), "x is torch.float16"),
        ((X.bool(), W, None, 0, 20), "x is torch.bool"),
        ((torch.zeros(()), W, None, 0, 20), "x is"),
        ((X.bfloat16(), W, None, 0, 20), "x is torch.bfloat16"),
        ((X[:, :62], W, None, 0, 20), "weight is"),
        ((X[:, :63], W, None, 0, 20), "columns of x is 63"),
        ((X[:, :48], W, None, 3, 20), "columns of x is 48"),
        ((X, W, None, 0, 33), "weight is"),
        ((X, W.view(torch.float32), None, 0, 20), "weight is"),
        ((X, W[::2], None, 0, 20), "weight is"),
        ((X, W, torch.zeros(19), 0, 20), "bias is"),
        ((X, W, torch.zeros(20).bfloat16(), 0, 20), "bias is"),
        ((X, W, torch.zeros(40)[::2], 0, 20), "bias is"),
    ],
)
def test_linear_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.linear(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((X, torch.zeros(63), 1e-5, False), "weight is"),
        ((X, torch.zeros(64).bfloat16(), 1e-5, False), "weight is"),
        ((X.bfloat16(), torch.zeros(64).bfloat16(), 1e-5, True), "weight is"),
        ((X.double(), torch.zeros(64).double(), 1e-5, False), "x is torch.float64"),
    ],
)
def test_rms_norm_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.rms_norm(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((X, ROTARY[:, :2], ROTARY, None, 32, 0.0, False), "cos is"),
        ((X, ROTARY, ROTARY[..., :16], None, 32, 0.0, False), "sin is"),
        ((X, ROTARY.bfloat16(), ROTARY, None, 32, 0.0, False), "cos is"),
        ((X, ROTARY, ROTARY, torch.zeros(3, 32), 32, 0.0, False), "weight is"),
        ((X[:, :60], ROTARY, ROTARY, None, 32, 0.0, False), "x is"),
        ((X, ROTARY, ROTARY, None, 31, 0.0, False), "head_dim is 31"),
        ((X, ROTARY, ROTARY, None, 2048, 0.0, False), "head_dim is 2048"),
        ((X.T, ROTARY, ROTARY, None, 32, 0.0, False), "x is"),
    ],
)
def test_rotate_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.rotate(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"), [((X[:, :63], 0), "columns of x is 63"), ((X, 4), "kind is 4")]
)
def test_gate_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.gate(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"), [((X.half(), 0), "x is torch.float16"), ((X, -1), "kind is -1")]
)
def test_activate_refuses_what_does_not_fit(
    kernels: Kernels, arguments: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.activate(*arguments)


@pytest.mark.parametrize(
    ("index", "change", "name"),
    [
        (0, lambda t: t.double(), "q is torch.float64"),
        (0, lambda t: t[:, :5], "heads is 5"),
        (0, lambda t: t.repeat(1, 1, 9), "q is"),
        (1, lambda t: t[..., :62], "k is"),
        (2, lambda t: t.transpose(1, 2).contiguous().transpose(1, 2), "v is"),
        (3, lambda t: t[:, :8], "k_pool is"),
        (4, lambda t: t.bfloat16(), "v_pool is"),
        (4, lambda t: t[:, ::2], "v_pool is"),
        (5, lambda t: t.int(), "write_locations is"),
        (5, lambda t: t[:-1], "write_locations is"),
        (6, lambda t: t.long(), "page_table is"),
        (7, lambda t: t[:, :3], "attention_rows is"),
        (8, lambda t: torch.zeros(2, 2, dtype=torch.int64), "block_bounds is"),
        (9, lambda t: t.transpose(0, 1).contiguous().transpose(0, 1), "out is"),
    ],
)
def test_attention_refuses_what_does_not_fit(
    kernels: Kernels, index: int, change: Any, name: str
) -> None:
    memory = Memory(Case(((9, 21), (1, 18))))
    arguments = list(memory.arguments(memory.out()))
    arguments[index] = change(arguments[index])
    with pytest.raises(ValueError, match=name):
        torch.ops.firstlight.attend_rows(*arguments)

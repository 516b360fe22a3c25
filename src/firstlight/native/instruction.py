"""Operations as the compiled library takes them, see ``source/instruction.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import torch
from torch import Tensor


class Op(IntEnum):
    """What an instruction computes; the C++ kernels say which numbers and addresses each takes."""

    LINEAR = 0
    RMS_NORM = 1
    ROTATE = 2
    GATE = 3
    ADD = 4
    STORE_KV = 5
    ATTEND = 6
    MERGE_SPLITS = 7
    ATTEND_TILES = 8
    PACK = 9
    UNPACK = 10
    ACTIVATE = 11
    ROUND_ROWS = 12
    LINEAR_INT8 = 13
    LAYER_NORM = 20
    LAY_OUT_SEGMENTS = 21
    ATTEND_SEGMENTS = 22


class Instruction(ctypes.Structure):
    """One operation with its sizes, scalars and addresses."""

    _fields_ = (
        ("op", ctypes.c_int32),
        ("is_bf16", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("pieces", ctypes.c_uint32),
        ("n", ctypes.c_int64 * 16),
        ("f", ctypes.c_double * 4),
        ("p", ctypes.c_void_p * 12),
    )

    kept: tuple[Tensor | None, ...]
    """The tensors behind the addresses, so that they live as long as the instruction."""


def instruction(
    op: Op,
    tensors: Sequence[Tensor | None],
    numbers: Sequence[int],
    scalars: Sequence[float] = (),
    *,
    dtype: torch.dtype,
    kind: int = 0,
) -> Instruction:
    """Fill in an instruction.

    Args:
        tensors: what the addresses point at, None for null.
        dtype: float32 or bfloat16, of the activations.
    """
    made = Instruction(op=int(op), is_bf16=int(dtype is torch.bfloat16), kind=kind)
    made.n[: len(numbers)] = list(numbers)
    made.f[: len(scalars)] = list(scalars)
    made.p[: len(tensors)] = [None if t is None else t.data_ptr() for t in tensors]
    made.kept = tuple(tensors)
    return made


def array_of(instructions: Sequence[Instruction]) -> Any:
    """The instructions side by side, as a program has them."""
    return (Instruction * len(instructions))(*instructions)


class Runner(Protocol):
    """What runs instructions."""

    def run(self, *instructions: Instruction) -> None:
        """Run them once, in order."""
        ...


def result_of(outs: Sequence[Tensor | None]) -> Tensor:
    """Where a recorded operation of one result writes it."""
    assert outs[0] is not None, "the result of an operation that is read has a place"
    return outs[0]

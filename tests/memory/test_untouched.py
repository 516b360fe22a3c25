"""Zeros that are resident only where they were written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from firstlight.memory.untouched import untouched_zeros

MIB = 1 << 20
CPU = torch.device("cpu")
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read in /proc")


def resident() -> int:
    """Bytes of this process that no file holds."""
    status = Path("/proc/self/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_all_values_are_zero_and_can_be_written() -> None:
    made = untouched_zeros((3, 5), torch.bfloat16, CPU)
    assert made.shape == (3, 5)
    assert made.dtype is torch.bfloat16
    assert made.is_contiguous()
    assert not made.any()
    made[1] = 2
    assert made.sum() == 10


def test_a_tensor_of_no_elements_is_one() -> None:
    assert untouched_zeros((0, 4), torch.float32, CPU).shape == (0, 4)


@needs_proc
def test_only_what_was_written_is_resident() -> None:
    before = resident()
    made = untouched_zeros((64, MIB), torch.uint8, CPU)
    assert resident() - before < 8 * MIB
    made[:16] = 1
    assert 12 * MIB < resident() - before < 24 * MIB


@needs_proc
def test_reading_makes_nothing_resident() -> None:
    made = untouched_zeros((64, MIB), torch.uint8, CPU)
    before = resident()
    assert not any(bool(row.any()) for row in made)
    assert resident() - before < 8 * MIB


@needs_proc
def test_memory_goes_with_the_last_view() -> None:
    made = untouched_zeros((64, MIB), torch.uint8, CPU)
    made.fill_(1)
    view = made[5, :10]
    full = resident()
    del made
    assert view.sum() == 10
    del view
    assert full - resident() > 48 * MIB


def test_what_the_system_refuses_is_said_with_its_bytes() -> None:
    with pytest.raises(MemoryError, match=str(1 << 60)):
        untouched_zeros((1 << 60,), torch.uint8, CPU)

"""Packed weights lie behind each other, each a storage of its own."""

from __future__ import annotations

import gc
import mmap
import weakref
from pathlib import Path

import pytest
import torch

from firstlight.native import weight_memory
from firstlight.native.weight_memory import LARGE_PAGE, WeightMemory

SMAPS = Path("/proc/self/smaps")
HAS_LARGE_PAGES = SMAPS.is_file() and Path("/sys/kernel/mm/transparent_hugepage").is_dir()


def test_the_first_begins_with_a_large_page_and_the_next_on_the_line_behind_it() -> None:
    memory = WeightMemory()
    first, second = memory.take(100), memory.take(7)
    assert first.data_ptr() % LARGE_PAGE == 0
    assert second.data_ptr() - first.data_ptr() == 128
    assert not first.any()
    assert not second.any()


def flags_at(address: int) -> list[str]:
    """VmFlags of the mapping that holds an address, see proc_pid_smaps(5)."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        span = line.partition(" ")[0]
        if "-" in span and ":" not in span:
            start, end = (int(part, 16) for part in span.split("-"))
            inside = start <= address < end
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


@pytest.mark.skipif(not HAS_LARGE_PAGES, reason="this system has no large pages")
def test_the_system_is_asked_for_large_pages() -> None:
    assert "hg" in flags_at(WeightMemory().take(100).data_ptr())
    assert "hg" not in flags_at(torch.zeros(4 * LARGE_PAGE, dtype=torch.uint8).data_ptr())


def test_each_counts_its_own_bytes_and_writes_nowhere_else() -> None:
    memory = WeightMemory()
    first, second = memory.take(64), memory.take(64)
    assert (first.untyped_storage().nbytes(), first.storage_offset()) == (64, 0)
    first.fill_(7)
    assert not second.any()


def test_what_no_chunk_has_room_for_gets_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_memory, "_CHUNK", LARGE_PAGE)
    memory = WeightMemory()
    small, large = memory.take(64), memory.take(3 * LARGE_PAGE)
    assert large.data_ptr() % LARGE_PAGE == 0
    large[-1] = 1
    assert not small.any()


def test_a_chunk_goes_with_its_last_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[weakref.ref[object]] = []

    class Chunk(mmap.mmap):
        pass

    def fresh(n_bytes: int) -> mmap.mmap:
        opened.append(weakref.ref(chunk := Chunk(-1, n_bytes)))
        return chunk

    monkeypatch.setattr(weight_memory, "fresh_pages", fresh)
    memory = WeightMemory()
    kept, other = memory.take(64), memory.take(64)
    del memory, other
    gc.collect()
    assert opened[0]() is not None
    assert torch.equal(kept, torch.zeros(64, dtype=torch.uint8))
    del kept
    gc.collect()
    assert opened[0]() is None


def test_a_system_that_refuses_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(n_bytes: int) -> mmap.mmap:
        raise OSError("no room")

    monkeypatch.setattr(weight_memory, "fresh_pages", refuse)
    with pytest.raises(MemoryError, match="bytes: no room"):
        WeightMemory().take(5)


def test_nothing_takes_nothing() -> None:
    assert WeightMemory().take(0).shape == (0,)

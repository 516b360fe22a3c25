"""Memory as the operating system sees it: what is mapped from files, and what may go back."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

_MAPS = Path("/proc/self/maps")
# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8

_STARTING = (512 << 10, 128 << 10)
_SERVING = (32 << 20, 64 << 20)
"""Bytes from which a block is mapped by itself, and of free heap from which some goes back. For
serving, the most that glibc comes to by itself as blocks are freed."""


def give_back_free_memory() -> None:
    """Return to the system what the C allocator keeps of freed memory, where it is glibc's.

    Captures allocate and free every intermediate once, hundreds of megabytes for a large bucket;
    the allocator would keep most of that for requests that never come.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        return
    trim(0)


def starting() -> None:
    """Map every large block by itself from now on, under glibc, so that it goes back when freed.

    A start allocates and frees intermediates and snapshots of any size between small objects that
    stay; in one heap they leave holes, which grow to more than what was ever held at a time. Each
    block costs its page faults for that: see :func:`serving`.
    """
    _set_thresholds(_STARTING)


def serving() -> None:
    """Take blocks from the heap again, under glibc: those of a step come back in every step."""
    _set_thresholds(_SERVING)


def _set_thresholds(thresholds: tuple[int, int]) -> None:
    mallopt = _mallopt()
    if mallopt is not None:
        mapped, trimmed = thresholds
        mallopt(_M_MMAP_THRESHOLD, mapped)
        mallopt(_M_TRIM_THRESHOLD, trimmed)


def share_one_heap() -> bool:
    """Have the threads that start from now on allocate from the heap of the others, under glibc.

    By default each gets a heap of its own, up to eight a core. Pictures pass through a dozen
    threads, and every heap grows to the worst that it ever held at a time, piece by piece, which
    looks like a leak for thousands of pictures. They allocate few and large blocks, so that waiting
    for one another costs them nothing.

    Returns:
        Whether the C library took it.
    """
    mallopt = _mallopt()
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, 1))


def _mallopt() -> Callable[[int, int], int] | None:
    """Of the C library, if it has one."""
    try:
        found: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return None
    return found


def mapped_from_files(addresses: Iterable[int]) -> set[int]:
    """Those of ``addresses`` that lie in a file mapping, e.g. weights of a safetensors file.

    Such memory is the page cache's: it goes when others need it, and freeing it frees nothing.
    Empty where the system does not tell (proc_pid_maps(5)).
    """
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return set()
    ranges = []
    for line in lines:
        span, _, _, _, inode, *_ = line.split(maxsplit=5)
        if inode != "0":
            start, end = (int(part, 16) for part in span.split("-"))
            ranges.append((start, end))
    ranges.sort()
    starts = [start for start, _ in ranges]
    found = set()
    for address in addresses:
        i = bisect_right(starts, address) - 1
        if i >= 0 and address < ranges[i][1]:
            found.add(address)
    return found

"""Memory fresh from the system: zeros that take no room before they are written."""

from __future__ import annotations

import mmap


def fresh_pages(n_bytes: int) -> mmap.mmap:
    """Anonymous memory of this process alone (mmap(2), ``MAP_ANONYMOUS``).

    Raises:
        OSError, OverflowError: the system refuses this much address space.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows, whose anonymous mappings are private
        return mmap.mmap(-1, n_bytes)
    return mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

"""The peak of a process's memory, as Linux counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def peak_mib(action: Callable[[], object]) -> float:
    """MiB by which an action raised the process's resident memory at most."""
    before = reset_peak()
    action()
    return (resident("VmHWM") - before) / 1024


def reset_peak() -> int:
    """Resident KiB now, from where the peak is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def resident(name: str) -> int:
    """A line of ``/proc/self/status`` in KiB: ``VmRSS`` now, ``VmHWM`` at most since the reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)

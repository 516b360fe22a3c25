"""What the processes of an engine use, as the kernel tells it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process and all its children.

    Attributes:
        peak_rss: the largest resident size of each so far, added up; shared pages count twice.
        pss: proportional set size now: shared pages divided among those that share them.
        anonymous: resident now and not mapped from a file.
    """

    peak_rss: int
    pss: int
    anonymous: int


def tree(pid: int) -> list[int]:
    """A process and everything below it; empty if it has ended."""
    found, todo = [], [pid]
    while todo:
        each = todo.pop()
        try:
            tasks = list(Path(f"/proc/{each}/task").iterdir())
        except OSError:
            continue
        found.append(each)
        for task in tasks:
            try:
                todo += map(int, (task / "children").read_text().split())
            except OSError:
                continue
    return found


def memory(pid: int) -> Memory:
    """Of a process and its children."""
    peak = pss = anonymous = 0
    for each in tree(pid):
        peak += _kib(each, "status", "VmHWM")
        pss += _kib(each, "smaps_rollup", "Pss")
        anonymous += _kib(each, "smaps_rollup", "Anonymous")
    return Memory(peak, pss, anonymous)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its living children."""
    ticks = 0
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def _kib(pid: int, name: str, key: str) -> int:
    """Bytes in a line of a file of /proc; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0

"""How much of a replay is not spent in kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.row import Row

_REPLAYS = 30


def host_row(name: str, replay: Callable[[], object], dtype: str) -> Row:
    """Time between kernels of one replay.

    Both numbers come from one profiled run, which makes kernels look a little longer: the share is
    a lower bound.
    """
    for _ in range(3):
        replay()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(_REPLAYS):
            with record_function("replay"):
                replay()
    events = profiler.key_averages()
    whole = sum(e.cpu_time_total for e in events if e.key == "replay")
    host = sum(e.self_cpu_time_total for e in events if e.key == "replay")
    return Row(
        f"host time between kernels, {name}, {dtype}",
        ours=round(host / _REPLAYS / 1e3, 4),
        note=f"{host / whole:.0%} of the replay, profiled; {torch.get_num_threads()} threads",
    )

"""How long a replay takes on the device, over the time of the kernels in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from benchmarks.gpu.budget import Budget
from firstlight import LLM
from firstlight.core.reason import Phase

_RUNS = 10
_WARM = 3


class Device(Protocol):
    """Two clocks of a device."""

    def elapsed(self, call: Callable[[], object], runs: int) -> float:
        """Milliseconds of one of many calls in a row, gaps between kernels included."""
        ...

    def busy(self, call: Callable[[], object], runs: int) -> float:
        """Milliseconds that the kernels of one call take, added up."""
        ...


class Cuda:
    """Events around calls, and the kernels that torch's profiler sees."""

    def elapsed(self, call: Callable[[], object], runs: int) -> float:
        """See :class:`Device`."""
        start, end = (_event() for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / runs

    def busy(self, call: Callable[[], object], runs: int) -> float:
        """See :class:`Device`."""
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(runs):
                call()
            torch.cuda.synchronize()
        micros = sum(event.self_device_time_total for event in profile.key_averages())
        return float(micros) / 1e3 / runs


def replays(
    engines: Mapping[str, LLM], buckets: Sequence[tuple[Phase, int]], budget: Budget, device: Device
) -> dict[str, Any]:
    """For each captured bucket: elapsed over busy time, by engine, and both in milliseconds."""
    rows: dict[str, Any] = {}
    for phase, bucket in buckets:
        name = f"{phase.value} {bucket}"
        if not budget.enough(5):
            rows[name] = "dropped"
            continue
        row: dict[str, Any] = {}
        for engine, llm in engines.items():
            runner = llm.parts.runners[phase]
            if bucket not in runner.graphs:
                continue
            runner.dry_run(bucket, bucket)()  # legal contents of the slots
            replay = runner.graphs[bucket].replay
            for _ in range(_WARM):
                replay()
            elapsed, busy = device.elapsed(replay, _RUNS), device.busy(replay, _RUNS)
            row[engine] = round(elapsed / busy, 4) if busy else None
            row[f"{engine}_ms"] = [round(elapsed, 4), round(busy, 4)]
        rows[name] = row
    return {"replay": rows}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

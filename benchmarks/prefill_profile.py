"""Where the time of a prefill goes: each kind of kernel, and what is around the graphs.

``scripts/bench prefill-profile``. Times are those of the processor on one thread, the least of some
repetitions, so that other work on the machine changes them little. Each instruction of a graph is
timed by itself, with what it reads as the batch left it; two threads share the pieces of one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.generation import greedy, prompt_of
from benchmarks.machine import about
from benchmarks.smollm2 import gguf_path
from firstlight import LLM
from firstlight.config import BUNDLED_MODEL
from firstlight.core.reason import Decision, Phase
from firstlight.graphs import GraphRunner
from firstlight.native.instruction import Instruction, Op
from firstlight.native.kernels import Program

AROUND = "around the graphs"
TORCH = "torch's kernels"
WHOLE = "whole prefill"


@dataclass(frozen=True, slots=True)
class Spent:
    """What one kind of work took in the prefill of a prompt.

    Attributes:
        calls: instructions of that kind, over all chunks of the prompt.
        gflops: thousand million operations a second, of linear layers; else None.
    """

    what: str
    calls: int
    ms: float
    share: float
    gflops: float | None = None


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table for each length, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="scripts/bench prefill-profile", description=__doc__)
    parser.add_argument("--model", default=None, help="SmolLM2-135M if installed, else the bundled")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--rounds", type=int, default=5, help="the least of so many is taken")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    model = options.model or gguf_path() or BUNDLED_MODEL
    longest = max(options.tokens) + 16
    # A prompt's own bucket, as the default ladder has for these lengths; none is padded.
    chunk = 1024
    buckets = tuple(sorted({min(n, chunk) for n in options.tokens}))
    with LLM(
        model, dtype=options.dtype, max_context=longest, prefix_cache=False,
        prefill_buckets=buckets, max_batch_tokens=chunk,
    ) as llm:  # fmt: skip
        found = {n: profile(llm, n, options.rounds) for n in options.tokens}
    for n, rows in found.items():
        _show(f"{Path(str(model)).name}, {options.dtype}, {n} tokens", rows)
    if options.json is not None:
        rows_of = {str(n): [asdict(row) for row in rows] for n, rows in found.items()}
        of = {"about": about(), "model": f"{Path(str(model)).name}, {options.dtype}"}
        options.json.write_text(json.dumps({**of, "rows": rows_of}, indent=2) + "\n")


def profile(llm: LLM, tokens: int, rounds: int) -> list[Spent]:
    """Rows of one length, most time first; the last one is the whole."""
    text, ids = prompt_of(llm, tokens)
    runner = llm.parts.runners[Phase.PREFILL]
    llm.generate(text, greedy(1))  # what happens once only
    whole, graphs = float("inf"), float("inf")
    for _ in range(rounds):
        with _timed_runs(runner) as seconds:
            began = time.process_time()
            llm.generate(text, greedy(1))
            whole = min(whole, time.process_time() - began)
        graphs = min(graphs, sum(seconds))
    with _timed_steps(runner, rounds) as steps:
        llm.generate(text, greedy(1))
    rows = list(_by_kind(steps, graphs / whole))
    rest = whole - graphs
    rows.append(Spent(AROUND, 1, _ms(rest), round(rest / whole, 3)))
    rows.sort(key=lambda row: -row.ms)
    return [*rows, Spent(WHOLE, len(ids), _ms(whole), 1.0)]


@contextmanager
def _timed_runs(runner: GraphRunner) -> Iterator[list[float]]:
    """Collects seconds of each batch's graph."""
    seconds: list[float] = []
    run = runner.run

    def timed(decision: Decision) -> torch.Tensor:
        began = time.process_time()
        hidden = run(decision)
        seconds.append(time.process_time() - began)
        return hidden

    with patch.object(runner, "run", timed):
        yield seconds


Steps = dict[tuple[str, float], list[float]]
"""By kind and operations of one instruction: the least seconds of each."""


@contextmanager
def _timed_steps(runner: GraphRunner, rounds: int) -> Iterator[Steps]:
    """Times each instruction of each batch's graph, in turn, some replays long."""
    found: Steps = {}
    run = runner.run

    def timed(decision: Decision) -> torch.Tensor:
        hidden = run(decision)
        if decision.bucket is None:
            raise SystemExit(f"{decision.tokens} rows ran eager ({decision.reason}): no profile")
        calls = list(_calls_of(runner.graphs[decision.bucket]))
        least = [float("inf")] * len(calls)
        with torch.inference_mode():
            for _ in range(rounds):
                for index, (_, _, call) in enumerate(calls):
                    began = time.thread_time_ns()
                    call()
                    least[index] = min(least[index], (time.thread_time_ns() - began) / 1e9)
        for (kind, flops, _), seconds in zip(calls, least, strict=True):
            found.setdefault((kind, flops), []).append(seconds)
        return hidden

    with patch.object(runner, "run", timed):
        yield found


def _calls_of(graph: Any) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Kind, operations and call of all that a replay issues, in order."""
    for call in graph.calls:
        if not isinstance(call, Program):
            yield TORCH, 0.0, call
            continue
        for one, alone in call.each():
            yield *_kind(one), alone


def _kind(one: Instruction) -> tuple[str, float]:
    name = Op(one.op).name.lower().replace("_", " ")
    if Op(one.op) is not Op.LINEAR:
        return name, 0.0
    rows, k, n = one.n[:3]
    return f"{name} {rows} x {k} x {n}", 2.0 * rows * k * n


def _by_kind(steps: Steps, share_of_graphs: float) -> Iterator[Spent]:
    """Shares are of the whole prefill, of which the graphs are ``share_of_graphs``."""
    total = sum(sum(seconds) for seconds in steps.values())
    for (kind, flops), seconds in steps.items():
        took = sum(seconds)
        rate = round(flops * len(seconds) / took / 1e9, 1) if flops else None
        share = round(took / total * share_of_graphs, 3)
        yield Spent(kind, len(seconds), _ms(took), share, rate)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def _show(title: str, rows: Sequence[Spent]) -> None:
    columns: Mapping[str, str] = {
        "what": "what", "calls": "calls", "ms": "ms", "share": "share", "gflops": "GFLOP/s"
    }  # fmt: skip
    table = Table(*columns.values(), title=title, title_justify="left")
    for row in rows:
        values = asdict(row)
        calls = "" if row.what in (AROUND, WHOLE) else str(row.calls)
        rate = "" if row.gflops is None else f"{row.gflops:g}"
        table.add_row(row.what, calls, f"{values['ms']:.2f}", f"{row.share:.1%}", rate)
    Console(width=100).print(table)

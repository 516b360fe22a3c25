"""Threads against processes for preparing pictures: what each gains, and what each costs.

``python -m benchmarks.media_pool [--model FOLDER]``. A picture is decoded and processed in a pool
of threads, which share the interpreter with the engine's step, and in a pool of processes, which
share nothing: they have to load libraries of their own, and bytes and tensors have to be moved. The
processes get their best case: tensors come back in shared memory and are not copied out of it.

Three questions, each a row or more: how long a picture takes in a full pool; how long a step of the
engine, here a fixed run of small operations, takes beside one worker; what the pool's start takes.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.multiprocessing  # lets tensors cross processes in shared memory
from torch import Tensor

from benchmarks.interleave import interleave
from benchmarks.machine import about
from benchmarks.report import write
from benchmarks.row import Row, compare
from firstlight.demo import model_path
from firstlight.engine.heap import share_one_heap
from firstlight.engine.media_bench.pictures import encoded_square
from firstlight.media import ImageProcessor, decode_image
from firstlight.models.loading import load_model
from firstlight.models.reference_processor import ReferenceProcessor, reference_processors

OPERATIONS = 200
"""Of a step: about what a small decoder's replay calls."""


class Worker:
    """Decodes and processes in one process, for as many threads as that has."""

    def __init__(self, reference: ReferenceProcessor) -> None:
        self._processor = ImageProcessor(reference.processor, reference.options)

    def prepare(self, data: bytes) -> dict[str, Tensor]:
        """A picture's tensors by name."""
        return dict(self._processor.artifact(decode_image(data)).tensors)


class Home:
    """Where a process of the pool keeps its worker."""

    worker: Worker

    @classmethod
    def open(cls, reference: ReferenceProcessor) -> None:
        """Runs once in each process."""
        torch.set_num_threads(1)
        share_one_heap()
        cls.worker = Worker(reference)

    @classmethod
    def prepare(cls, data: bytes) -> dict[str, Tensor]:
        """:meth:`Worker.prepare` there."""
        return cls.worker.prepare(data)


def own_bytes(_: object = None) -> int:
    """Memory that only this process has (Linux; 0 elsewhere)."""
    path = Path("/proc/self/smaps_rollup")
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def processes(reference: ReferenceProcessor, n: int) -> ProcessPoolExecutor:
    """A pool whose processes are started anew: a fork of one with threads may hang."""
    return ProcessPoolExecutor(n, get_context("spawn"), Home.open, (reference,))


def pool_rows(
    pools: Mapping[str, tuple[Executor, Callable[[bytes], object]]],
    cases: Sequence[tuple[int, str]],
    workers: int,
    rounds: int,
) -> Iterator[Row]:
    """Milliseconds a picture in full pools, and in turn in the calling thread."""
    batch = 4 * workers

    def seconds(name: str, data: bytes) -> float:
        pool, prepare = pools[name]
        began = time.perf_counter()
        list(pool.map(prepare, [data] * batch))
        return (time.perf_counter() - began) / batch

    def alone(data: bytes) -> float:
        _, prepare = pools["ours"]
        began = time.perf_counter()
        for _ in range(workers):
            prepare(data)
        return (time.perf_counter() - began) / workers

    for side, kind in cases:
        data = encoded_square(side, kind)
        contestants = {name: partial(seconds, name, data) for name in pools}
        contestants["alone"] = partial(alone, data)
        samples = interleave(contestants, rounds=rounds)
        gains = [samples["alone"].median / samples[name].median for name in ("ours", "theirs")]
        note = f"{gains[0]:.2f} and {gains[1]:.2f} times as many as in one thread"
        name = f"a picture in {workers} threads against processes, {kind} {side} x {side}"
        yield compare(name, samples, note=note)


@contextmanager
def kept_busy(pool: Executor, prepare: Callable[[bytes], object], data: bytes) -> Iterator[None]:
    """One worker of the pool prepares picture after picture meanwhile."""
    ended = threading.Event()
    begun = threading.Event()

    def feed() -> None:
        while not ended.is_set():
            pool.submit(prepare, data).result()
            begun.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        feeder.join()


def step(values: Tensor) -> float:
    """Seconds of a fixed run of small operations, each a call from Python."""
    began = time.perf_counter()
    for _ in range(OPERATIONS):
        torch.add(values, 1.0, out=values)
    return time.perf_counter() - began


def step_row(
    pools: Mapping[str, tuple[Executor, Callable[[bytes], object]]],
    case: tuple[int, str],
    rounds: int,
) -> Row:
    """A step of the engine while one picture after another is prepared."""
    data, values = encoded_square(*case), torch.zeros(1, 576)
    tails: dict[str, list[float]] = {"alone": [], "ours": [], "theirs": []}

    def steps() -> list[float]:
        return sorted(step(values) for _ in range(100))

    def beside(name: str) -> float:
        if name == "alone":
            taken = steps()
        else:
            with kept_busy(*pools[name], data):
                taken = steps()
        tails[name].append(taken[94])
        return statistics.median(taken)

    samples = interleave({name: partial(beside, name) for name in tails}, rounds=rounds)
    tail = {name: statistics.median(values) * 1e3 for name, values in tails.items()}
    note = (
        f"alone {samples['alone'].median * 1e3:.3g}; 95 of 100 within {tail['ours']:.3g}, "
        f"{tail['theirs']:.3g}, alone {tail['alone']:.3g} ms"
    )
    name = f"{OPERATIONS} operations beside one thread against one process, {case[1]} {case[0]}"
    return compare(name, samples, note=note)


def start_row(reference: ReferenceProcessor, data: bytes, workers: int) -> Row:
    """What the processes take before their first picture, and what they hold."""
    began = time.perf_counter()
    with processes(reference, workers) as pool:
        list(pool.map(Home.prepare, [data] * workers))
        seconds = time.perf_counter() - began
        held = pool.submit(own_bytes).result()
    return Row(
        f"start of {workers} processes, to their first pictures",
        ours=round(seconds * 1e3, 1),
        note=f"{held / 2**20:.0f} MiB of its own for each; threads: none",
    )


def main() -> None:
    """Measure and print; ``--json`` keeps the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=model_path(), help="whose processor")
    parser.add_argument("--sizes", default="224,1024", help="sides in pixels")
    parser.add_argument("--formats", default="JPEG,PNG", help="by Pillow's names")
    parser.add_argument("--workers", type=int, default=2, help="threads, and processes")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    share_one_heap()
    reference = reference_processors(options.model, load_model(options.model).adapter)[0]
    cases = [(int(s), f.upper()) for s in options.sizes.split(",")
             for f in options.formats.split(",")]  # fmt: skip
    rows = [start_row(reference, encoded_square(*cases[0]), options.workers)]
    with (
        ThreadPoolExecutor(options.workers) as threads,
        processes(reference, options.workers) as others,
    ):
        pools: dict[str, tuple[Executor, Callable[[bytes], object]]] = {
            "ours": (threads, Worker(reference).prepare),
            "theirs": (others, Home.prepare),
        }
        rows += pool_rows(pools, cases, options.workers, options.rounds)
        rows.append(step_row(pools, cases[-1], options.rounds))
    write(rows, about(), options.json)


if __name__ == "__main__":
    main()

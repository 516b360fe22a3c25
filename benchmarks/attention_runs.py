"""Attention of a decode step on the CPU: runs of pages against scattered ones, and its growth.

::

    python -m benchmarks.attention_runs [--rounds 15] [--threads 1] [--requests 8]

* Attention over pages in one run, read in place, against the same pages scattered over the pool,
  which are gathered page by page; and, for information, against gathering token by token.
* Metadata and attention against the length of the context, one request.
* The same in a pool sixteen times as large: nothing may grow with the pool.

Many layers take turns, so that keys and values come from memory and not from a cache, as they do in
a model. Contestants take turns too; figures are medians, in ms a layer. With one thread the
processor time of the thread is counted, which other processes on the machine disturb less.
One JSON object a row; exit status 1 if a row is above its limit.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.interleave import interleave
from benchmarks.machine import about
from benchmarks.row import Row, compare
from firstlight.attention import (
    AttentionLayer,
    PagedAttention,
    RowsInMemory,
    SideViews,
    attention_values,
)
from firstlight.memory import IdentityMap, KVLayout, KVPool, LayerShape, VirtualPage

HEADS = {"9 heads of 64 over 3": (9, 3, 64), "32 heads of 128 over 8": (32, 8, 128)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PAGE = 16
LIMIT = 0.7  # of the gathering path
POOL_LIMIT = 1.05  # a pool of any size costs the same; the rest is noise
COLD_BYTES = 96 << 20
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Shape:
    """One measurement's sizes."""

    heads: tuple[int, int, int]
    dtype: torch.dtype
    requests: int
    context: int

    @property
    def layers(self) -> int:
        """As many as a model may have, or what makes keys and values too many for a cache."""
        _, kv_heads, dim = self.heads
        bytes_ = 2 * self.requests * self.context * kv_heads * dim * self.dtype.itemsize
        return min(max(COLD_BYTES // bytes_, 2), 32)


class Bench:
    """A decode step of attention alone: metadata, then every layer's operation.

    Args:
        scattered: no page of a request lies behind the one before it.
        spare: how many times the needed pages the pool has.
    """

    def __init__(self, shape: Shape, *, scattered: bool = False, spare: int = 1) -> None:
        self.shape = shape
        heads, kv_heads, dim = shape.heads
        per = -(-shape.context // PAGE)
        n_pages = shape.requests * per * spare + 2
        numbers = list(range(1, shape.requests * per + 1))
        if scattered:
            random.Random(0).shuffle(numbers)
        pages = [numbers[i * per : (i + 1) * per] for i in range(shape.requests)]
        self.rows = [
            RowsInMemory([VirtualPage(p) for p in row], shape.context - 1, shape.context)
            for row in pages
        ]
        self.layout = KVLayout.of([None] * shape.layers, max_context=shape.context)
        self.pool = KVPool(
            [LayerShape(kv_heads, dim, dim)] * shape.layers,
            layout=self.layout,
            n_pages=[n_pages],
            page_size=PAGE,
            dtype=shape.dtype,
            device=torch.device("cpu"),
        )
        for tensor in (*self.pool.keys, *self.pool.values):
            tensor[: len(numbers) + 1].normal_()
        self.map = IdentityMap(n_pages)
        self.max_pages = max(CONTEXTS) // PAGE  # one width for every context, as an engine has it
        self.q = torch.randn(shape.requests, heads, dim).to(shape.dtype)
        self.k, self.v = torch.randn(2, shape.requests, kv_heads, dim).to(shape.dtype)

    def step(self) -> None:
        """Metadata and attention as the engine does them."""
        self.attend(self.context())

    def attend(self, context: PagedAttention) -> None:
        """Attention of all layers."""
        for i in range(self.shape.layers):
            context.attend(AttentionLayer(i, 0.125), self.q, self.k, self.v)

    def by_token(self) -> None:
        """Attention that copies every token by its own slot."""
        slots = [_token_slots(r) for r in self.rows]
        for keys, values in zip(self.pool.keys, self.pool.values, strict=True):
            by_slot = [pool.flatten(0, 1) for pool in (keys, values)]
            for i, at in enumerate(slots):
                k, v = (pool[at].transpose(0, 1).unsqueeze(0) for pool in by_slot)
                grouped = self.q[i].view(1, k.shape[1], -1, k.shape[3])
                scaled_dot_product_attention(grouped, k, v, scale=0.125)

    def context(self) -> PagedAttention:
        """The step's metadata."""
        values = attention_values(
            self.rows,
            sides=[(self.layout.sides[0], self.map)],
            page_size=PAGE,
            max_pages=self.max_pages,
        )
        return PagedAttention(self.pool, [SideViews(**values)])


def _token_slots(rows: RowsInMemory) -> Tensor:
    at = torch.arange(rows.end)
    return torch.tensor(rows.pages)[at // PAGE] * PAGE + at % PAGE


def rows(*, rounds: int, requests: int) -> Iterator[Row]:
    """Every measurement."""
    for heads, sizes in HEADS.items():
        for dtype in DTYPES:
            for context in (128, 512, 1024):
                shape = Shape(sizes, DTYPES[dtype], requests, context)
                yield from _runs(shape, f"{heads}, {dtype}", rounds)
    sizes = HEADS["9 heads of 64 over 3"]
    yield from _growth([Shape(sizes, torch.float32, 1, c) for c in CONTEXTS], rounds)
    for context in (128, 1024):
        shape = Shape(sizes, torch.float32, 1, context)
        benches = {"ours": Bench(shape, spare=16), "theirs": Bench(shape)}
        timed = {name: _timed(bench.step, shape.layers) for name, bench in benches.items()}
        samples = interleave(timed, rounds=rounds * 4, warmup=3)
        name = f"decode of 1, context {context}: pool of 16x / 1x the pages"
        yield compare(name, samples, limit=POOL_LIMIT)


def _runs(shape: Shape, what: str, rounds: int) -> Iterator[Row]:
    run, scattered = Bench(shape), Bench(shape, scattered=True)
    timed = {
        "ours": _timed(partial(run.attend, run.context()), shape.layers),
        "theirs": _timed(partial(scattered.attend, scattered.context()), shape.layers),
        "by token": _timed(scattered.by_token, shape.layers),
    }
    with torch.inference_mode():
        samples = interleave(timed, rounds=rounds, warmup=2)
    name = f"decode of {shape.requests}, context {shape.context}, {what}: "
    yield compare(name + "one run / scattered pages", samples, limit=LIMIT)
    by_token = {"ours": samples["ours"], "theirs": samples["by token"]}
    yield compare(name + "one run / gathered by token", by_token)


def _growth(shapes: Sequence[Shape], rounds: int) -> Iterator[Row]:
    timed = {str(s.context): _timed(Bench(s).step, s.layers) for s in shapes}
    with torch.inference_mode():
        samples = interleave(timed, rounds=rounds, warmup=2)
    for shape in shapes:
        sample = samples[str(shape.context)]
        per_token = sample.median * 1e9 / shape.context
        yield Row(
            f"decode of 1, context {shape.context}",
            ours=round(sample.median * 1e3, 4),
            spread=round(max(sample.seconds) / sample.best, 2),
            note=f"{per_token:.0f} ns a token of context",
        )


def _timed(call: Callable[[], None], layers: int) -> Callable[[], float]:
    """Seconds a layer."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def timed() -> float:
        began = clock()
        call()
        return (clock() - began) / layers

    return timed


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one JSON object a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=8)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(json.dumps({"about": about()}), flush=True)
    missed = False
    for row in rows(rounds=options.rounds, requests=options.requests):
        print(json.dumps(row.as_dict()), flush=True)
        missed |= row.reached is False
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

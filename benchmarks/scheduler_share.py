"""How much of a step is the scheduler's own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.concurrency import prompts
from benchmarks.generation import greedy
from benchmarks.interleave import Sample
from benchmarks.row import Row, compare
from firstlight import LLM

REQUESTS = 8
TOKENS = 64
LIMIT = 0.05
METHODS = ("add", "next_batch", "commit", "completes", "publish", "remove")


class Watch:
    """Seconds spent in some methods of an object, while it is watched."""

    def __init__(self, target: Any, *names: str) -> None:
        self.seconds = 0.0
        self._target = target
        self._names = names

    def __enter__(self) -> Watch:
        for name in self._names:
            setattr(self._target, name, self._timed(getattr(self._target, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            delattr(self._target, name)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def scheduler_rows(dtype: str, *, rounds: int) -> Iterator[Row]:
    """The scheduler's milliseconds of a step, memory included, against the whole step's.

    From the first request's arrival to the last one's end: prefill, decode, pages, prefix cache.
    """
    llm = LLM(dtype=dtype, max_num_seqs=REQUESTS)
    texts, params = prompts()[:REQUESTS], greedy(TOKENS)
    ours, whole = [], []
    for round_ in range(rounds + 1):
        steps = llm.parts.scheduler.stats.steps
        with Watch(llm.parts.scheduler, *METHODS) as watch:
            began = time.perf_counter()
            llm.generate(texts, params)
            seconds = time.perf_counter() - began
        steps = llm.parts.scheduler.stats.steps - steps
        if round_:
            ours.append(watch.seconds / steps)
            whole.append(seconds / steps)
    samples = {"ours": Sample(tuple(ours)), "theirs": Sample(tuple(whole))}
    yield compare(
        f"scheduler in a step of {REQUESTS} requests, {dtype}",
        samples,
        limit=LIMIT,
        note="against: the whole step",
    )

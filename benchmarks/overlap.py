"""Tokens taken one step late against tokens taken in step, on the bundled model.

A CPU computes a step when it is issued, so what is late there cannot save anything; how much a
device that computes meanwhile could save at most is the host's share of a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.concurrency import prompts
from benchmarks.generation import greedy
from benchmarks.interleave import Sample, interleave
from benchmarks.row import Row, compare
from benchmarks.scheduler_share import Watch
from firstlight import LLM

TOKENS = 64


def overlap_rows(dtype: str, *, rounds: int) -> Iterator[Row]:
    """Milliseconds per token of one and of eight requests, to the second token, and on the host."""
    both = {
        name: LLM(dtype=dtype, max_num_seqs=8, prefix_cache=False, overlap_schedule=value)
        for name, value in (("ours", "on"), ("theirs", "off"))
    }
    for n in (1, 8):
        ways = {name: _answers(llm, n) for name, llm in both.items()}
        name = f"a token of {n}, one step late, {dtype}"
        yield compare(name, interleave(ways, rounds=rounds), note="against: in step")
    ways = {name: _second_token(llm) for name, llm in both.items()}
    name = f"first to second token, one step late, {dtype}"
    yield compare(name, interleave(ways, rounds=rounds), note="against: in step")
    yield _host_share(both["theirs"], dtype, rounds)


def _answers(llm: LLM, n: int) -> Callable[[], float]:
    texts, params = prompts()[:n], greedy(TOKENS)

    def run() -> float:
        began = time.perf_counter()
        llm.generate(texts, params)
        return (time.perf_counter() - began) / (n * TOKENS)

    return run


def _second_token(llm: LLM) -> Callable[[], float]:
    """Between two steps of the engine that give a token: what a client sees of the first gap."""
    admission, engine = llm.parts.admission, llm.parts.engine

    def run() -> float:
        request = admission.text(prompts()[0], (), greedy(4))
        engine.add(request)
        times: list[float] = []
        while request.finish is None:
            engine.step()
            if len(request.output_ids) > len(times):
                times.append(time.perf_counter())
        return times[1] - times[0]

    return run


def _host_share(llm: LLM, dtype: str, rounds: int) -> Row:
    """What of a decode step of eight requests lies outside of its run: plan, pages, text."""
    texts, params = prompts()[:8], greedy(TOKENS)
    ours, whole = [], []
    for round_ in range(rounds + 1):
        with (
            Watch(llm.parts.engine, "step") as step,
            Watch(llm.parts.engine._step, "run") as run,
        ):
            llm.generate(texts, params)
        if round_:
            ours.append((step.seconds - run.seconds) / TOKENS)
            whole.append(step.seconds / TOKENS)
    samples = {"ours": Sample(tuple(ours)), "theirs": Sample(tuple(whole))}
    name = f"host beside the run of a step of 8, {dtype}"
    return compare(name, samples, note="against: the whole step")

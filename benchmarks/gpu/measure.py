"""Engines of one checkpoint side by side, and what they are timed on, in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.generation import greedy, prompt_of
from benchmarks.gpu.budget import Budget
from benchmarks.interleave import interleave
from firstlight import LLM
from firstlight.config import EngineConfig
from firstlight.core.output import Completion
from firstlight.core.reason import Mode, Phase
from firstlight.graphs import CaptureReport

Engines = Mapping[str, LLM]
MODES: dict[str, dict[str, str]] = {
    "cpu": {"eager": "eager", "tape": "tape"},
    "cuda": {"eager": "eager", "segmented": "cuda", "whole": "cuda-whole"},
}
"""By device, the name that reports use and the backend."""

_PIXELS = 32  # a token of these models is a square of so many pixels


def open_engines(path: Path, device: str, *, dtype: str, largest: int, requests: int) -> Engines:
    """One engine per backend. Graphs are not proven: that is a part of its own."""
    # Room for one prompt of the largest size, and for all requests with short ones, in any model
    # here; contexts no longer than needed, since plain attention works on whole rows of a table.
    room = (4 if device == "cuda" else 1) << 30
    return {
        name: LLM(
            path, device=device, backend=backend, dtype=dtype, kv_bytes=room,
            max_context=largest + 32, max_prefill_bucket=largest, max_batch_tokens=largest,
            max_num_seqs=requests, prefix_cache=False, proof="off", padding_cost="free",
        )
        for name, backend in MODES[device].items()
    }  # fmt: skip


def captures(engines: Engines) -> dict[str, Any]:
    """Seconds and bytes of all graphs, how many there are, and why others are not."""
    found: dict[str, Any] = {}
    for name, llm in engines.items():
        reports = llm.parts.captures
        failures = [
            f"{p.value} {f.bucket}: {f.error}" for p, r in reports.items() for f in r.failures
        ]
        found[name] = {
            "buckets": sum(len(r.buckets) for r in reports.values()),
            "seconds": round(sum(r.seconds for r in reports.values()), 3),
            "default_seconds": round(sum(_default_seconds(reports)), 3),
            "mbytes": round(sum(r.bytes for r in reports.values()) / 1e6, 1),
            "failures": failures,
        }
    return {"engines": found, "ok": not any(row["failures"] for row in found.values())}


def _default_seconds(reports: Mapping[Phase, CaptureReport]) -> Iterator[float]:
    """Of each graph that a default configuration captures."""
    largest = {
        Phase.PREFILL: EngineConfig().max_prefill_bucket, Phase.DECODE: EngineConfig().max_num_seqs,
    }  # fmt: skip
    for phase, report in reports.items():
        yield from (b.seconds for b in report.buckets if b.bucket <= largest[phase])


def prefills(
    engines: Engines, sizes: Sequence[int], budget: Budget, *, rounds: int, media: bool
) -> dict[str, Any]:
    """Median time to first token by prompt length, and to the end of the encoder with it."""
    rows: dict[str, Any] = {}
    for tokens in sizes:
        if not budget.enough(10):
            rows[str(tokens)] = "dropped"
            continue
        ask = {n: _picture_ask(llm, tokens) if media else _text_ask(llm, tokens)
               for n, llm in engines.items()}  # fmt: skip
        samples = interleave({n: _ttft(call) for n, call in ask.items()}, rounds=rounds)
        rows[str(tokens)] = {n: round(s.median * 1e3, 3) for n, s in samples.items()}
        answers = {n: call() for n, call in ask.items()}
        rows[str(tokens)]["tokens"] = max(a.usage.prompt_tokens for a in answers.values())
        rows[str(tokens)]["same"] = len({a.token_ids for a in answers.values()}) == 1
    return {"ttft_ms": rows}


def decodes(
    engines: Engines, requests: Sequence[int], budget: Budget, *, rounds: int
) -> dict[str, Any]:
    """Median milliseconds of a decode step by requests side by side."""
    rows: dict[str, Any] = {}
    new = 17
    for n in requests:
        if not budget.enough(10):
            rows[str(n)] = "dropped"
            continue

        def step(llm: LLM, n: int = n) -> Callable[[], float]:
            text, _ = prompt_of(llm, 32)

            def call() -> float:
                answers = llm.generate([text] * n, greedy(new))
                steps = [
                    s for a in answers for s in a.timings.steps if s.decision.phase is Phase.DECODE
                ]
                return sum(s.seconds for s in steps) / max(len(steps), 1)

            return call

        samples = interleave({name: step(llm) for name, llm in engines.items()}, rounds=rounds)
        rows[str(n)] = {name: round(s.median * 1e3, 3) for name, s in samples.items()}
    return {"step_ms": rows}


def open_encoders(path: Path, device: str, *, dtype: str, sizes: Sequence[int]) -> Engines:
    """Two engines with hardly a graph of the decoder: one encodes eagerly, one from graphs.

    Args:
        sizes: rows of pictures, for each of which the tower is captured.
    """
    captured = next(backend for backend in MODES[device].values() if backend != "eager")
    return {
        name: LLM(
            path, device=device, backend=captured, dtype=dtype, max_num_seqs=1, kv_bytes=1 << 30,
            prefill_buckets=(64,), decode_buckets=(1,), proof="quick", padding_cost="free",
            max_context=max(sizes) + 64, max_batch_tokens=max(sizes) + 32, encoder_graphs=graphs,
            encoder_budgets=tuple(sorted(sizes)),
        )
        for name, graphs in (("eager", "off"), ("graphs", "on"))
    }  # fmt: skip


def encoders(
    engines: Engines, sizes: Sequence[int], budget: Budget, *, rounds: int
) -> dict[str, Any]:
    """Median milliseconds of encoding one picture, by its rows; and which budgets serve."""
    rows: dict[str, Any] = {}
    for tokens in sizes:
        if not budget.enough(5):
            rows[str(tokens)] = "dropped"
            continue
        calls = {name: _encoding(llm, tokens) for name, llm in engines.items()}
        samples = interleave(calls, rounds=rounds)
        rows[str(tokens)] = {name: round(s.median * 1e3, 3) for name, s in samples.items()}
    report = engines["graphs"].inspect()["encoder_graphs"]
    budgets = report.get("budgets", [])
    failed = [f"{row['size']}: {row['why']}" for row in budgets if row["why"]]
    why = report["why"] or "; ".join(failed)
    return {"encode_ms": rows, "note": why, "ok": not why, "budgets": budgets}


def _encoding(llm: LLM, tokens: int) -> Callable[[], float]:
    call = _picture_ask(llm, tokens)

    def encode() -> float:
        llm.flush_caches()  # an earlier round has shown it the same picture
        return call().timings.encode_s

    return encode


def coverage(engines: Engines, *, prompts: int, largest: int) -> dict[str, Any]:
    """The share of prefill steps with a picture that ran by graph, at mixed sizes."""
    shares: dict[str, Any] = {}
    draw = random.Random(0)
    lengths = [draw.randint(40, largest) for _ in range(prompts)]
    for name, llm in engines.items():
        steps = [s for n in lengths for s in _picture_ask(llm, n)().timings.steps
                 if s.decision.phase is Phase.PREFILL]  # fmt: skip
        by_graph = [s for s in steps if s.decision.mode is not Mode.EAGER]
        shares[name] = round(len(by_graph) / max(len(steps), 1), 3)
    return {"share": shares}


def _ttft(call: Callable[[], Completion]) -> Callable[[], float]:
    return lambda: call().timings.ttft_s


def _text_ask(llm: LLM, tokens: int) -> Callable[[], Completion]:
    text, _ = prompt_of(llm, tokens)
    return lambda: llm.generate(text, greedy(1))


def _picture_ask(llm: LLM, tokens: int) -> Callable[[], Completion]:
    """A prompt of about ``tokens``, most of them one picture's; never a picture seen before."""
    side = max(int((tokens * 0.9) ** 0.5), 2)
    words, _ = prompt_of(llm, max(tokens - side * side - 2, 1))
    text = llm.parts.model.adapter.placeholder_text + words
    seeds = iter(range(10**6))

    def ask() -> Completion:
        noise = np.random.default_rng(next(seeds)).integers(0, 256, (side, side, 3), np.uint8)
        picture = Image.fromarray(noise).resize((side * _PIXELS, side * _PIXELS))
        return llm.generate(text, greedy(1), images=[picture])

    return ask

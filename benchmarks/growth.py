"""What a decode step's time grows with: cached context, and the size of the pool.

::

    python -m benchmarks.growth [--rounds 5] [--threads 1] [--out docs]

Decodes at contexts from 128 to 8,192 tokens, for one request and for four; then at one context in
pools of several sizes, empty and full of cached pages. Writes ``growth.json`` and ``growth.svg``
and prints what it finds. The model is the bundled one with its context limit raised: what it says
there is of no interest, what its steps cost is.

Exit status 1 if a step in the largest pool takes more than ``LIMIT`` times one in the smallest.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.generation import greedy
from benchmarks.interleave import interleave
from benchmarks.machine import ROOT, about
from benchmarks.plot import Chart, page
from firstlight import LLM
from firstlight.core.reason import Phase
from firstlight.demo import model_path
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.prefix_key import PrefixKey

CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)
REQUESTS = (1, 4)
POOLS = (256, 1024, 4096)
POOL_CONTEXT = 1024
STEPS = 24
PAGE = 16
LIMIT = 1.15


def long_model(folder: Path, context: int) -> Path:
    """The bundled model with a limit of ``context`` tokens."""
    shutil.copytree(model_path(), folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = context
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def engine(model: Path, **settings: Any) -> LLM:
    """Few graphs, chunks of 512."""
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "prefill_buckets": (16, 512),
        "decode_buckets": (1, 4),
        "max_num_seqs": 4,
        "proof": "off",
        "padding_cost": "free",
    }
    return LLM(model, **{**defaults, **settings})


def words(llm: LLM, tokens: int, seed: int) -> str:
    """Text of ``tokens`` tokens; of one seed, shorter texts begin longer ones."""
    rng = random.Random(seed)
    vocabulary = ["red", "blue", "green", "circle", "square", "star", "left", "right", "large"]
    text = " ".join(rng.choices(vocabulary, k=tokens))
    tokenizer = llm.parts.model.tokenizer
    text = str(tokenizer.decode(tokenizer(text)["input_ids"][:tokens]))
    return text


def step_seconds(llm: LLM, texts: Sequence[str]) -> float:
    """Median time of the decode steps in which all of the requests take part."""
    llm.generate(list(texts), greedy(1))  # their prompts are in the prefix cache from here on
    steps = llm.generate(list(texts), greedy(STEPS))[0].timings.steps
    decodes = [s for s in steps if s.decision.phase is Phase.DECODE]
    return statistics.median(s.seconds for s in decodes if s.decision.tokens == len(texts))


def by_context(model: Path, rounds: int) -> dict[str, dict[int, float]]:
    """Milliseconds of a decode step by context, for each number of requests.

    All prompts stay in the prefix cache. Prompts that were cached one behind the other leave no
    room for answers between them, so all but the last of several go on elsewhere, are in two runs
    of pages, and are gathered in every step.
    """
    pages = sum(n * (-(-(c + STEPS) // PAGE) + 2) for n in REQUESTS for c in CONTEXTS) + 1
    llm = engine(model, kv_pages=pages, kv_bytes=1 << 40)
    contestants = {}
    for requests in REQUESTS:
        for context in CONTEXTS:
            seeds = [1000 * requests + context + i for i in range(requests)]
            texts = [words(llm, context - STEPS, seed) for seed in seeds]
            contestants[f"{requests}/{context}"] = partial(step_seconds, llm, texts)
    samples = interleave(contestants, rounds=rounds)
    return {
        f"{n} request{'s' * (n > 1)}": {
            c: round(samples[f"{n}/{c}"].median * 1e3, 4) for c in CONTEXTS
        }
        for n in REQUESTS
    }


def fill(memory: KVMemory) -> None:
    """Cache other prompts' pages until none is free; what they hold is never read."""
    rng = random.Random(0)
    size = 16 * memory.page_size
    while memory.usage().pages.free:
        n = min(size, memory.usage().pages.free * memory.page_size)
        key = PrefixKey([rng.randrange(500) for _ in range(n)], (), memory.page_size)
        holding = memory.start(key, n)
        if not memory.reserve(holding, n, n):
            raise RuntimeError("the pool cannot be filled")
        memory.publish(holding, key, n)
        memory.release(holding)


def by_pool(model: Path, rounds: int) -> dict[str, dict[int, float]]:
    """Milliseconds of a decode step by pages of the pool, empty and full of cached pages."""
    contestants = {}
    for pages in POOLS:
        llm = engine(model, kv_pages=pages, kv_bytes=1 << 40)
        text = words(llm, POOL_CONTEXT, 0)

        def empty(llm: LLM = llm, text: str = text) -> float:
            llm.parts.kv.flush()
            return step_seconds(llm, [text])

        def full(llm: LLM = llm, text: str = text) -> float:
            llm.parts.kv.flush()
            fill(llm.parts.kv)
            return step_seconds(llm, [text])

        contestants[f"empty/{pages}"] = empty
        contestants[f"full/{pages}"] = full
    samples = interleave(contestants, rounds=rounds)
    return {
        name: {n: round(samples[f"{kind}/{n}"].median * 1e3, 4) for n in POOLS}
        for kind, name in (("empty", "empty pool"), ("full", "full of cached pages"))
    }


def charts(found: dict[str, dict[str, dict[int, float]]]) -> list[Chart]:
    """One chart a question."""

    def lines(name: str) -> dict[str, list[tuple[float, float]]]:
        return {k: list(v.items()) for k, v in found[name].items()}

    return [
        Chart("A decode step by context", "tokens in the cache", "ms", lines("context")),
        Chart(
            f"A decode step at {POOL_CONTEXT} tokens by pool",
            "pages of the pool",
            "ms",
            lines("pool"),
        ),
    ]


def main() -> int:
    """Measure, write, and say whether the pool's size is felt."""
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = long_model(Path(folder) / "model", 2 * CONTEXTS[-1])
        found = {
            "context": by_context(model, options.rounds),
            "pool": by_pool(model, options.rounds),
        }
    where = about()
    ratio = max(line[POOLS[-1]] / line[POOLS[0]] for line in found["pool"].values())
    report = {"about": where, "ms": found, "largest_over_smallest_pool": round(ratio, 3)}
    (options.out / "growth.json").write_text(json.dumps(report, indent=2) + "\n")
    caption = " · ".join(f"{k} {v}" for k, v in where.items() if k in _CAPTION)
    (options.out / "growth.svg").write_text(page(charts(found), caption))
    print(json.dumps(report, indent=2))
    return int(ratio > LIMIT)


_CAPTION = ("cpu", "threads", "torch", "commit", "date")


if __name__ == "__main__":
    raise SystemExit(main())

"""A captured graph against the same body run eagerly on the same slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from benchmarks.host_time import host_row
from benchmarks.interleave import interleave
from benchmarks.row import Row, compare
from firstlight import LLM, SamplingParams
from firstlight.core.reason import Decision, Phase, Reason
from firstlight.graphs import GraphRunner

REPEATS = 10
BATCHES: Final = ((Phase.DECODE, 1), (Phase.DECODE, 8), (Phase.PREFILL, 128))
"""What comparisons of replays replay, by phase and bucket."""
SETTINGS: Final[dict[str, Any]] = {
    "dtype": "bfloat16",
    "max_context": 512,
    "max_num_seqs": 8,
    "prefill_buckets": (128,),
    "decode_buckets": (1, 8),
    "padding_cost": "free",
    "prefix_cache": False,
}
"""An engine with the graphs of :data:`BATCHES`."""


def _decision(phase: Phase, bucket: int, *, graph: bool) -> Decision:
    reason = Reason.CAPTURED if graph else Reason.GRAPHS_OFF
    return Decision(phase, bucket if graph else None, bucket, reason)


def repeated(runner: GraphRunner, bucket: int, *, graph: bool) -> Callable[[], None]:
    """``REPEATS`` runs of a bucket, on what its slots hold."""
    decision = _decision(runner.phase, bucket, graph=graph)

    def run() -> None:
        with torch.inference_mode():
            for _ in range(REPEATS):
                runner.run(decision)

    return run


def fill(llm: LLM, phase: Phase, bucket: int) -> None:
    """Leave a live batch of ``bucket`` rows in the slots of a phase."""
    tokenizer = llm.parts.model.tokenizer
    tokens = 2 if phase is Phase.PREFILL else 3
    greedy = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    if phase is Phase.DECODE:
        llm.generate(["a picture of a red circle"] * bucket, greedy)
        return
    word = tokenizer("circle " * bucket)["input_ids"][:bucket]
    llm.generate(tokenizer.decode(word), greedy)


def replay_rows(llm: LLM, dtype: str, *, rounds: int) -> Iterator[Row]:
    """Replay of a few buckets of each phase; it should never be slower than eager."""
    for phase, runner in llm.parts.runners.items():
        sizes = runner.buckets.sizes
        chosen = [16, 128, 320] if phase is Phase.PREFILL else [1, 4, 8]
        for bucket in (size for size in chosen if size in sizes):
            fill(llm, phase, bucket)
            ours = repeated(runner, bucket, graph=True)
            theirs = repeated(runner, bucket, graph=False)
            samples = interleave({"ours": ours, "theirs": theirs}, rounds=rounds)
            unit = "rows" if phase is Phase.PREFILL else "requests"
            note = f"{REPEATS} runs each"
            yield compare(
                f"{phase} replay / eager, {bucket} {unit}, {dtype}", samples, limit=1.0, note=note
            )
            if bucket in (1, 128):
                graph = runner.graphs[bucket]
                yield host_row(f"{phase} {bucket} {unit}", graph.replay, dtype)

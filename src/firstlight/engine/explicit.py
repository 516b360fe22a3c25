"""What was asked for explicitly and can never be: said at the start, not found out while serving.

Defaults fall back to eager, with the reason in every decision. A bucket list or a backend that a
user typed is a wish; if no batch could ever meet it, starting anyway would hide that.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.errors import CaptureError, ConfigError
from firstlight.graphs import BucketState, GraphRunner


def longest_prefill(config: EngineConfig, memory: MemoryPlan) -> int:
    """Rows of the longest prefill step that requests can make, whatever the buckets."""
    prompt = max(memory.max_context - 1, 1)  # at least one token is generated
    room = (memory.n_pages - 1) * memory.page_size
    return min(config.max_num_seqs * prompt, room, config.max_batch_tokens or room)


def check_buckets(config: EngineConfig, memory: MemoryPlan) -> None:
    """Refuse typed buckets that no batch is large enough for.

    A bucket serves batches larger than the next smaller one.

    Raises:
        ConfigError: with the bucket and the longest batch.
    """
    longest = longest_prefill(config, memory)
    for previous, bucket in pairwise((0, *(config.prefill_buckets or ()))):
        if previous >= longest:
            raise ConfigError(
                f"prefill_buckets holds {bucket}, whose graph would never replay: the longest "
                f"prefill step has {longest} rows (max_context = {memory.max_context}, "
                f"max_num_seqs = {config.max_num_seqs}, {memory.n_pages - 1} pages of "
                f"{memory.page_size} tokens) and fits the bucket of {previous}"
            )
    most = most_requests(config, memory)
    for previous, bucket in pairwise((0, *(config.decode_buckets or ()))):
        if previous >= most:
            raise ConfigError(
                f"decode_buckets holds {bucket}, whose graph would never replay: at most {most} "
                f"requests run at a time (max_num_seqs = {config.max_num_seqs}, "
                f"{memory.n_pages - 1} pages) and fit the bucket of {previous}"
            )


def most_requests(config: EngineConfig, memory: MemoryPlan) -> int:
    """Requests that can run at a time: each holds a page at least."""
    return min(config.max_num_seqs, memory.n_pages - 1)


def check_captured(config: EngineConfig, runners: Mapping[Phase, GraphRunner]) -> None:
    """Refuse to start where graphs were asked for and not one of a phase could be captured.

    Raises:
        CaptureError: with the setting, the phase and the first bucket's own message.
    """
    lists = {
        Phase.PREFILL: ("prefill_buckets", config.prefill_buckets),
        Phase.DECODE: ("decode_buckets", config.decode_buckets),
    }
    for phase, runner in runners.items():
        name, asked = lists[phase]
        if asked is None and config.backend == "auto":
            continue
        table = runner.buckets
        if table.sizes and all(table.state(size) is BucketState.FAILED for size in table.sizes):
            setting = f"{name} = {list(asked)}" if asked else f"backend = {config.backend!r}"
            raise CaptureError(
                f"{setting} asks for {phase.value} graphs, but none can be captured: "
                f"{table.why(table.largest)}; without that setting {phase.value} runs eager"
            )

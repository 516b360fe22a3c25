"""How much one step may hold, and whether that goes together with the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from firstlight.engine.scheduling.paged_memory import PagedMemory
from firstlight.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one step may hold.

    Attributes:
        max_num_seqs: requests that run at the same time.
        max_batch_tokens: rows of a step.
        max_encoder_rows: media rows encoded for a step; one item goes whatever its size.

    Raises:
        ConfigError: a value below 1, or a step with fewer rows than requests that decode.
    """

    max_num_seqs: int
    max_batch_tokens: int
    max_encoder_rows: int

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value < 1:
                raise ConfigError(f"{entry.name} = {value}; accepted: an int from 1")
        if self.max_num_seqs > self.max_batch_tokens:
            raise ConfigError(
                f"max_num_seqs = {self.max_num_seqs} and max_batch_tokens = "
                f"{self.max_batch_tokens} contradict each other: a step must hold one row of each "
                "running request"
            )


def refusal(limits: Limits, memory: PagedMemory, capacity: int, block: int) -> str | None:
    """Why a request could not be served even alone, with both numbers; None if it could.

    Args:
        capacity: tokens that it may grow to.
        block: positions of its longest block, which must be prefilled in one chunk; or 0.
    """
    if block > limits.max_batch_tokens:
        return (
            f"{block} positions of one media item attend to each other and must be prefilled in "
            f"one step, but max_batch_tokens = {limits.max_batch_tokens}"
        )
    chunk = max(block, 1)  # whatever is no block can be prefilled token by token
    short = next(_shortages(memory, capacity, chunk), None)
    if short is None:
        return None
    pages = f"{short.need} KV pages of {memory.page_size} tokens"
    if short.window is None:
        return f"{capacity} tokens take {pages}; the pool has {short.pages} beside the sink"
    return (
        f"{chunk} tokens and the window of {short.window} before them take {pages}; the pool of "
        f"side {short.name} has {short.pages} beside the sink"
    )


def check_start(limits: Limits, memory: PagedMemory, max_context: int) -> None:
    """Refuse a memory in which a request of the longest context could not run at full chunks.

    Args:
        max_context: tokens of prompt and answer together that one request may have.

    Raises:
        ConfigError: naming both fields that contradict each other, their values, and what would do.
    """
    chunk = min(limits.max_batch_tokens, max_context)
    for short in _shortages(memory, max_context, chunk):
        if short.window is None:
            raise ConfigError(
                f"kv_pages = {short.pages + 1} and max_context = {max_context} contradict each "
                f"other: with page_size = {memory.page_size} the pages beside the sink hold "
                f"{short.pages * memory.page_size} tokens; kv_pages = {short.need + 1} would do"
            )
        raise ConfigError(
            f"sliding_pages = {short.pages + 1} and max_batch_tokens = {limits.max_batch_tokens} "
            f"contradict each other: with page_size = {memory.page_size} a chunk of {chunk} tokens "
            f"and the window of {short.window} before it take {short.need} pages beside the sink; "
            f"sliding_pages = {short.need + 1} would do"
        )


@dataclass(frozen=True, slots=True)
class _Shortage:
    """A pool with fewer pages beside its sink than one request needs."""

    name: str
    window: int | None
    need: int
    pages: int


def _shortages(memory: PagedMemory, capacity: int, chunk: int) -> Iterator[_Shortage]:
    usage = memory.usage()
    windows = [side.window for side in memory.layout.sides if side.window is not None]
    spaces = zip(
        (usage.pages, *usage.sides),
        (None, *windows),
        memory.pages_needed(capacity, chunk),
        strict=True,
    )
    for space, window, need in spaces:
        pages = space.free + space.cached + space.held
        if need > pages:
            yield _Shortage(space.name, window, need, pages)

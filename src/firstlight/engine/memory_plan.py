"""How much KV memory an engine gets, and how long a context it can then hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from firstlight.config import EngineConfig
from firstlight.errors import ConfigError
from firstlight.memory import KVPool, LayerShape
from firstlight.memory.layout import KVLayout

SPARE = 2
"""Times the pages that running requests need at most, for a windowed side: the rest is for cached
prefixes, whose last window must still be there for a hit."""


KV_BYTES = 1 << 30
"""Of the derived KV pool on a CPU where no limit is set."""


@dataclass(frozen=True, slots=True)
class KVRoom:
    """How much a derived KV pool may take, and the setting, with its value, that says so."""

    n_bytes: int
    by: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Pages of the pools, the sink included, and the longest context that a request may reach.

    Attributes:
        n_pages: virtual pages.
        limit: the setting, and its value, that keeps the context below the model's; empty if
            none does.
        layout: which layers share a pool.
        side_pages: physical pages of each side's pool, in the layout's order.
    """

    n_pages: int
    page_size: int
    max_context: int
    limit: str = ""
    layout: KVLayout = field(default_factory=lambda: KVLayout.of((None,), 1))
    side_pages: tuple[int, ...] = ()

    @property
    def max_pages(self) -> int:
        """Pages of the longest context: the width of a page table row."""
        return -(-self.max_context // self.page_size)


def plan_memory(
    config: EngineConfig,
    layers: Sequence[LayerShape],
    windows: Sequence[int | None],
    dtype: torch.dtype,
    model_context: int,
    room: KVRoom | None = None,
) -> MemoryPlan:
    """Sizes from the configuration, the model and the byte limit.

    Without ``max_context`` a context is as long as the model allows and the pool can hold.

    Args:
        windows: of each layer; None attends to everything before it.
        room: the limit of a derived pool, instead of ``kv_bytes``.

    Raises:
        ConfigError: a context that is asked for does not fit the model or the pool, with both
            numbers; or there is no room for a prompt of one token and its answer, or for a window.
    """
    asked = config.max_context
    if asked is not None and asked > model_context:
        raise ConfigError(
            f"max_context = {asked}; the model was made for at most {model_context} tokens"
        )
    context = asked or model_context
    sides = _Sides(config, KVLayout.of(windows, context), layers, dtype)
    n_pages, limit = sides.pages_for(context, room or _set_room(config))
    tokens = (n_pages - 1) * config.page_tokens
    if asked is not None and asked > tokens:
        raise ConfigError(
            f"max_context = {asked} does not fit the {tokens} tokens that {limit} gives room for"
        )
    if tokens >= context:
        limit = "" if asked is None else f"max_context = {asked}"
    if min(context, tokens) < 2:
        raise ConfigError(
            f"{limit or 'the model'} gives a context of {min(context, tokens)} token; a prompt and "
            "its answer need at least 2"
        )
    return MemoryPlan(
        n_pages,
        config.page_tokens,
        min(context, tokens),
        limit,
        sides.layout,
        tuple(sides.physical(n_pages)),
    )


def with_pages(
    plan: MemoryPlan,
    n_pages: int,
    config: EngineConfig,
    layers: Sequence[LayerShape],
    dtype: torch.dtype,
) -> MemoryPlan:
    """The same plan over another number of virtual pages; its context stays what it is."""
    sides = _Sides(config, plan.layout, layers, dtype)
    return replace(plan, n_pages=n_pages, side_pages=tuple(sides.physical(n_pages)))


def _set_room(config: EngineConfig) -> KVRoom:
    n_bytes = KV_BYTES if config.kv_bytes is None else config.kv_bytes
    return KVRoom(n_bytes, f"kv_bytes = {n_bytes}")


class _Sides:
    """What a number of virtual pages costs over all pools."""

    def __init__(
        self,
        config: EngineConfig,
        layout: KVLayout,
        layers: Sequence[LayerShape],
        dtype: torch.dtype,
    ) -> None:
        self._config = config
        self.layout = layout
        self._page_bytes = [
            KVPool.bytes_per_page(
                [shape for shape, at in zip(layers, layout.side_of_layer, strict=True) if at == i],
                config.page_tokens,
                dtype,
            )
            for i in range(len(layout.sides))
        ]
        self._wanted = [self._windowed_pages(side.window) for side in layout.sides]

    def physical(self, n_pages: int) -> list[int]:
        """Pages of each side for ``n_pages`` virtual ones."""
        return [n_pages if wanted is None else min(n_pages, wanted) for wanted in self._wanted]

    def pages_for(self, context: int, room: KVRoom) -> tuple[int, str]:
        """Virtual pages, and the setting that holds their number down.

        Raises:
            ConfigError: ``room`` is too little for the sink and one page.
        """
        config = self._config
        if config.kv_pages is not None:
            return config.kv_pages, f"kv_pages = {config.kv_pages}"
        least = self._bytes(2)
        if room.n_bytes < least:
            raise ConfigError(
                f"{room.by} is too little; two pages (one is the sink) of "
                f"{config.page_tokens} tokens take {least} bytes"
            )
        wanted = config.max_num_seqs * -(-context // config.page_tokens) + 1
        low, high = 2, max(wanted, 2)
        while low < high:  # the largest number that is affordable
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._bytes(middle) <= room.n_bytes else (low, middle - 1)
        return low, room.by

    def _bytes(self, n_pages: int) -> int:
        pairs = zip(self.physical(n_pages), self._page_bytes, strict=True)
        return sum(pages * size for pages, size in pairs)

    def _windowed_pages(self, window: int | None) -> int | None:
        """Physical pages of a side, the sink included; None for one that holds every page."""
        if window is None:
            return None
        config = self._config
        size = config.page_tokens
        if config.sliding_pages is not None:
            # A query and what it sees: so many pages if their first token ends one.
            seen = (window + size - 2) // size + 1
            if config.sliding_pages <= seen:
                raise ConfigError(
                    f"sliding_pages = {config.sliding_pages} is too little for a window of "
                    f"{window} tokens with page_size = {size}; accepted: at least {seen + 1} "
                    "(the pages that a window touches, and the sink)"
                )
            return config.sliding_pages
        held = -(-window // size) + 1
        step = -(-step_tokens(config) // size)
        return SPARE * (config.max_num_seqs * (held + 1) + step) + 1


def step_tokens(config: EngineConfig) -> int:
    """The most tokens that a step may have, before what memory allows is looked at."""
    largest = config.prefill_buckets[-1] if config.prefill_buckets else 0
    return config.max_batch_tokens or max(largest, config.max_prefill_bucket)

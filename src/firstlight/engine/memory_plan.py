"""How much KV memory an engine gets, and how long a context it can then hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from firstlight.config import EngineConfig
from firstlight.errors import ConfigError
from firstlight.memory import KVPool, LayerShape


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Pages of the pool, the sink included, and the longest context that a request may reach.

    Attributes:
        limit: the setting, and its value, that keeps the context below the model's; empty if
            none does.
    """

    n_pages: int
    page_size: int
    max_context: int
    limit: str = ""

    @property
    def max_pages(self) -> int:
        """Pages of the longest context: the width of a page table row."""
        return -(-self.max_context // self.page_size)


def plan_memory(
    config: EngineConfig, layers: Sequence[LayerShape], dtype: torch.dtype, model_context: int
) -> MemoryPlan:
    """Sizes from the configuration, the model and the byte limit.

    Without ``max_context`` a context is as long as the model allows and the pool can hold.

    Raises:
        ConfigError: a context that is asked for does not fit the model or the pool, with both
            numbers; or there is no room for a prompt of one token and its answer.
    """
    asked = config.max_context
    if asked is not None and asked > model_context:
        raise ConfigError(
            f"max_context = {asked}; the model was made for at most {model_context} tokens"
        )
    context = asked or model_context
    n_pages, limit = _pages(config, KVPool.bytes_per_page(layers, config.page_size, dtype), context)
    room = (n_pages - 1) * config.page_size
    if asked is not None and asked > room:
        raise ConfigError(
            f"max_context = {asked} does not fit the {room} tokens that {limit} gives room for"
        )
    if room >= context:
        limit = "" if asked is None else f"max_context = {asked}"
    if min(context, room) < 2:
        raise ConfigError(
            f"{limit or 'the model'} gives a context of {min(context, room)} token; a prompt and "
            "its answer need at least 2"
        )
    return MemoryPlan(n_pages, config.page_size, min(context, room), limit)


def _pages(config: EngineConfig, per_page: int, context: int) -> tuple[int, str]:
    """Pages of the pool, and the setting that holds their number down.

    Raises:
        ConfigError: ``kv_bytes`` has no room for the sink and one page.
    """
    if config.kv_pages is not None:
        return config.kv_pages, f"kv_pages = {config.kv_pages}"
    affordable = config.kv_bytes // per_page
    if affordable < 2:
        raise ConfigError(
            f"kv_bytes = {config.kv_bytes} is too little; two pages (one is the sink) of "
            f"{config.page_size} tokens take {2 * per_page} bytes"
        )
    wanted = config.max_num_seqs * -(-context // config.page_size) + 1
    return min(wanted, affordable), f"kv_bytes = {config.kv_bytes}"

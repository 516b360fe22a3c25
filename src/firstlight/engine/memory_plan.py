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
    """Pages of the pool, the sink included, and the longest context that a request may reach."""

    n_pages: int
    page_size: int
    max_context: int

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
        ConfigError: a context that is asked for does not fit the model or the pool; both numbers
            are named.
    """
    asked = config.max_context
    if asked is not None and asked > model_context:
        raise ConfigError(
            f"max_context = {asked}; the model was made for at most {model_context} tokens"
        )
    size = config.page_size
    per_page = KVPool.bytes_per_page(layers, size, dtype)
    context = asked or model_context
    if config.kv_pages is not None:
        n_pages = config.kv_pages
    else:
        wanted = config.max_num_seqs * -(-context // size) + 1
        n_pages = max(min(wanted, config.kv_bytes // per_page), 2)
    room = (n_pages - 1) * size
    if asked is not None and asked > room:
        limit = "kv_pages" if config.kv_pages is not None else "kv_bytes"
        raise ConfigError(
            f"max_context = {asked} does not fit the {room} tokens that "
            f"{limit} = {getattr(config, limit)} gives room for"
        )
    return MemoryPlan(n_pages, size, min(context, room))

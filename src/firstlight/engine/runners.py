"""The prefill and the decode runner over one model and one memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from firstlight.attention import (
    PagedAttention,
    RowsInMemory,
    SideViews,
    attention_,
    attention_op,
    slot_suffix,
)
from firstlight.attention.cuda import decode_op
from firstlight.config import EngineConfig
from firstlight.contract import InputContract
from firstlight.core.reason import Phase
from firstlight.engine.costs import unsettled_costs
from firstlight.engine.explicit import check_buckets, most_requests
from firstlight.engine.gpu import Gpu
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.engine.native_tier import NativeTier
from firstlight.engine.placement import Placement
from firstlight.engine.sanitizing import Sanitizer
from firstlight.graphs import (
    Arena,
    Body,
    BodyInputs,
    BucketTable,
    CaptureBackend,
    Decider,
    DecisionCounter,
    EagerBackend,
    Extent,
    GraphRunner,
    Ownership,
    PaddingIsFree,
    ScratchArena,
    SlotRegistry,
    TapeBackend,
    body_inputs,
    body_slots,
    default_ladder,
    phase_extent,
    request_ladder,
)
from firstlight.graphs.proof import Prover
from firstlight.graphs.sanitizer import TrackedRegistry
from firstlight.graphs.slots import BLOCK_BOUNDS, AttentionNames
from firstlight.memory import KVPool
from firstlight.memory.ids import VIRTUAL_SINK


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows of a prefill step, requests at a time, and the buckets of each phase."""

    max_batch_tokens: int
    max_num_seqs: int
    prefill_buckets: tuple[int, ...]
    decode_buckets: tuple[int, ...]


def limits_of(config: EngineConfig, memory: MemoryPlan) -> Limits:
    """Bucket lists and step sizes from the configuration; no bucket is beyond what fits.

    Raises:
        ConfigError: a bucket that was asked for can never be used.
    """
    check_buckets(config, memory)
    requests = most_requests(config, memory)
    context = min(memory.max_context * requests, (memory.n_pages - 1) * memory.page_size)
    largest = min(config.max_prefill_bucket, config.max_batch_tokens or context, context)
    if config.graphs_off:
        prefill: tuple[int, ...] = ()
        decode: tuple[int, ...] = ()
    else:
        prefill = config.prefill_buckets or default_ladder(largest)
        decode = config.decode_buckets or request_ladder(requests)
    tokens = config.max_batch_tokens or max(*prefill[-1:], largest, requests)
    return Limits(tokens, requests, prefill, decode)


class RunnerBuilder:
    """Builds runners that share scratch memory, ownership and the KV pool.

    Attributes:
        backend: captures for all runners.
        costs: by phase, what padding costs; empty where it is taken to be free.
    """

    def __init__(
        self,
        body: Body,
        contract: InputContract,
        pool: KVPool,
        memory: MemoryPlan,
        placement: Placement,
        owned: Ownership,
        *,
        dtype: torch.dtype,
        config: EngineConfig,
        prover: Prover | None = None,
        one_row_per_request: bool = False,
        sanitizer: Sanitizer | None = None,
        native: NativeTier,
        gpu: Gpu | None = None,
    ) -> None:
        self._body = body
        self._contract = contract
        self._pool = pool
        self._memory = memory
        self._placement = placement
        self._suffixes = tuple(slot_suffix(side) for side in memory.layout.sides)
        self._owned = owned
        self._dtype = dtype
        self._config = config
        self._prover = prover
        self._one_row_per_request = one_row_per_request
        self._sanitizer = sanitizer
        self._gpu = gpu
        self._arena = Arena(_device(pool)) if sanitizer is None else sanitizer.arena
        self._native = native
        self.backend = _backend(config, sanitizer, native, gpu, _device(pool))
        self._counter = DecisionCounter()
        self.costs = unsettled_costs(config)

    def build(self, phase: Phase, sizes: tuple[int, ...], capacity: Extent) -> GraphRunner:
        """One phase's slots and buckets; nothing is captured yet."""
        plain = self._sanitizer is None
        registry = (SlotRegistry if plain else TrackedRegistry)(capacity, self._arena)
        pages = self._memory.max_pages
        for spec in body_slots(self._contract, self._dtype, max_pages=pages, sides=self._suffixes):
            registry.register(spec)
        registry.allocate()
        buckets = BucketTable(sizes)
        return (GraphRunner if self._sanitizer is None else self._sanitizer.runner)(
            phase,
            registry=registry,
            buckets=buckets,
            backend=self.backend,
            body=self._body,
            decider=Decider(
                phase,
                buckets,
                max_requests=capacity.requests,
                max_context=self._memory.max_context,
                cost=self.costs.get(phase) or PaddingIsFree(),
                enabled=not self._config.graphs_off,
            ),
            inputs=self._inputs(phase, registry),
            owned=self._owned,
            plan_dummy=self._dummy(phase, registry),
            counter=self._counter,
            prover=self._prover,
            one_row_per_request=self._one_row_per_request,
            synchronise=None if self._gpu is None else self._gpu.api.synchronise,
        )

    def _inputs(self, phase: Phase, registry: SlotRegistry) -> Callable[[int], BodyInputs]:
        names = [AttentionNames(suffix) for suffix in self._suffixes]
        op = self._native.attention(self._pool)
        if phase is Phase.DECODE:
            op = decode_op(op, self._pool.keys[0].device)

        def attention(slots: SlotRegistry, extent: Extent) -> PagedAttention:
            sides = tuple(
                SideViews(*(slots.view(name, extent) for name in side.all)) for side in names
            )
            blocks = slots.view(BLOCK_BOUNDS, extent) if slots.has(BLOCK_BOUNDS) else None
            return PagedAttention(self._pool, sides, blocks, op)

        def inputs(rows: int) -> BodyInputs:
            extent = phase_extent(phase, rows, registry.capacity)
            return body_inputs(registry, self._contract, extent, attention)

        return inputs

    def _dummy(self, phase: Phase, registry: SlotRegistry) -> Callable[[int], None]:
        """Metadata of requests whose every page is the sink: legal, and it harms nobody."""

        def plan(rows: int) -> None:
            extent = phase_extent(phase, rows, registry.capacity)
            longest = 1 if phase is Phase.DECODE else self._memory.max_context
            requests = [
                RowsInMemory([VIRTUAL_SINK] * self._memory.max_pages, 0, min(longest, rows - start))
                for start in range(0, rows, longest)
            ][: extent.requests]
            values = self._placement.values(requests)
            for name, value in values.items():
                registry.buffer(name)[: value.shape[0]].copy_(value)

        return plan


def _backend(
    config: EngineConfig,
    sanitizer: Sanitizer | None,
    native: NativeTier,
    gpu: Gpu | None,
    device: torch.device,
) -> CaptureBackend:
    if config.chosen_backend == "eager":
        return EagerBackend()
    if gpu is not None and config.chosen_backend != "tape":
        return gpu.backend()
    if device.type != "cpu":  # operations recorded on a GPU and issued one by one
        return TapeBackend(ScratchArena(device))
    kernels = {attention_op(): attention_}
    if sanitizer is not None:  # it looks at memory between any two operations
        return TapeBackend(sanitizer.scratch, kernels=kernels)
    return TapeBackend(kernels=kernels, lowering=native.lowering())


def _device(pool: KVPool) -> torch.device:
    return pool.keys[0].device

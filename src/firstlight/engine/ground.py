"""What an engine's runners and loop stand on: a model made ready, its memory, its device.

On a GPU the pool gets its size around the captures, see :mod:`firstlight.engine.gpu`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine import heap
from firstlight.engine.accounting import Weights
from firstlight.engine.gpu import Gpu, no_room, rebind
from firstlight.engine.mapped_weights import MappedWeights
from firstlight.engine.memory_plan import KVRoom, MemoryPlan, plan_memory, with_pages
from firstlight.engine.native_tier import NativeTier, open_tier
from firstlight.engine.placement import Placement
from firstlight.engine.runners import RunnerBuilder
from firstlight.graphs import GraphRunner, Ownership
from firstlight.graphs.backends.cuda import CudaBackend
from firstlight.memory import KVPool, LayerShape
from firstlight.memory.kv_memory import KVMemory
from firstlight.models.fuse import FuseReport, Kit, fuse_model
from firstlight.models.loading import LoadedModel


@dataclass(frozen=True, slots=True)
class Ground:
    """What runners and loop stand on: a model made ready, and its memory.

    Attributes:
        config: the configured one; what the GPU decides is settled in it.
    """

    config: EngineConfig
    model: LoadedModel
    native: NativeTier
    fused: FuseReport | None
    packed_bytes: int
    memory: MemoryPlan
    pool: KVPool
    kv: KVMemory
    placement: Placement
    owned: Ownership
    layers: tuple[LayerShape, ...]
    gpu: Gpu | None = None

    @property
    def one_row_per_request(self) -> bool:
        """Whether the body gives the last row of each request, not a row per token."""
        return self.fused is not None and self.fused.one_row_per_request


def lay_ground(config: EngineConfig, model: LoadedModel, gpu: Gpu | None = None) -> Ground:
    """Fuse the model's modules, plan the memory, and allocate the pool.

    Raises:
        ConfigError: the memory that is asked for, or there, does not hold a request; weights of
            fewer bits are asked for, and the compiled kernels are not there.
    """
    config = config if gpu is None else gpu.settle_page_size(model)
    heap.starting()
    adapter = model.adapter
    loaded = Weights.of(adapter.model)
    native = open_tier(config, adapter.dtype)
    segments = config.encoder_graphs == "on"
    kit = Kit(native.kernels, native.format, rounds_rows=native.rounds_rows, segments=segments)
    fused = fuse_model(adapter, kit, _freeing(adapter.model)) if config.fuse else None
    layers = [LayerShape(f.kv_heads, f.head_dim, f.v_head_dim) for f in model.layers]
    windows = [f.window for f in model.layers]
    derived = gpu is not None and gpu.derives_kv
    room = gpu.most() if gpu is not None and derived else None
    memory = plan_memory(config, layers, windows, adapter.dtype, model.max_context, room)
    first = memory
    if gpu is not None and derived:
        first = with_pages(memory, gpu.first_pages(memory), config, layers, adapter.dtype)
    pool = KVPool(
        layers,
        layout=memory.layout,
        n_pages=first.side_pages,
        page_size=memory.page_size,
        dtype=adapter.dtype,
        device=adapter.device,
    )
    if config.kv_prefault:
        pool.prefault()
    kv = _kv_memory(config, first, pool)
    return Ground(
        config=config,
        model=model,
        native=native,
        fused=fused,
        packed_bytes=Weights.of(adapter.model).grown_from(loaded),
        memory=memory,
        pool=pool,
        kv=kv,
        placement=Placement.of(kv, memory, adapter.contract),
        owned=_owned(adapter.decoder, pool),
        layers=tuple(layers),
        gpu=gpu,
    )


def _freeing(model: torch.nn.Module) -> Callable[[], None]:
    """What to call when weights of a model were replaced."""
    mapped = MappedWeights(model)

    def freed() -> None:
        mapped.give_back()
        heap.give_back_free_memory()

    return freed


def _kv_memory(config: EngineConfig, memory: MemoryPlan, pool: KVPool) -> KVMemory:
    return KVMemory(
        memory.layout,
        n_pages=memory.n_pages,
        side_pages=memory.side_pages,
        page_size=memory.page_size,
        prefix_cache=config.prefix_cache,
        copy=pool.copy_rows,
    )


def before_captures(
    config: EngineConfig,
    ground: Ground,
    builder: RunnerBuilder,
    runners: Mapping[Phase, GraphRunner],
) -> Ground:
    """What captures will take; where they hold the pool's addresses, it gets its size now."""
    gpu = ground.gpu
    if gpu is None or not gpu.derives_kv or not isinstance(builder.backend, CudaBackend):
        return ground
    room = gpu.forecast(runners.values(), builder.backend)
    return _with_pool(config, ground, runners, room) if gpu.whole else ground


def after_captures(
    config: EngineConfig, ground: Ground, runners: Mapping[Phase, GraphRunner]
) -> Ground:
    """The pool in its final size, by what is free now that graphs are there."""
    heap.give_back_free_memory()
    heap.serving()
    gpu = ground.gpu
    if gpu is None:
        return ground
    if gpu.derives_kv and not gpu.whole:
        ground = _with_pool(config, ground, runners, gpu.left())
    gpu.settle(runners.values(), ground.pool.nbytes)
    return ground


def _with_pool(
    config: EngineConfig, ground: Ground, runners: Mapping[Phase, GraphRunner], room: KVRoom
) -> Ground:
    """The pool within ``room``; its context is never longer than what slots were made for.

    Raises:
        ConfigError: there is no room for a pool, with need, have and the setting to change.
    """
    adapter, upper = ground.model.adapter, ground.memory
    windows = [f.window for f in ground.model.layers]
    found = plan_memory(
        config, ground.layers, windows, adapter.dtype, ground.model.max_context, room
    )
    n_pages, context = min(found.n_pages, upper.n_pages), min(found.max_context, upper.max_context)
    memory = with_pages(upper, n_pages, config, ground.layers, adapter.dtype)
    memory = replace(memory, max_context=context, limit=found.limit)
    old = (*ground.pool.keys, *ground.pool.values)
    try:
        moved = ground.pool.resize(memory.side_pages)
    except RuntimeError as error:  # torch's error for no memory is one
        raise no_room(error, room) from error
    rebind(runners, moved)
    for tensor in old:
        ground.owned.release(tensor)
    _own_pool(ground.owned, ground.pool)
    kv = _kv_memory(config, memory, ground.pool)
    placement = replace(ground.placement, sides=Placement.of(kv, memory, adapter.contract).sides)
    return replace(ground, memory=memory, kv=kv, placement=placement)


def _owned(decoder: torch.nn.Module, pool: KVPool) -> Ownership:
    owned = Ownership()
    owned.add_module(decoder)
    _own_pool(owned, pool)
    return owned


def _own_pool(owned: Ownership, pool: KVPool) -> None:
    for layer, (keys, values) in enumerate(zip(pool.keys, pool.values, strict=True)):
        owned.add(keys, f"KV pool, keys of layer {layer}")
        owned.add(values, f"KV pool, values of layer {layer}")

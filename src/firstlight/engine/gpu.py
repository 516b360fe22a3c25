"""A GPU under an engine: its backend, and the KV pool that is sized by what is really free.

The pool cannot be sized well beforehand: what graphs take is known once they are captured. So with
attention outside of graphs the engine captures over a small pool and replaces it afterwards; where
graphs hold attention, and with it the pool's addresses, the pool is sized before the captures by a
forecast. Both numbers are kept, and compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from firstlight.attention import attention_op
from firstlight.attention.cuda import usable
from firstlight.attention.serves import Choice, Wanted, available, choose, page_size_for
from firstlight.config import EngineConfig
from firstlight.contract import MaskKind
from firstlight.core.reason import Phase
from firstlight.engine.memory_plan import KVRoom, MemoryPlan, step_tokens
from firstlight.errors import CaptureError, ConfigError
from firstlight.graphs import GraphRunner, ScratchArena
from firstlight.graphs.backends.cuda import (
    CudaBackend,
    GraphApi,
    MemoryCounters,
    SegmentedGraph,
    TorchGraphApi,
    cuda_device,
    last_run,
)
from firstlight.graphs.proof import Tolerance
from firstlight.graphs.sanitizer import GuardedScratchArena
from firstlight.models.loading import LoadedModel

GRAPH_BYTES = 32 << 20
"""Forecast for one graph beside its scratch memory. Of a published report on another engine: 42
graphs took 1.33 GiB. Our own figure is not known before this has run on a GPU."""

_LOG = logging.getLogger("firstlight.engine")


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Where a GPU's memory goes, in bytes.

    Attributes:
        total: of the device; ``share``: of it that may be in use.
        headroom: what the largest eager run took while it ran, and gave back.
        graphs_forecast, kv_forecast: before captures; ``graphs``: found after them.
        kv: of the pool that serves.
    """

    total: int
    share: float
    headroom: int = 0
    graphs_forecast: int = 0
    kv_forecast: int = 0
    graphs: int = 0
    kv: int = 0

    def lines(self) -> list[str]:
        """For a start: where this was last run on a GPU, and where the memory went."""
        return [last_run(), self.sentence()]

    def sentence(self) -> str:
        """Forecast against what was found."""
        return (
            f"graphs took {self.graphs} bytes (forecast {self.graphs_forecast}), the KV pool gets "
            f"{self.kv} (forecast {self.kv_forecast}), {self.headroom} are kept for eager runs and "
            f"{self.total - int(self.total * self.share)} of {self.total} stay free"
        )


def kv_room(now: MemoryCounters, share: float, headroom: int) -> int:
    """Bytes that a KV pool may take so that ``share`` of the device is in use at most; 0 or more.

    What torch's allocator holds and no tensor uses does not count: it has given back what it can,
    and the rest lies in pieces, or in the pool of graphs, which shares it with nobody.

    Args:
        now: after :meth:`GraphApi.release_unused`.
        headroom: bytes that runs need while they run.
    """
    return max(now.free - (now.total - int(now.total * share)) - headroom, 0)


@dataclass(slots=True)
class Gpu:
    """The device of one engine.

    Attributes:
        memory: what is known of it so far.
    """

    api: GraphApi
    config: EngineConfig
    memory: GpuMemory = field(init=False)
    _before: MemoryCounters = field(init=False)
    _scratch: ScratchArena = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.api.counters()
        scratch = GuardedScratchArena if self.config.sanitize else ScratchArena
        self._scratch = scratch(self.api.device)
        self.memory = GpuMemory(self._before.total, self.config.gpu_memory)

    @property
    def derives_kv(self) -> bool:
        """Whether the pool is sized by what is free, and not by a setting."""
        return self.config.kv_pages is None and self.config.kv_bytes is None

    @property
    def whole(self) -> bool:
        """Whether graphs hold attention, and with it the pool's addresses."""
        return self.config.chosen_backend == "cuda-whole"

    def settle_page_size(self, model: LoadedModel) -> EngineConfig:
        """The configuration with a page size: as set, else what serves most layers best."""
        kernels = self._kernels()  # with their trial, so that no step has to wait for it
        if self.config.page_size is None:
            size = page_size_for(self._wanted(model), kernels)
            self.config = replace(self.config, page_size=size)
        return self.config

    def attention(self, model: LoadedModel) -> list[Choice]:
        """The kernel of each different kind of layer, and why others do not serve it."""
        kernels = self._kernels()
        return [choose(wanted, kernels) for wanted in dict.fromkeys(self._wanted(model))]

    def _kernels(self) -> tuple[str, ...]:
        """What may attend here: on a real GPU, what has passed its trial."""
        device = self.api.device
        return usable(device.index or 0) if device.type == "cuda" else available()

    def _wanted(self, model: LoadedModel) -> list[Wanted]:
        adapter, capability = model.adapter, self.api.capability()
        prefix_lm = adapter.contract.mask is MaskKind.PREFIX_LM
        size = self.config.page_tokens
        return [
            Wanted(adapter.dtype, f.head_dim, f.v_head_dim, size, prefix_lm, capability)
            for f in model.layers
        ]

    def backend(self) -> CudaBackend:
        """The backend of all runners."""
        return CudaBackend(
            self.api, attention=(attention_op(),), whole=self.whole, scratch=self._scratch
        )

    def most(self) -> KVRoom:
        """What a pool could have if graphs took nothing; no pool gets more."""
        self.api.release_unused()
        return self._room(kv_room(self.api.counters(), self.config.gpu_memory, 0))

    def first_pages(self, plan: MemoryPlan) -> int:
        """Pages of the pool that captures and proofs run over."""
        step = -(-step_tokens(self.config) // self.config.page_tokens)
        return min(2 * (step + self.config.max_num_seqs) + 16, plan.n_pages)

    def forecast(self, runners: Iterable[GraphRunner], backend: CudaBackend) -> KVRoom:
        """Run the largest bucket of each phase once, and say what will be left for a pool.

        Its scratch memory is taken then, so that only the graphs themselves are guessed.
        """
        self.api.forget_peak()
        graphs = 0
        for runner in runners:
            graphs += len(runner.buckets.sizes)
            with suppress(CaptureError):  # the capture will say the same, and what follows from it
                runner.rehearse(backend.plan)
        now = self.api.counters()
        headroom, guess = max(now.peak - now.allocated, 0), graphs * GRAPH_BYTES
        self.api.release_unused()
        room = max(kv_room(self.api.counters(), self.config.gpu_memory, headroom) - guess, 0)
        self.memory = GpuMemory(
            self._before.total, self.config.gpu_memory, headroom,
            graphs_forecast=guess + self._scratch.bytes, kv_forecast=room,
        )  # fmt: skip
        _LOG.info(
            "forecast for %d graphs: %d bytes; the KV pool would get %d of %d bytes",
            graphs, self.memory.graphs_forecast, room, self._before.total,
        )  # fmt: skip
        return self._room(room)

    def left(self) -> KVRoom:
        """What a pool may have now that graphs are captured."""
        self.api.release_unused()
        now = self.api.counters()
        headroom = max(self.memory.headroom, now.peak - now.allocated)
        return self._room(kv_room(now, self.config.gpu_memory, headroom))

    def settle(self, runners: Iterable[GraphRunner], kv_bytes: int) -> None:
        """Note what graphs really took and what the pool has, and log both beside the forecast."""
        graphs = sum(g.bytes for runner in runners for g in runner.graphs.values())
        known = self.memory
        self.memory = GpuMemory(
            known.total, known.share, known.headroom, known.graphs_forecast, known.kv_forecast,
            graphs=graphs, kv=kv_bytes,
        )  # fmt: skip
        _LOG.info("%s", self.memory.sentence())

    def _room(self, n_bytes: int) -> KVRoom:
        share, total = self.config.gpu_memory, self._before.total
        return KVRoom(n_bytes, f"gpu_memory = {share} (it leaves {n_bytes} of {total} bytes)")


def open_gpu(config: EngineConfig) -> Gpu | None:
    """The configured GPU; None on a CPU.

    Raises:
        ConfigError: there is none here, with the reason.
    """
    return Gpu(TorchGraphApi(cuda_device(config.device)), config) if config.on_gpu else None


def tolerance_of(gpu: Gpu | None) -> Tolerance:
    """What a proof allows: nothing on a CPU; on a GPU what eager runs at other shapes differ by."""
    return Tolerance() if gpu is None else Tolerance(replay=None)


def rebind(runners: Mapping[Phase, GraphRunner], moved: Mapping[int, torch.Tensor]) -> None:
    """Give every captured graph's eager calls the tensors of a replaced pool."""
    for runner in runners.values():
        for graph in runner.graphs.values():
            if isinstance(graph, SegmentedGraph):
                graph.rebind(moved)


def no_room(error: BaseException, room: KVRoom) -> ConfigError:
    """What to say where a pool of the size that counters allow cannot be had."""
    said = str(error).strip().partition("\n")[0]
    return ConfigError(
        f"a KV pool within {room.by} cannot be allocated: {said}; set a smaller gpu_memory or "
        "kv_bytes"
    )


def describe(gpu: Gpu | None) -> dict[str, Any] | None:
    """For reports, ready for JSON; None on a CPU."""
    if gpu is None:
        return None
    return {"device": str(gpu.api.device), "verified": last_run(), **asdict(gpu.memory)}

"""The tape: CUDA-graph semantics on a CPU -- fixed shapes, fixed addresses, no host reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload

from firstlight.graphs.arena import ScratchArena
from firstlight.graphs.backends.tape.build import (
    Lowering,
    Memory,
    build_calls,
    constants_of,
    regions_of,
)
from firstlight.graphs.backends.tape.choose import FormChooser
from firstlight.graphs.backends.tape.fold import ConstantPool, fold
from firstlight.graphs.backends.tape.graph import CaptureSeconds, Counts, TapeGraph
from firstlight.graphs.backends.tape.plan import plan_memory
from firstlight.graphs.backends.tape.record import Recording
from firstlight.graphs.backends.tape.recorder import record
from firstlight.graphs.ownership import Ownership


class TapeBackend:
    """Records the operations of a body below autograd and replays them over fixed memory.

    Weights must not change while graphs exist: what depends on weights alone is computed once.
    Graphs of one backend share scratch memory and constants, and must not run at the same time.

    Args:
        scratch: where intermediates live; one per process serves all backends.
        kernels: Python functions called in place of custom operations, by overload.
        lowering: compiles runs of operations into one call each; None issues them one by one.
        pin_output: give each graph's output memory of its own, so that it outlives the next replay
            of another graph (not of its own).
    """

    name = "tape"

    def __init__(
        self,
        scratch: ScratchArena | None = None,
        *,
        kernels: Mapping[OpOverload, Callable[..., Any]] | None = None,
        lowering: Lowering | None = None,
        pin_output: bool = False,
    ) -> None:
        self.scratch = ScratchArena() if scratch is None else scratch
        self._kernels = dict(kernels or {})
        self._lowering = lowering
        self._pin_output = pin_output
        self._device = self.scratch.device
        on_cpu = self._device.type == "cpu"
        self._chooser = FormChooser(self._kernels, self._device, timed=on_cpu)
        self._constants = ConstantPool()

    def capture(self, fn: Callable[[], torch.Tensor], *, owned: Ownership, label: str) -> TapeGraph:
        """Run ``fn`` once and keep its operations.

        Raises:
            CaptureError: ``fn`` reads values on the host (HostReadError), makes shapes from data
                (DynamicShapeError), touches memory that nobody owns (UnownedTensorError), or draws
                random numbers; each names the op and the source line.
        """
        with torch.inference_mode(False):
            return self._capture(fn, owned, label)

    def recording(self, fn: Callable[[], torch.Tensor], owned: Ownership) -> Recording:
        """Run ``fn`` once and return what a capture would hold, without making a graph.

        Raises:
            CaptureError: as for :meth:`capture`.
        """
        with torch.inference_mode(False):
            return self._record(fn, owned)

    def _record(self, fn: Callable[[], torch.Tensor], owned: Ownership) -> Recording:
        stand_ins = None if self._lowering is None else self._lowering.stand_ins
        return record(fn, owned, self._kernels, self._device, stand_ins)

    def _capture(self, fn: Callable[[], torch.Tensor], owned: Ownership, label: str) -> TapeGraph:
        started = time.perf_counter()
        recording = self._record(fn, owned)
        recorded = time.perf_counter()
        folded = fold(recording)
        fresh = self._constants.share(recording, folded.constants)
        plan = plan_memory(recording, folded.ops, folded.constants)
        memory = Memory(recording, plan, self.scratch, pin_output=self._pin_output)
        planned = time.perf_counter()
        calls, steps = build_calls(folded.ops, recording, memory, self._chooser, self._lowering)
        output = memory.tensor(recording.output)
        done = time.perf_counter()
        return TapeGraph(
            label, calls, steps, output,
            constants=constants_of(recording, fresh),
            regions=regions_of(recording, folded.ops, memory),
            counts=Counts(len(steps), recording.views, folded.n_folded, folded.n_dropped),
            times=CaptureSeconds(recorded - started, planned - recorded, done - planned),
            scratch_bytes=plan.n_bytes, fresh_bytes=memory.fresh_bytes,
            pinned_bytes=memory.pinned_bytes,
        )  # fmt: skip

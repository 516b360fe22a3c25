"""Whether this engine runs on the compiled kernels, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from firstlight.attention import attention_op
from firstlight.config import EngineConfig
from firstlight.memory import KVPool
from firstlight.native import (
    Kernels,
    NativeLowering,
    NativeUnavailableError,
    can_attend,
    open_kernels,
)


@dataclass(frozen=True, slots=True)
class NativeTier:
    """The compiled kernels.

    Attributes:
        kernels: None if torch's kernels are used.
        reason: why that is so; empty where ``kernels`` is there.
    """

    kernels: Kernels | None
    reason: str = ""

    def attention(self, pool: KVPool) -> Any:
        """The attention operation for the heads of a pool."""
        shapes = {
            (k.dtype, k.shape[3], v.shape[3]) for k, v in zip(pool.keys, pool.values, strict=True)
        }
        if self.kernels is None or not all(can_attend(*shape) for shape in shapes):
            return attention_op()
        return torch.ops.firstlight.attend_rows.default

    def lowering(self) -> NativeLowering | None:
        """What compiles runs of a tape; one for all graphs of an engine."""
        return None if self.kernels is None else NativeLowering(self.kernels)


def open_tier(config: EngineConfig, dtype: torch.dtype) -> NativeTier:
    """The kernels as configured; they are compiled now if this machine has not done so yet."""
    if config.native == "off":
        return NativeTier(None, "native = off")
    if not config.fuse:
        return NativeTier(None, "fuse = false: the model's own modules are kept")
    if config.device != "cpu":
        return NativeTier(None, f"the kernels are for CPUs, the device is {config.device}")
    if dtype not in (torch.float32, torch.bfloat16):
        return NativeTier(
            None, f"the kernels compute in float32 and bfloat16, the model in {dtype}"
        )
    try:
        return NativeTier(open_kernels(config.cache_dir))
    except NativeUnavailableError as error:
        return NativeTier(None, str(error))

"""Whether this engine runs on the compiled kernels, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from firstlight.attention import attention_op
from firstlight.config import EngineConfig
from firstlight.errors import ConfigError
from firstlight.memory import KVPool
from firstlight.native import (
    Kernels,
    NativeLowering,
    NativeUnavailableError,
    WeightFormat,
    can_attend,
    open_kernels,
)


@dataclass(frozen=True, slots=True)
class NativeTier:
    """The compiled kernels.

    Attributes:
        kernels: None if torch's kernels are used.
        reason: why that is so; empty where ``kernels`` is there.
        format: how linear weights are stored; None as they are.
        rounds_rows: whether inputs of layers with codes are rounded to 8 bits.
    """

    kernels: Kernels | None
    reason: str = ""
    format: WeightFormat | None = None
    rounds_rows: bool = False

    def describe(self) -> dict[str, Any]:
        """For reports, ready for JSON."""
        kernels = self.kernels
        return {
            "native": kernels is not None,
            "reason": self.reason,
            "library": None if kernels is None else str(kernels.path),
            "threads": None if kernels is None else kernels.threads,
            "quantization": "none" if self.format is None else self.format.name.lower(),
            "dynamic_quantization": self.rounds_rows,
        }

    def sentence(self) -> str:
        """For people: which kernels run, and why not the compiled ones."""
        if self.kernels is None:
            return f"torch's ({self.reason})"
        threads = self.kernels.threads
        each = "" if self.format is None else f", weights in {self.format.name.lower()}"
        each += ", their inputs in int8" if self.rounds_rows else ""
        return f"compiled for this CPU, {threads} thread{'' if threads == 1 else 's'}{each}"

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
    """The kernels as configured; they are compiled now if this machine has not done so yet.

    Raises:
        ConfigError: weights of fewer bits are asked for, and the kernels are not there; inputs of
            fewer bits are asked for, and weights are not.
    """
    reason = _reason_against(config, dtype)
    kernels = None
    if reason is None:
        try:
            kernels = open_kernels(config.cache_dir)
        except NativeUnavailableError as error:
            reason = str(error)
    if kernels is None and config.quantization != "none":
        raise ConfigError(
            f"quantization = {config.quantization!r} needs the compiled kernels, which are not "
            f"used here: {reason}; accepted: quantization = 'none'"
        )
    format = _FORMATS[config.quantization]
    return NativeTier(kernels, reason or "", format, _rounds_rows(config, kernels))


_FORMATS = {"none": None, "int8": WeightFormat.INT8, "int4": WeightFormat.INT4}


def _rounds_rows(config: EngineConfig, kernels: Kernels | None) -> bool:
    asked = config.dynamic_quantization
    if asked == "on" and config.quantization == "none":
        raise ConfigError(
            "dynamic_quantization = 'on' is for weights in fewer bits, and quantization is 'none'; "
            "accepted: quantization = 'int8' or 'int4', or dynamic_quantization = 'auto'"
        )
    if kernels is None or config.quantization == "none" or asked == "off":
        return False
    return asked == "on" or kernels.dots_bytes


def _reason_against(config: EngineConfig, dtype: torch.dtype) -> str | None:
    if config.native == "off":
        return "native = off"
    if not config.fuse:
        return "fuse = false keeps the model's own modules"
    if config.device != "cpu":
        return f"they are for CPUs, and the device is {config.device}"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"they compute in float32 and bfloat16, and the model is {dtype}"
    return None

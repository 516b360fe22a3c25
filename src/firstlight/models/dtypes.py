"""Which dtype the weights get."""

from __future__ import annotations

import torch

from firstlight.errors import ConfigError

_DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The torch dtype of a configured name.

    ``auto`` is bfloat16 where the hardware multiplies it natively (a CPU with AMX or AVX512-BF16,
    a CUDA device that supports it) and float32 elsewhere.

    Raises:
        ConfigError: an unknown name.
    """
    if name == "auto":
        return torch.bfloat16 if _native_bfloat16(device) else torch.float32
    try:
        return _DTYPES[name]
    except KeyError:
        raise ConfigError(f"dtype = {name!r}; accepted: auto, {', '.join(_DTYPES)}") from None


def _native_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(bool(getattr(torch.cpu, probe, lambda: False)()) for probe in probes)

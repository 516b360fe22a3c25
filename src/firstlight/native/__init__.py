"""Compiled CPU kernels: one call runs many operations of a graph, on the engine's own threads.

The source is C++ in ``source/``; it is compiled once a machine, for its CPU, by the compiler that
is there (:mod:`.build`). Without a compiler everything runs on torch's kernels.
"""

from __future__ import annotations

from firstlight.native.build import NativeUnavailableError, build_library
from firstlight.native.calls import can_attend, can_attend_segments
from firstlight.native.kernels import Kernels, open_kernels
from firstlight.native.lowering import NativeLowering
from firstlight.native.weights import PackedWeight, WeightFormat, can_pack

__all__ = [
    "Kernels",
    "NativeLowering",
    "NativeUnavailableError",
    "PackedWeight",
    "WeightFormat",
    "build_library",
    "can_attend",
    "can_attend_segments",
    "can_pack",
    "open_kernels",
]

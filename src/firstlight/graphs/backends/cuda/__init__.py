"""CUDA graphs of a body: pieces around eager attention, or whole.

Importable without CUDA; :func:`cuda_device` says what is missing.
"""

from __future__ import annotations

from firstlight.graphs.backends.cuda.api import CapturedPiece, GraphApi, MemoryCounters
from firstlight.graphs.backends.cuda.backend import CudaBackend
from firstlight.graphs.backends.cuda.cut import Bridge, CapturePlan, Define, Kind, Segment
from firstlight.graphs.backends.cuda.graph import EagerCall, Insides, SegmentedGraph
from firstlight.graphs.backends.cuda.torch_api import TorchGraphApi, cuda_device, why_no_cuda
from firstlight.graphs.backends.cuda.verified import GpuRun, gpu_runs, last_run

__all__ = [
    "Bridge",
    "CapturePlan",
    "CapturedPiece",
    "CudaBackend",
    "Define",
    "EagerCall",
    "GpuRun",
    "GraphApi",
    "Insides",
    "Kind",
    "MemoryCounters",
    "Segment",
    "SegmentedGraph",
    "TorchGraphApi",
    "cuda_device",
    "gpu_runs",
    "last_run",
    "why_no_cuda",
]

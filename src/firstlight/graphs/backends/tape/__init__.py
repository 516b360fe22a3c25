"""Record below autograd, plan memory, choose the fastest exact call per operation, replay."""

from __future__ import annotations

from firstlight.graphs.backends.tape.backend import TapeBackend
from firstlight.graphs.backends.tape.graph import Constant, TapeGraph

__all__ = ["Constant", "TapeBackend", "TapeGraph"]

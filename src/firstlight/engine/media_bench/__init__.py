"""Measures the way of a picture beside transformers' own processor."""

from __future__ import annotations

from firstlight.engine.media_bench.bench import MediaBench
from firstlight.engine.media_bench.row import MediaRow
from firstlight.engine.media_bench.sample import Sample, interleave

__all__ = ["MediaBench", "MediaRow", "Sample", "interleave"]

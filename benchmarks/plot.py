"""Line charts as SVG: those of the package."""

from __future__ import annotations

from firstlight.bench.plot import Chart, page

__all__ = ["Chart", "page"]

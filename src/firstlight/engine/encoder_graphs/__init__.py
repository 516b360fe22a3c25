"""Vision towers from captured graphs: building, proving, and encoding through them."""

from __future__ import annotations

from firstlight.engine.encoder_graphs.build import EncoderGraphs, open_encoder_graphs
from firstlight.engine.encoder_graphs.rows import GraphRows

__all__ = ["EncoderGraphs", "GraphRows", "open_encoder_graphs"]

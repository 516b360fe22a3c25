"""Logits to tokens: penalties, filters, draws and log probabilities.

The order is that of transformers' generation: repetition penalty, presence and frequency penalties,
suppressed end tokens, temperature, top-k, top-p, min-p, draw.
"""

from __future__ import annotations

from firstlight.sampling.sampler import Sampled, Sampler
from firstlight.sampling.state import SamplingState

__all__ = ["Sampled", "Sampler", "SamplingState"]

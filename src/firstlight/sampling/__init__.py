"""Logits to tokens: penalties, filters, draws and log probabilities.

The answer's form comes first, then what transformers' generation does, in its order: repetition
penalty, presence and frequency penalties, suppressed end tokens, temperature, top-k, top-p, min-p,
draw.
"""

from __future__ import annotations

from firstlight.sampling.draws import Draws, Sampled
from firstlight.sampling.grammar import Grammar, Grammars
from firstlight.sampling.sampler import Sampler
from firstlight.sampling.state import SamplingState

__all__ = ["Draws", "Grammar", "Grammars", "Sampled", "Sampler", "SamplingState"]

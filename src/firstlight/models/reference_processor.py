"""transformers' own image processors of a checkpoint, used as its documentation does.

What serves is compared with them: the same bytes, the same options, none of our code between.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image

from firstlight.models.adapter import Adapter


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceProcessor:
    """One backend's processor.

    Attributes:
        backend: ``pil`` or ``torchvision``.
        processor: of transformers.
        options: keyword arguments of each call, those that the family's adapter asks for.
    """

    backend: str
    processor: Any
    options: Mapping[str, object]

    def __call__(self, data: bytes) -> Mapping[str, Any]:
        """The features of one picture, from its file's bytes."""
        image = Image.open(io.BytesIO(data)).convert("RGB")
        features: Mapping[str, Any] = self.processor(
            images=[image], return_tensors="pt", **self.options
        )
        return features


def reference_processors(folder: Path, adapter: Adapter) -> list[ReferenceProcessor]:
    """Those that can be had here: PIL's always, torchvision's where that is installed.

    Args:
        folder: of the checkpoint, in Hugging Face layout.
        adapter: of its model.
    """
    from transformers import AutoImageProcessor

    backends = ["pil", *(["torchvision"] if find_spec("torchvision") else [])]
    found: dict[type, ReferenceProcessor] = {}
    for backend in backends:
        processor: Any = AutoImageProcessor.from_pretrained(
            folder, config=adapter.config, backend=backend, local_files_only=True
        )
        # A family without the backend gets the other one's processor again.
        reference = ReferenceProcessor(backend, processor, dict(adapter.processor_options))
        found.setdefault(type(processor), reference)
    return list(found.values())

"""The files that prepare a checkpoint's input: which are there, and what they name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

from firstlight.errors import ModelLoadError
from firstlight.models.files import read_json

IMAGE_FILES: Final = ("preprocessor_config.json", "processor_config.json")
_TOKENIZER_FILES: Final = ("tokenizer.json", "*.model", "vocab*", "*.tiktoken", "tekken.json")
_SUFFIXES: Final = ("Pil", "Fast")  # variants of one processor
_LOG: Final = logging.getLogger("firstlight.models")


def require_tokenizer(folder: Path) -> None:
    """Raise ModelLoadError if a folder has no file that a tokenizer could be made from.

    transformers makes one without a vocabulary then, whose first use fails far from here.
    """
    if not any(found for pattern in _TOKENIZER_FILES for found in folder.glob(pattern)):
        raise ModelLoadError(
            f"{folder} has no tokenizer: none of {', '.join(_TOKENIZER_FILES)} is there; copy them "
            "from the checkpoint that this one was made from"
        )


def declared_image_processor(folder: Path) -> str | None:
    """The class that a folder names for its image processor; None where it leaves that open.

    Raises:
        ModelLoadError: no file describes an image processor.
    """
    first, second = IMAGE_FILES
    if not any((folder / name).is_file() for name in IMAGE_FILES):
        raise ModelLoadError(
            f"{folder} has no image processor: neither {first} nor {second} is there; copy {first} "
            "from the checkpoint that this one was made from"
        )
    fields: Any = None
    if (folder / second).is_file():
        fields = read_json(folder / second).get("image_processor")
    if fields is None and not (folder / first).is_file():
        raise ModelLoadError(
            f"{folder} has no image processor: {first} is missing, and {second} describes none; "
            f"copy {first} from the checkpoint that this one was made from"
        )
    if fields is None:
        fields = read_json(folder / first)
    name = fields.get("image_processor_type") if isinstance(fields, dict) else None
    return name if isinstance(name, str) else None


def tell_of_fallback(folder: Path, declared: str | None, used: object) -> None:
    """Log a warning where another class is used than the files name."""
    name = type(used).__name__
    if declared is not None and _plain(declared) != _plain(name):
        _LOG.warning(
            "%s names the image processor %s, which is not known; %s, that of the architecture, is "
            "used",
            folder,
            declared[:100],
            name,
        )


def _plain(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name

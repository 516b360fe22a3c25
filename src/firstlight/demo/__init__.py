"""The bundled demo: a tiny trained Qwen3-VL checkpoint and pictures to ask it about."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class DemoPicture:
    """One example; ``actual`` is what the shipped weights answered when it was recorded.

    Pictures that are not ``in_distribution`` look unlike anything the model was trained on.
    """

    path: Path
    question: str
    expected: str
    actual: str
    in_distribution: bool


def model_path() -> Path:
    """The checkpoint folder, in Hugging Face layout."""
    return _FOLDER / "model"


def pictures() -> list[DemoPicture]:
    """The example pictures with a question each."""
    folder = _FOLDER / "pictures"
    entries = json.loads((folder / "pictures.json").read_text(encoding="utf-8"))
    return [
        DemoPicture(
            path=folder / entry["file"],
            question=entry["question"],
            expected=entry["expected"],
            actual=entry["actual"],
            in_distribution=entry["in_distribution"],
        )
        for entry in entries
    ]


__all__ = ["DemoPicture", "model_path", "pictures"]

"""Files that a script measured, and the sentence that says where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def read(name: str) -> dict[str, Any] | None:
    """What the file of that name holds; None if nothing was measured yet."""
    path = FOLDER / name
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def not_yet(command: str, name: str) -> str:
    """What stands in the place of figures that nobody has taken."""
    return (
        f"Not measured yet. `{command} --json benchmarks/{name}` measures, and `scripts/docs` "
        "then fills this in."
    )


def where(about: Mapping[str, Any], versions: Mapping[str, str] | None = None) -> str:
    """Machine, versions, commit and date, as a sentence."""
    named = versions or {"torch": about["torch"], "transformers": about["transformers"]}
    amx = ", AMX" if about.get("amx") == "True" else ""
    return (
        f"{about['cpu']}, {about['threads']} threads, {about['capability']}{amx}; "
        f"{', '.join(f'{name} {version}' for name, version in named.items())}; commit "
        f"{about['commit']}, {about['date']}."
    )

"""Settings that are lists of buckets: given as lists, typed, or in files."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

from firstlight.errors import ConfigError
from firstlight.settings import is_int

BUCKETS = "ints from 1, as an ascending list, as text like '64,128,256', or the path of a file"
"""What is accepted."""


def is_ladder(value: object) -> bool:
    """Whether it is a tuple of ascending ints from 1."""
    if not isinstance(value, tuple) or not value or not all(map(is_int(1), value)):
        return False
    return all(a < b for a, b in pairwise(value))


def parse_ladder(value: object) -> object:
    """``'128, 64'``, ``[64, 128]`` or a file -> ``(64, 128)``; the rest is left for the check.

    What is typed may stand in any order, as in ``firstlight.graphs.parse_ladder``.
    """
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if all(p.isdecimal() for p in parts):
            return tuple(sorted({int(p) for p in parts}))
        looks_like_a_file = Path(value).suffix or os.sep in value
        return _read_ladder(Path(value)) if looks_like_a_file or Path(value).is_file() else value
    if isinstance(value, Path):
        return _read_ladder(value)
    return tuple(value) if isinstance(value, list) else value


def _read_ladder(path: Path) -> tuple[int, ...]:
    """The buckets of a file: JSON, a list or an object with ``buckets``; or ints in a text.

    Raises:
        ConfigError: it cannot be read or holds anything else, or the ints do not ascend.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the bucket file {path} cannot be read: {error}") from error
    if text.startswith(("[", "{")):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the bucket file {path} is no JSON: {error}") from error
        if isinstance(found, dict):
            found = found.get("buckets")
        sizes = tuple(found) if isinstance(found, list) else found
    else:
        lines = (line.partition("#")[0] for line in text.splitlines())
        words = " ".join(lines).replace(",", " ").split()
        sizes = tuple(int(word) if word.isdecimal() else word for word in words)
    if not is_ladder(sizes):
        raise ConfigError(
            f"the bucket file {path} holds {sizes!r:.80}; a JSON list, a JSON object with "
            "'buckets' or a text of ascending ints from 1 is expected"
        )
    return sizes

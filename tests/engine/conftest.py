"""Fixtures of the tests that run many requests at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm
from tests.engine.mix import Catalogue, Scale, build_catalogue
from tests.variants import with_window

Catalogues = Callable[[str, Scale], Catalogue]

WINDOW = 24
"""Of the windowed variants: more than a page of 16, less than most prompts."""


@pytest.fixture(scope="session")
def mixed_checkpoint(
    tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory
) -> TinyCheckpoint:
    """A family's checkpoint by name; ``windowed-`` before it gives sliding and full layers."""
    root = tmp_path_factory.mktemp("windowed")

    def get(name: str) -> Path:
        family = name.removeprefix("windowed-")
        if family == name:
            return tiny_checkpoint(name)
        folder = root / family
        return folder if folder.exists() else with_window(tiny_checkpoint(family), folder, WINDOW)

    return get


@pytest.fixture(scope="session")
def catalogues(mixed_checkpoint: TinyCheckpoint) -> Catalogues:
    """``catalogues(name, scale)``: questions with transformers' answers, made once a session."""
    made: dict[tuple[str, Scale], Catalogue] = {}

    def get(name: str, scale: Scale) -> Catalogue:
        if (name, scale) not in made:
            path = mixed_checkpoint(name)
            made[name, scale] = build_catalogue(tiny_llm(path, eager=True), path, scale)
        return made[name, scale]

    return get

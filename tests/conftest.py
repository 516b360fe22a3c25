"""Fixtures that several packages' tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tools.tiny_checkpoints import build_checkpoint

pytest_plugins = ["firstlight.testing"]

# How long an example takes says more of the machine's load than of the code.
settings.register_profile("firstlight", deadline=None)
settings.load_profile("firstlight")

TinyCheckpoint = Callable[[str], Path]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models run fastest on one thread, and always in the same order."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    """``tiny_checkpoint(family)`` is the folder of that family's checkpoint, built once."""
    root = tmp_path_factory.mktemp("tiny")
    built: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in built:
            built[family] = build_checkpoint(family, root / family)
        return built[family]

    return get

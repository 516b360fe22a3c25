"""The compiled library, or a skip that says why it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.config import EngineConfig
from firstlight.native import Kernels, NativeUnavailableError, build_library, open_kernels


@pytest.fixture(scope="session")
def library() -> Path:
    """The file, compiled in the first session on a machine and kept."""
    try:
        return build_library(EngineConfig().cache_dir)
    except NativeUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kernels(library: Path) -> Kernels:
    """The kernels of this process, with torch operations on them."""
    return open_kernels(library.parent.parent)

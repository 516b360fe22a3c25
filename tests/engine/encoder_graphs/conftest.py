"""The compiled kernels, or a skip that says why they are not there."""

from __future__ import annotations

import pytest

from firstlight.config import EngineConfig
from firstlight.native import Kernels, NativeUnavailableError, open_kernels


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """The kernels of this process."""
    try:
        return open_kernels(EngineConfig().cache_dir)
    except NativeUnavailableError as error:
        pytest.skip(str(error))

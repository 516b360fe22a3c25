"""The comparison of towers names each way, and all of them encode."""

from __future__ import annotations

import pytest
from benchmarks.tower import FIRST, compared
from tests.conftest import TinyCheckpoint

from firstlight.config import EngineConfig
from firstlight.native import NativeUnavailableError, open_kernels


def test_each_way_is_compared_with_transformers_modules(tiny_checkpoint: TinyCheckpoint) -> None:
    try:
        open_kernels(EngineConfig().cache_dir)
    except NativeUnavailableError as error:
        pytest.skip(str(error))
    rows = compared("tiny", tiny_checkpoint("qwen3_vl"), 64, 1)
    assert [row.way for row in rows] == [
        FIRST, "torch's kernels", "compiled kernels", "compiled, from a graph",
    ]  # fmt: skip
    assert rows[0].ratio == 1.0
    assert len({row.patches for row in rows}) == 1
    assert all(row.patches > 0 and row.ms > 0 for row in rows)

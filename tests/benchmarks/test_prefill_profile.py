"""A profile of a prefill accounts for its whole time."""

from __future__ import annotations

import pytest
import torch
from benchmarks.prefill_profile import AROUND, WHOLE, profile

from firstlight import LLM
from firstlight.native import NativeUnavailableError, build_library


@pytest.mark.slow
def test_shares_of_kernels_and_of_what_is_around_make_up_the_whole() -> None:
    with LLM(prefix_cache=False, prefill_buckets=(64,), max_context=128) as llm:
        try:
            build_library(llm.config.cache_dir)
        except NativeUnavailableError as error:
            pytest.skip(str(error))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            rows = profile(llm, 64, rounds=2)
        finally:
            torch.set_num_threads(threads)
    kinds = {row.what: row for row in rows}
    assert sum(row.share for row in rows[:-1]) == pytest.approx(1, abs=0.02)
    assert rows[-1].what == WHOLE
    assert 0 < kinds[AROUND].ms < kinds[WHOLE].ms
    assert kinds["attend tiles"].calls == kinds["store kv"].calls - 1
    assert all((row.gflops is not None) == row.what.startswith("linear") for row in rows)

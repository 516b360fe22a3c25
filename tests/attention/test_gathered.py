"""Attention in plain torch operations equals the CPU kernel, and reads nothing on the host."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.attention import attention_, gathered
from firstlight.attention.gathered import attention_gathered_
from tests.attention.batches import CASES, Batch, batches
from tests.host_reads import HostReads


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=25)
def test_any_batch_equals_the_cpu_kernel(case: str, data: st.DataObject) -> None:
    batch = data.draw(batches(**CASES[case]))
    want, got = batch.run(attention_), batch.run(attention_gathered_)
    torch.testing.assert_close(got.out, want.out, atol=2e-6, rtol=1e-5)
    assert torch.equal(got.k_pool, want.k_pool)
    assert torch.equal(got.v_pool, want.v_pool)


@given(batch=batches(blocks=True, window=5))
@settings(max_examples=10)
def test_taking_few_requests_at_a_time_changes_nothing(batch: Batch) -> None:
    want = batch.run(attention_gathered_).out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered, "MOST_SCORES", 1)
        patch.setattr(gathered, "MOST_GATHERED", 1)
        got = batch.run(attention_gathered_).out
    torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=5)
def test_what_nobody_sees_may_be_nan(case: str, data: st.DataObject) -> None:
    """Unused places of pages, other pages and the sink: none of it reaches a row."""
    batch = data.draw(batches(**CASES[case]))
    want = batch.run(attention_gathered_).out
    got = batch.poisoned().run(attention_gathered_).out
    torch.testing.assert_close(got, want, atol=0, rtol=0)


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=3)
def test_nothing_is_read_on_the_host(case: str, data: st.DataObject) -> None:
    batch = data.draw(batches(**CASES[case]))
    with HostReads() as reads:
        batch.run(attention_gathered_)
    assert reads.places() == []


def test_shapes_alone_decide_what_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """On meta tensors, which have no values at all."""

    def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    attention_gathered_(
        meta(8, 4, 16), meta(8, 2, 16), meta(8, 2, 24), meta(9, 4, 2, 16), meta(9, 4, 2, 24),
        meta(8, dtype=torch.int64), meta(3, 5, dtype=torch.int32), meta(3, 4, dtype=torch.int64),
        meta(8, 2, dtype=torch.int64), meta(8, 4, 24), 0.5, 6, False,
    )  # fmt: skip


@given(batch=batches())
@settings(max_examples=1)
def test_the_cpu_kernel_reads_its_metadata_on_the_host(batch: Batch) -> None:
    """Shows that the test above can fail."""
    with HostReads() as reads:
        batch.run(attention_)
    assert ("attention/cpu.py", "_attend") in reads.places()

"""Attention by a kernel of our own equals the CPU's: in Triton's interpreter, or on a GPU."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
pytest.importorskip("triton", reason="triton is not installed; no CPU build of torch brings it")

from firstlight.attention import attention_  # noqa: E402
from firstlight.gpu.attention import attention_triton_  # noqa: E402
from tests.attention.batches import CASES, Batch, batches  # noqa: E402

pytestmark = [pytest.mark.cuda] if DEVICE == "cuda" else []
# Triton's interpreter does not compute in bfloat16.
HALF = [torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
QUICK = (Phase.explicit, Phase.generate)  # shrinking takes minutes in the interpreter
# A GPU compiles the kernel for each size, some seconds each.
SIZES: dict[str, Any] = {} if DEVICE == "cpu" else {"page_sizes": (16,), "dims": ((64, 48),)}


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=6, phases=QUICK)
def test_any_batch_equals_the_cpu_kernel(case: str, data: st.DataObject) -> None:
    batch = data.draw(batches(**CASES[case], **SIZES))
    want, got = (
        batch.run(attention_),
        batch.to(dtype=torch.float32, device=DEVICE).run(attention_triton_),
    )
    torch.testing.assert_close(got.out.cpu(), want.out, atol=2e-6, rtol=1e-5)
    assert torch.equal(got.k_pool.cpu(), want.k_pool)
    assert torch.equal(got.v_pool.cpu(), want.v_pool)


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=3, phases=QUICK)
def test_what_nobody_sees_may_be_nan(case: str, data: st.DataObject) -> None:
    batch = data.draw(batches(**CASES[case], **SIZES)).to(dtype=torch.float32)
    want = batch.to(dtype=torch.float32, device=DEVICE).run(attention_triton_).out
    got = batch.poisoned().to(dtype=torch.float32, device=DEVICE).run(attention_triton_).out
    torch.testing.assert_close(got, want, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", HALF)
@given(batch=batches(window=9, dims=((64, 64), (96, 64))))
@settings(max_examples=3, phases=QUICK)
def test_half_precision_is_as_near_as_its_roundings(dtype: torch.dtype, batch: Batch) -> None:
    want = batch.to(dtype=dtype).run(attention_).out
    got = batch.to(dtype=dtype, device=DEVICE).run(attention_triton_).out.cpu()
    torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)

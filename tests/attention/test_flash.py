"""Calls to FlashAttention kernels, against a reference of what their documentation says."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.attention import attention_
from firstlight.attention.flash import (
    Call,
    Kernel,
    attention_flash_,
    flash_attention_3,
    lengths_of,
    torch_varlen,
)
from firstlight.errors import SlotError
from tests.attention.batches import Batch, batches

CASES: dict[str, dict[str, Any]] = {
    "causal": {},
    "window": {"window": 6},
    "window of one": {"window": 1},
    "last rows": {"last_only": True},
    "last rows, window": {"last_only": True, "window": 7},
}


def paged(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, used: Tensor, table: Tensor, scale: float,
    window: tuple[int, int], limits: tuple[int, int],
) -> Tensor:  # fmt: skip
    """Row i of n queries over m keys sees ``i + m - n - left`` to ``i + m - n + right``."""
    assert cu_q.dtype == used.dtype == table.dtype == torch.int32
    out = torch.full((*q.shape[:2], v.shape[3]), torch.nan, dtype=q.dtype)
    page, share = k.shape[1], q.shape[1] // k.shape[2]
    for i, (start, end) in enumerate(zip(cu_q[:-1].tolist(), cu_q[1:].tolist(), strict=True)):
        n, m = end - start, int(used[i])
        assert n <= limits[0]
        assert m <= limits[1]
        if not n:
            continue
        pages = table[i, : -(-m // page)].long()
        keys, values = (t[pages].flatten(0, 1)[:m].repeat_interleave(share, 1) for t in (k, v))
        own = torch.arange(n).unsqueeze(1) + m - n
        key = torch.arange(m)
        seen = (key <= own + window[1]) & ((key >= own - window[0]) | (window[0] < 0))
        scores = torch.einsum("phd,jhd->hpj", q[start:end], keys) * scale
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out[start:end] = torch.einsum("hpj,jhd->phd", weights, values)
    return out


def fake_varlen_out(
    out: Tensor, query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor,
    cu_seq_k: Tensor | None, max_q: int, max_k: int, *, return_aux: Any = None,
    scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
    seqused_k: Tensor | None = None, block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:  # fmt: skip
    """As torch documents it. FlashAttention-2 wants cumulative keys although it has pages."""
    assert cu_seq_k is not None
    assert seqused_k is not None
    assert block_table is not None
    assert scale is not None
    assert enable_gqa
    assert torch.equal(cu_seq_k[1:] - cu_seq_k[:-1], seqused_k)
    result = paged(
        query, key, value, cu_seq_q, seqused_k, block_table, scale, window_size, (max_q, max_k)
    )
    live = int(cu_seq_q[-1])
    out[:live] = result[:live]
    return out


def fake_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, *, cache_seqlens: Tensor, page_table: Tensor,
    cu_seqlens_q: Tensor, max_seqlen_q: int, softmax_scale: float, causal: bool,
    window_size: tuple[int, int], num_splits: int,
) -> Tensor:  # fmt: skip
    assert causal
    limits = (max_seqlen_q, page_table.shape[1] * k_cache.shape[1])
    return paged(
        q, k_cache, v_cache, cu_seqlens_q, cache_seqlens, page_table, softmax_scale, window_size,
        limits,
    )  # fmt: skip


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.attention import varlen

    monkeypatch.setattr(varlen, "varlen_attn_out", fake_varlen_out)
    module = ModuleType("flash_attn_interface")
    module.__dict__["flash_attn_with_kvcache"] = fake_with_kvcache
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)


def check(kernel: Kernel, batch: Batch) -> None:
    want = batch.run(attention_)
    got = batch.run(lambda *args: attention_flash_(kernel, *args))
    torch.testing.assert_close(got.out, want.out, atol=2e-6, rtol=1e-5)
    assert torch.equal(got.k_pool, want.k_pool)
    assert torch.equal(got.v_pool, want.v_pool)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kernel", [torch_varlen, flash_attention_3])
def test_a_batch_is_said_in_the_librarys_terms(kernel: Kernel, case: str) -> None:
    @given(data=st.data())
    @settings(max_examples=15)
    def run(data: st.DataObject) -> None:
        check(kernel, data.draw(batches(**CASES[case], dims=((8, 8),))))

    run()


def test_torchs_function_has_the_arguments_that_are_given() -> None:
    from torch.nn.attention import varlen

    if not hasattr(varlen, "varlen_attn_out"):
        pytest.skip("this torch has no varlen_attn_out")
    real = inspect.signature(varlen.varlen_attn_out).parameters
    assert set(inspect.signature(fake_varlen_out).parameters) == set(real)


def test_rows_that_are_not_in_use_have_no_rows_and_no_keys() -> None:
    slot = torch.tensor([[0, 5, 9, -1], [5, 1, 30, 16], [0, 0, 0, 0]])
    assert [t.tolist() for t in lengths_of(slot, last_only=False)] == [
        [0, 5, 6, 6],
        [0, 9, 39, 39],
        [9, 30, 0],
    ]
    assert lengths_of(slot, last_only=True).cumulative_rows.tolist() == [0, 1, 2, 2]


@given(batch=batches(blocks=True))
@settings(max_examples=1)
def test_media_blocks_are_refused(batch: Batch) -> None:
    def never(call: Call) -> None:
        raise AssertionError("called")

    with pytest.raises(SlotError, match="media blocks"):
        batch.run(lambda *args: attention_flash_(never, *args))

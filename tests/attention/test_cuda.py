"""The registration for CUDA, and what a decode step may say; kernels need a device."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from firstlight.attention import attention_, attention_op, cuda
from firstlight.attention.cuda import attention_cuda_, decode_op, kernel_of, one_row_each
from firstlight.attention.gathered import attention_gathered_
from firstlight.attention.serves import GATHERED, TORCH_VARLEN, TRITON, Choice
from firstlight.attention.trial import fault_of
from tests.attention.batches import Batch, batches


def test_the_operation_has_a_kernel_for_cuda() -> None:
    name = attention_op().name()
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")


def test_the_fallback_is_the_plain_one() -> None:
    assert kernel_of(Choice(GATHERED)) is attention_gathered_


@given(batch=batches(last_only=True, window=7))
@settings(max_examples=10)
def test_a_batch_of_one_row_each_equals_one_of_last_rows(batch: Batch) -> None:
    want = batch.run(attention_).out
    got = batch.run(lambda *args: one_row_each(attention_gathered_)(*args[:-1], False)).out
    torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-5)


def test_only_a_gpus_decode_runner_says_that_rows_are_last_ones() -> None:
    op = attention_op()
    assert decode_op(op, torch.device("cpu")) is op
    assert decode_op(op, torch.device("cuda")) is not op


def test_a_kernel_of_our_own_that_fails_its_trial_is_left_out_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(cuda, "available", lambda: (TORCH_VARLEN, TRITON))
    monkeypatch.setattr(cuda, "kernel_of", lambda choice: broken)
    monkeypatch.setattr(cuda, "fault_of", lambda kernel, _: fault_of(kernel, torch.device("cpu")))
    cuda.usable.cache_clear()
    try:
        assert cuda.usable(0) == (TORCH_VARLEN,)
        monkeypatch.setattr(cuda, "kernel_of", lambda choice: attention_)
        assert cuda.usable(1) == (TORCH_VARLEN, TRITON)
    finally:
        cuda.usable.cache_clear()
    assert "our own Triton kernel is left out: torch.float32, window 0" in caplog.text


def test_a_trial_may_wait_where_waiting_is_an_error_and_leaves_that_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[object] = []
    seen: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(cuda, "available", lambda: (TRITON,))
    monkeypatch.setattr(cuda, "kernel_of", lambda choice: attention_)
    monkeypatch.setattr(cuda, "fault_of", lambda kernel, _: seen.append(list(modes)))
    cuda.usable.cache_clear()
    try:
        assert cuda.usable(0) == (TRITON,)
    finally:
        cuda.usable.cache_clear()
    assert seen == [["default"]]
    assert modes == ["default", 2]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("page_size", [16, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "case", [{}, {"window": 6}, {"blocks": True}, {"last_only": True, "window": 7}]
)
def test_the_kernel_on_a_gpu_equals_that_on_a_cpu(
    page_size: int, dtype: torch.dtype, case: dict[str, int | bool]
) -> None:
    """Without a sync: the debug mode makes every one of them an error."""

    @given(batch=batches(page_sizes=(page_size,), dims=((64, 64), (64, 32)), **case))  # type: ignore[arg-type]
    @settings(max_examples=20, deadline=None)
    def check(batch: Batch) -> None:
        want = batch.to(dtype=dtype).run(attention_)
        moved = batch.to(dtype=dtype, device="cuda")

        def checked(*args: object) -> None:
            torch.cuda.set_sync_debug_mode("error")
            try:
                attention_cuda_(*args)  # type: ignore[arg-type]
            finally:
                torch.cuda.set_sync_debug_mode("default")

        got = moved.run(checked)
        atol = 2e-5 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(got.out.cpu(), want.out, atol=atol, rtol=1e-2)
        assert torch.equal(got.k_pool.cpu(), want.k_pool)

    check()

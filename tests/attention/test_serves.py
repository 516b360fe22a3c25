"""Which kernel serves which attention, and the reasons against the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from firstlight.attention.serves import (
    FLASH_3,
    GATHERED,
    TORCH_VARLEN,
    TRITON,
    Wanted,
    available,
    choose,
    page_size_for,
)

PLAIN = Wanted(torch.bfloat16, 128, 128, 256, prefix_lm=False, capability=(9, 0))
BOTH = (FLASH_3, TORCH_VARLEN)


@pytest.mark.parametrize(
    ("wanted", "installed", "kernel"),
    [
        (PLAIN, BOTH, FLASH_3),
        (PLAIN, (TORCH_VARLEN,), TORCH_VARLEN),
        (PLAIN, (), GATHERED),
        (PLAIN, (*BOTH, TRITON), FLASH_3),
        (replace(PLAIN, page_size=16), (TORCH_VARLEN, TRITON), TRITON),
        (replace(PLAIN, prefix_lm=True), (*BOTH, TRITON), TRITON),
        (replace(PLAIN, dtype=torch.float32, value_dim=64), (*BOTH, TRITON), TRITON),
        (replace(PLAIN, capability=(7, 5)), (*BOTH, TRITON), GATHERED),
        (replace(PLAIN, key_dim=512), (TRITON,), GATHERED),
        (replace(PLAIN, capability=(8, 0)), BOTH, TORCH_VARLEN),
        (replace(PLAIN, capability=(7, 5)), BOTH, GATHERED),
        (replace(PLAIN, page_size=16), BOTH, FLASH_3),
        (replace(PLAIN, page_size=16), (TORCH_VARLEN,), GATHERED),
        (replace(PLAIN, prefix_lm=True), BOTH, GATHERED),
        (replace(PLAIN, dtype=torch.float32), BOTH, GATHERED),
        (replace(PLAIN, value_dim=64), BOTH, GATHERED),
        (replace(PLAIN, key_dim=512, value_dim=512), BOTH, GATHERED),
    ],
)
def test_the_first_that_serves_is_chosen(
    wanted: Wanted, installed: tuple[str, ...], kernel: str
) -> None:
    assert choose(wanted, installed).kernel == kernel


@pytest.mark.parametrize(
    ("layers", "installed", "size"),
    [
        ([PLAIN], (TORCH_VARLEN,), 256),
        ([PLAIN], BOTH, 16),
        ([PLAIN], (), 16),
        ([PLAIN], (TRITON,), 16),
        ([PLAIN], (TORCH_VARLEN, TRITON), 256),
        ([replace(PLAIN, dtype=torch.float32)], (TORCH_VARLEN,), 16),
        ([replace(PLAIN, prefix_lm=True)], (TORCH_VARLEN,), 16),
        ([replace(PLAIN, value_dim=64), PLAIN], (TORCH_VARLEN,), 256),
    ],
)
def test_pages_are_as_small_as_the_best_kernel_takes_them(
    layers: list[Wanted], installed: tuple[str, ...], size: int
) -> None:
    assert page_size_for(layers, installed) == size


def test_a_choice_reads_as_a_sentence() -> None:
    assert str(choose(PLAIN, (TORCH_VARLEN,))) == (
        "torch-varlen; not flash-attention-3: it is not installed"
    )


def test_a_choice_says_what_the_others_lack() -> None:
    choice = choose(replace(PLAIN, page_size=16), (TORCH_VARLEN,))
    assert choice.reasons == (
        (FLASH_3, "it is not installed"),
        (TORCH_VARLEN, "page_size = 16; accepted: multiples of 256"),
        (TRITON, "it is not installed"),
    )


def test_this_torch_reads_pages_iff_its_function_takes_a_page_table() -> None:
    from torch.nn.attention import varlen

    takes = "block_table" in (getattr(varlen.varlen_attn, "__doc__", None) or "")
    assert (TORCH_VARLEN in available()) is takes

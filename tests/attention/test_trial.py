"""A kernel serves only where it computes what plain operations do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from firstlight.attention import attention_
from firstlight.attention.trial import fault_of

CPU = torch.device("cpu")


def test_a_kernel_that_is_right_may_serve() -> None:
    assert fault_of(attention_, CPU) is None


def spoiled(*arguments: Any) -> None:
    """Right but for the last row of a window."""
    attention_(*arguments)
    out, window = arguments[9], arguments[11]
    if window:
        out[1] += 0.5


def test_a_kernel_that_is_wrong_in_one_case_is_named_with_it() -> None:
    said = fault_of(spoiled, CPU)
    assert said is not None
    assert said.startswith("torch.float32, window 20, all rows: results differ by ")


def unwritten(*arguments: Any) -> None:
    """Leaves the output as it was."""


def test_a_result_that_is_no_number_is_a_fault() -> None:
    said = fault_of(unwritten, CPU)
    assert said is not None
    assert "differ by nan" in said


def test_a_kernel_that_cannot_be_compiled_is_a_fault_and_no_error() -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("PTX assembly aborted due to errors\n" + "x" * 999)

    said = fault_of(broken, CPU)
    assert said is not None
    assert said.startswith("torch.float32, window 0, all rows: RuntimeError: PTX assembly aborted")
    assert len(said) < 300


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_our_own_kernel_may_serve_on_this_gpu() -> None:
    from firstlight.gpu.attention import attention_triton_

    assert fault_of(attention_triton_, torch.device("cuda", 0)) is None

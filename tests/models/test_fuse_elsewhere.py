"""Fusing on a device that is not the CPU: every tensor of a check lies where the model does.

The device is torch's ``meta``: it computes nothing and holds no values, and refuses to mix with
tensors of a CPU as a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from firstlight.models.fuse import decoder, fuse_model, parity, patches, tail
from firstlight.models.loading import load_model
from tests.conftest import TinyCheckpoint


def shapes_alone(old: Callable[[], Tensor], new: Callable[[], Tensor]) -> str | None:
    """Stands for the comparison of values, which the device does not have."""
    want, got = old(), new()
    assert (want.device.type, got.device.type) == ("meta", "meta")
    return None if want.shape == got.shape else f"{want.shape} against {got.shape}"


@pytest.mark.parametrize("family", ["llama", "qwen3_vl"])
def test_no_check_of_a_replacement_mixes_devices(
    family: str, tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parity, patches, tail):
        monkeypatch.setattr(module, "compare", shapes_alone)
    adapter = load_model(tiny_checkpoint(family), dtype="float32").adapter
    adapter.model.to("meta")
    report = fuse_model(adapter)
    assert report.left == {}
    assert report.one_row_per_request
    assert sum(n for name, n in report.swapped.items() if name.endswith("Attention")) == 2


def test_the_rotary_values_of_a_check_lie_where_the_decoder_does(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    adapter = load_model(tiny_checkpoint("qwen3_vl"), dtype="float32").adapter
    adapter.model.to("meta")
    attention = adapter.decoder.layers[0].self_attn
    rotary = decoder._rotary(adapter.decoder, attention, adapter.position_rank, 32)
    assert rotary is not None
    assert {values.device.type for values in rotary} == {"meta"}

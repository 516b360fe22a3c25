"""Patch convolutions become one product, and only where they are one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from firstlight.models.fuse import FuseReport, PatchLinear, fuse_patches
from tests.conftest import TinyCheckpoint
from tests.models.dense import compose, load
from tests.pictures import picture

FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"]


@pytest.mark.parametrize("family", FAMILIES)
def test_media_rows_stay_the_same(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    loaded = load(tiny_checkpoint(family))
    artifacts = compose(loaded, [picture(48, 32), picture(40, 72), "x"]).artifacts
    report = FuseReport()
    with torch.no_grad():
        before = loaded.adapter.media_rows(artifacts)
        fuse_patches(loaded.adapter.model, report)
        after = loaded.adapter.media_rows(artifacts)
    assert list(report.swapped.values()) == [1]
    assert report.left == {}
    assert any(isinstance(m, PatchLinear) for m in loaded.adapter.model.modules())
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


class Sliding(nn.Module):
    """A parent that convolves over a whole volume."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, 4, (2, 8, 8), stride=(2, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x.view(1, 3, 2, 8, -1))  # type: ignore[no-any-return]


def test_a_larger_input_is_still_convolved() -> None:
    model = nn.ModuleDict({"tower": Sliding()})
    x = torch.randn(1, 3, 2, 8, 32)
    report = FuseReport()
    with torch.no_grad():
        before = model["tower"](x)
        fuse_patches(model, report)
        assert report.swapped == {"Sliding": 1}
        torch.testing.assert_close(model["tower"](x), before)


class Broken(Sliding):
    """A parent whose input is of another kind."""

    def forward(self, x: Tensor) -> Tensor:
        raise TypeError("wants a list")


def test_a_parent_that_cannot_be_checked_keeps_its_convolution() -> None:
    model = nn.ModuleDict({"tower": Broken()})
    report = FuseReport()
    fuse_patches(model, report)
    assert report.left == {"Broken": "TypeError: wants a list"}
    assert isinstance(model["tower"].proj, nn.Conv3d)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv3d(3, 4, 2, stride=1),
        nn.Conv3d(3, 4, 2, stride=2, padding=1),
        nn.Conv3d(4, 4, 2, stride=2, groups=2),
        nn.Conv3d(3, 4, 2, stride=2, dilation=2),
    ],
    ids=["overlap", "padding", "groups", "dilation"],
)
def test_other_convolutions_are_left_alone(conv: nn.Conv3d) -> None:
    assert not PatchLinear.takes(conv)

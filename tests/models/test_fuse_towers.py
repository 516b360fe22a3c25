"""Towers give the same rows on compiled kernels, and what was swapped is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from firstlight.models.fuse import FuseReport, Kit
from firstlight.models.fuse.tower_attention import CropAttention, SegmentAttention
from firstlight.models.fuse.towers import fuse_towers
from firstlight.native import NativeUnavailableError, open_kernels
from tests.conftest import TinyCheckpoint
from tests.models.dense import compose, load
from tests.pictures import picture

SEGMENTS = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
CROPS = ["llava", "llava_next", "llava_onevision", "internvl", "gemma3_vl"]
OTHERS = ["idefics3", "smolvlm", "mistral3"]


@pytest.fixture(scope="module")
def kit() -> Kit:
    from firstlight.config import EngineConfig

    try:
        return Kit(open_kernels(EngineConfig().cache_dir))
    except NativeUnavailableError as error:
        pytest.skip(str(error))


def rows(checkpoint: Path, kit: Kit | None) -> tuple[list[Tensor], FuseReport]:
    """Rows of three pictures that are encoded together, and what was swapped before."""
    loaded, report = load(checkpoint), FuseReport()
    artifacts = compose(loaded, [picture(48, 32), picture(40, 72), picture(64, 64), "x"]).artifacts
    if kit is not None:
        fuse_towers(loaded.adapter, report, kit)
    with torch.no_grad():
        return loaded.adapter.media_rows(artifacts), report


@pytest.mark.parametrize("family", SEGMENTS + CROPS + OTHERS)
def test_a_tower_gives_the_same_rows(
    family: str, kit: Kit, tiny_checkpoint: TinyCheckpoint
) -> None:
    before, _ = rows(tiny_checkpoint(family), None)
    after, report = rows(tiny_checkpoint(family), kit)
    assert report.left == {}
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize(
    ("families", "kind"), [(SEGMENTS, SegmentAttention), (CROPS, CropAttention)]
)
def test_attention_of_towers_is_swapped(
    families: list[str], kind: type[nn.Module], kit: Kit, tiny_checkpoint: TinyCheckpoint
) -> None:
    for family in families:
        loaded = load(tiny_checkpoint(family))
        fuse_towers(loaded.adapter, FuseReport(), kit)
        assert any(isinstance(module, kind) for module in loaded.adapter.model.modules()), family
        assert not any(isinstance(module, kind) for module in loaded.adapter.decoder.modules())


@pytest.mark.parametrize("family", SEGMENTS)
def test_a_picture_has_the_same_bits_alone_and_in_company(
    family: str, kit: Kit, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint(family))
    fuse_towers(loaded.adapter, FuseReport(), kit)
    artifacts = compose(loaded, [picture(48, 32), picture(40, 72), picture(64, 64), "x"]).artifacts
    with torch.no_grad():
        together = loaded.adapter.media_rows(artifacts)
        for artifact, expected in zip(artifacts, together, strict=True):
            assert torch.equal(loaded.adapter.media_rows([artifact])[0], expected)


class Turned(nn.Module):
    """Looks like Qwen's attention, and scales what it gives."""

    num_heads, scaling = 2, 0.5

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(
        self, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: Any
    ) -> Tensor:
        return cast(Tensor, self.proj(self.qkv(hidden_states)[:, :16]))


def test_a_look_alike_that_computes_otherwise_stays(
    kit: Kit, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded, report = load(tiny_checkpoint("qwen3_vl")), FuseReport()
    loaded.adapter.model.odd = nn.ModuleList([Turned()])
    fuse_towers(loaded.adapter, report, kit)
    assert type(loaded.adapter.model.odd[0]) is Turned
    assert report.left["Turned"].startswith("outputs differ by")


def test_a_mask_of_a_crop_is_kept(kit: Kit) -> None:
    from transformers.models.siglip.modeling_siglip import SiglipAttention, SiglipVisionConfig

    config = SiglipVisionConfig(hidden_size=32, num_attention_heads=2)
    config._attn_implementation = "sdpa"
    old = SiglipAttention(config).eval()
    new = CropAttention(old, kit)
    x, mask = torch.randn(2, 6, 32), torch.rand(2, 1, 6, 6) > 0.3
    mask |= torch.eye(6, dtype=torch.bool)
    with torch.no_grad():
        torch.testing.assert_close(new(x, mask)[0], old(x, mask)[0], atol=1e-5, rtol=1e-5)

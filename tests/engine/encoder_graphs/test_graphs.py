"""Rows that come from captured towers are those of transformers' towers, for every split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.attention import attention_op
from firstlight.config import EngineConfig
from firstlight.core.reason import Reason
from firstlight.engine.encoder_graphs import EncoderGraphs, GraphRows, open_encoder_graphs
from firstlight.errors import MediaError
from firstlight.graphs import BucketState, CaptureBackend, TapeBackend
from firstlight.graphs.backends.cuda import CudaBackend
from firstlight.models.adapter import Adapter, Artifact
from firstlight.models.adapters.patch_tower import PatchTower
from firstlight.models.fuse import FuseReport, Kit
from firstlight.models.fuse.patches import fuse_patches
from firstlight.models.fuse.towers import fuse_towers
from firstlight.models.tower import Example
from firstlight.native import Kernels, NativeLowering
from tests.conftest import TinyCheckpoint
from tests.graphs.fake_cuda import FakeApi
from tests.models.dense import artifact_of, load
from tests.pictures import picture

PATCHES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
CROPS = ["llava", "internvl", "gemma3_vl"]
REFUSED = {
    "llava_next": "cuts rows to each picture's shape on the host",
    "llava_onevision": "cuts rows to each picture's shape on the host",
    "idefics3": "reads on the host which tiles and patches are empty",
    "smolvlm": "reads on the host which tiles and patches are empty",
    "mistral3": "makes masks from each picture's size on the host",
    "qwen3": "takes no images",
}
SIZES = [(48, 32), (64, 64), (40, 72), (96, 48), (32, 32)]


def fused(path: Path, kit: Kit) -> Adapter:
    adapter = load(path).adapter
    fuse_patches(adapter.model, FuseReport())
    fuse_towers(adapter, FuseReport(), kit)
    return adapter


def opened(
    adapter: Adapter,
    backend: CaptureBackend,
    budgets: tuple[int, ...] = (8, 16, 40),
    **settings: Any,
) -> EncoderGraphs:
    config = EngineConfig(
        encoder_graphs="on", encoder_budgets=budgets, padding_cost="free", **settings
    )
    return open_encoder_graphs(config, adapter, backend)


def native(adapter: Adapter, kernels: Kernels, **options: Any) -> GraphRows:
    graphs = opened(adapter, TapeBackend(lowering=NativeLowering(kernels)), **options)
    assert graphs.rows is not None, graphs.why
    return graphs.rows


def pictures(path: Path, sizes: Sequence[tuple[int, int]]) -> list[Artifact]:
    loaded = load(path)
    return [artifact_of(loaded, picture(*size, seed=i)) for i, size in enumerate(sizes)]


def expected(path: Path, artifacts: Sequence[Artifact]) -> list[Tensor]:
    """By transformers' own modules, each picture alone."""
    adapter = load(path).adapter
    with torch.no_grad():
        return [adapter.media_rows([artifact])[0] for artifact in artifacts]


def same(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("family", PATCHES + CROPS)
def test_one_picture_and_several_have_transformers_rows(
    family: str,
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint(family)
    artifacts = pictures(path, SIZES)
    rows = native(fused(path, Kit(kernels)), kernels)
    wanted = expected(path, artifacts)
    same(rows.media_rows(artifacts), wanted)
    same(rows.media_rows(artifacts[::-1]), wanted[::-1])
    for artifact, one in zip(artifacts, wanted, strict=True):
        same(rows.media_rows([artifact]), [one])
    assert set(rows.runner.counts()) == {Reason.CAPTURED}


@pytest.mark.parametrize("family", PATCHES)
def test_a_picture_has_the_same_bits_from_every_graph(
    family: str,
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint(family)
    first, *others = pictures(path, SIZES[:3])
    rows = native(fused(path, Kit(kernels)), kernels)
    alone = rows.media_rows([first])[0]
    assert torch.equal(rows.media_rows([first, *others])[0], alone)
    assert torch.equal(rows.media_rows([*others, first])[-1], alone)
    assert len(rows.runner.replays()) > 1


@pytest.mark.parametrize("family", PATCHES)
def test_frames_of_videos_are_segments(
    family: str,
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint(family)
    adapter = fused(path, Kit(kernels))
    tower = adapter.tower()
    assert not isinstance(tower, str)
    width = tower.inputs[0].shape[0] // 4
    video = Example(
        {
            "pixel_values_videos": torch.randn(3 * 2 * 4, width),
            "video_grid_thw": torch.tensor([[3, 2, 4]]),
        },
        "video",
    )
    still = tower.example([3], 0)[0]
    rows = native(adapter, kernels)
    wanted = expected(path, [video, still])
    same(rows.media_rows([video, still]), wanted)
    assert rows.runner.counts() == {Reason.CAPTURED: 1}


@pytest.mark.parametrize("family", PATCHES + CROPS)
def test_padding_may_hold_anything(
    family: str,
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint(family)
    adapter = fused(path, Kit(kernels))
    rows = native(adapter, kernels)
    tower = adapter.tower()
    assert not isinstance(tower, str)
    artifacts = tower.example([2, 3], 1)
    clean = torch.cat(rows.media_rows(artifacts))
    runner = rows.runner
    runner.fill({f"encoder.{n}": v for n, v in tower.values(artifacts).items()}, 16)
    for name, view in runner.views(16).items():
        if view.dtype.is_floating_point and view.shape[0] == 16:
            view[5:] = float("nan")
            assert "pixels" in name or "weights" in name
    found = tower.split(runner.graphs[16].replay(), artifacts)
    assert torch.equal(torch.cat(found), clean)


@pytest.mark.parametrize("family", PATCHES)
def test_towers_without_compiled_kernels_are_captured_too(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    path = tiny_checkpoint(family)
    artifacts = pictures(path, SIZES)
    graphs = opened(fused(path, Kit(segments=True)), TapeBackend())
    assert graphs.rows is not None, graphs.why
    same(graphs.rows.media_rows(artifacts), expected(path, artifacts))
    assert Reason.CAPTURED in graphs.rows.runner.counts()


def test_a_tower_that_asks_the_host_is_named(tiny_checkpoint: TinyCheckpoint) -> None:
    graphs = opened(load(tiny_checkpoint("qwen3_vl")).adapter, TapeBackend())
    assert graphs.rows is None
    assert "its tower cannot be captured" in graphs.why
    assert "tolist" in graphs.why


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_be_captured_say_why(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    graphs = opened(load(tiny_checkpoint(family)).adapter, TapeBackend())
    assert graphs.rows is None
    assert REFUSED[family] in graphs.why
    assert graphs.describe() == {"graphs": False, "why": graphs.why}


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "llava"])
def test_the_backend_for_gpus_takes_towers_too(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    path = tiny_checkpoint(family)
    artifacts = pictures(path, SIZES[:3])
    backend = CudaBackend(FakeApi(), attention=(attention_op(),))
    graphs = opened(fused(path, Kit(segments=True)), backend, (8, 24))
    assert graphs.rows is not None, graphs.why
    assert {b["state"] for b in graphs.describe()["budgets"]} == {"ready"}
    same(graphs.rows.media_rows(artifacts), expected(path, artifacts))


class Deaf(PatchTower):
    """Takes all patches for one picture."""

    def body(self, inputs: Mapping[str, Tensor]) -> Tensor:
        deaf = dict(inputs)
        deaf["segment_ends"] = inputs["segment_ends"] * 0 + inputs["segment_ends"][-1]
        return super().body(deaf)


class Nosy(PatchTower):
    """Lets padding into live rows."""

    def body(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return super().body(inputs) + inputs["pixels"][-1:, :1] * 1e-3


@pytest.mark.parametrize("kind", [Deaf, Nosy])
def test_a_graph_that_is_wrong_serves_nobody(
    kind: type[PatchTower], kernels: Kernels, tiny_checkpoint: TinyCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tiny_checkpoint("qwen3_vl")
    adapter = fused(path, Kit(kernels))
    tower = kind(adapter.model.model.visual, adapter.dtype, adapter.device)
    monkeypatch.setattr(type(adapter), "tower", lambda self: tower)
    rows = native(adapter, kernels)
    assert rows.runner.budgets.state(40) is BucketState.QUARANTINED
    artifacts = pictures(path, SIZES[:2])
    same(rows.media_rows(artifacts), expected(path, artifacts))
    assert rows.runner.counts() == {Reason.QUARANTINED: 1}


def test_pictures_are_packed_into_budgets_and_what_is_too_large_runs_eager(
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint("qwen3_vl")
    adapter = fused(path, Kit(kernels))
    rows = native(adapter, kernels, budgets=(4, 8))
    tower = adapter.tower()
    assert not isinstance(tower, str)
    artifacts = tower.example([3, 4, 2, 12, 1], 0)
    same(rows.media_rows(artifacts), expected(path, artifacts))
    assert rows.runner.counts() == {Reason.CAPTURED: 3, Reason.NO_BUCKET: 1}
    assert rows.runner.replays() == {8: 1, 4: 2}


def test_crops_of_another_size_run_eager(
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint("internvl")
    rows = native(fused(path, Kit(kernels)), kernels, budgets=(2,))
    odd = Example({"pixel_values": torch.randn(1, 3, 10, 10)})
    with pytest.raises(MediaError):
        rows.media_rows([odd])
    assert rows.runner.counts() == {Reason.NO_BUCKET: 1}


def test_more_segments_than_the_slots_hold_run_eager(
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    rows = native(fused(tiny_checkpoint("qwen2_vl"), Kit(kernels)), kernels, budgets=(8,))
    decision = rows.runner.decide(8, rows.runner.most_segments + 1)
    assert (decision.budget, decision.reason) == (None, Reason.TOO_MANY_REQUESTS)


def test_pixels_of_another_shape_are_the_requests_own_error(
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    rows = native(fused(tiny_checkpoint("qwen3_vl"), Kit(kernels)), kernels, budgets=(8,))
    short = Example(
        {"pixel_values": torch.randn(16, 7), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    )
    with pytest.raises(MediaError, match="cannot encode an image"):
        rows.media_rows([short])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"encoder_graphs": "off"}, "encoder_graphs = off"),
        ({"eager": True}, "graphs are turned off"),
        ({"sanitize": True}, "the sanitizer looks at the decoder's graphs alone"),
    ],
)
def test_settings_that_leave_the_tower_eager_are_told(
    settings: dict[str, Any], why: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    config = EngineConfig(**({"encoder_graphs": "on"} | settings))
    graphs = open_encoder_graphs(config, load(tiny_checkpoint("llava")).adapter, TapeBackend())
    assert graphs.why == why


def test_padding_that_costs_more_than_it_saves_runs_eager(
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    adapter = fused(tiny_checkpoint("qwen3_vl"), Kit(kernels))
    config = EngineConfig(encoder_graphs="on", encoder_budgets=(8, 64))
    graphs = open_encoder_graphs(config, adapter, TapeBackend(lowering=NativeLowering(kernels)))
    assert graphs.rows is not None
    cost: Any = graphs.rows.runner._cost
    assert [rows for rows, _ in cost.times.eager.points] == [8, 64]
    slow: Callable[[int, int], str] = lambda live, bucket: "it takes longer"  # noqa: E731
    cost.too_dear = slow
    decision = graphs.rows.runner.decide(9, 1)
    assert (decision.budget, decision.reason) == (None, Reason.PADDING_COST)


def test_the_report_names_budgets_slots_and_calls(
    kernels: Kernels,
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint("qwen3_vl")
    adapter = fused(path, Kit(kernels))
    graphs = opened(adapter, TapeBackend(lowering=NativeLowering(kernels)), (8, 16))
    assert graphs.rows is not None
    graphs.rows.media_rows(pictures(path, SIZES[:1]))
    told = graphs.describe()
    assert told["unit"] == "rows of 4 patches"
    assert [b["size"] for b in told["budgets"]] == [8, 16]
    assert all("equal the adapter's rows bit for bit" in b["proof"] for b in told["budgets"])
    assert told["calls"] == {"captured": 1}
    assert {s["name"] for s in told["slots"]} >= {"encoder.pixels", "encoder.segment_ends"}

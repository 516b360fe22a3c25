"""Positions and tokens of prompts with images and videos are transformers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.core.span import Span
from firstlight.media import Artifact
from firstlight.media.artifact import VIDEO
from firstlight.models.adapters.qwen_vl import Qwen2VLAdapter, Qwen3VLAdapter, Qwen25VLAdapter

MERGE = 2
RATE = 2.0
ADAPTERS: dict[str, type[Any]] = {
    "Qwen2VLModel": Qwen2VLAdapter,
    "Qwen2_5_VLModel": Qwen25VLAdapter,
    "Qwen3VLModel": Qwen3VLAdapter,
}


@dataclass(frozen=True)
class Item:
    """An image (``seconds`` is None) or a video by its grid in rows."""

    t: int
    h: int
    w: int
    seconds: float | None = None

    @property
    def grid(self) -> list[int]:
        """In patches."""
        return [self.t, self.h * MERGE, self.w * MERGE]

    @property
    def rows(self) -> int:
        return self.t * self.h * self.w


side = st.integers(1, 5)
images = st.builds(Item, st.just(1), side, side)
videos = st.builds(
    Item, st.integers(1, 6), side, side, st.sampled_from([2.0, 1.0, 2 / 3, 0.2, 2 / 23.976, 0.7])
)
texts = st.integers(1, 7)


@st.composite
def turns(draw: st.DrawFn) -> list[Item | int]:
    """Up to 5 images and 2 videos in any order, with text before each and perhaps at the end."""
    items = draw(st.lists(images, max_size=5)) + draw(st.lists(videos, max_size=2))
    parts: list[Item | int] = []
    for item in draw(st.permutations(items)):
        parts += [draw(texts), item]
    return [*parts, draw(texts)] if draw(st.booleans()) or not parts else parts


@pytest.mark.parametrize("model", ADAPTERS)
@settings(max_examples=120, deadline=None)
@given(parts=turns())
def test_positions_equal_get_rope_index_for_up_to_5_images_and_2_videos(
    model: str, parts: list[Item | int]
) -> None:
    per_row = model == "Qwen3VLModel"
    types, spans, artifacts = _laid_out(parts, per_row)
    expected = _rope_index(model, types, [p for p in parts if isinstance(p, Item)])
    adapter = _adapter(model)
    found = adapter.positions(len(types), spans, artifacts)
    np.testing.assert_array_equal(found.prompt, expected[:, :-1])
    # What follows is text, and goes on as if it had been in the prompt.
    assert [found.next] * 3 == expected[:, -1].tolist()


def _laid_out(
    parts: list[Item | int], per_row: bool
) -> tuple[list[int], list[Span], list[Artifact]]:
    """The token types of a prompt, its spans and artifacts; two text tokens between grid rows."""
    types: list[int] = []
    spans: list[Span] = []
    artifacts: list[Artifact] = []
    for part in parts:
        if isinstance(part, int):
            types += [0] * part
            continue
        kind = 1 if part.seconds is None else 2
        runs = part.t if per_row and kind == 2 else 1
        size = part.rows // runs
        for run in range(runs):
            types += [0, 0] if run else []
            spans.append(Span(len(artifacts), len(types), len(types) + size, run * size))
            types += [kind] * size
        artifacts.append(_artifact(part))
    return types, spans, artifacts


def _artifact(item: Item) -> Artifact:
    grid = torch.tensor([item.grid])
    if item.seconds is None:
        return Artifact({"image_grid_thw": grid}, (1, 1), "")
    tensors: dict[str, Tensor] = {
        "video_grid_thw": grid,
        "second_per_grid_ts": torch.tensor([item.seconds]),
    }
    return Artifact(tensors, (1, 1), "", modality=VIDEO)


def _vision() -> SimpleNamespace:
    return SimpleNamespace(spatial_merge_size=MERGE, tokens_per_second=RATE)


def _adapter(model: str) -> Any:
    kind: Any = ADAPTERS[model]
    adapter = kind.__new__(kind)
    adapter.config = SimpleNamespace(vision_config=_vision())
    return adapter


def _rope_index(model: str, types: list[int], items: list[Item]) -> np.ndarray:
    """transformers' positions ``[3, n + 1]`` of the prompt and one more text token."""
    import transformers

    cls: Any = getattr(transformers, model)
    bare = cls.__new__(cls)
    torch.nn.Module.__init__(bare)
    object.__setattr__(bare, "config", SimpleNamespace(vision_config=_vision()))
    stills = [item.grid for item in items if item.seconds is None]
    clips = [item.grid for item in items if item.seconds is not None]
    seconds = [item.seconds for item in items if item.seconds is not None]
    # Two media of one kind side by side are one to transformers; here text always lies between.
    positions, _ = bare.get_rope_index(
        torch.zeros(1, len(types) + 1, dtype=torch.int64),
        mm_token_type_ids=torch.tensor([[*types, 0]]),
        image_grid_thw=torch.tensor(stills) if stills else None,
        video_grid_thw=torch.tensor(clips) if clips else None,
        second_per_grid_ts=torch.tensor(seconds) if seconds else None,
    )
    found: np.ndarray = positions[:, 0].numpy()
    return found


class Tokenizer:
    """Names of ids and ids of texts, without a vocabulary."""

    names: Mapping[int, str] = MappingProxyType(
        {7: "<|video_pad|>", 8: "<|vision_start|>", 9: "<|vision_end|>"}
    )

    def convert_ids_to_tokens(self, token_id: int) -> str:
        """The name of a control token."""
        return self.names[token_id]

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        """A control token's id where its name stands, elsewhere one id per character."""
        ids: list[int] = []
        while text:
            token = next((i for i, name in self.names.items() if text.startswith(name)), None)
            length = 1 if token is None else len(self.names[token])
            ids.append(100 + ord(text[0]) if token is None else token)
            text = text[length:]
        return {"input_ids": ids}


@settings(deadline=None)
@given(
    n=st.integers(1, 9),
    first=st.integers(0, 40),
    step=st.integers(1, 30),
    fps=st.sampled_from([0.3, 1.0, 2.0, 7.5, 23.976, 24.0, 29.97, 30.0]),
)
def test_the_times_of_a_qwen3_video_are_written_as_transformers_writes_them(
    n: int, first: int, step: int, fps: float
) -> None:
    indices = [first + i * step for i in range(n)]
    grid = [-(-n // 2), 2 * MERGE, 3 * MERGE]
    module = import_module("transformers.models.qwen3_vl.processing_qwen3_vl")
    processor = module.Qwen3VLProcessor.__new__(module.Qwen3VLProcessor)
    vars(processor).update(
        video_processor=SimpleNamespace(merge_size=MERGE, temporal_patch_size=2),
        video_token="<|video_pad|>",
        vision_start_token="<|vision_start|>",
        vision_end_token="<|vision_end|>",
    )
    metadata = SimpleNamespace(fps=fps, frames_indices=list(indices))
    made = {"video_grid_thw": torch.tensor([grid]), "video_metadata": [metadata]}
    expected = Tokenizer()(processor.replace_video_token(made, 0))["input_ids"]

    adapter = _adapter("Qwen3VLModel")
    adapter.tokenizer = Tokenizer()
    vars(adapter.config).update(video_token_id=7, vision_start_token_id=8, vision_end_token_id=9)
    artifact = _video(indices, fps, grid)
    ids: list[int] = []
    for token in Tokenizer()(adapter.video_text(artifact))["input_ids"]:
        ids += adapter.expand(artifact) if token == 7 else [token]
    assert ids == expected


def _video(indices: list[int], fps: float, grid: list[int]) -> Artifact:
    from firstlight.media.video import DecodedVideo

    video = DecodedVideo((), (1, 1), tuple(indices), indices[-1] + 1, fps, "")
    tensors = {
        "video_grid_thw": torch.tensor([grid]),
        "timestamps": torch.tensor(video.timestamps(2), dtype=torch.float64),
    }
    return Artifact(tensors, (1, 1), "", modality=VIDEO)


def test_a_tokenizer_without_the_token_makes_a_model_that_takes_no_videos() -> None:
    adapter = _adapter("Qwen3VLModel")
    adapter.config.video_token_id = 7
    adapter.tokenizer = Tokenizer()
    assert adapter.video_placeholder == "<|video_pad|>"
    adapter.tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda token: None)
    assert adapter.video_placeholder == ""

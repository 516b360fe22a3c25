"""Patches of a video are those of the family's own processor, by a re-statement of its rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from firstlight.errors import MediaError
from firstlight.media import Artifact, decode_image
from firstlight.media.artifact import VIDEO
from firstlight.media.processor import ImageProcessor
from firstlight.media.video import VideoOptions
from firstlight.media.video_frames import decode_frames
from firstlight.media.video_processor import VideoProcessor
from firstlight.models.adapters.video_rules import Qwen3VideoRules
from tests.media.clips import PLAIN_RULES, RULES, SETTINGS, clip, image_processor
from tests.pictures import picture
from tests.video_oracle import Clip, frame_size, patches


def artifact(frames: list[Image.Image], rules: object = RULES, fps: float = 2.0) -> Artifact:
    video = decode_frames(frames, rules, VideoOptions(fps=fps))  # type: ignore[arg-type]
    return VideoProcessor(rules).artifact(video)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
@pytest.mark.parametrize("size", [(48, 32), (32, 48), (47, 33), (200, 120), (17, 90), (8, 8)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_patches_and_grid_equal_the_rule(family: str, size: tuple[int, int], n: int) -> None:
    frames = clip(n, *size, seed=n)
    rules = PLAIN_RULES if family == "qwen2_vl" else RULES
    made = artifact(frames, rules)
    expected, grid = patches(frames, SETTINGS, frame_size(family, Clip(tuple(frames)), SETTINGS))
    assert made.tensors["video_grid_thw"].tolist() == [grid]
    found = made.tensors["pixel_values_videos"]
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_a_video_of_one_still_has_the_patches_of_the_picture() -> None:
    still = picture(48, 32, seed=4)
    made = artifact([still, still], PLAIN_RULES)
    image = ImageProcessor(image_processor(), SETTINGS).artifact(decode_image(still))
    found, expected = made.tensors["pixel_values_videos"], image.tensors["pixel_values"]
    assert (found - expected).abs().max() < 1e-6
    assert torch.equal(made.tensors["video_grid_thw"], image.tensors["image_grid_thw"])


def test_the_last_group_repeats_its_last_frame() -> None:
    frames = clip(3)
    odd, even = artifact(frames), artifact([*frames, frames[-1]])
    assert torch.equal(odd.tensors["pixel_values_videos"], even.tensors["pixel_values_videos"])


def test_an_artifact_says_what_it_is_and_when_its_rows_were() -> None:
    made = artifact(clip(5), fps=4.0)
    assert (made.modality, made.size) == (VIDEO, (48, 32))
    assert made.tensors["second_per_grid_ts"].tolist() == [0.5]
    assert made.tensors["timestamps"].tolist() == [0.125, 0.625, 1.0]


def test_two_artifacts_that_differ_in_the_rate_alone_have_two_identities() -> None:
    frames = clip(4)
    assert artifact(frames, fps=2.0).identity != artifact(frames, fps=3.0).identity
    assert artifact(frames, fps=2.0).identity == artifact(frames, fps=2.0).identity


def test_the_fingerprint_knows_the_rules() -> None:
    plain = VideoProcessor(RULES).fingerprint()
    assert plain == VideoProcessor(RULES).fingerprint()
    assert plain != VideoProcessor(PLAIN_RULES).fingerprint()
    other = Qwen3VideoRules.of({**SETTINGS, "image_std": [0.3, 0.25, 0.21]})
    assert plain != VideoProcessor(other).fingerprint()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"do_normalize": False}, [0.0, 1.0]),
        ({"do_normalize": False, "do_rescale": False}, [0.0, 255.0]),
        ({"rescale_factor": 1 / 51, "image_mean": [1.0] * 3, "image_std": [2.0] * 3}, [-0.5, 2.0]),
    ],
)
def test_pixels_are_scaled_as_the_settings_say(
    settings: dict[str, object], expected: list[float]
) -> None:
    rules = Qwen3VideoRules.of({**SETTINGS, **settings})
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("black", "white")]
    values = artifact(frames, rules).tensors["pixel_values_videos"]
    assert sorted(set(values.flatten().tolist())) == pytest.approx(expected)


def test_frames_that_do_not_divide_into_rows_are_refused() -> None:
    rules = Qwen3VideoRules.of({**SETTINGS, "do_resize": False})
    with pytest.raises(MediaError, match="frames are 50 x 32; the model takes multiples of 16"):
        artifact(clip(2, 50, 32), rules)

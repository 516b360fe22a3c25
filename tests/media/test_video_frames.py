"""Lists of frames are decoded within limits, and refused by the frame that is wrong."""

from __future__ import annotations

import re

import pytest
from PIL import Image

from firstlight.errors import ConfigError, MediaError
from firstlight.media.decode import ImageLimits
from firstlight.media.video import VideoLimits, VideoOptions, frames_digest
from firstlight.media.video_frames import decode_frames
from firstlight.models.adapters.video_rules import Qwen3VideoRules
from tests.media.clips import RULES, SETTINGS, clip, png
from tests.pictures import picture


def test_a_list_is_taken_as_it_is() -> None:
    frames = clip(7)
    video = decode_frames(frames, RULES, VideoOptions(fps=3.0))
    assert video.indices == tuple(range(7))
    assert (video.total, video.fps, video.sampled_fps, video.size) == (7, 3.0, 3.0, (48, 32))
    assert [f.tobytes() for f in video.frames] == [f.tobytes() for f in frames]


def test_files_and_pictures_may_stand_in_one_list() -> None:
    frames = clip(3)
    mixed = decode_frames([frames[0], png(frames[1]), frames[2]], RULES)
    assert [f.tobytes() for f in mixed.frames] == [f.tobytes() for f in frames]


def test_a_number_takes_frames_evenly() -> None:
    video = decode_frames(clip(9), RULES, VideoOptions(fps=2.0, num_frames=3))
    assert video.indices == (0, 4, 8)
    assert video.sampled_fps == pytest.approx(2 / 3)
    assert video.timestamps(2) == [1.0, 4.0]


def test_a_list_beyond_the_models_limit_is_thinned_out() -> None:
    rules = Qwen3VideoRules.of({**SETTINGS, "max_frames": 4})
    assert decode_frames(clip(10), rules).indices == (0, 3, 6, 9)


def test_without_a_rate_24_frames_a_second_are_assumed() -> None:
    assert decode_frames(clip(2), RULES).fps == 24.0


def test_frames_are_resized_as_they_come() -> None:
    video = decode_frames(clip(2, 100, 60), RULES)
    assert {frame.size for frame in video.frames} == {(96, 64)}
    assert video.size == (100, 60)


@pytest.mark.parametrize("change", [0, 1])
def test_the_digest_is_of_the_frames_in_their_order(change: int) -> None:
    frames = clip(3)
    digest = decode_frames(frames, RULES).digest
    other = [frames[1], frames[0], frames[2]] if change else [*frames[:2], picture(48, 32, seed=9)]
    assert decode_frames(list(frames), RULES).digest == digest
    assert decode_frames(other, RULES).digest != digest


def test_a_list_of_one_frame_is_another_identity_than_the_frame() -> None:
    digest = "sha256:" + "0" * 64
    assert frames_digest([digest]) not in (digest, frames_digest([digest, digest]))


def test_a_broken_frame_is_named_by_its_number() -> None:
    frames: list[bytes | Image.Image] = [*clip(2), b"no picture"]
    with pytest.raises(MediaError, match=r"frame 2: 10 bytes .* are no image"):
        decode_frames(frames, RULES)


def test_frames_of_unlike_size_are_refused_with_both_sizes() -> None:
    frames = [*clip(2), picture(40, 32)]
    with pytest.raises(MediaError, match="one size: frame 0 is 48 x 32, frame 2 is 40 x 32"):
        decode_frames(frames, RULES)


@pytest.mark.parametrize(
    ("n", "limits", "message"),
    [
        (0, VideoLimits(), "the video has no frames"),
        (5, VideoLimits(source_frames=4), "has 5 frames; at most 4 are accepted"),
        (4, VideoLimits(pixels=6000), "4 frames of 48 x 32 have 6144 pixels; at most 6000"),
        (2, VideoLimits(image=ImageLimits(max_pixels=99)), "frame 0: the image has 48 x 32"),
    ],
)
def test_what_is_over_a_limit_is_refused_with_both_numbers(
    n: int, limits: VideoLimits, message: str
) -> None:
    with pytest.raises(MediaError, match=re.escape(message)):
        decode_frames(clip(n), RULES, limits=limits)


def test_frames_that_the_rules_refuse_are_refused_before_they_are_resized() -> None:
    limits = VideoLimits(image=ImageLimits(max_side_ratio=None))
    with pytest.raises(MediaError, match=r"a video of 2 frames of 500 x 2 pixels: .*ratio"):
        decode_frames(clip(2, 500, 2), RULES, limits=limits)


def test_a_limit_below_1_is_refused() -> None:
    with pytest.raises(ConfigError, match="pixels = 0; accepted: an int from 1"):
        VideoLimits(pixels=0)

"""Animated pictures are videos on every machine, without a decoder of video files."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.animation import decode_animation, is_animation
from firstlight.media.decode import ImageLimits
from firstlight.media.video import VideoLimits, VideoOptions
from tests.media.clips import RULES, clip, png
from tests.media.mutations import mutated

LOSSLESS: dict[str, dict[str, Any]] = {"WEBP": {"lossless": True}, "PNG": {}}


def animation(frames: list[Image.Image], kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    first, *rest = frames
    first.save(file, kind, save_all=True, append_images=rest, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", LOSSLESS)
def test_frames_are_those_of_the_file_at_its_rate(kind: str) -> None:
    frames = clip(20)
    data = animation(frames, kind, duration=100, **LOSSLESS[kind])
    assert is_animation(data)
    video = decode_animation(data, RULES)
    assert (video.total, video.size) == (20, (48, 32))
    assert video.fps == pytest.approx(10.0)
    assert video.indices == (0, 6, 13, 19)
    assert [f.tobytes() for f in video.frames] == [frames[i].tobytes() for i in video.indices]


def test_a_gif_keeps_its_colours_as_far_as_its_palettes_go() -> None:
    frames = [f.quantize(64) for f in clip(6)]
    video = decode_animation(animation(frames, "GIF", duration=50), RULES)
    assert video.total == 6
    assert video.fps == pytest.approx(20.0)
    for frame, index in zip(video.frames, video.indices, strict=True):
        assert frame.tobytes() == frames[index].convert("RGB").tobytes()


def test_unlike_times_count_as_their_mean_and_none_as_a_tenth_of_a_second() -> None:
    unlike = animation(clip(4), "PNG", duration=[100, 100, 100, 500])
    assert decode_animation(unlike, RULES).fps == pytest.approx(5.0)
    assert decode_animation(animation(clip(4), "GIF"), RULES).fps == pytest.approx(10.0)


def test_a_rate_or_a_number_is_taken() -> None:
    data = animation(clip(20), duration=100)
    assert len(decode_animation(data, RULES, VideoOptions(fps=5.0)).indices) == 10
    assert len(decode_animation(data, RULES, VideoOptions(num_frames=7)).indices) == 7
    with pytest.raises(MediaError, match="either fps or num_frames"):
        decode_animation(data, RULES, VideoOptions(fps=5.0, num_frames=7))


def test_what_is_transparent_shows_the_background() -> None:
    clear = [Image.new("RGBA", (32, 32), (shade, 0, 0, 0)) for shade in (0, 200)]
    data = animation(clear, "PNG", duration=100)
    video = decode_animation(data, RULES, background=(9, 8, 7))
    assert {frame.getpixel((3, 3)) for frame in video.frames} == {(9, 8, 7)}


def test_a_single_picture_is_no_video() -> None:
    with pytest.raises(MediaError, match="a single picture; send it as one"):
        decode_animation(png(clip(1)[0]), RULES)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (VideoLimits(source_frames=3), "has 4 frames; at most 3"),
        (VideoLimits(source_pixels=5000), "4 frames of 48 x 32 have 6144 pixels to decode"),
        (VideoLimits(pixels=5000), "have 6144 pixels; at most 5000"),
        (VideoLimits(image=ImageLimits(max_pixels=99)), "48 x 32"),
    ],
)
def test_what_is_over_a_limit_is_refused(limits: VideoLimits, message: str) -> None:
    with pytest.raises(MediaError, match=message):
        decode_animation(animation(clip(4), duration=100), RULES, limits=limits)


def test_damaged_files_give_a_video_or_an_error() -> None:
    files = tuple(animation(clip(3), kind) for kind in ("GIF", "WEBP", "PNG"))
    rng = random.Random(5)
    outcomes = set()
    for _ in range(150):
        try:
            outcomes.add(decode_animation(mutated(rng, rng.choice(files), files), RULES).total > 0)
        except MediaError:
            outcomes.add(False)
    assert outcomes == {True, False}


def test_other_files_are_none() -> None:
    for data in (b"", b"\0\0\0\x18ftypmp42", b"\xff\xd8\xff", b"RIFF0000AVI "):
        assert not is_animation(data)

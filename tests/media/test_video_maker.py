"""Artifacts of videos come from the pipeline: made once, known by frames, rate and number."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import MediaError
from firstlight.media import ImagePipeline, MediaItem, Outcome
from firstlight.media.artifact import IMAGE, VIDEO
from firstlight.media.pipeline import waits
from firstlight.media.policy import FetchPolicy
from firstlight.media.processor import ImageProcessor
from firstlight.media.source import SourceLoader
from firstlight.media.video_maker import VideoMaker
from firstlight.media.video_processor import VideoProcessor
from tests.media.clips import PLAIN_RULES, RULES, clip, image_processor, movie, png, written
from tests.pictures import picture


@pytest.fixture(scope="module")
def pipeline() -> Iterator[ImagePipeline]:
    images = ImageProcessor(image_processor())
    with ImagePipeline(images, videos=VideoProcessor(RULES), cache_bytes=1 << 24) as made:
        yield made


def video(source: object, where: str = "here", **options: object) -> MediaItem:
    return MediaItem(source, options, where=where, modality=VIDEO)


def test_the_same_frames_are_made_once_however_they_are_given(
    pipeline: ImagePipeline, tmp_path: Path
) -> None:
    files = [png(frame) for frame in clip(4, seed=10)]
    paths = [written(tmp_path / f"{i}.png", data) for i, data in enumerate(files)]
    first = pipeline.prepare([video(tuple(files), fps=2.0)])[0]
    again = pipeline.prepare([video(paths, fps=2.0)])[0]
    assert (first.outcome, again.outcome) == (Outcome.MISS, Outcome.HIT)
    assert again.artifact is first.artifact
    assert first.artifact.modality == VIDEO


@pytest.mark.parametrize(
    "options", [{}, {"fps": 3.0}, {"fps": 2.0, "num_frames": 3}], ids=["none", "fps", "number"]
)
def test_another_option_is_another_artifact(
    options: dict[str, Any], pipeline: ImagePipeline
) -> None:
    frames = clip(4, seed=20)
    plain, other = pipeline.lookup([video(frames, fps=2.0), video(frames, **options)])
    assert plain.identity != other.identity
    assert plain.digest == other.digest


@pytest.mark.parametrize("change", ["a frame", "the order", "one less"])
def test_another_frame_or_order_is_another_artifact(change: str, pipeline: ImagePipeline) -> None:
    frames = clip(4, seed=30)
    other = {
        "a frame": [*frames[:3], picture(48, 32, seed=99)],
        "the order": [frames[0], frames[2], frames[1], frames[3]],
        "one less": frames[:3],
    }[change]
    made = pipeline.lookup([video(frames), video(other)])
    assert made[0].identity != made[1].identity


def test_a_picture_and_a_video_of_it_come_in_the_order_of_the_items(
    pipeline: ImagePipeline,
) -> None:
    still = picture(48, 32, seed=50)
    items = [video([still]), MediaItem(still), video(clip(2, seed=60)), MediaItem(still)]
    modalities = [a.modality for a in pipeline.lookup(items)]
    assert modalities == [VIDEO, IMAGE, VIDEO, IMAGE]


def test_a_file_is_read_within_the_policy(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    inside, outside = tmp_path / "root", tmp_path / "clip.mov"
    inside.mkdir()
    written(inside / "clip.mov", movie(clip(4)))
    written(outside, movie(clip(4)))
    policy, videos = FetchPolicy(file_root=inside), VideoProcessor(RULES)
    images = ImageProcessor(image_processor())
    with ImagePipeline(images, policy, videos=videos, cache_bytes=0) as pipeline:
        assert pipeline.lookup([video("clip.mov")])[0].modality == VIDEO
        with pytest.raises(MediaError, match="here: there is no such picture"):
            pipeline.lookup([video(str(outside))])
        with pytest.raises(MediaError, match="here: frame 1: there is no such picture"):
            pipeline.lookup([video([picture(), str(outside)])])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (video([]), "the video has no frames"),
        (video([picture(), 7]), "here: frame 1: a picture cannot be a int"),
        (video(picture()), "a list of frames or a file, not one picture"),
        (video([picture()], speed=2), "the option 'speed' of a video is not supported"),
        (video([picture(), picture(8, 8)]), "here: the video's frames must be of one size"),
    ],
    ids=["empty", "no frame", "one picture", "option", "sizes"],
)
def test_what_is_no_video_is_refused_by_its_place(
    item: MediaItem, message: str, pipeline: ImagePipeline
) -> None:
    with pytest.raises(MediaError, match=message):
        pipeline.prepare([item])


def test_an_animated_picture_is_a_video_without_pyav(
    pipeline: ImagePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    file = io.BytesIO()
    first, *rest = clip(4, seed=80)
    first.save(file, "GIF", save_all=True, append_images=rest, duration=500)
    (made,) = pipeline.lookup([video(file.getvalue())])
    assert made.tensors["timestamps"].tolist() == [0.25, 1.25]
    with pytest.raises(MediaError, match="needs PyAV"):
        pipeline.lookup([video(b"\0\0\0\x18ftypmp42")])


def test_a_model_without_videos_refuses_one() -> None:
    images = ImageProcessor(image_processor())
    with (
        ImagePipeline(images, cache_bytes=0) as pipeline,
        pytest.raises(MediaError, match="here is a video; the model takes none"),
    ):
        pipeline.prepare([video(clip(2))])


def test_frames_of_the_network_wait_apart() -> None:
    assert waits(["a.png", "https://example.org/a.png"])
    assert waits("https://example.org/a.mp4")
    assert not waits(["a.png", b"b"])


def test_the_fingerprint_knows_processor_and_background() -> None:
    loader = SourceLoader(FetchPolicy())
    plain = VideoMaker(VideoProcessor(RULES), loader).fingerprint
    assert plain == VideoMaker(VideoProcessor(RULES), loader).fingerprint
    others = [
        VideoMaker(VideoProcessor(PLAIN_RULES), loader),
        VideoMaker(VideoProcessor(RULES), loader, background=(0, 0, 0)),
    ]
    assert plain not in [other.fingerprint for other in others]

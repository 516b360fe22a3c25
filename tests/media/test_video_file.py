"""Video files give the frames that the rules ask for, and nothing else is opened."""

from __future__ import annotations

import io
import random
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from firstlight.errors import MediaError
from firstlight.media.video import VideoLimits, VideoOptions
from firstlight.media.video_file import decode_file, decoder_version
from tests.media.clips import PLAIN_RULES, RULES, clip, movie
from tests.media.mutations import mutated

av = pytest.importorskip("av", reason="PyAV, which the extra 'video' installs, is not there")


def test_the_sampled_frames_are_the_frames_of_the_file() -> None:
    frames = clip(25)
    video = decode_file(movie(frames, 10), RULES, VideoOptions(fps=2.0))
    assert video.indices == (0, 6, 12, 18, 24)
    assert [f.tobytes() for f in video.frames] == [frames[i].tobytes() for i in video.indices]
    assert (video.total, video.fps, video.size) == (25, 10.0, (48, 32))


def test_a_number_of_frames_can_be_asked_for() -> None:
    assert len(decode_file(movie(clip(20)), RULES, VideoOptions(num_frames=7)).indices) == 7


def test_without_a_wish_two_frames_a_second_are_taken() -> None:
    for rules in (RULES, PLAIN_RULES):
        assert len(decode_file(movie(clip(40)), rules).indices) == 8


def test_a_rate_that_is_no_whole_number_is_kept() -> None:
    rate = Fraction(24000, 1001)
    assert decode_file(movie(clip(6), rate), RULES).fps == float(rate)


def test_frames_are_counted_where_the_file_does_not_say_how_many() -> None:
    data = movie(clip(12), codec="libvpx", container="webm", pixels="yuv420p")
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].frames == 0
    assert decode_file(data, RULES).total == 12


def test_a_video_is_turned_as_a_player_turns_it() -> None:
    if not hasattr(av.video.stream.VideoStream, "set_display_rotation"):
        pytest.skip("this PyAV cannot write a rotation")
    frames = clip(4)
    video = decode_file(movie(frames, turned=90), RULES)
    assert video.size == (32, 48)
    assert video.frames[0].tobytes() == frames[0].rotate(90, expand=True).tobytes()


def test_a_file_that_ends_early_is_sampled_over_what_is_there() -> None:
    data = movie(clip(30), codec="mpeg4", container="avi", pixels="yuv420p")
    whole, cut = decode_file(data, RULES), decode_file(data[: len(data) * 2 // 3], RULES)
    assert whole.total == 30
    assert 4 < cut.total < 30
    assert cut.indices[-1] == cut.total - 1


@pytest.mark.parametrize(
    "data",
    [b"", b"no video", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", movie(clip(4))[:200]],
    ids=["nothing", "text", "a play list", "a header"],
)
def test_bytes_that_are_no_video_are_refused(data: bytes) -> None:
    with pytest.raises(MediaError, match=rf"{len(data)} bytes .* are no video that can be read"):
        decode_file(data, RULES)


def test_a_file_that_names_another_one_does_not_open_it(tmp_path: Path) -> None:
    (tmp_path / "clip.mov").write_bytes(movie(clip(4)))
    names = f"ffconcat version 1.0\nfile {tmp_path}/clip.mov\n".encode()
    with pytest.raises(MediaError, match="are no video"):
        decode_file(names, RULES)


def test_sound_alone_is_no_video() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="wav") as out:
        out.add_stream("pcm_s16le", rate=8000)
    with pytest.raises(MediaError, match="no video"):
        decode_file(file.getvalue(), RULES)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (VideoLimits(source_frames=9), "has 10 frames; at most 9"),
        (VideoLimits(source_pixels=9999), "10 frames of 48 x 32 have 15360 pixels to decode"),
        (VideoLimits(pixels=100), "have 6144 pixels; at most 100"),
    ],
)
def test_a_file_over_a_limit_is_refused(limits: VideoLimits, message: str) -> None:
    with pytest.raises(MediaError, match=message):
        decode_file(movie(clip(10)), RULES, limits=limits)


def test_a_rate_and_a_number_exclude_each_other() -> None:
    with pytest.raises(MediaError, match="either fps or num_frames of a video file, not both"):
        decode_file(movie(clip(4)), RULES, VideoOptions(fps=1.0, num_frames=2))


def test_without_pyav_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MediaError, match=re.escape("pip install 'firstlight[video]'")):
        decode_file(b"", RULES)


def test_the_decoders_version_is_known_without_loading_it() -> None:
    assert decoder_version() == av.__version__


def _damaged(count: int) -> None:
    files = (
        movie(clip(8)),
        movie(clip(8), codec="libvpx", container="webm", pixels="yuv420p"),
        movie(clip(8), codec="mpeg4", container="avi", pixels="yuv420p"),
    )
    rng = random.Random(count)
    outcomes = set()
    for _ in range(count):
        try:
            outcomes.add(decode_file(mutated(rng, rng.choice(files), files), RULES).total > 0)
        except MediaError:
            outcomes.add(False)
    assert outcomes == {True, False}


def test_some_damaged_files_give_a_video_or_an_error() -> None:
    _damaged(100)


@pytest.mark.slow
def test_many_damaged_files_give_a_video_or_an_error() -> None:
    _damaged(5000)

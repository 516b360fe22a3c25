"""Parts that are videos are taken in every usual form, and refused by the exact place otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight.engine.messages import collect_media
from firstlight.engine.video_parts import VideoSource
from firstlight.errors import RequestError

URL = "data:video/mp4;base64,AAAA"


def _collected(*parts: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    messages, media = collect_media([{"role": "user", "content": list(parts)}])
    return messages[0]["content"], media


@pytest.mark.parametrize(
    ("part", "video", "options"),
    [
        ({"type": "video", "video": ["a.png", "b.png"]}, ("a.png", "b.png"), {}),
        ({"type": "video", "video": [b"a"], "fps": 2}, (b"a",), {"fps": 2.0}),
        ({"type": "video", "video": "clip.mp4", "num_frames": 8}, "clip.mp4", {"num_frames": 8}),
        ({"type": "video", "path": Path("clip.mp4")}, Path("clip.mp4"), {}),
        ({"type": "video", "url": URL, "fps": 0.5}, URL, {"fps": 0.5}),
        ({"type": "video_url", "video_url": {"url": URL, "fps": 1}}, URL, {"fps": 1.0}),
        ({"type": "video_url", "video_url": URL, "fps": 1}, URL, {"fps": 1.0}),
        ({"type": "input_video", "video_url": URL}, URL, {}),
    ],
)
def test_every_form_of_a_video_is_found(
    part: dict[str, Any], video: object, options: dict[str, Any]
) -> None:
    content, (source,) = _collected(part)
    assert content == [{"type": "video"}]
    assert isinstance(source, VideoSource)
    assert (source.video, dict(source.options)) == (video, options)


def test_pictures_and_videos_come_in_their_order() -> None:
    content, media = _collected(
        {"type": "video", "video": ["a"]},
        {"type": "image", "image": "b"},
        {"type": "text", "text": "x"},
        {"type": "video", "video": "c"},
    )
    assert [part["type"] for part in content] == ["video", "image", "text", "video"]
    assert [source.where for source in media] == [
        "messages[0].content[0].video",
        "messages[0].content[1].image",
        "messages[0].content[3].video",
    ]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "video"}, r"content\[0\] must have one of the fields video, path, url; it has"),
        ({"type": "video", "video": "a", "url": "b"}, "it has video and url"),
        ({"type": "video", "video": []}, r"content\[0\]\.video is \[\]; accepted: a list of at"),
        ({"type": "video_url"}, r"content\[0\]\.video_url is missing; accepted: a URL"),
        ({"type": "video_url", "video_url": {}}, r"video_url\.url is missing"),
        ({"type": "video_url", "video_url": "/etc/passwd"}, r"video_url is '/etc/passwd'; accep"),
        ({"type": "video", "video": "a", "fps": 0}, r"\.fps is 0; accepted: a number above 0"),
        ({"type": "video", "video": "a", "fps": True}, r"\.fps is True; accepted: a number"),
        ({"type": "video", "video": "a", "fps": float("nan")}, r"\.fps is nan; accepted"),
        ({"type": "video", "video": "a", "fps": "2"}, r"\.fps is '2'; accepted"),
        ({"type": "video", "video": "a", "nframes": 8}, r"\.nframes is not supported for a video"),
        (
            {"type": "video_url", "video_url": {"url": URL, "detail": "low"}},
            r"content\[0\]\.detail is not supported for a video; accepted: fps and num_frames",
        ),
        ({"type": "video", "video": "a", "num_frames": 0}, r"\.num_frames is 0; accepted: an int"),
        ({"type": "video", "video": "a", "num_frames": 2.0}, r"\.num_frames is 2\.0; accepted"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_what_is_accepted(
    part: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        _collected(part)

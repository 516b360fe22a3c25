"""Videos over HTTP: frames as pictures are sent, or a file, refused by the field that is wrong."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx2
import pytest

from firstlight.engine.build import Parts
from tests.pictures import picture
from tests.server.asking import CHAT, body, data_url

FRAMES = [data_url(seed=seed) for seed in range(4)]


def animation() -> str:
    """The frames as one animated PNG, two a second."""
    first, *rest = (picture(48, 32, seed=seed) for seed in range(4))
    file = io.BytesIO()
    first.save(file, "PNG", save_all=True, append_images=rest, duration=500)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def asked(part: dict[str, Any]) -> dict[str, Any]:
    content = [part, {"type": "text", "text": "What is it?"}]
    return body() | {"messages": [{"role": "user", "content": content}]}


def test_frames_and_a_file_of_them_are_the_same_to_the_model(
    http: httpx2.Client, parts: Parts
) -> None:
    given = [
        {"type": "video", "video": FRAMES, "fps": 2},
        {"type": "video_url", "video_url": {"url": animation()}, "fps": 2},
        {"type": "video_url", "video_url": animation(), "num_frames": 4},
        {"type": "video", "video": animation(), "fps": 2.0},
    ]
    answers = [http.post(CHAT, json=asked(part)).json() for part in given]
    texts = [answer["choices"][0]["message"]["content"] for answer in answers]
    assert texts == [texts[0]] * 4
    assert answers[0]["usage"]["prompt_tokens"] > 24


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "video", "video": []}, "messages[0].content[0].video"),
        ({"type": "video", "video": FRAMES, "fps": 0}, "messages[0].content[0].fps"),
        ({"type": "video", "video": FRAMES, "nframes": 4}, "messages[0].content[0].nframes"),
        ({"type": "video", "video": ["/etc/hostname"]}, "messages[0].content[0].video"),
        ({"type": "video_url", "video_url": "/etc/hostname"}, "messages[0].content[0].video_url"),
        (
            {"type": "video", "video": [FRAMES[0], "data:,x"]},
            "messages[0].content[0].video",
        ),
    ],
)
def test_what_is_wrong_names_the_field(
    part: dict[str, Any], param: str, http: httpx2.Client
) -> None:
    answer = http.post(CHAT, json=asked(part))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_a_field_of_a_picture_that_is_wrong_is_named_as_well(http: httpx2.Client) -> None:
    part = {"type": "image_url", "image_url": FRAMES[0], "fps": 2}
    answer = http.post(CHAT, json=asked(part))
    assert answer.json()["error"]["param"] == "messages[0].content[0].fps"

"""Messages are taken in every usual form, and refused by the exact place otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight.engine.messages import ImageSource, MediaSource, collect_media
from firstlight.errors import RequestError

URL = "data:image/png;base64,AAAA"


def _user(*parts: object) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def _images(media: list[MediaSource]) -> list[ImageSource]:
    return [source for source in media if isinstance(source, ImageSource)]


def test_a_string_and_one_text_part_become_the_same() -> None:
    string = collect_media([{"role": "user", "content": "hello"}])
    part = collect_media(_user({"type": "text", "text": "hello"}))
    assert (
        string == part == ([{"role": "user", "content": [{"type": "text", "text": "hello"}]}], [])
    )


@pytest.mark.parametrize(
    ("part", "image"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, URL),
        ({"type": "image_url", "image_url": URL}, URL),
        ({"type": "input_image", "image_url": URL}, URL),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, None),
        ({"type": "image", "image": "cat.png"}, "cat.png"),
        ({"type": "image", "image": Path("cat.png")}, Path("cat.png")),
        ({"type": "image", "image": b"\x89PNG"}, b"\x89PNG"),
        ({"type": "image", "path": "cat.png"}, "cat.png"),
        ({"type": "image", "url": URL}, URL),
    ],
)
def test_every_form_of_a_picture_is_found(part: dict[str, Any], image: object) -> None:
    messages, images = collect_media(_user({"type": "text", "text": "see"}, part))
    assert messages[0]["content"] == [{"type": "text", "text": "see"}, {"type": "image"}]
    assert [i.image for i in _images(images)] == [image or "https://example.org/a.png"]


def test_pictures_come_in_the_order_of_the_messages_with_their_places() -> None:
    conversation = [
        *_user({"type": "image", "image": "a"}, {"type": "image", "image": "b"}),
        {"role": "assistant", "content": "two pictures"},
        *_user({"type": "text", "text": "and"}, {"type": "image", "image": "c"}),
    ]
    _, images = collect_media(conversation)
    assert [i.image for i in _images(images)] == ["a", "b", "c"]
    assert images[2].where == "messages[2].content[1].image"


@pytest.mark.parametrize(("given", "detail"), [(None, "auto"), ("low", "low"), ("high", "high")])
def test_the_detail_is_kept(given: str | None, detail: str) -> None:
    part = {"type": "image_url", "image_url": {"url": URL, "detail": given}}
    assert _images(collect_media(_user(part))[1])[0].detail == detail


def test_other_fields_of_a_message_are_kept_and_the_input_is_not_changed() -> None:
    message = {"role": "tool", "content": "4", "tool_call_id": "call_1"}
    messages, _ = collect_media([message])
    assert messages[0]["tool_call_id"] == "call_1"
    assert message["content"] == "4"


def test_an_assistant_that_only_calls_tools_needs_no_content() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    messages, _ = collect_media([{"role": "user", "content": "go"}, call])
    assert messages[1]["content"] == [{"type": "text", "text": ""}]


def test_an_empty_string_is_a_text() -> None:
    messages, _ = collect_media([{"role": "user", "content": ""}])
    assert messages[0]["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (None, "messages must be a list of messages, not a NoneType"),
        ("hi", "not a str"),
        ({"role": "user", "content": "x"}, "not a dict"),
        ([], "messages is empty"),
        (["hi"], r"messages\[0\] is a str"),
        ([{"content": "x"}], r"messages\[0\]\.role is missing; accepted: system, developer, user"),
        ([{"role": "robot", "content": "x"}], r"messages\[0\]\.role is 'robot'; accepted: system"),
        ([{"role": "user"}], r"messages\[0\]\.content is missing; accepted: a string, or"),
        ([{"role": "assistant", "content": None}], r"messages\[0\]\.content is missing"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content is 3; accepted"),
        ([{"role": "user", "content": b"x"}], r"messages\[0\]\.content is 1 bytes"),
        (_user(), r"messages\[0\]\.content is \[\]; accepted"),
        (_user("x"), r"messages\[0\]\.content\[0\] is 'x'; accepted: a mapping with 'type'"),
        (_user({"text": "x"}), r"content\[0\]\.type is missing; accepted: text, "),
        (_user({"type": "audio"}), r"content\[0\]\.type is 'audio'; accepted: text, .*image_url"),
        (_user({"type": "video"}), r"content\[0\] must have one of the fields video, path, url"),
        (_user({"type": "text"}), r"content\[0\]\.text is missing; accepted: a string"),
        (_user({"type": "text", "text": 7}), r"content\[0\]\.text is 7; accepted: a string"),
        (_user({"type": "image_url"}), r"content\[0\]\.image_url is missing; accepted: a URL"),
        (_user({"type": "image_url", "image_url": {}}), r"image_url\.url is missing"),
        (
            _user({"type": "image_url", "image_url": {"url": URL, "detail": "ultra"}}),
            r"content\[0\]\.image_url\.url is 'ultra'; accepted: auto, low, high",
        ),
        (_user({"type": "image"}), r"content\[0\] must have one of the fields image, path, url"),
        (_user({"type": "image", "image": "a", "url": "b"}), "it has image and url"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_what_is_accepted(
    messages: Any, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        collect_media(messages)


@pytest.mark.parametrize("url", ["/etc/passwd", "cat.png", "../a.png", "\\\\?\\C:\\a.png", ""])
def test_an_image_url_is_never_a_path(url: str) -> None:
    with pytest.raises(RequestError, match=r"image_url\.url is .*accepted: a URL"):
        collect_media(_user({"type": "image_url", "image_url": {"url": url}}))


def test_the_message_holds_no_picture() -> None:
    with pytest.raises(RequestError) as caught:
        collect_media(_user({"type": "text", "text": [URL * 100_000]}))
    assert len(str(caught.value)) < 300


_HALF = "a\ud800"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "user", "content": _HALF}, "messages[0].content is"),
        (_user({"type": "text", "text": _HALF})[0], "messages[0].content[0].text is"),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": _HALF}}]},
            "messages[0].tool_calls[0].function.name is",
        ),
        (
            {"role": "assistant", "content": "a", "tool_calls": [{_HALF: 1}]},
            "a key of messages[0].tool_calls[0] is",
        ),
    ],
)
def test_a_text_that_is_not_unicode_is_refused_by_its_place(
    message: dict[str, Any], place: str
) -> None:
    with pytest.raises(RequestError) as caught:
        collect_media([message])
    assert str(caught.value).startswith(f"{place} not valid Unicode")

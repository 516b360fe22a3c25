"""What is typed becomes text and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.cli.message import check_image, split_images
from firstlight.errors import MediaError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "B.JPG", "with space.webp", "notes.txt"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "text", "images"),
    [
        ("what is this?", "what is this?", []),
        ("a.png what is this?", "what is this?", ["a.png"]),
        ("what is in a.png and in B.JPG ?", "what is in and in ?", ["a.png", "B.JPG"]),
        ("'with space.webp' describe", "describe", ["with space.webp"]),
        (r"describe with\ space.webp", "describe", ["with space.webp"]),
        ("what is a missing.png?", "what is a missing.png?", []),
        ("read notes.txt", "read notes.txt", []),
        ("don't guess, it's  fine", "don't guess, it's  fine", []),
        ("a.png", "", ["a.png"]),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_word_that_names_a_picture_file_is_taken_out(
    line: str, text: str, images: list[str]
) -> None:
    assert split_images(line) == (text, images)


@pytest.mark.usefixtures("folder")
def test_an_apostrophe_does_not_hide_a_picture() -> None:
    assert split_images("what's in a.png, it's odd") == ("what's in , it's odd", ["a.png"])


def test_a_folder_is_no_picture(folder: Path) -> None:
    with pytest.raises(MediaError, match="is not a file"):
        check_image(str(folder))


@pytest.mark.parametrize("url", ["http://a.org/b.png", "HTTPS://a.org/b.png"])
def test_an_address_is_for_the_engine_to_check_where_pictures_are_fetched(url: str) -> None:
    assert check_image(url, fetches=True) == url
    with pytest.raises(MediaError, match="no domain is allowed; --allowed-media-domains names"):
        check_image(url)


def test_a_data_url_is_passed_on() -> None:
    assert check_image("data:image/png;base64,AAAA") == "data:image/png;base64,AAAA"

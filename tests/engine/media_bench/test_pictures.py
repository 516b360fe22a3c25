"""The pictures that are measured: real files of the size and format asked for."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from firstlight.engine.media_bench.pictures import encoded_square
from firstlight.errors import MediaError
from firstlight.media import decode_image


@pytest.mark.parametrize("kind", ["jpeg", "PNG", "webp", "BMP"])
def test_a_picture_has_the_size_and_format_asked_for(kind: str) -> None:
    data = encoded_square(96, kind)
    assert Image.open(io.BytesIO(data)).format == kind.upper()
    assert decode_image(data).size == (96, 96)


def test_the_same_picture_comes_at_each_call_and_another_by_another_seed() -> None:
    assert encoded_square(64, "PNG") == encoded_square(64, "PNG")
    assert encoded_square(64, "PNG") != encoded_square(64, "PNG", seed=1)


def test_it_takes_about_what_a_photograph_takes_and_neither_nothing_nor_all() -> None:
    per_pixel = len(encoded_square(512, "JPEG")) * 8 / 512**2
    assert 0.5 < per_pixel < 6


def test_a_format_that_is_not_read_is_refused() -> None:
    with pytest.raises(MediaError, match="PSD pictures are not read here; accepted: PNG"):
        encoded_square(32, "psd")
